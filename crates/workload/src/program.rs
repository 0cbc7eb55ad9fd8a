//! What a workload's file provides.

use crate::layout::Layout;
use crate::memory::{Backing, Memory};
use crate::opencl::device::DeviceChoice;
use crate::opencl::outcome::GpuOutcome;
use crate::parameters::{Parameters, Problem, WarmupIterations};
use crate::{WorkloadError, WorkloadInfo};
use terrace_trace::Agent;

/// What a kernel says after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is more to do.
    Working,
    /// Goes on when every thread has come here. All threads of a program pass the same barriers.
    Barrier,
    /// There is nothing to do before another thread has gone on.
    Blocked,
    /// As a barrier; initialisation ends here and the run begins.
    Run,
    /// Nothing is left.
    Done,
}

/// How often a workload does the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Iterations {
    /// Before the run.
    pub warmup: u64,
    pub measured: u64,
}

impl Iterations {
    pub fn new(warmup: WarmupIterations, measured: u64) -> Iterations {
        Iterations { warmup: warmup.iterations, measured }
    }

    pub fn all(self) -> u64 {
        self.warmup + self.measured
    }

    /// What a thread does next that has ended so many iterations.
    pub fn ended(self, iterations: u64) -> Progress {
        match iterations {
            ended if ended == self.all() => Progress::Done,
            ended if ended == self.warmup => Progress::Run,
            _ => Progress::Barrier,
        }
    }
}

/// One thread of a program.
pub(crate) trait Kernel: Send {
    /// Issues the next few accesses, at most [`STEP_ACCESSES`](crate::emitter::STEP_ACCESSES).
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress;
}

/// A workload with its parameters read.
pub(crate) trait Program: Clone + Send + Sync + 'static {
    /// What a user can choose.
    type Parameters: Parameters;
    /// The type of the program's threads.
    type Thread: Kernel;
    /// What it says about itself.
    const INFO: &'static WorkloadInfo;

    /// The program with parameters that are within their ranges. Those that do not go together are a problem.
    fn new(parameters: &Self::Parameters) -> Result<Self, Problem>;
    /// Whether the steps of its threads begin before the run, to fill data structures of their own or to warm up; they
    /// then say [`Progress::Run`].
    fn populates(&self) -> bool {
        false
    }
    fn layout(&self) -> &Layout;
    fn threads(&self) -> u32;
    /// The agent that runs a thread.
    fn agent(&self, _index: u32) -> Agent {
        Agent::Cpu
    }
    fn thread(&self, index: u32) -> Self::Thread;
    /// Accesses of the kernels, all threads together; exact unless the workload's information says otherwise.
    fn kernel_accesses(&self) -> u64;
    /// Whether the sequence of accesses depends on the content of memory, so that emission needs the content too.
    fn needs_contents(&self) -> bool {
        false
    }
    /// Writes the input data: before a native run always, before emission where contents are needed.
    fn prepare(&self, _memory: &Backing) {}
    /// Whether it has kernels in OpenCL C.
    const IN_OPENCL: bool = false;
    /// Runs them on a device.
    fn run_in_opencl(&self, _device: &DeviceChoice) -> Result<GpuOutcome, WorkloadError> {
        Err(WorkloadError::NoKernels { workload: Self::INFO.name })
    }
}

/// Share `index` of `threads` of `total` items: a contiguous range, sizes differ by at most one.
pub(crate) fn share(total: u64, index: u32, threads: u32) -> std::ops::Range<u64> {
    let at = |i: u32| (u128::from(total) * u128::from(i) / u128::from(threads)) as u64;
    at(index)..at(index + 1)
}
