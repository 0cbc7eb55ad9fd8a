//! Programs of whatever type: what runs them is compiled once and not for each.
//!
//! Only the loop over a thread's steps knows the type of its kernel, so that the steps are part of it.

use crate::emitter::Emitter;
use crate::layout::Layout;
use crate::memory::{Backing, Digested, Memory, Native, Nothing};
use crate::opencl::device::DeviceChoice;
use crate::opencl::outcome::GpuOutcome;
use crate::program::{Kernel, Program, Progress};
use crate::thread::Thread;
use crate::{WorkloadError, WorkloadInfo};
use terrace_trace::Agent;

/// A [`Program`] of whatever type.
pub(crate) trait AnyProgram: Send + Sync {
    fn info(&self) -> &'static WorkloadInfo;
    /// The same program for a run of its own: what threads of an earlier run shared is not theirs.
    fn copy(&self) -> Box<dyn AnyProgram>;
    fn layout(&self) -> &Layout;
    fn threads(&self) -> u32;
    fn agent(&self, index: u32) -> Agent;
    fn thread(&self, index: u32) -> Box<dyn AnyThread>;
    fn kernel_accesses(&self) -> u64;
    fn needs_contents(&self) -> bool;
    fn prepare(&self, memory: &Backing);
    fn run_in_opencl(&self, device: &DeviceChoice) -> Result<GpuOutcome, WorkloadError>;
}

impl<P: Program> AnyProgram for P {
    fn info(&self) -> &'static WorkloadInfo {
        P::INFO
    }

    fn copy(&self) -> Box<dyn AnyProgram> {
        Box::new(self.clone())
    }

    fn layout(&self) -> &Layout {
        Program::layout(self)
    }

    fn threads(&self) -> u32 {
        Program::threads(self)
    }

    fn agent(&self, index: u32) -> Agent {
        Program::agent(self, index)
    }

    fn thread(&self, index: u32) -> Box<dyn AnyThread> {
        Box::new(Thread::new(self, index))
    }

    fn kernel_accesses(&self) -> u64 {
        Program::kernel_accesses(self)
    }

    fn needs_contents(&self) -> bool {
        Program::needs_contents(self)
    }

    fn prepare(&self, memory: &Backing) {
        Program::prepare(self, memory);
    }

    fn run_in_opencl(&self, device: &DeviceChoice) -> Result<GpuOutcome, WorkloadError> {
        Program::run_in_opencl(self, device)
    }
}

/// A [`Thread`] of whatever program, on any of the memories.
pub(crate) trait AnyThread:
    GoesOn<Emitter<Nothing>>
    + GoesOn<Emitter<Backing>>
    + for<'a> GoesOn<Native<'a>>
    + for<'a> GoesOn<Digested<Native<'a>>>
    + Send
{
}

impl<K: Kernel> AnyThread for Thread<K> {}

/// A thread on memory `M`.
pub(crate) trait GoesOn<M> {
    /// Goes on until the thread has something else to say than that it is working, or the memory has no room.
    fn go_on(&mut self, memory: &mut M) -> Progress;
}

impl<K: Kernel, M: Memory> GoesOn<M> for Thread<K> {
    fn go_on(&mut self, memory: &mut M) -> Progress {
        while memory.has_room() {
            match self.step(memory) {
                Progress::Working => {}
                progress => return progress,
            }
        }
        Progress::Working
    }
}
