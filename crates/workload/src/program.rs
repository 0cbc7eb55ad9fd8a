//! What a workload's file provides, and how the rest of the crate turns it into a [`Workload`].

use crate::layout::Layout;
use crate::memory::{Backing, Digested, Memory, Native, Nothing};
use crate::native::{self, NativeRun};
use crate::opencl::{DeviceChoice, GpuOutcome};
use crate::pages::NativePages;
use crate::parameters::{self, Init, Parameters, Problem, Warmup};
use crate::programs;
use crate::source::StreamSource;
use crate::{Workload, WorkloadError, WorkloadInfo};
use terrace_model::AddressRange;
use terrace_trace::{Agent, EventSource, Header};

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
    pub fn new(warmup: Warmup, measured: u64) -> Iterations {
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
    /// Who runs a thread.
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
        Err(no_kernels(Self::INFO.name))
    }
}

/// The error of a workload that has no kernels in OpenCL C.
pub(crate) fn no_kernels(workload: &'static str) -> WorkloadError {
    let with = programs::ALL.iter().filter(|entry| entry.in_opencl).map(|entry| entry.info.name);
    WorkloadError::NoKernels { workload, with: with.collect::<Vec<_>>().join(", ") }
}

/// Share `index` of `threads` of `total` items: a contiguous range, sizes differ by at most one.
pub(crate) fn share(total: u64, index: u32, threads: u32) -> std::ops::Range<u64> {
    let at = |i: u32| (u128::from(total) * u128::from(i) / u128::from(threads)) as u64;
    at(index)..at(index + 1)
}

/// Bytes between two touches of initialisation.
fn stride(init: Init) -> Option<u64> {
    match init {
        Init::Pages => Some(4096),
        Init::Lines => Some(64),
        Init::None => None,
    }
}

/// The initialisation phase of one thread: its share of every range of the layout, one store per page or line.
pub(crate) struct Touch {
    ranges: Vec<AddressRange>,
    /// Ranges from the first on that are touched side by side.
    together: usize,
    stride: u64,
    thread: u32,
    threads: u32,
    /// The ranges touched at present, and how far.
    current: std::ops::Range<usize>,
    at: u64,
    end: u64,
}

impl Touch {
    pub fn new(layout: &Layout, thread: u32, threads: u32) -> Touch {
        let stride = stride(layout.init);
        let ranges = if stride.is_some() { layout.touched.clone() } else { Vec::new() };
        let stride = stride.unwrap_or(4096);
        let together = layout.together.clamp(1, ranges.len().max(1));
        let mut touch = Touch { ranges, together, stride, thread, threads, current: 0..0, at: 0, end: 0 };
        touch.enter();
        touch
    }

    /// Stores of the whole phase, all threads together.
    pub fn accesses(layout: &Layout) -> u64 {
        let Some(stride) = stride(layout.init) else { return 0 };
        layout.touched.iter().map(|range| range.bytes.div_ceil(stride)).sum()
    }

    /// The strides of a range that are this thread's.
    fn own(&self, range: &AddressRange) -> std::ops::Range<u64> {
        share(range.bytes.div_ceil(self.stride), self.thread, self.threads)
    }

    fn enter(&mut self) {
        let start = self.current.end;
        let count = if start == 0 { self.together } else { 1 };
        self.current = start..(start + count).min(self.ranges.len());
        let steps = self.ranges[self.current.clone()].iter().map(|range| {
            let own = self.own(range);
            own.end - own.start
        });
        (self.at, self.end) = (0, steps.max().unwrap_or(0));
    }
}

impl Kernel for Touch {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if self.current.is_empty() {
            return Progress::Run;
        }
        let until = self.end.min(self.at + 128 / self.current.len() as u64);
        for at in self.at..until {
            for range in &self.ranges[self.current.clone()] {
                let own = self.own(range);
                // The longest share advances by one, the others in proportion.
                let reached = |at: u64| own.start + at * (own.end - own.start) / self.end;
                for stride in reached(at)..reached(at + 1) {
                    // Store, advance, compare and branch.
                    memory.touch(range.start.0 + stride * self.stride, 4);
                }
            }
        }
        self.at = until;
        if self.at < self.end {
            return Progress::Working;
        }
        self.enter();
        if self.current.is_empty() { Progress::Working } else { Progress::Barrier }
    }
}

/// Steps of the run that are made while a thread settles.
const SETTLE_STEPS: u64 = 2000;
/// Most instructions of one piece of computing: a minute of time.
const LONGEST_COMPUTE: u64 = 1 << 38;

/// Where a thread stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Initialisation,
    /// Between initialisation and run: instructions to compute, and those before the next step of the run.
    Settling {
        left: u64,
        piece: u64,
    },
    Run,
    /// The run was over before it began: nothing is left of it after settling.
    Over,
}

/// A thread from initialisation to end.
pub(crate) struct Thread<P: Program> {
    touch: Option<Touch>,
    kernel: P::Thread,
    phase: Phase,
    settle: u64,
    populates: bool,
}

impl<P: Program> Thread<P> {
    pub fn new(program: &P, index: u32) -> Thread<P> {
        let touch = Touch::new(program.layout(), index, program.threads());
        Thread {
            touch: Some(touch),
            kernel: program.thread(index),
            phase: Phase::Initialisation,
            settle: program.layout().settle,
            populates: program.populates(),
        }
    }

    /// What initialisation ended with; the run begins later where there is time to settle.
    #[inline(always)]
    fn initialised(&mut self, progress: Progress) -> Progress {
        if progress != Progress::Run {
            return progress;
        }
        if self.settle == 0 {
            self.phase = Phase::Run;
            return progress;
        }
        let piece = (self.settle / SETTLE_STEPS).clamp(1, LONGEST_COMPUTE);
        self.phase = Phase::Settling { left: self.settle, piece };
        Progress::Barrier
    }

    /// A piece of computing and a step of the run.
    fn settle<M: Memory>(&mut self, left: u64, piece: u64, memory: &mut M) -> Progress {
        if left == 0 {
            self.phase = Phase::Run;
            return Progress::Run;
        }
        let computed = piece.min(left);
        memory.compute(computed);
        self.phase = Phase::Settling { left: left - computed, piece };
        match self.kernel.step(memory) {
            Progress::Done => {
                // Other threads still wait for it where the run begins.
                self.phase = Phase::Over;
                Progress::Run
            }
            progress => progress,
        }
    }
}

impl<P: Program> Kernel for Thread<P> {
    #[inline]
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        match self.phase {
            Phase::Run => return self.kernel.step(memory),
            Phase::Settling { left, piece } => return self.settle(left, piece, memory),
            Phase::Over => return Progress::Done,
            Phase::Initialisation => {}
        }
        match &mut self.touch {
            None => {
                let progress = self.kernel.step(memory);
                self.initialised(progress)
            }
            Some(touch) => {
                let progress = touch.step(memory);
                if progress != Progress::Run {
                    return progress;
                }
                self.touch = None;
                // The steps before the run still belong to initialisation.
                if self.populates { Progress::Barrier } else { self.initialised(Progress::Run) }
            }
        }
    }
}

/// A program as a [`Workload`].
pub(crate) struct Runner<P> {
    program: P,
    arguments: Vec<String>,
    seed: Option<u64>,
}

/// Reads the parameters of program `P`.
pub(crate) fn open<P: Program>(text: &str) -> Result<Box<dyn Workload>, WorkloadError> {
    let name = P::INFO.name;
    let given: P::Parameters = parameters::read(name, text)?;
    let program = P::new(&given).map_err(|problem| problem.of(name, &given))?;
    let seed = given.get("seed").and_then(|seed| seed.parse().ok());
    Ok(Box::new(Runner { program, arguments: parameters::resolved(&given), seed }))
}

impl<P: Program> Workload for Runner<P> {
    fn info(&self) -> &'static WorkloadInfo {
        P::INFO
    }

    fn header(&self) -> Header {
        Header {
            program: P::INFO.name.to_owned(),
            arguments: self.arguments.clone(),
            origin: "workload".to_owned(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            seed: self.seed,
            expected_accesses: Some(self.accesses()),
            ..Header::default()
        }
    }

    fn threads(&self) -> u32 {
        self.program.threads()
    }

    fn accesses(&self) -> u64 {
        self.program.kernel_accesses() + Touch::accesses(self.program.layout())
    }

    fn footprint(&self) -> u64 {
        self.program.layout().footprint()
    }

    fn source(&self) -> Box<dyn EventSource> {
        if self.program.needs_contents() {
            let prepare = |program: &P| {
                let backing = Backing::new(program.layout().window_bytes())?.with_huge_pages();
                program.prepare(&backing);
                Ok(backing)
            };
            Box::new(StreamSource::new(self.program.clone(), self.header(), prepare))
        } else {
            Box::new(StreamSource::new(self.program.clone(), self.header(), |_| Ok(Nothing)))
        }
    }

    fn run_native(&self, pages: NativePages) -> Result<NativeRun, WorkloadError> {
        let backing = native::prepare(&self.program, pages)?;
        Ok(native::run::<P, Native>(&self.program, &backing).0)
    }

    fn run_on_gpu(&self, device: &DeviceChoice) -> Result<GpuOutcome, WorkloadError> {
        self.program.run_in_opencl(device)
    }

    fn native_digests(&self, pages: NativePages) -> Result<Vec<u64>, WorkloadError> {
        let backing = native::prepare(&self.program, pages)?;
        let (_, threads) = native::run::<P, Digested<Native>>(&self.program, &backing);
        Ok(threads.iter().map(|thread| thread.digest.value()).collect())
    }
}
