//! pmbench: single accesses to pages that a normal distribution chooses.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};
use crate::random::Random;
use terrace_model::{AddressRange, Bytes};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "pmbench",
    summary: "one access at a time to pages around the middle of an array (pmbench, normal distribution)",
    description: "\
An array is initialised from its first page to its last. Then each access chooses a page by a normal distribution, \
centred on the array, with a standard deviation of `sigma` of its size, and touches four bytes at a random offset of \
that page: a load with probability `reads`, else a store. Pages beyond the array are drawn again. Every page has the \
same mix of loads and stores, so nothing but the frequency tells pages apart. With several `phases` the middle of \
the distribution moves: through the middles of as many equal parts of the array, one after the other.

Stands for pmbench (Yang and Seymour, \"Pmbench: a micro-benchmark for profiling paging performance\", 2018) as Ambix \
(Marques, MSc thesis, 2021, section 5.4.1) runs it: standard deviations of 12.5 % and 25 %, 20, 50 and 80 % of loads, \
arrays of 32 to 240 GB, 32 threads. It differs: a run ends after a number of accesses, not after a time; accesses are \
not timed one by one, but an access carries the instructions of drawing and of that bookkeeping. Threads initialise \
one 2 MiB piece of the array together before the next, so that its beginning is the first to find fast memory.",
    parameters: declared::<Parameters>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Size of the array.
    #[parameter(default = "256 MiB", range = "64 KiB"..="32 TiB")]
    bytes: Bytes,
    /// Standard deviation of the page, as a share of the array's size.
    #[parameter(default = 0.125, range = 0.001..=10.0, unit = "share")]
    sigma: f64,
    /// Share of loads among the accesses.
    #[parameter(default = 0.5, range = 0.0..=1.0, unit = "share")]
    reads: f64,
    /// Places around which pages are drawn, one after the other; pmbench has 1.
    #[parameter(default = 1, range = 1..=LARGEST_COUNT, unit = "phases")]
    phases: u64,
    /// Accesses of the run, all threads together.
    #[parameter(default = "5e6", range = 1..=LARGEST_COUNT, unit = "accesses")]
    accesses: u64,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

const PAGE: u64 = 4096;
const PIECE: u64 = 2 << 20;
/// Drawing a page, an offset and the kind, two readings of the time stamp counter, a histogram's entry.
const INSTRUCTIONS: u16 = 120;

#[derive(Clone)]
pub(crate) struct PmBench {
    pages: u64,
    sigma: f64,
    reads: f64,
    phases: u64,
    accesses: u64,
    threads: u32,
    seed: u64,
    array: u64,
    layout: Layout,
}

impl Program for PmBench {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Draws;

    fn new(parameters: &Parameters) -> Result<PmBench, Problem> {
        let pages = parameters.bytes.0 / PAGE;
        let mut layout = Layout::new(parameters.start.init);
        let array = layout.array("array", pages * PAGE);
        // All threads finish one range before the next begins.
        let pieces = (0..pages * PAGE).step_by(PIECE as usize);
        layout.touched = pieces
            .map(|offset| AddressRange::new(array + offset, PIECE.min(pages * PAGE - offset)))
            .collect();
        Ok(PmBench {
            pages,
            sigma: parameters.sigma,
            reads: parameters.reads,
            phases: parameters.phases,
            accesses: parameters.accesses,
            threads: parameters.threads.count,
            seed: parameters.seed.number,
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

    fn thread(&self, index: u32) -> Draws {
        let own = share(self.accesses, index, self.threads);
        let random = Random::of_thread(self.seed, index);
        let all = own.end - own.start;
        Draws { program: self.clone(), random, spare: None, all, left: all }
    }

    fn kernel_accesses(&self) -> u64 {
        self.accesses
    }
}

/// One thread's accesses.
pub(crate) struct Draws {
    program: PmBench,
    random: Random,
    /// The polar method gives two numbers at once.
    spare: Option<f64>,
    all: u64,
    left: u64,
}

impl Draws {
    /// A standard normal number, by Marsaglia's polar method with portable functions.
    fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (2.0 * self.random.unit() - 1.0, 2.0 * self.random.unit() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let factor = (-2.0 * libm::log(square) / square).sqrt();
                self.spare = Some(y * factor);
                return x * factor;
            }
        }
    }

    /// The middle of the distribution, as a share of the array.
    fn middle(&self) -> f64 {
        let phases = self.program.phases;
        let done = u128::from(self.all - self.left);
        let phase = done * u128::from(phases) / u128::from(self.all.max(1));
        (phase as f64 + 0.5) / phases as f64
    }

    fn page(&mut self, middle: f64) -> u64 {
        let pages = self.program.pages as f64;
        loop {
            let page = (middle + self.program.sigma * self.normal()) * pages;
            if (0.0..pages).contains(&page) {
                return page as u64;
            }
        }
    }
}

impl Kernel for Draws {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        let (count, middle) = (self.left.min(128), self.middle());
        for _ in 0..count {
            let addr = self.program.array + self.page(middle) * PAGE + 4 * self.random.below(PAGE / 4);
            if self.random.unit() < self.program.reads {
                memory.load_payload::<u32>(addr, 0, INSTRUCTIONS);
            } else {
                memory.store_payload(addr, 1u32, 0, INSTRUCTIONS);
            }
        }
        self.left -= count;
        if self.left == 0 { Progress::Done } else { Progress::Working }
    }
}
