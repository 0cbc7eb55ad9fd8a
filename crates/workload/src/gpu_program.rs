//! Programs for GPUs as programs like any other: the GPU is a thread, beside those of the CPU.

use crate::beside::{Beside, CpuThread, Kernels};
use crate::gpu::{Launches, OnGpu, Warps, WithThreads};
use crate::layout::Layout;
use crate::memory::Memory;
use crate::opencl;
use crate::opencl::device::DeviceChoice;
use crate::opencl::outcome::GpuOutcome;
use crate::pages::NativePages;
use crate::parameters::{Init, Problem};
use crate::program::{Kernel, Program, Progress};
use crate::{WorkloadError, WorkloadInfo, native};
use terrace_model::AddressRange;
use terrace_trace::Agent;

/// A program for a GPU with its data structures.
#[derive(Clone)]
pub(crate) struct GpuProgram<W> {
    work: W,
    layout: Layout,
    beside: Beside,
    /// What threads of the CPU access.
    ranges: Vec<AddressRange>,
    kernels: Kernels,
}

/// The GPU, which is the last thread, or a thread of the CPU.
pub(crate) enum GpuThread<W> {
    Gpu(Launches<W>),
    Cpu(CpuThread),
}

impl<W: Warps> Kernel for GpuThread<W> {
    #[inline]
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        match self {
            GpuThread::Gpu(launches) => launches.step(memory),
            GpuThread::Cpu(thread) => thread.step(memory),
        }
    }
}

impl<W: OnGpu> Program for GpuProgram<W> {
    const INFO: &'static WorkloadInfo = W::INFO;
    type Parameters = WithThreads<W::Parameters>;
    type Thread = GpuThread<W>;

    fn new(WithThreads { own, beside }: &WithThreads<W::Parameters>) -> Result<GpuProgram<W>, Problem> {
        let mut layout = Layout::new(Init::None);
        let work = W::new(own, &mut layout)?;
        let beside = *beside;
        let ranges = beside.place(&mut layout);
        Ok(GpuProgram { work, layout, beside, ranges, kernels: Kernels::default() })
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.beside.threads + 1
    }

    fn agent(&self, index: u32) -> Agent {
        if index == self.beside.threads { Agent::Gpu } else { Agent::Cpu }
    }

    fn thread(&self, index: u32) -> GpuThread<W> {
        let launches = self.work.launches();
        if index == self.beside.threads {
            let kernels = (self.beside.threads > 0).then(|| self.kernels.shared());
            return GpuThread::Gpu(Launches::new(self.work.clone(), launches, kernels));
        }
        let kernels = (index == 0).then(|| self.kernels.shared());
        GpuThread::Cpu(CpuThread::new(&self.beside, &self.ranges, index, launches, kernels))
    }

    fn kernel_accesses(&self) -> u64 {
        self.work.accesses().saturating_add(self.beside.accesses(self.work.launches()))
    }

    const IN_OPENCL: bool = W::OPENCL.is_some();

    fn run_in_opencl(&self, device: &DeviceChoice) -> Result<GpuOutcome, WorkloadError> {
        let source = W::OPENCL.ok_or(WorkloadError::NoKernels { workload: W::INFO.name })?;
        let failed = |problem| WorkloadError::Gpu { workload: W::INFO.name, problem };
        if self.beside.threads > 0 {
            return Err(failed(
                "kernels run without threads of the CPU beside them; leave out cpu_threads".to_owned(),
            ));
        }
        let memory = native::prepare(self, NativePages::System)?;
        opencl::run(&self.work, source, &self.layout, &memory, device).map_err(failed)
    }
}
