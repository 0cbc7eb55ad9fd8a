//! Programs of whatever type: what runs them is compiled once and not for each.
//!
//! Only the loop over a thread's steps knows the type of its kernel, so that the steps are part of the loop.

use crate::emitter::Emitter;
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Digested, Native, Nothing};
use crate::native::{self, OnBacking, Outcome};
use crate::opencl::device::DeviceChoice;
use crate::opencl::outcome::GpuOutcome;
use crate::program::{Kernel, Program, Progress};
use crate::thread::Thread;
use crate::{WorkloadError, WorkloadInfo};
use std::sync::Barrier;
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

/// A [`Thread`] of whatever program, to be emitted or run.
pub(crate) trait AnyThread:
    Emits<Nothing> + Emits<Backing> + for<'a> Runs<Native<'a>> + for<'a> Runs<Digested<Native<'a>>> + Send
{
}

impl<K: Kernel> AnyThread for Thread<K> {}

/// A thread whose accesses are recorded, with values from `C`.
pub(crate) trait Emits<C> {
    /// Goes on until the thread has something else to say than that it is working, or the batch is full.
    fn emit(&mut self, emitter: &mut Emitter<C>) -> Progress;
}

impl<K: Kernel, C: Contents> Emits<C> for Thread<K> {
    fn emit(&mut self, emitter: &mut Emitter<C>) -> Progress {
        while !emitter.is_full() {
            match self.step(emitter) {
                Progress::Working => {}
                progress => return progress,
            }
        }
        Progress::Working
    }
}

/// A thread that runs on real memory.
pub(crate) trait Runs<M> {
    /// Runs it to its end; all threads of the program wait for each other at `barrier`.
    fn run(&mut self, memory: M, barrier: &Barrier) -> Outcome<M>;
}

impl<'a, K: Kernel, M: OnBacking<'a>> Runs<M> for Thread<K> {
    fn run(&mut self, memory: M, barrier: &Barrier) -> Outcome<M> {
        native::run_thread(self, memory, barrier)
    }
}
