//! PB, the policy benchmark of Ambix: half of an array is written, half is read.

use super::iwb::{LINE, Line, PAGE, visit};
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::{ParameterInfo, Parameters, THREADS};
use crate::program::{Init, Kernel, Program, Progress};
use crate::{WorkloadError, WorkloadInfo};

pub(crate) const INFO: WorkloadInfo = WorkloadInfo {
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
    parameters: &[
        ParameterInfo { name: "bytes", default: "32 GiB", unit: "bytes", help: "Size of the array, both halves." },
        ParameterInfo { name: "passes", default: "2", unit: "passes", help: "Times every page is visited." },
        ParameterInfo {
            name: "order",
            default: "alternate",
            unit: "alternate|sequential",
            help: "Take a page of each half in turn, or one half after the other.",
        },
        LINE,
        ParameterInfo {
            name: "init",
            default: "write-first",
            unit: "write-first|read-first|none",
            help: "Which half is initialised first, with one store per 4 KiB page.",
        },
        ParameterInfo { default: "32", ..THREADS },
    ],
    exact: true,
};

#[derive(Clone)]
pub(crate) struct Pb {
    /// Pages of one half.
    half: u64,
    passes: u64,
    alternate: bool,
    line: Line,
    threads: u32,
    array: u64,
    layout: Layout,
}

impl Program for Pb {
    type Thread = Visits;

    fn info() -> &'static WorkloadInfo {
        &INFO
    }

    fn parse(parameters: &Parameters) -> Result<Pb, WorkloadError> {
        let threads = parameters.threads()?;
        let half = parameters.bytes("bytes", 2 * PAGE * u64::from(threads))? / PAGE / 2;
        let words = [("write-first", Some(false)), ("read-first", Some(true)), ("none", None)];
        let read_first = parameters.choice("init", &words)?;
        let mut layout = Layout::new(if read_first.is_some() { Init::Pages } else { Init::None });
        let array = layout.array("array", 2 * half * PAGE);
        let halves = [0, 1].map(|i| terrace_model::AddressRange::new(array + i * half * PAGE, half * PAGE));
        layout.touched = halves.to_vec();
        if read_first == Some(true) {
            layout.touched.reverse();
        }
        Ok(Pb {
            half,
            passes: parameters.count("passes", 1)?,
            alternate: parameters.choice("order", &[("alternate", true), ("sequential", false)])?,
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
        Visits { program: self.clone(), first: index.into(), page: index.into(), pass: 0, reading: false }
    }

    fn kernel_accesses(&self) -> u64 {
        3 * self.half * self.passes
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
        self.pass += 1;
        if self.pass == passes { Progress::Done } else { Progress::Working }
    }
}
