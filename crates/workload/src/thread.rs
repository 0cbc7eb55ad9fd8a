//! A thread of a program, from initialisation to end.

use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::Init;
use crate::program::{Kernel, Program, Progress, share};
use terrace_model::AddressRange;

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
pub(crate) struct Thread<K> {
    start: Start,
    kernel: K,
}

impl<K: Kernel> Thread<K> {
    pub fn new<P: Program<Thread = K>>(program: &P, index: u32) -> Thread<K> {
        let start = Start::new(program.layout(), index, program.threads(), program.populates());
        Thread { start, kernel: program.thread(index) }
    }
}

impl<K: Kernel> Kernel for Thread<K> {
    #[inline]
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if self.start.phase != Phase::Run
            && let Some(progress) = self.start.before_step(memory)
        {
            return progress;
        }
        let progress = self.kernel.step(memory);
        if self.start.phase == Phase::Run { progress } else { self.start.after_step(progress) }
    }
}

/// What a thread does before the run, beside steps of its kernel.
struct Start {
    phase: Phase,
    touch: Option<Touch>,
    settle: u64,
    populates: bool,
}

impl Start {
    fn new(layout: &Layout, thread: u32, threads: u32, populates: bool) -> Start {
        let touch = Some(Touch::new(layout, thread, threads));
        Start { phase: Phase::Initialisation, touch, settle: layout.settle, populates }
    }

    /// What comes before the kernel's next step; none where that step is next.
    fn before_step<M: Memory>(&mut self, memory: &mut M) -> Option<Progress> {
        match self.phase {
            Phase::Initialisation => {
                let progress = self.touch.as_mut()?.step(memory);
                if progress != Progress::Run {
                    return Some(progress);
                }
                self.touch = None;
                // The steps before the run still belong to initialisation.
                Some(if self.populates { Progress::Barrier } else { self.initialised() })
            }
            Phase::Settling { left: 0, .. } => {
                self.phase = Phase::Run;
                Some(Progress::Run)
            }
            Phase::Settling { left, piece } => {
                let computed = piece.min(left);
                memory.compute(computed);
                self.phase = Phase::Settling { left: left - computed, piece };
                None
            }
            Phase::Run => None,
            Phase::Over => Some(Progress::Done),
        }
    }

    /// What it means for the thread that a step of its kernel ended so.
    fn after_step(&mut self, progress: Progress) -> Progress {
        match (self.phase, progress) {
            (Phase::Initialisation, Progress::Run) => self.initialised(),
            (Phase::Settling { .. }, Progress::Done) => {
                // Other threads still wait for it where the run begins.
                self.phase = Phase::Over;
                Progress::Run
            }
            _ => progress,
        }
    }

    /// The end of initialisation; the run begins later where there is time to settle.
    fn initialised(&mut self) -> Progress {
        if self.settle == 0 {
            self.phase = Phase::Run;
            return Progress::Run;
        }
        let piece = (self.settle / SETTLE_STEPS).clamp(1, LONGEST_COMPUTE);
        self.phase = Phase::Settling { left: self.settle, piece };
        Progress::Barrier
    }
}
