//! IWB, the interleave weighted benchmark of Ambix: one line per page, every page equally often.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress};
use crate::random::mix;
use terrace_model::Bytes;

pub(crate) const PAGE: u64 = 4096;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "iwb",
    summary: "strided visits, one line per 4 KiB page (interleave weighted benchmark)",
    description: "\
An array of 24 GB is visited with a stride of one 4 KiB page: each visit touches one 64-byte line, so each page is \
referenced by a single access per pass and every access misses the caches. Read-only visits load (1R); write-only \
visits load and store (1R1W) and count as two accesses. With N threads, thread n visits the pages n, n + N, n + 2N, …, \
and loops over them.

Stands for the IWB microbenchmark of M. Marques, \"Ambix\", MSc thesis, Instituto Superior Técnico, 2021, section 3.2. \
Which share of each group of 100 pages lies in DRAM is the placement's choice, not the program's: it belongs to the \
design under test. It differs: a run ends after a number of passes, not after a fixed time. The thesis leaves open: \
which line of a page is touched (its entries begin at multiples of the stride, read here as the page's first line; \
other choices by `line`), whether 24 GB means 2^30 or 10^9 (2^30 here, as its DRAM sizes), and the start of later \
visits, printed as 2*n*stride, which would not be disjoint as the text demands (read as (n + k*N)*stride).",
    parameters: declared::<Parameters>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Size of the array.
    #[parameter(default = "24 GiB", range = "4 KiB"..="32 TiB")]
    bytes: Bytes,
    /// What a visit does.
    mode: Mode,
    /// Times every page is visited.
    #[parameter(default = 2, range = 1..=LARGEST_COUNT, unit = "passes")]
    passes: u64,
    #[parameter(flatten)]
    warmup: WarmupPasses,
    #[parameter(flatten)]
    line: LineParameter,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten, default = Threads { count: 32 })]
    threads: Threads,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub(crate) enum Mode {
    /// Read-only visits (1R).
    #[default]
    Read,
    /// Write-only visits (1R1W).
    Write,
}

/// The parameter of workloads that measure passes over an array in the steady state.
#[derive(Clone, Copy, Debug, PartialEq, Parameters)]
pub(crate) struct WarmupPasses {
    /// Passes before the run, which are not counted: they write back what initialisation left in the caches.
    #[parameter(name = "warmup", default = 0, range = 0..=LARGEST_COUNT, unit = "passes")]
    pub passes: u64,
}

impl WarmupPasses {
    /// What a thread does next that has ended a pass before the run; nothing where the run has begun.
    #[inline]
    pub fn pass_ended(&mut self) -> Option<Progress> {
        self.passes = self.passes.checked_sub(1)?;
        Some(if self.passes == 0 { Progress::Run } else { Progress::Working })
    }
}

/// The parameter of workloads whose visits touch one line of a page.
#[derive(Clone, Copy, Debug, PartialEq, Parameters)]
pub(crate) struct LineParameter {
    /// Which 64 B line of a page a visit touches.
    pub line: Line,
}

/// Which line of a page is touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub(crate) enum Line {
    /// Always the first.
    #[default]
    First,
    /// One that a hash of the page number fixes.
    Hashed,
    /// The next one on every pass.
    Rotate,
}

impl Line {
    /// Offset in the page, in bytes.
    #[inline(always)]
    pub fn offset(self, page: u64, pass: u64) -> u64 {
        match self {
            Line::First => 0,
            Line::Hashed => mix(page) >> 58 << 6,
            Line::Rotate => (pass & 63) << 6,
        }
    }
}

/// One visit: load, or load and store. Instructions: the access, the advance and the loop's end.
#[inline(always)]
pub(crate) fn visit<M: Memory>(memory: &mut M, addr: u64, write: bool) {
    if write {
        let value: u64 = memory.load(addr, 0, 1);
        memory.store(addr, value.wrapping_add(1), 0, 4);
    } else {
        let _: u64 = memory.load(addr, 0, 4);
    }
}

#[derive(Clone)]
pub(crate) struct Iwb {
    pages: u64,
    write: bool,
    passes: u64,
    warmup: WarmupPasses,
    line: Line,
    threads: u32,
    array: u64,
    layout: Layout,
}

impl Program for Iwb {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Visits;

    fn new(parameters: &Parameters) -> Result<Iwb, Problem> {
        let threads = parameters.threads.count;
        let pages = at_least("bytes", parameters.bytes, Bytes(PAGE * u64::from(threads)))?.0 / PAGE;
        let mut layout = Layout::new(parameters.start.init);
        let array = layout.array("array", pages * PAGE);
        Ok(Iwb {
            pages,
            write: parameters.mode == Mode::Write,
            passes: parameters.passes,
            warmup: parameters.warmup,
            line: parameters.line.line,
            threads,
            array,
            layout,
        })
    }

    fn populates(&self) -> bool {
        self.warmup.passes > 0
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Visits {
        Visits {
            program: self.clone(),
            first: index.into(),
            page: index.into(),
            pass: 0,
            warmup: self.warmup,
        }
    }

    fn kernel_accesses(&self) -> u64 {
        self.pages * (self.warmup.passes + self.passes) * if self.write { 2 } else { 1 }
    }
}

/// One thread's pages.
pub(crate) struct Visits {
    program: Iwb,
    first: u64,
    page: u64,
    pass: u64,
    /// What is left of the passes before the run.
    warmup: WarmupPasses,
}

impl Kernel for Visits {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        let Iwb { pages, write, passes, line, threads, array, .. } = self.program;
        let threads = u64::from(threads);
        let end = pages.min(self.page + 128 * threads);
        while self.page < end {
            visit(memory, array + self.page * PAGE + line.offset(self.page, self.pass), write);
            self.page += threads;
        }
        if self.page < pages {
            return Progress::Working;
        }
        // No barrier: in the benchmark each thread loops by itself.
        self.page = self.first;
        if let Some(progress) = self.warmup.pass_ended() {
            return progress;
        }
        self.pass += 1;
        if self.pass == passes { Progress::Done } else { Progress::Working }
    }
}
