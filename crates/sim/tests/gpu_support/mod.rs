//! Streams of a GPU, written by hand.

#![allow(dead_code, reason = "each test file uses its part")]

use terrace_model::AddressRange;
use terrace_sim::design::Design;
use terrace_sim::{Options, Outcome, simulate};
use terrace_trace::{
    AccessKind, Agent, Batch, BatchBuilder, Event, Header, MapKind, MarkKind, Protection, StreamId, VecSource,
};

pub const BASE: u64 = 0x2000_0000_0000;

/// Writes a GPU's stream by hand.
pub struct Script {
    batches: Vec<Batch>,
    builder: BatchBuilder,
    sequence: u64,
}

impl Script {
    pub fn new(bytes: u64) -> Script {
        let mut script = Script { batches: Vec::new(), builder: BatchBuilder::new(StreamId(0)), sequence: 0 };
        let spawn = Event::Spawn {
            process: 0,
            thread: 0,
            agent: Agent::Gpu,
            forked_from: None,
            os_id: 1,
            name: "k".into(),
        };
        script.event(spawn);
        let range = AddressRange::new(BASE, bytes);
        let protection = Protection::READ_WRITE;
        script.event(Event::Map { range, kind: MapKind::Anonymous, protection, name: String::new() });
        script
    }

    pub fn event(&mut self, event: Event) {
        let sequence = if event.is_global() {
            self.sequence += 1;
            self.sequence
        } else {
            0
        };
        self.builder.event(sequence, event);
        self.flush_full();
    }

    fn flush_full(&mut self) {
        if self.builder.is_full() {
            self.batches.push(self.builder.take(0));
        }
    }

    pub fn mark(&mut self, kind: MarkKind, value: u64) {
        self.event(Event::Mark { kind, name: String::new(), value });
    }

    pub fn kernel(&mut self) {
        self.mark(MarkKind::KernelLaunch, 0);
    }

    pub fn group(&mut self, items: u64) {
        self.mark(MarkKind::WorkGroup, items);
    }

    pub fn warp(&mut self, warp: u64) {
        self.mark(MarkKind::Warp, warp);
    }

    /// 32 lanes, each `stride` bytes from the one before.
    pub fn lanes(&mut self, offset: u64, stride: u64, write: bool, instructions: u64) {
        let kind = if write { AccessKind::Write } else { AccessKind::Read };
        for lane in 0..32 {
            let instructions = if lane == 0 { instructions } else { 0 };
            self.builder.access(BASE + offset + lane * stride, 4, kind, 0, instructions);
        }
        self.flush_full();
    }

    /// 32 lanes that load 16 bytes each, side by side.
    pub fn vectors(&mut self, offset: u64) {
        for lane in 0..32 {
            let instructions = u64::from(lane == 0);
            self.builder.access(BASE + offset + lane * 16, 16, AccessKind::Read, 0, instructions);
        }
        self.flush_full();
    }

    /// What was written; nothing is left.
    pub fn take(&mut self) -> Vec<Batch> {
        self.batches.push(self.builder.take(0));
        std::mem::take(&mut self.batches)
    }

    pub fn run(&mut self, design: &Design) -> Outcome {
        let mut source = VecSource::new(Header::default(), self.take());
        simulate(design, &mut source, Options::default()).unwrap()
    }
}
