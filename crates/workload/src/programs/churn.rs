//! churn: threads that allocate and free memory through their whole life.

use crate::WorkloadInfo;
use crate::layout::{Layout, map};
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};
use crate::random::Random;
use terrace_model::{AddressRange, Bytes};
use terrace_trace::{Event, MapKind};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "churn",
    summary: "threads that allocate, use and free areas of memory through their whole life",
    description: "\
Every thread keeps up to its share of `bytes` in areas of their own, of sizes between `smallest` and `largest` (uniform on a \
logarithmic scale). For each of `allocations`, it frees areas chosen at random until the new one fits into its share, maps \
the new one at the lowest free place, stores once to each page, and then makes `uses` accesses to random words of random areas, \
every fourth a store, with `think` instructions of computing in between the allocations.\n\
\n\
Stands for the programs of class B of Translation Ranger (Yan 2019, section 4.5: 556.psp and 570.pbt, whose worker threads \
allocate and free through the run). It differs: sizes and lifetimes are drawn, not theirs.",
    parameters: declared::<Parameters>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Most memory that is mapped at a time.
    #[parameter(default = "256 MiB", range = "4 KiB"..="32 TiB")]
    bytes: Bytes,
    /// Smallest area.
    #[parameter(default = "2 MiB", range = "4 KiB"..="32 TiB")]
    smallest: Bytes,
    /// Largest area.
    #[parameter(default = "32 MiB", range = "4 KiB"..="32 TiB")]
    largest: Bytes,
    /// Areas that are allocated, all threads together.
    #[parameter(default = 200, range = 1..=LARGEST_COUNT, unit = "allocations")]
    allocations: u64,
    /// Accesses after each allocation.
    #[parameter(default = "5e3", range = 0..=LARGEST_COUNT, unit = "accesses")]
    uses: u64,
    /// Computed after each allocation.
    #[parameter(default = 0, range = 0..=LARGEST_COUNT, unit = "instructions")]
    think: u64,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

const PAGE: u64 = 4096;
const HUGE_PAGE: u64 = 2 << 20;
/// Store, advance, compare and branch.
const FILL: u16 = 4;
/// Choose an area and a word in it.
const USE: u16 = 20;

#[derive(Clone)]
pub(crate) struct Churn {
    /// Most memory of a thread.
    bytes: u64,
    smallest: u64,
    largest: u64,
    allocations: u64,
    uses: u64,
    think: u64,
    threads: u32,
    seed: u64,
    start: u64,
    /// Places for areas, of each thread.
    places: u64,
    layout: Layout,
}

impl Churn {
    /// Room for one area of any size, and a gap so that neighbours stay apart.
    fn room(&self) -> u64 {
        self.largest.next_multiple_of(HUGE_PAGE) + HUGE_PAGE
    }
}

impl Program for Churn {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Worker;

    fn new(parameters: &Parameters) -> Result<Churn, Problem> {
        let threads = parameters.threads.count;
        let smallest = parameters.smallest.0 / PAGE * PAGE;
        let largest = parameters.largest.0 / PAGE * PAGE;
        if largest < smallest {
            return Err(Problem::new("largest", "no less than smallest"));
        }
        let total = parameters.bytes.0;
        let bytes = total / u64::from(threads);
        if bytes < largest {
            return Err(Problem::new("bytes", "room for one of the largest areas in each thread's share"));
        }
        let mut churn = Churn {
            bytes,
            smallest,
            largest,
            allocations: parameters.allocations,
            uses: parameters.uses,
            think: parameters.think,
            threads,
            seed: parameters.seed.number,
            start: 0,
            places: bytes / smallest,
            layout: Layout::new(Init::None),
        };
        let room = churn.room() * churn.places * u64::from(threads);
        churn.start = churn.layout.reserve(room, total);
        Ok(churn)
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Worker {
        let own = share(self.allocations, index, self.threads);
        Worker {
            random: Random::of_thread(self.seed, index),
            start: self.start + self.room() * self.places * u64::from(index),
            thread: index,
            turn: 0,
            turns: own.end - own.start,
            live: Vec::new(),
            mapped: 0,
            fills: None,
            uses: 0,
            began: false,
            program: self.clone(),
        }
    }

    fn kernel_accesses(&self) -> u64 {
        // The sizes are drawn apart from everything else, so they can be drawn here as well.
        let sizes = (0..self.threads).map(|thread| {
            let own = share(self.allocations, thread, self.threads);
            (0..own.end - own.start).map(|turn| self.size(thread, turn) / PAGE + self.uses).sum::<u64>()
        });
        sizes.sum()
    }
}

impl Churn {
    /// The size of an area.
    fn size(&self, thread: u32, turn: u64) -> u64 {
        let mut random = Random::of_thread(crate::random::hash(self.seed, turn), thread);
        let span = self.largest as f64 / self.smallest as f64;
        let size = self.smallest as f64 * libm::pow(span, random.unit());
        (size as u64).clamp(self.smallest, self.largest) / PAGE * PAGE
    }
}

/// One thread.
pub(crate) struct Worker {
    program: Churn,
    random: Random,
    start: u64,
    thread: u32,
    /// Allocations made, of so many.
    turn: u64,
    turns: u64,
    /// Areas: place and size.
    live: Vec<(u64, u64)>,
    mapped: u64,
    /// Being filled: the area, and up to where.
    fills: Option<(AddressRange, u64)>,
    uses: u64,
    began: bool,
}

impl Worker {
    fn range(&self, (place, bytes): (u64, u64)) -> AddressRange {
        AddressRange::new(self.start + place * self.program.room(), bytes)
    }

    /// Frees areas until there is room, and maps the next one.
    fn allocate<M: Memory>(&mut self, memory: &mut M) {
        let bytes = self.program.size(self.thread, self.turn);
        self.turn += 1;
        while self.mapped + bytes > self.program.bytes {
            let at = self.random.below(self.live.len() as u64) as usize;
            let area = self.live.swap_remove(at);
            self.mapped -= area.1;
            if M::WANTS_EVENTS {
                memory.event(Event::Unmap { range: self.range(area) });
            }
        }
        let taken = |place: &u64| self.live.iter().any(|(other, _)| other == place);
        let place = (0..).find(|place| !taken(place)).unwrap_or_default();
        self.live.push((place, bytes));
        self.mapped += bytes;
        let range = self.range((place, bytes));
        map(memory, range, MapKind::Anonymous);
        self.fills = Some((range, 0));
    }
}

impl Kernel for Worker {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if !std::mem::replace(&mut self.began, true) {
            return Progress::Working;
        }
        if let Some((range, filled)) = &mut self.fills {
            let end = (*filled + 128 * PAGE).min(range.bytes);
            while *filled < end {
                memory.touch(range.start.0 + *filled, FILL);
                *filled += PAGE;
            }
            if *filled == range.bytes {
                self.fills = None;
                self.uses = self.program.uses;
                if self.program.think > 0 {
                    memory.compute(self.program.think);
                }
            }
            return Progress::Working;
        }
        if self.uses > 0 {
            let count = self.uses.min(128);
            for _ in 0..count {
                let area = self.live[self.random.below(self.live.len() as u64) as usize];
                let addr = self.range(area).start.0 + 8 * self.random.below(area.1 / 8);
                if self.random.below(4) == 0 {
                    memory.store_payload(addr, 1u64, 0, USE);
                } else {
                    memory.load_payload::<u64>(addr, 0, USE);
                }
            }
            self.uses -= count;
            return Progress::Working;
        }
        if self.turn == self.turns {
            return Progress::Done;
        }
        self.allocate(memory);
        Progress::Working
    }
}
