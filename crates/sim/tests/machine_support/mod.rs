//! Programs written by hand, designs with a few values changed, and runs on them.

#![allow(dead_code)]

pub mod mixes;
pub mod probe;

use std::sync::Arc;
use terrace_model::{AddressRange, Bytes, Cycles, PageSize};
use terrace_sim::design::{
    Associativity, CacheParameters, Design, FullKeyword, L2TlbArrayParameters, Library, PagePolicy,
    Placement, Replacement, SchemeParameters, SetIndex, TlbParameters, ZeroStores,
};
use terrace_sim::{Fidelity, Options, Outcome, SimError, simulate};
use terrace_trace::{
    AccessKind, Agent, BATCH_ACCESSES, Batch, BatchBuilder, Event, EventSource, Header, KernelAccess,
    MapKind, MarkKind, Protection, SourceError, StreamId, VecSource,
};

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;
pub const PAGE: u64 = 4096;

/// Where hand-made programs put their data: a multiple of 512 GiB, so that every level of the page table begins anew.
pub const DATA: u64 = 0x2000_0000_0000;

/// A program written by hand: events and accesses in their order, in as many streams as it likes.
#[derive(Debug)]
pub struct Program {
    builder: BatchBuilder,
    stream: u32,
    sequence: u64,
    after: u64,
    batches: Vec<Batch>,
}

impl Program {
    /// One process with one thread, nothing mapped.
    pub fn new() -> Program {
        let mut program = Program::without_spawn();
        program.spawn(0, 0, None);
        program
    }

    /// Stream 0 with nothing at all, as a slice of a trace begins.
    pub fn without_spawn() -> Program {
        Program {
            builder: BatchBuilder::new(StreamId(0)),
            stream: 0,
            sequence: 0,
            after: 0,
            batches: Vec::new(),
        }
    }

    fn flush(&mut self) {
        let after = std::mem::replace(&mut self.after, self.sequence);
        let batch = self.builder.take(after);
        if !batch.is_empty() {
            self.batches.push(batch);
        }
    }

    /// What follows belongs to `stream`.
    pub fn on(&mut self, stream: u32) -> &mut Program {
        if stream != self.stream {
            self.flush();
            self.stream = stream;
            self.builder = BatchBuilder::new(StreamId(stream));
        }
        self
    }

    /// The current stream begins.
    pub fn spawn(&mut self, process: u32, thread: u32, forked_from: Option<u32>) -> &mut Program {
        self.event(Event::Spawn {
            process,
            thread,
            agent: Agent::Cpu,
            forked_from: forked_from.map(StreamId),
            os_id: 0,
            name: String::new(),
        })
    }

    pub fn event(&mut self, event: Event) -> &mut Program {
        let sequence = if event.is_global() {
            self.sequence += 1;
            self.sequence
        } else {
            0
        };
        self.builder.event(sequence, event);
        self
    }

    pub fn map_kind(&mut self, start: u64, bytes: u64, kind: MapKind) -> &mut Program {
        self.event(Event::Map {
            range: AddressRange::new(start, bytes),
            kind,
            protection: Protection::READ_WRITE,
            name: String::new(),
        })
    }

    pub fn map(&mut self, start: u64, bytes: u64) -> &mut Program {
        self.map_kind(start, bytes, MapKind::Anonymous)
    }

    pub fn unmap(&mut self, start: u64, bytes: u64) -> &mut Program {
        self.event(Event::Unmap { range: AddressRange::new(start, bytes) })
    }

    pub fn remap(&mut self, from: (u64, u64), to: (u64, u64)) -> &mut Program {
        self.event(Event::Remap {
            from: AddressRange::new(from.0, from.1),
            to: AddressRange::new(to.0, to.1),
        })
    }

    pub fn mark(&mut self, kind: MarkKind) -> &mut Program {
        self.mark_value(kind, 0)
    }

    pub fn mark_value(&mut self, kind: MarkKind, value: u64) -> &mut Program {
        self.event(Event::Mark { kind, name: String::new(), value })
    }

    pub fn kernel(&mut self, start: u64, bytes: u64, kind: KernelAccess) -> &mut Program {
        self.event(Event::Kernel { range: AddressRange::new(start, bytes), kind })
    }

    pub fn exit(&mut self, process_ends: bool) -> &mut Program {
        self.event(Event::Exit { process_ends })
    }

    pub fn access(
        &mut self,
        addr: u64,
        size: u8,
        kind: AccessKind,
        depends_on: u8,
        instructions: u64,
    ) -> &mut Program {
        if self.builder.batch().len() >= BATCH_ACCESSES {
            self.flush();
        }
        self.builder.access(addr, size, kind, depends_on, instructions);
        self
    }

    /// A load of eight bytes by one instruction, independent of others.
    pub fn read(&mut self, addr: u64) -> &mut Program {
        self.access(addr, 8, AccessKind::Read, 0, 1)
    }

    /// A load whose address is what the load before it answered.
    pub fn chase(&mut self, addr: u64) -> &mut Program {
        self.access(addr, 8, AccessKind::Read, 1, 1)
    }

    pub fn write(&mut self, addr: u64) -> &mut Program {
        self.access(addr, 8, AccessKind::Write, 0, 1)
    }

    pub fn source(&self) -> VecSource {
        let mut batches = self.batches.clone();
        if !self.builder.batch().is_empty() {
            let mut last = self.builder.batch().clone();
            last.after = self.after;
            batches.push(last);
        }
        VecSource::new(Header::default(), batches)
    }

    pub fn run(&self, design: &Design, fidelity: Fidelity) -> Outcome {
        run(design, &mut self.source(), fidelity)
    }

    pub fn run_whole(&self, design: &Design, fidelity: Fidelity) -> Outcome {
        run_with(design, &mut self.source(), Options { fidelity, whole: true, ..Options::default() }).unwrap()
    }
}

/// Accesses of a workload by its specification, such as `gups,bytes=8 MiB`.
pub fn workload(spec: &str) -> Box<dyn EventSource> {
    terrace_workload::open(spec).unwrap_or_else(|error| panic!("{spec}: {error}")).source()
}

/// As [`workload`], without its end: what is resident at the end stays and can be counted.
pub fn endless(spec: &str) -> Box<dyn EventSource> {
    Box::new(Endless(workload(spec)))
}

struct Endless(Box<dyn EventSource>);

impl EventSource for Endless {
    fn header(&self) -> &Header {
        self.0.header()
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        let Some(batch) = self.0.next_batch()? else { return Ok(None) };
        if !batch.events.iter().any(|event| matches!(event.event, Event::Exit { .. })) {
            return Ok(Some(batch));
        }
        let mut batch = (*batch).clone();
        for event in &mut batch.events {
            if matches!(event.event, Event::Exit { .. }) {
                // An event of the same global order that does nothing.
                event.event = Event::Free { object: u64::MAX };
            }
        }
        Ok(Some(batch.into()))
    }
}

pub fn run(design: &Design, source: &mut dyn EventSource, fidelity: Fidelity) -> Outcome {
    run_with(design, source, Options { fidelity, ..Options::default() }).unwrap()
}

pub fn run_with(
    design: &Design,
    source: &mut dyn EventSource,
    options: Options,
) -> Result<Outcome, SimError> {
    simulate(design, source, options)
}

/// A design as the files state it, with `key=value` on top.
pub fn design(name: &str, machine: &str, sets: &[(&str, &str)]) -> Design {
    let sets: Vec<_> = sets.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let resolved = Library::embedded().design(name, Some(machine), &sets);
    resolved.unwrap_or_else(|error| panic!("{name} on {machine}: {error}")).design
}

/// A cache with least-recently-used replacement whose sets are given by the lowest bits.
pub fn cache(kib: u64, ways: u32, latency: f64, outstanding: u32) -> CacheParameters {
    CacheParameters {
        capacity: Bytes::kib(kib),
        ways,
        latency: Cycles(latency),
        replacement: Replacement::Lru,
        index: SetIndex::Modulo,
        outstanding,
    }
}

/// One core of a machine with two tiers, 4 KiB pages, radix page tables. Level 1: 4 KiB pages in 2 sets of 2,
/// 2 MiB pages in one set of 2, 1 GiB pages in one of 2; level 2: 16 entries in 4 sets of 4 for 4 KiB and 2 MiB, none
/// for 1 GiB; no page-walk cache. New pages are in no cache.
pub fn small() -> Design {
    let mut design = design("native-4k", "vbi-table1", &[("core.count", "1")]);
    let l1d = &mut design.translation.l1d;
    l1d.insert(PageSize::Base, tlb(4, 2));
    l1d.insert(PageSize::Huge, tlb(2, 2));
    l1d.insert(PageSize::Giant, tlb(2, 2));
    design.translation.l2.array = vec![array(&[PageSize::Base, PageSize::Huge], 16, 4)];
    design.translation.page_walk_cache.entries = 0;
    design.os.zero_stores = ZeroStores::NonTemporal;
    design
}

pub fn with_pages(mut design: Design, pages: PagePolicy) -> Design {
    design.os.pages = pages;
    design
}

pub fn with_scheme(mut design: Design, scheme: &str) -> Design {
    design.translation.scheme = SchemeParameters::named(scheme);
    design
}

pub fn with_placement(mut design: Design, placement: Placement) -> Design {
    design.os.placement = placement;
    design
}

/// The policy that gives every address a page of this size.
pub fn only(size: PageSize) -> PagePolicy {
    match size {
        PageSize::Base => PagePolicy::Base,
        PageSize::Huge => PagePolicy::Huge,
        PageSize::Giant => PagePolicy::Giant,
    }
}

pub fn tlb(entries: u32, ways: u32) -> TlbParameters {
    TlbParameters { entries, ways: Associativity::Ways(ways) }
}

pub fn full_tlb(entries: u32) -> TlbParameters {
    TlbParameters { entries, ways: Associativity::Full(FullKeyword::Full) }
}

pub fn array(sizes: &[PageSize], entries: u32, ways: u32) -> L2TlbArrayParameters {
    L2TlbArrayParameters { sizes: sizes.to_vec(), entries, ways: Associativity::Ways(ways) }
}

/// Counters by name.
pub fn counts<const N: usize>(outcome: &Outcome, names: [&str; N]) -> [u64; N] {
    names.map(|name| count(outcome, name))
}

/// Reads one address in each of `pages` consecutive pages of `size`.
pub fn sweep(size: PageSize, pages: u64) -> Program {
    let mut program = Program::new();
    program.map(DATA, pages * size.bytes());
    for page in 0..pages {
        program.read(DATA + page * size.bytes());
    }
    program
}

/// Page walks, the entries that they fetched, and those of them that were the host's.
pub fn walk_references(outcome: &Outcome) -> [u64; 3] {
    counts(outcome, ["walk.count", "walk.memory_refs", "walk.host_refs"])
}

/// A counter, which must be there.
pub fn count(outcome: &Outcome, name: &str) -> u64 {
    assert!(outcome.stats.get(name).is_some(), "no statistic {name}");
    outcome.stats.integer(name)
}

/// A pseudo-random sequence, the same everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// No thread goes on before all have come so far, one on each core.
pub fn wait(program: &mut Program, cores: u32) {
    (0..cores).for_each(|core| _ = program.on(core).mark(MarkKind::Barrier));
}
