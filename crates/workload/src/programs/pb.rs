//! PB, the policy benchmark of Ambix: half of an array is written, half is read.

use super::iwb::{Line, LineParameter, PAGE, WarmupPasses, visit};
use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress};
use terrace_model::Bytes;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "pb",
    summary: "strided visits, half the array written and half read (policy benchmark)",
    description: "\
An array whose first half is write-intensive (each visit loads and stores: 1R1W) and whose second half is \
read-intensive (1R), so that the whole is 2R1W. Visits are those of `iwb`: one 64-byte line per 4 KiB page, thread n of \
N visits pages n, n + N, …, both halves equally often. Initialisation touches the write half first or the read half \
first: under first-touch placement that decides which half gets the DRAM.

Stands for the PB microbenchmark of M. Marques, \"Ambix\", MSc thesis, Instituto Superior Técnico, 2021, section 3.2.3, \
which runs 32 threads on arrays of 0.5 to 2.5 times 32 GB. Its four policies are WrFT (`init=write-first` with \
first-touch placement), RdFT (`init=read-first`), interleave and DCPMM-only (placements of the design under test). It \
differs: a run ends after a number of passes, not after a fixed time. The thesis calls the halves equally intensive and \
the pattern sequential, and leaves open how the halves share the time: `order=alternate`, the default, takes a page of \
each in turn, so that they are equally intensive at every moment; `order=sequential` runs through the write half, then \
through the read half. Which line of a page is touched is open too, see `line`.",
    parameters: declared::<Parameters>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Size of the array, both halves.
    #[parameter(default = "32 GiB", range = "8 KiB"..="32 TiB")]
    bytes: Bytes,
    /// Times every page is visited.
    #[parameter(default = 2, range = 1..=LARGEST_COUNT, unit = "passes")]
    passes: u64,
    #[parameter(flatten)]
    warmup: WarmupPasses,
    /// The order of the visits.
    order: Order,
    #[parameter(flatten)]
    line: LineParameter,
    /// Which half is initialised first, with one store per 4 KiB page.
    init: FirstHalf,
    #[parameter(flatten, default = Threads { count: 32 })]
    threads: Threads,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub(crate) enum Order {
    /// A page of each half in turn.
    #[default]
    Alternate,
    /// One half after the other.
    Sequential,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub(crate) enum FirstHalf {
    /// The half that is written.
    #[default]
    #[choice("write-first")]
    Written,
    /// The half that is read.
    #[choice("read-first")]
    Read,
    /// Neither: there is no initialisation.
    None,
}

#[derive(Clone)]
pub(crate) struct Pb {
    /// Pages of one half.
    half: u64,
    passes: u64,
    warmup: WarmupPasses,
    alternate: bool,
    line: Line,
    threads: u32,
    array: u64,
    layout: Layout,
}

impl Program for Pb {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Visits;

    fn new(parameters: &Parameters) -> Result<Pb, Problem> {
        let threads = parameters.threads.count;
        let half = at_least("bytes", parameters.bytes, Bytes(2 * PAGE * u64::from(threads)))?.0 / PAGE / 2;
        let mut layout =
            Layout::new(if parameters.init == FirstHalf::None { Init::None } else { Init::Pages });
        let array = layout.array("array", 2 * half * PAGE);
        let halves = [0, 1].map(|i| terrace_model::AddressRange::new(array + i * half * PAGE, half * PAGE));
        layout.touched = halves.to_vec();
        if parameters.init == FirstHalf::Read {
            layout.touched.reverse();
        }
        Ok(Pb {
            half,
            passes: parameters.passes,
            warmup: parameters.warmup,
            alternate: parameters.order == Order::Alternate,
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
            reading: false,
            warmup: self.warmup,
        }
    }

    fn kernel_accesses(&self) -> u64 {
        3 * self.half * (self.warmup.passes + self.passes)
    }
}

/// One thread's pages of both halves.
pub(crate) struct Visits {
    program: Pb,
    first: u64,
    /// Page within its half.
    page: u64,
    pass: u64,
    /// In sequential order: the read half's turn.
    reading: bool,
    /// What is left of the passes before the run.
    warmup: WarmupPasses,
}

impl Kernel for Visits {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        let Pb { half, passes, alternate, line, threads, array, .. } = self.program;
        let threads = u64::from(threads);
        let end = half.min(self.page + 64 * threads);
        let at = |page: u64, pass: u64| array + page * PAGE + line.offset(page, pass);
        while self.page < end {
            if alternate {
                visit(memory, at(self.page, self.pass), true);
                visit(memory, at(half + self.page, self.pass), false);
            } else if self.reading {
                visit(memory, at(half + self.page, self.pass), false);
            } else {
                visit(memory, at(self.page, self.pass), true);
            }
            self.page += threads;
        }
        if self.page < half {
            return Progress::Working;
        }
        self.page = self.first;
        if !alternate && !self.reading {
            self.reading = true;
            return Progress::Working;
        }
        self.reading = false;
        if let Some(progress) = self.warmup.pass_ended() {
            return progress;
        }
        self.pass += 1;
        if self.pass == passes { Progress::Done } else { Progress::Working }
    }
}
