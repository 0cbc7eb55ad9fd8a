//! IWB, the interleave weighted benchmark of Ambix: one line per page, every page equally often.

use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::{INIT, ParameterInfo, Parameters, THREADS};
use crate::program::{Kernel, Program, Progress, init_parameter};
use crate::random::mix;
use crate::{WorkloadError, WorkloadInfo};

pub(crate) const PAGE: u64 = 4096;

pub(crate) const LINE: ParameterInfo = ParameterInfo {
    name: "line",
    default: "first",
    unit: "first|hashed|rotate",
    help: "Which 64 B line of a page a visit touches: always the first, one that a hash of the page number fixes, or \
           the next one on every pass.",
};

pub(crate) const INFO: WorkloadInfo = WorkloadInfo {
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
    parameters: &[
        ParameterInfo { name: "bytes", default: "24 GiB", unit: "bytes", help: "Size of the array." },
        ParameterInfo { name: "mode", default: "read", unit: "read|write", help: "Read-only (1R) or write-only (1R1W) visits." },
        ParameterInfo { name: "passes", default: "2", unit: "passes", help: "Times every page is visited." },
        LINE,
        INIT,
        ParameterInfo { default: "32", ..THREADS },
    ],
    exact: true,
};

/// Which line of a page is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    First,
    Hashed,
    Rotate,
}

impl Line {
    pub fn parse(parameters: &Parameters) -> Result<Line, WorkloadError> {
        parameters
            .choice("line", &[("first", Line::First), ("hashed", Line::Hashed), ("rotate", Line::Rotate)])
    }

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
    line: Line,
    threads: u32,
    array: u64,
    layout: Layout,
}

impl Program for Iwb {
    type Thread = Visits;

    fn info() -> &'static WorkloadInfo {
        &INFO
    }

    fn parse(parameters: &Parameters) -> Result<Iwb, WorkloadError> {
        let threads = parameters.threads()?;
        let pages = parameters.bytes("bytes", PAGE * u64::from(threads))? / PAGE;
        let mut layout = Layout::new(init_parameter(parameters)?);
        let array = layout.array("array", pages * PAGE);
        Ok(Iwb {
            pages,
            write: parameters.choice("mode", &[("read", false), ("write", true)])?,
            passes: parameters.count("passes", 1)?,
            line: Line::parse(parameters)?,
            threads,
            array,
            layout,
        })
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Visits {
        Visits { program: self.clone(), first: index.into(), page: index.into(), pass: 0 }
    }

    fn kernel_accesses(&self) -> u64 {
        self.pages * self.passes * if self.write { 2 } else { 1 }
    }
}

/// One thread's pages.
pub(crate) struct Visits {
    program: Iwb,
    first: u64,
    page: u64,
    pass: u64,
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
        self.pass += 1;
        if self.pass == passes { Progress::Done } else { Progress::Working }
    }
}
