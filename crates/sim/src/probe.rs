//! A probe of a simulated machine: how fast each of its memories can be read.
//!
//! All of the GPU, or all cores of a machine without one, read memory of one tier, each line once and in order; nothing else
//! runs. Caches are empty when it begins. The first lines take long to come, so that a short probe says too little: a longer
//! one follows until one lasts [`LASTS`]. Nothing is taken from the machine's description, and nothing is random.

use crate::design::{Design, Placement};
use crate::engine::simulate;
use crate::outcome::{Options, SimError};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace_model::{AddressRange, Bytes, BytesPerSec, LINE_BYTES, Time};
use terrace_trace::{
    AccessKind, Agent, BATCH_ACCESSES, Batch, BatchBuilder, Event, EventSource, Header, MapKind, MarkKind,
    Protection, SourceError, StreamId,
};

/// A probe that lasts as long says enough: the way to a memory and back takes a hundredth of that.
const LASTS: Time = Time::from_nanos(30_000);
/// The shortest probe.
const SHORTEST: u64 = 4 << 20;
/// The longest probe; it lasts 30 us at 35 TB/s.
const LONGEST: u64 = 1 << 30;
/// Where the memory lies that is read.
const BASE: u64 = 0x2000_0000_0000;
/// Warps of a work-group, and loads of each: 512 bytes by 32 lanes.
const WARPS: u64 = 8;
const LOADS: u64 = 8;
const LOADED: u64 = 512;

/// The bandwidth of reads of each tier of the design's machine, in its order. Its policy, and where its pages lie, do not
/// matter.
///
/// # Errors
/// A design that cannot run, or that runs a hypervisor.
pub fn probe(design: &Design, stop: Option<&Arc<AtomicBool>>) -> Result<Vec<BytesPerSec>, SimError> {
    (0..design.tiers.len()).map(|tier| of_tier(design, tier, stop)).collect()
}

fn of_tier(design: &Design, tier: usize, stop: Option<&Arc<AtomicBool>>) -> Result<BytesPerSec, SimError> {
    let agents = if design.gpu.is_some() { 1 } else { u64::from(design.core.count) };
    // Whole work-groups, and whole pages of each core.
    let unit = agents << 15;
    let mut bytes = SHORTEST.next_multiple_of(unit);
    loop {
        let alone = alone(design, tier, bytes)?;
        let mut source = Reads::new(alone.gpu.is_some(), agents, bytes / agents);
        let options = Options { stop: stop.cloned(), ..Options::default() };
        let outcome = simulate(&alone, &mut source, options)?;
        let name = &alone.tiers[tier].name;
        let (read, seconds) = match alone.gpu {
            Some(_) => (outcome.stats.number(&format!("gpu.bandwidth.{name}")), 1.0),
            None => (outcome.stats.number(&format!("tier.{name}.bytes_read")), outcome.seconds_simulated),
        };
        let bandwidth = BytesPerSec(read / seconds.max(f64::MIN_POSITIVE));
        let wanted = bandwidth.0 * LASTS.as_secs();
        if outcome.stopped || bytes as f64 >= wanted || bytes >= LONGEST {
            return Ok(bandwidth);
        }
        // A longer one is faster still.
        bytes = (2 * bytes).max((1.25 * wanted) as u64).min(LONGEST).next_multiple_of(unit);
    }
}

/// The machine with all pages in one tier, which has room for them, and with no cost of pages that are new.
fn alone(design: &Design, tier: usize, bytes: u64) -> Result<Design, SimError> {
    let mut alone = design.clone();
    if alone.vm.is_some() {
        let problem = "os.policy: a probe measures the memories of a machine, not those of a virtual machine"
            .to_owned();
        return Err(SimError::Design { design: design.name.clone(), problem });
    }
    alone.name = format!("the probe of {}", alone.tiers[tier].name);
    alone.os.policy = None;
    alone.os.placement = Placement::Bind { tier: alone.tiers[tier].name.clone() };
    alone.os.fault_cost = Time::ZERO;
    for one in &mut alone.tiers {
        one.capacity = Bytes(one.capacity.0.max(2 * bytes + alone.os.reserved.0));
    }
    if let Some(gpu) = &mut alone.gpu {
        gpu.fault.latency = Time::ZERO;
    }
    Ok(alone)
}

/// Streams that read their parts of one area, written as they are asked for.
struct Reads {
    header: Header,
    gpu: bool,
    /// Bytes that each stream reads.
    part: u64,
    /// What each stream has read, in lines, or in loads of a GPU's warps.
    done: Vec<u64>,
    next: usize,
    sequence: u64,
}

impl Reads {
    fn new(gpu: bool, streams: u64, part: u64) -> Reads {
        let done = vec![0; streams as usize];
        Reads { header: Header::default(), gpu, part, done, next: 0, sequence: 0 }
    }

    fn begin(&mut self, stream: usize, builder: &mut BatchBuilder) {
        let thread = stream as u32;
        let agent = if self.gpu { Agent::Gpu } else { Agent::Cpu };
        let name = String::new();
        let spawn = Event::Spawn { process: 0, thread, agent, forked_from: None, os_id: thread + 1, name };
        self.global(builder, spawn);
        if stream > 0 {
            return;
        }
        let bytes = self.part * self.done.len() as u64;
        let (range, name) = (AddressRange::new(BASE, bytes), String::new());
        let protection = Protection::READ_WRITE;
        self.global(builder, Event::Map { range, kind: MapKind::Anonymous, protection, name });
        if self.gpu {
            return builder.event(0, mark(MarkKind::KernelLaunch, self.groups()));
        }
        let pages = bytes / 4096;
        let bitmap = (0..pages.div_ceil(64)).map(|word| match pages - 64 * word {
            64.. => u64::MAX,
            rest => (1 << rest) - 1,
        });
        self.global(builder, Event::Resident { start: BASE, bitmap: bitmap.collect() });
        self.global(builder, mark(MarkKind::RegionBegin, 0));
    }

    fn global(&mut self, builder: &mut BatchBuilder, event: Event) {
        if event.is_global() {
            self.sequence += 1;
            builder.event(self.sequence, event);
        } else {
            builder.event(0, event);
        }
    }

    fn groups(&self) -> u64 {
        self.part / (WARPS * LOADS * LOADED)
    }

    /// Work-groups that run together read what lies together, as grid-stride loops do.
    fn kernel(&self, load: u64, builder: &mut BatchBuilder) {
        let (group, warp, of_warp) = (load / (WARPS * LOADS), load / LOADS % WARPS, load % LOADS);
        if load.is_multiple_of(WARPS * LOADS) {
            builder.event(0, mark(MarkKind::WorkGroup, WARPS * 32));
        }
        if of_warp == 0 {
            builder.event(0, mark(MarkKind::Warp, warp));
        }
        let begin = BASE + ((of_warp * self.groups() + group) * WARPS + warp) * LOADED;
        for lane in 0..32 {
            builder.access(begin + 16 * lane, 16, AccessKind::Read, 0, u64::from(lane == 0));
        }
    }
}

impl EventSource for Reads {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        let streams = self.done.len();
        let steps = self.part / if self.gpu { LOADED } else { LINE_BYTES };
        let Some(stream) =
            (0..streams).map(|at| (self.next + at) % streams).find(|at| self.done[*at] <= steps)
        else {
            return Ok(None);
        };
        self.next = stream + 1;
        let mut builder = BatchBuilder::new(StreamId(stream as u32));
        if self.done[stream] == 0 {
            self.begin(stream, &mut builder);
        }
        while self.done[stream] < steps && builder.batch().len() < BATCH_ACCESSES {
            let step = self.done[stream];
            if self.gpu {
                self.kernel(step, &mut builder);
            } else {
                let line = BASE + stream as u64 * self.part + LINE_BYTES * step;
                builder.access(line, LINE_BYTES as u8, AccessKind::Read, 0, 4);
            }
            self.done[stream] += 1;
        }
        if self.done[stream] == steps {
            // The first thread's exit ends the process.
            let others = self.done.iter().skip(1).all(|done| *done > steps);
            if stream > 0 || others {
                let ends = Event::Exit { process_ends: stream == 0 };
                self.global(&mut builder, ends);
                self.done[stream] += 1;
            }
        }
        Ok(Some(Arc::new(builder.take(0))))
    }
}

fn mark(kind: MarkKind, value: u64) -> Event {
    Event::Mark { kind, name: String::new(), value }
}
