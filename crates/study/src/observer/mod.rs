//! Watches an event stream go by, once per input, beside the simulations: it must cost next to nothing.
//!
//! Counts are exact and come from whole columns. Addresses over time are sampled: one access, at a random place, of
//! every `stride`. The stride begins at 1 and doubles as the stream grows, so that short inputs are seen in full and
//! long ones in bounded memory (256 bins of at most 1024 samples, 2 MiB). Uses of pages are counted on a sample of the
//! pages ([`sample`]).

mod heat;
mod lines;
mod recency;
mod sample;
mod uses;

use heat::{NamedRange, Sample};
pub use lines::Code;
use sample::PageSample;
use std::collections::HashMap;
use terrace_model::AddressRange;
use terrace_report::{HeatMap, InputSummary};
use terrace_trace::{AccessKind, Batch, Event, Header, MapKind, demangled};

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Time bins; when all are full, pairs merge.
const BINS: usize = 256;
/// Samples in a bin at most.
const BIN_SAMPLES: u64 = 1024;
/// Accesses in a bin at first.
const FIRST_BIN: u64 = 64;
/// Named ranges remembered, of mappings and of allocations each: enough for the large ones, which come early.
const NAMED_LIMIT: usize = 4096;
/// Smaller allocations are too small to see in a heat map.
const NAMED_ALLOCATION_BYTES: u64 = 64 << 10;

/// Computes an [`InputSummary`] from the batches of one input.
///
/// ```
/// use terrace_study::InputObserver;
/// use terrace_trace::{AccessKind, Batch, Header};
///
/// let mut batch = Batch::default();
/// batch.push(0x1000, 8, AccessKind::Read, 0, 3);
/// let mut observer = InputObserver::new();
/// observer.observe(&batch);
/// let summary = observer.finish("example", &Header::default());
/// assert_eq!((summary.reads, summary.writes, summary.footprint_bytes), (1, 0, 4096));
/// ```
#[derive(Debug)]
pub struct InputObserver {
    position: u64,
    /// The page uses of a batch that has accesses over the border of a page.
    uses: Vec<u64>,
    writes: u64,
    instructions: u64,
    /// Process of each stream; `None` for a stream that has not appeared.
    process_of: Vec<Option<u32>>,
    pages: PageSample,
    bins: Vec<Vec<Sample>>,
    accesses_per_bin: u64,
    stride: u64,
    /// Where the next sample's stratum of `stride` accesses begins, and the access chosen in it.
    stratum: u64,
    chosen: u64,
    random: u64,
    mappings: Vec<NamedRange>,
    allocations: Vec<NamedRange>,
    sites: HashMap<u32, String>,
    code: Code,
}

impl Default for InputObserver {
    fn default() -> InputObserver {
        InputObserver::new()
    }
}

impl InputObserver {
    /// An observer that has seen nothing.
    pub fn new() -> InputObserver {
        InputObserver {
            position: 0,
            writes: 0,
            instructions: 0,
            process_of: Vec::new(),
            pages: PageSample::new(),
            uses: Vec::new(),
            bins: Vec::new(),
            accesses_per_bin: FIRST_BIN,
            stride: 1,
            stratum: 0,
            chosen: 0,
            random: 0x9e37_79b9_7f4a_7c15,
            mappings: Vec::new(),
            allocations: Vec::new(),
            sites: HashMap::new(),
            code: Code::default(),
        }
    }

    /// Takes in the next batch. Every batch of the input, each once, in the source's order.
    pub fn observe(&mut self, batch: &Batch) {
        let stream = batch.stream.index();
        if stream >= self.process_of.len() {
            self.process_of.resize(stream + 1, None);
        }
        for event in &batch.events {
            self.event(stream, &event.event);
        }
        let process = *self.process_of[stream].get_or_insert(0);
        self.instructions += batch.instruction_count();
        self.writes += count_writes(&batch.kind);
        self.use_pages(batch, u64::from(process));

        let end = self.position + batch.len() as u64;
        while self.chosen < end {
            let at = (self.chosen - self.position) as usize;
            let sample = Sample::new(process, batch.addr[at], batch.kind[at] == AccessKind::Write);
            self.sample(sample);
        }
        self.position = end;
    }

    /// An access that crosses the border of a page is a use of both.
    fn use_pages(&mut self, batch: &Batch, process: u64) {
        let crosses = |addr: u64, size: u8| addr % PAGE + u64::from(size) > PAGE;
        let any =
            batch.addr.iter().zip(&batch.size).fold(false, |any, (addr, size)| any | crosses(*addr, *size));
        if !any {
            return self.pages.add(&batch.addr, process);
        }
        self.uses.clear();
        for (&addr, &size) in batch.addr.iter().zip(&batch.size) {
            self.uses.push(addr);
            if crosses(addr, size) {
                self.uses.push(addr + u64::from(size) - 1);
            }
        }
        self.pages.add(&self.uses, process);
    }

    /// The summary under the name that runs refer to.
    pub fn finish(self, name: &str, header: &Header) -> InputSummary {
        let processes: std::collections::BTreeSet<u32> = self.process_of.iter().flatten().copied().collect();
        let named = self.mappings.iter().chain(&self.allocations);
        let heat: HeatMap = heat::build(&self.bins, self.accesses_per_bin, self.stride, named);
        InputSummary {
            name: name.to_owned(),
            program: header.program.clone(),
            arguments: header.arguments.clone(),
            origin: header.origin.clone(),
            machine: header.machine.clone(),
            date: header.date.clone(),
            seed: header.seed,
            accesses: self.position,
            reads: self.position - self.writes,
            writes: self.writes,
            instructions: self.instructions,
            threads: self.process_of.iter().flatten().count() as u64,
            processes: processes.len() as u64,
            footprint_bytes: self.pages.count() * PAGE,
            footprint_is_estimate: self.pages.is_estimate(),
            heat,
            reuse: self.pages.curves(),
        }
    }

    /// Takes out what was seen of the allocation sites' code.
    pub fn take_code(&mut self) -> Code {
        std::mem::take(&mut self.code)
    }

    fn event(&mut self, stream: usize, event: &Event) {
        let process = self.process_of[stream].unwrap_or(0);
        match event {
            Event::Spawn { process, .. } => self.process_of[stream] = Some(*process),
            Event::Map { range, kind, name, .. } if self.mappings.len() < NAMED_LIMIT => {
                if name.starts_with('/') {
                    self.code.files.insert(name.clone());
                }
                let name = match kind {
                    _ if !name.is_empty() => name.clone(),
                    MapKind::Heap => "[heap]".to_owned(),
                    MapKind::Stack => "[stack]".to_owned(),
                    _ => return,
                };
                self.mappings.push(NamedRange { process, range: *range, name, weight: 1 });
            }
            Event::Site { site, name } => {
                let shown = demangled(name).into_owned();
                if self.code.names.len() < NAMED_LIMIT {
                    self.code.names.insert(shown.clone(), name.clone());
                }
                self.sites.insert(*site, shown);
            }
            Event::Alloc { site, range, .. } => self.allocation(process, *range, *site),
            _ => {}
        }
    }

    /// An allocation says more about its addresses than the mapping around it.
    fn allocation(&mut self, process: u32, range: AddressRange, site: u32) {
        const MORE_SPECIFIC: u64 = 4;
        if range.bytes >= NAMED_ALLOCATION_BYTES
            && self.allocations.len() < NAMED_LIMIT
            && let Some(name) = self.sites.get(&site)
        {
            let name = name.clone();
            self.allocations.push(NamedRange { process, range, name, weight: MORE_SPECIFIC });
        }
    }

    fn sample(&mut self, sample: Sample) {
        let bin = (self.chosen / self.accesses_per_bin) as usize;
        if bin >= BINS {
            self.merge_bins();
            return self.sample(sample);
        }
        if bin >= self.bins.len() {
            self.bins.resize_with(bin + 1, Vec::new);
        }
        self.bins[bin].push(sample);
        self.stratum += self.stride;
        self.chosen = self.stratum + self.next_random() % self.stride;
    }

    /// Halves the resolution in time, and the number of samples where bins would grow too large.
    fn merge_bins(&mut self) {
        self.accesses_per_bin *= 2;
        let thin = self.accesses_per_bin / self.stride > BIN_SAMPLES;
        let mut old = std::mem::take(&mut self.bins).into_iter();
        while let Some(mut merged) = old.next() {
            merged.extend(old.next().unwrap_or_default());
            if thin {
                // One of each pair at random: always the first would see one half of an alternation only.
                let mut kept = Vec::with_capacity(merged.len());
                for pair in merged.chunks(2) {
                    kept.push(pair[(self.next_random() as usize) % pair.len()]);
                }
                merged = kept;
            }
            self.bins.push(merged);
        }
        if thin {
            self.stride *= 2;
        }
    }

    /// xorshift64*: enough to break the step of a program's loops; the same for every run.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }
}

/// Stores among `kinds`. Sums of at most 128 fit a byte, which lets one instruction add sixteen.
fn count_writes(kinds: &[AccessKind]) -> u64 {
    kinds.chunks(128).map(|chunk| u64::from(chunk.iter().map(|&kind| kind as u8).sum::<u8>())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_trace::{Agent, StreamId};

    fn stream_of(addresses: impl Iterator<Item = (u64, AccessKind)>) -> InputObserver {
        let mut observer = InputObserver::new();
        let mut batch = Batch::default();
        for (addr, kind) in addresses {
            batch.push(addr, 8, kind, 0, 2);
            if batch.len() == 4096 {
                observer.observe(&batch);
                batch.clear();
            }
        }
        observer.observe(&batch);
        observer
    }

    #[test]
    fn counts_are_exact_and_samples_stand_for_all_accesses() {
        let n = 3_000_000u64;
        let alternating = (0..n).map(|i| {
            let kind = if i % 2 == 0 { AccessKind::Read } else { AccessKind::Write };
            (0x10_0000 + i * 8 % (1 << 24), kind)
        });
        let summary = stream_of(alternating).finish("x", &Header::default());
        assert_eq!((summary.accesses, summary.reads, summary.writes), (n, n / 2, n / 2));
        assert_eq!(summary.instructions, 2 * n);
        assert_eq!(summary.footprint_bytes, 1 << 24);

        let heat = &summary.heat;
        assert!(heat.sample_every > 1, "long enough to need sampling");
        let total = |counts: &Vec<Vec<u32>>| counts.iter().flatten().map(|&c| u64::from(c)).sum::<u64>();
        let (reads, writes) =
            (total(&heat.reads) * heat.sample_every, total(&heat.writes) * heat.sample_every);
        assert!((reads + writes).abs_diff(n) <= 2 * heat.sample_every, "{reads} + {writes}");
        assert!(
            (reads as f64 / writes as f64 - 1.0).abs() < 0.02,
            "a period of two does not bias: {reads} {writes}"
        );
    }

    #[test]
    fn memory_is_bounded() {
        let mut observer = InputObserver::new();
        let mut batch = Batch::default();
        for i in 0..4096u64 {
            batch.push(i * 64, 8, AccessKind::Read, 0, 1);
        }
        for _ in 0..20_000 {
            observer.observe(&batch);
        }
        assert!(observer.bins.len() <= BINS);
        let largest = observer.bins.iter().map(Vec::len).max().unwrap() as u64;
        assert!(largest <= BIN_SAMPLES, "{largest}");
    }

    #[test]
    fn streams_processes_and_names_come_from_the_events() {
        let mut observer = InputObserver::new();
        for (stream, process) in [(0, 0), (1, 0), (2, 1)] {
            let mut batch = Batch { stream: StreamId(stream), ..Batch::default() };
            let spawn = Event::Spawn {
                process,
                thread: 0,
                agent: Agent::Cpu,
                forked_from: None,
                os_id: 1,
                name: String::new(),
            };
            batch.push_event(1, spawn);
            let range = AddressRange::new(0x40_0000, 1 << 20);
            let name = format!("map{process}");
            let protection = terrace_trace::Protection::READ_WRITE;
            batch.push_event(2, Event::Map { range, kind: MapKind::PrivateFile, protection, name });
            batch.push(0x40_0000, 8, AccessKind::Read, 0, 1);
            observer.observe(&batch);
        }
        let summary = observer.finish("x", &Header::default());
        assert_eq!((summary.threads, summary.processes), (3, 2));
        assert_eq!(summary.footprint_bytes, 2 * 4096, "the same address of two processes is two pages");
        let names: Vec<_> = summary.heat.rows.iter().map(|row| (row.process, row.name.as_str())).collect();
        assert_eq!(names, [(0, "map0"), (1, "map1")]);
    }

    #[test]
    fn nothing_observed_is_an_empty_summary() {
        let summary = InputObserver::new().finish("x", &Header::default());
        assert_eq!(summary.accesses, 0);
        assert!(summary.heat.rows.is_empty());
    }
}
