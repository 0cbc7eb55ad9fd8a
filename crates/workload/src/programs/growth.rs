//! growth: memory that is allocated the way large programs do it, then read at random.

use crate::WorkloadInfo;
use crate::layout::{Layout, map};
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};
use crate::random::Random;
use terrace_model::{AddressRange, Bytes};
use terrace_trace::MapKind;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "growth",
    summary: "memory allocated at once, in chunks, little by little and apart, as large programs do; then random reads",
    description: "\
Fills `bytes` of memory in up to four ways and then reads it at random. `at_once` of it is one array that exists from the \
beginning, filled at `fronts` places in turn. `chunked` of it is a mapping that grows by `chunk` at its end, as allocators of large arenas and slabs extend \
theirs. `apart` of it lies in mappings of 64 MiB that never touch one another. The rest is a heap that grows by 132 KiB, as \
`brk` does under glibc. The three that grow do so side by side, filled by the first thread, each page is stored to once. Then each thread computes for \
`compute` instructions without an access, so that daemons can work, and all threads together read at `accesses` random addresses.\n\
\n\
Stands for how programs of tens of gigabytes allocate, which is what decides the page sizes that a fault can map \
(Trident, MICRO 2021, tables 2 and 3): those that allocate at once get 1 GiB pages from the fault, those that grow get \
them by promotion only. It differs: what is computed on the memory afterwards is not theirs.",
    parameters: declared::<Parameters>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Memory in all.
    #[parameter(default = "256 MiB", range = "2 MiB"..="32 TiB")]
    bytes: Bytes,
    /// Share of the memory that is one array from the start.
    #[parameter(default = 0.5, range = 0.0..=1.0, unit = "share")]
    at_once: f64,
    /// Share of the memory that is one mapping, which grows by chunks.
    #[parameter(default = 0.25, range = 0.0..=1.0, unit = "share")]
    chunked: f64,
    /// Size of a chunk.
    #[parameter(default = "64 MiB", range = "4 KiB"..="32 TiB")]
    chunk: Bytes,
    /// Share of the memory that lies in mappings of 64 MiB apart from each other.
    #[parameter(default = 0.0, range = 0.0..=1.0, unit = "share")]
    apart: f64,
    /// Places at which the array is filled in turn, 2 MiB each, as the threads of a program do.
    #[parameter(default = 1, range = 1..=4096, unit = "places")]
    fronts: u64,
    /// Instructions that each thread computes between filling and reading.
    #[parameter(default = 0, range = 0..=LARGEST_COUNT, unit = "instructions")]
    compute: u64,
    /// Random reads, all threads together.
    #[parameter(default = "1e6", range = 0..=LARGEST_COUNT, unit = "accesses")]
    accesses: u64,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

const PAGE: u64 = 4096;
const HUGE_PAGE: u64 = 2 << 20;
/// Growth of a heap: glibc's `M_TOP_PAD` of 128 KiB and a page.
const HEAP_STEP: u64 = 132 << 10;
const APART: u64 = 64 << 20;
/// Store, advance, compare and branch.
const FILL: u16 = 4;
/// Draw an address, load, count.
const READ: u16 = 12;
/// Most instructions in one event.
const COMPUTE: u64 = 1 << 38;

/// Memory that grows.
#[derive(Clone, Debug)]
struct Growing {
    start: u64,
    bytes: u64,
    kind: MapKind,
    /// By how much it is mapped at a time, and what is left out between two steps.
    step: u64,
    gap: u64,
    /// The order in which its pieces of 2 MiB are filled; empty for that of their addresses.
    order: Vec<u32>,
}

impl Growing {
    /// The address of its page number `page`.
    fn address(&self, page: u64) -> u64 {
        let pages = HUGE_PAGE / PAGE;
        let page = match self.order.get((page / pages) as usize) {
            Some(piece) => u64::from(*piece) * pages + page % pages,
            None => page,
        };
        let offset = page * PAGE;
        self.start + offset + offset / self.step * self.gap
    }

    fn pages(&self) -> u64 {
        self.bytes / PAGE
    }
}

/// The pieces of `fronts` equal ranges, one of each in turn.
fn interleaved(pieces: u64, fronts: u64) -> Vec<u32> {
    let ranges: Vec<_> = (0..fronts as u32).map(|front| share(pieces, front, fronts as u32)).collect();
    let longest = ranges.iter().map(|range| range.end - range.start).max().unwrap_or_default();
    let turns = (0..longest).flat_map(|turn| ranges.iter().map(move |range| range.start + turn..range.end));
    turns.filter(|rest| !rest.is_empty()).map(|rest| rest.start as u32).collect()
}

#[derive(Clone)]
pub(crate) struct Growth {
    array: Option<AddressRange>,
    growing: Vec<Growing>,
    compute: u64,
    accesses: u64,
    threads: u32,
    seed: u64,
    layout: Layout,
}

impl Program for Growth {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Filler;

    fn new(parameters: &Parameters) -> Result<Growth, Problem> {
        let bytes = parameters.bytes.0;
        let Parameters { at_once, chunked, apart, .. } = *parameters;
        let heap = 1.0 - at_once - chunked - apart;
        if heap < -1e-9 {
            return Err(Problem::new("apart", "shares at_once, chunked and apart of at most 1 in all"));
        }
        let chunk = parameters.chunk.0;
        if !chunk.is_multiple_of(PAGE) {
            return Err(Problem::new("chunk", "whole pages of 4 KiB"));
        }
        let pages = |share: f64| (bytes as f64 * share.max(0.0) / PAGE as f64).round() as u64 * PAGE;
        let mut layout = Layout::new(parameters.start.init);
        let fronts = parameters.fronts;
        let mut growing = Vec::new();
        let mut array = None;
        match pages(at_once) {
            0 => {}
            bytes if fronts == 1 => array = Some(AddressRange::new(layout.array("at once", bytes), bytes)),
            bytes => {
                // Whole pieces, so that any order of them fills it.
                let bytes = bytes.next_multiple_of(HUGE_PAGE);
                let start = layout.reserve(bytes, bytes);
                let order = interleaved(bytes / HUGE_PAGE, fronts);
                growing.push(Growing { start, bytes, kind: MapKind::Anonymous, step: bytes, gap: 0, order });
            }
        }
        let parts = [
            (pages(chunked), MapKind::Anonymous, chunk, 0),
            (pages(apart), MapKind::Anonymous, APART, HUGE_PAGE),
            (pages(heap), MapKind::Heap, HEAP_STEP, 0),
        ];
        for (bytes, kind, step, gap) in parts.into_iter().filter(|part| part.0 > 0) {
            let room = bytes + bytes / step * gap;
            let start = layout.reserve(room, bytes);
            growing.push(Growing { start, bytes, kind, step, gap, order: Vec::new() });
        }
        Ok(Growth {
            array,
            growing,
            compute: parameters.compute,
            accesses: parameters.accesses,
            threads: parameters.threads.count,
            seed: parameters.seed.number,
            layout,
        })
    }

    fn populates(&self) -> bool {
        true
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Filler {
        let own = share(self.accesses, index, self.threads);
        // One thread allocates, as the main thread of a program does.
        let filled = |part: &Growing| if index == 0 { 0 } else { part.pages() };
        Filler {
            random: Random::of_thread(self.seed, index),
            filled: self.growing.iter().map(filled).collect(),
            compute: self.compute,
            left: own.end - own.start,
            running: false,
            program: self.clone(),
        }
    }

    fn kernel_accesses(&self) -> u64 {
        self.growing.iter().map(Growing::pages).sum::<u64>() + self.accesses
    }
}

/// One thread.
pub(crate) struct Filler {
    program: Growth,
    random: Random,
    /// Pages of each growing part that are filled.
    filled: Vec<u64>,
    compute: u64,
    left: u64,
    running: bool,
}

impl Filler {
    /// Fills a little of the part that is furthest behind; false when all are full.
    fn fill<M: Memory>(&mut self, memory: &mut M) -> bool {
        let parts = self.program.growing.iter().zip(&mut self.filled);
        let behind = parts.filter(|(part, filled)| **filled < part.pages()).min_by(|(one, a), (other, b)| {
            let share =
                |filled: u64, part: &Growing| u128::from(filled) * u128::from(u64::MAX / part.pages());
            share(**a, one).cmp(&share(**b, other))
        });
        let Some((part, filled)) = behind else { return false };
        let in_step = part.step / PAGE;
        if filled.is_multiple_of(in_step) {
            let pages = in_step.min(part.pages() - *filled);
            map(memory, AddressRange::new(part.address(*filled), pages * PAGE), part.kind);
        }
        let end = (*filled + 128).min((*filled / in_step + 1) * in_step).min(part.pages());
        while *filled < end {
            memory.touch(part.address(*filled), FILL);
            *filled += 1;
        }
        true
    }

    fn address(&mut self) -> u64 {
        let array = self.program.array.map_or(0, |array| array.bytes / PAGE);
        let all = array + self.program.growing.iter().map(Growing::pages).sum::<u64>();
        let mut page = self.random.below(all);
        let offset = 8 * self.random.below(PAGE / 8);
        if let Some(range) = self.program.array.filter(|_| page < array) {
            return range.start.0 + page * PAGE + offset;
        }
        page -= array;
        for part in &self.program.growing {
            if page < part.pages() {
                return part.address(page) + offset;
            }
            page -= part.pages();
        }
        unreachable!("a page beyond the last")
    }
}

impl Kernel for Filler {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if !self.running {
            if self.fill(memory) {
                return Progress::Working;
            }
            self.running = true;
            return Progress::Run;
        }
        if self.compute > 0 {
            let piece = self.compute.min(COMPUTE);
            memory.compute(piece);
            self.compute -= piece;
            return Progress::Working;
        }
        let count = self.left.min(128);
        for _ in 0..count {
            let addr = self.address();
            memory.load_payload::<u64>(addr, 0, READ);
        }
        self.left -= count;
        if self.left == 0 { Progress::Done } else { Progress::Working }
    }
}
