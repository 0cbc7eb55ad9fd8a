//! An input with a host and a GPU, written by hand.

use terrace_model::AddressRange;
use terrace_sim::design::{Design, Library};
use terrace_sim::{Options, Outcome, simulate};
use terrace_trace::{
    AccessKind, Agent, Batch, BatchBuilder, Event, Header, MapKind, MarkKind, Protection, StreamId, VecSource,
};

const BASE: u64 = 0x2000_0000_0000;

/// The input: stream 0 is the host's thread, stream 1 the GPU.
pub struct Script {
    batches: Vec<Batch>,
    builder: BatchBuilder,
    on: Agent,
    sequence: u64,
}

fn stream(agent: Agent) -> BatchBuilder {
    BatchBuilder::new(StreamId(u32::from(agent == Agent::Gpu)))
}

impl Script {
    /// One mapping of so many bytes.
    pub fn new(bytes: u64) -> Script {
        let (batches, builder) = (Vec::new(), stream(Agent::Cpu));
        let mut script = Script { batches, builder, on: Agent::Cpu, sequence: 0 };
        for (thread, agent) in [(0, Agent::Cpu), (1, Agent::Gpu)] {
            let name = "k".into();
            script
                .event(agent, Event::Spawn { process: 0, thread, agent, forked_from: None, os_id: 1, name });
        }
        let (range, protection) = (AddressRange::new(BASE, bytes), Protection::READ_WRITE);
        let name = String::new();
        script.event(Agent::Cpu, Event::Map { range, kind: MapKind::Anonymous, protection, name });
        script
    }

    fn turn(&mut self, agent: Agent) {
        if self.on != agent {
            self.batches.push(std::mem::replace(&mut self.builder, stream(agent)).take(0));
            self.on = agent;
        }
        if self.builder.is_full() {
            self.batches.push(self.builder.take(0));
        }
    }

    fn event(&mut self, agent: Agent, event: Event) {
        self.turn(agent);
        let global = event.is_global();
        self.sequence += u64::from(global);
        self.builder.event(if global { self.sequence } else { 0 }, event);
    }

    fn mark(&mut self, kind: MarkKind, value: u64) {
        self.event(Agent::Gpu, Event::Mark { kind, name: String::new(), value });
    }

    /// A kernel of one group of so many warps begins; its first warp is written.
    pub fn kernel(&mut self, warps: u64) {
        self.mark(MarkKind::KernelLaunch, 0);
        self.group(warps);
    }

    /// A further group.
    pub fn group(&mut self, warps: u64) {
        self.mark(MarkKind::WorkGroup, 32 * warps);
        self.warp(0);
    }

    /// What follows is this warp's.
    pub fn warp(&mut self, warp: u64) {
        self.mark(MarkKind::Warp, warp);
    }

    /// Instructions without accesses.
    pub fn compute(&mut self, instructions: u64) {
        self.event(Agent::Gpu, Event::Compute { instructions });
    }

    fn lanes(&mut self, offset: u64, lanes: u64, kind: AccessKind, instructions: u64) {
        self.turn(Agent::Gpu);
        for lane in 0..lanes {
            let own = if lane == 0 { instructions } else { 0 };
            self.builder.access(BASE + offset + 4 * lane, 4, kind, 0, own);
        }
    }

    /// One instruction that loads `lanes` words side by side.
    pub fn load(&mut self, offset: u64, lanes: u64) {
        self.lanes(offset, lanes, AccessKind::Read, 1);
    }

    /// One that stores them.
    pub fn store(&mut self, offset: u64, lanes: u64) {
        self.lanes(offset, lanes, AccessKind::Write, 1);
    }

    /// One that adds to them atomically.
    pub fn atomic(&mut self, offset: u64, lanes: u64) {
        self.lanes(offset, lanes, AccessKind::Read, 1);
        self.lanes(offset, lanes, AccessKind::Write, 0);
    }

    /// An access of the host's thread.
    pub fn host(&mut self, offset: u64, write: bool) {
        self.turn(Agent::Cpu);
        let kind = if write { AccessKind::Write } else { AccessKind::Read };
        self.builder.access(BASE + offset, 4, kind, 0, 1);
    }

    /// Runs it.
    pub fn run(mut self, design: &Design) -> Outcome {
        self.run_whole(design, false)
    }

    /// Runs it; statistics may be of the host's part too.
    pub fn run_whole(&mut self, design: &Design, whole: bool) -> Outcome {
        self.batches.push(self.builder.take(0));
        let mut source = VecSource::new(Header::default(), self.batches.clone());
        simulate(design, &mut source, Options { whole, ..Options::default() }).unwrap()
    }
}

/// A design with changes.
pub fn design(name: &str, changes: &[(&str, &str)]) -> Design {
    let changes: Vec<(String, String)> =
        changes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Library::embedded().design(name, None, &changes).unwrap().design
}

/// A design whose pages all lie in the CPU's memory.
pub fn in_cpu(name: &str, changes: &[(&str, &str)]) -> Design {
    let all = [&[("os.policy.fast_share", "0.0")], changes].concat();
    design(name, &all)
}

/// One whose pages all lie in the GPU's memory.
pub fn in_gpu(name: &str, changes: &[(&str, &str)]) -> Design {
    let all = [&[("os.policy.fast_share", "1.0")], changes].concat();
    design(name, &all)
}

/// Counters by name, below `gpu.`.
pub fn counts<const N: usize>(outcome: &Outcome, names: [&str; N]) -> [u64; N] {
    names.map(|name| outcome.stats.integer(&format!("gpu.{name}")))
}
