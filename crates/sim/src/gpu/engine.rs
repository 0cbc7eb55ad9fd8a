//! The input in its order: what the host does, then a kernel, then the host again.

use super::coalesce::{Step, WarpWork};
use super::parameters::GpuParameters;
use super::paths::Paths;
use super::queues::Deed;
use super::sms::Sms;
use super::state::{Engine, ManageCounters, OverlapCounters};
use super::thread::{HostAccess, HostThread};
use super::{collect, pools};
use crate::coherence::Cause;
use crate::design::{Design, KernelData, PagePolicy};
use crate::machine::{Machine, System, TierLines};
use crate::observe::{Objects, ProfileCounter, StructureCounter};
use crate::outcome::{Fidelity, Options, Outcome, SimError};
use crate::tiering::Tiering;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use terrace_model::{CoreId, SpaceId, Time, VirtAddr};
use terrace_policy::Capability;
use terrace_trace::{AccessKind, Agent, Batch, Event, EventSource, MarkKind, Rules};

/// The thread that all of the CPU's are where they take turns with kernels, and its core.
const HOST: usize = 0;

/// Simulates a design with a GPU on an input, to the input's end.
///
/// # Errors
/// A design that cannot be built, an input that fails, or simulated memory that is full.
pub fn simulate(
    design: &Design,
    gpu: &GpuParameters,
    source: &mut dyn EventSource,
    mut options: Options,
) -> Result<Outcome, SimError> {
    let problem = |problem: String| SimError::Design { design: design.name.clone(), problem };
    refuse(design, &options).map_err(problem)?;
    let linked = without_links(design);
    let design = linked.as_ref().unwrap_or(design);
    let mut machine = Machine::new(design, &options).map_err(problem)?;
    let tiering = match (options.policy.take(), &design.os.policy) {
        (Some(open), _) => {
            Some(Tiering::new(open, 1, (System::Programs, 0), design, &mut machine.shared, &options))
        }
        (None, Some(chosen)) => {
            Some(Tiering::of_design(chosen, (System::Programs, 0), design, &mut machine.shared, &options))
        }
        (None, None) => None,
    };
    let mut tiering = tiering.transpose().map_err(problem)?;
    if let Some(tiering) = &mut tiering {
        if tiering.needs().capabilities.contains(Capability::Migration) && design.coherence.is_some() {
            return Err(problem(
                "os.policy: it moves pages, which the coherence of a GPU does not follow; leave one of them out"
                    .to_owned(),
            ));
        }
        if tiering.needs().capabilities.contains(Capability::StalledFaults) {
            return Err(problem(
                "os.policy: it lets faults wait, which those of a GPU do not; use another policy".to_owned(),
            ));
        }
        tiering.call(&mut machine, Time::ZERO);
    }
    machine.shared.has_caches = true;
    machine.shared.memory.watch(design);
    machine.shared.observers.structures = Some(Box::new(StructureCounter::new(design.tiers.len())));
    machine.shared.caches.activate(CoreId::at(HOST));
    let tiers = design.tiers.len();
    let engine = Engine {
        paths: Paths::new(gpu, design.coherence.as_ref(), &machine),
        sms: Sms::new(gpu),
        managed: ManageCounters::default(),
        shootdown: gpu.tlb.shootdown.at(gpu.frequency.period()),
        populates: (design.os.kernel_data != KernelData::FirstTouch).then(Objects::default),
        copies_at_launch: design.os.kernel_data == KernelData::Copied,
        machine,
        tiering,
        options,
        streams: HashMap::new(),
        spaces: HashMap::new(),
        space: SpaceId(0),
        group: None,
        reading: 0,
        exited: HashSet::new(),
        threads: vec![HostThread::new(CoreId::at(HOST), Time::ZERO, design.thread_misses())],
        host_outstanding: design.thread_misses(),
        cores: design.core.count as usize,
        overlap: None,
        overlapped: OverlapCounters::default(),
        host_cycle: design.core.frequency.period(),
        now: Time::ZERO,
        began: None,
        before: Vec::new(),
        kernel_time: Time::ZERO,
        kernel_traffic: vec![TierLines::default(); tiers],
        kernels: 0,
        lanes: [0; 2],
        host_accesses: 0,
        host_instructions: 0,
        stopped: false,
    };
    engine.run(source, design, gpu)
}

/// Refuses what is not simulated beside a GPU.
fn refuse(design: &Design, options: &Options) -> Result<(), String> {
    if options.fidelity != Fidelity::Full {
        return Err("gpu: a GPU is simulated in full only: use --fidelity full".to_owned());
    }
    if options.memory_map || options.watch_access.is_some() {
        return Err(
            "gpu: pictures of memory before and after and of one access are of machines without a GPU; with one, \
             --placement-map draws where memory lies over time"
                .to_owned(),
        );
    }
    if design.vm.is_some() || design.translation.nested.is_some() {
        let key = if design.vm.is_some() { "vm" } else { "translation.nested" };
        return Err(format!("{key}: a GPU in a virtual machine is not simulated; leave out {key} or gpu"));
    }
    let scheme = &design.translation.scheme.kind;
    if scheme != "radix" {
        return Err(format!(
            "translation.scheme: \"{scheme}\" is of the TLBs of cores, which are not simulated beside a GPU; what acts on \
             a GPU is gpu.tlb: at gpu.tlb.miss_latency = \"0 cycles\" its translation is free"
        ));
    }
    let coherence = &design.translation.coherence;
    if coherence != "software" {
        return Err(format!(
            "translation.coherence: \"{coherence}\" is of the TLBs of cores, which are not simulated beside a GPU; the GPU's drop \
             what has changed as \"software\" has it"
        ));
    }
    if design.os.pages != PagePolicy::Base {
        return Err(
            "os.pages: the GPU's TLBs hold pages of 4 KiB alone; use os.pages = \"4k\", or --machine names one without a GPU"
                .to_owned(),
        );
    }
    Ok(())
}

/// The design as it is where caches are coherent: the link between both sides is not one of a tier.
fn without_links(design: &Design) -> Option<Design> {
    design.coherence.as_ref()?;
    let mut design = design.clone();
    design.tiers.iter_mut().for_each(|tier| tier.link = None);
    Some(design)
}

impl Engine {
    fn run(
        mut self,
        source: &mut dyn EventSource,
        design: &Design,
        gpu: &GpuParameters,
    ) -> Result<Outcome, SimError> {
        let mut rules = Rules::new(self.machine.shared.os.levels());
        while let Some(batch) = source.next_batch()? {
            if self.options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                self.stopped = true;
                break;
            }
            rules
                .check(&batch)
                .map_err(|broken| terrace_trace::SourceError::Malformed(broken.to_string()))?;
            self.take(&batch)?;
            self.advance(false)?;
            if let Some(progress) = &mut self.options.progress {
                progress(self.lanes.iter().sum::<u64>() + self.host_accesses);
            }
        }
        self.end_overlap()?;
        self.end_kernel()?;
        let pools = pools::of_run(&mut self, design);
        let mut outcome = collect::outcome(&self, design, gpu);
        pools::count_into(&pools, self.kernel_time, &mut outcome.stats);
        outcome.pools = Some(pools);
        outcome.placement_map = self.placement_map();
        outcome.stopped = self.stopped;
        outcome.profile = self.machine.shared.observers.profile.take().map(ProfileCounter::finish);
        Ok(outcome)
    }

    fn take(&mut self, batch: &Batch) -> Result<(), SimError> {
        let (mut at, stream) = (0, batch.stream.0);
        for event in &batch.events {
            self.accesses(batch, at..event.before as usize)?;
            at = event.before as usize;
            self.event(stream, &event.event)?;
        }
        self.accesses(batch, at..batch.len())
    }

    fn of_stream(&mut self, stream: u32) -> Result<(SpaceId, Agent), SimError> {
        match self.streams.get(&stream) {
            Some(known) => Ok(*known),
            // A slice of a trace has no `Spawn`.
            None => self.spawn(stream, 0, Agent::Cpu),
        }
    }

    fn spawn(&mut self, stream: u32, process: u32, agent: Agent) -> Result<(SpaceId, Agent), SimError> {
        let space = match self.spaces.get(&process) {
            Some(space) => *space,
            None => {
                let space = self.machine.shared.os.new_space()?;
                self.spaces.insert(process, space);
                space
            }
        };
        self.streams.insert(stream, (space, agent));
        if agent == Agent::Cpu {
            self.add_thread(stream, space);
        }
        Ok((space, agent))
    }

    fn event(&mut self, stream: u32, event: &Event) -> Result<(), SimError> {
        if let Event::Spawn { process, agent, .. } = event {
            self.spawn(stream, *process, *agent)?;
            return Ok(());
        }
        let (space, agent) = self.of_stream(stream)?;
        self.machine.shared.observers.apply(space, event);
        if let Some(tiering) = &mut self.tiering {
            tiering.state.note_structures(space, event);
        }
        if let Some(objects) = &mut self.populates {
            objects.apply(space, event);
        }
        match event {
            Event::Mark { kind, value, .. } if agent == Agent::Gpu => return self.mark(*kind, *value, space),
            Event::Compute { instructions } if agent == Agent::Gpu => {
                self.warp().steps.push(Step::Compute { instructions: *instructions });
                return Ok(());
            }
            Event::Mark { kind: MarkKind::KernelEnqueue, .. } => return self.enqueue(stream),
            Event::Mark { kind: MarkKind::KernelWait, value, .. } => return self.wait(stream, *value),
            Event::Compute { instructions } if self.overlap.is_some() => {
                self.queue(stream, Deed::Compute(*instructions));
                return Ok(());
            }
            Event::Compute { instructions } => {
                self.host_instructions += instructions;
                self.now += self.host_cycle.times(*instructions);
                return Ok(());
            }
            Event::Map { .. }
            | Event::Unmap { .. }
            | Event::Remap { .. }
            | Event::Protect { .. }
            | Event::Advise { .. }
            | Event::Resident { .. } => {}
            Event::Exit { .. } => self.ends(stream, agent),
            _ => return Ok(()),
        }
        match (&self.overlap, event) {
            (None, _) => {
                // What changes the address space comes when no kernel runs.
                self.end_kernel()?;
                self.address_space(space, event)
            }
            (Some(_), Event::Exit { .. }) => Ok(()),
            (Some(_), _) => {
                self.catch_up()?;
                self.address_space(space, event)
            }
        }
    }

    fn address_space(&mut self, space: SpaceId, event: &Event) -> Result<(), SimError> {
        self.manage(self.now);
        self.before_change(space, event);
        let os = &mut self.machine.shared.os;
        os.now = self.now;
        let cause = match event {
            Event::Map { range, kind, protection, .. } => {
                os.map(space, *range, *kind, *protection)?;
                Cause::Unmap
            }
            Event::Unmap { range } => {
                os.unmap(space, *range)?;
                Cause::Unmap
            }
            Event::Remap { from, to } => {
                os.remap(space, *from, *to)?;
                Cause::Remap
            }
            Event::Protect { range, protection } => {
                os.protect(space, *range, *protection);
                Cause::Protect
            }
            Event::Advise { range, advice } => {
                os.advise(space, *range, *advice)?;
                Cause::Advise
            }
            Event::Resident { start, bitmap } => {
                os.make_resident(space, VirtAddr(*start), bitmap)?;
                Cause::Fault
            }
            // What the program had stays counted.
            _ => return Ok(()),
        };
        self.machine.complete(cause, None, self.now);
        self.paths.flush_tlbs();
        Ok(())
    }

    fn mark(&mut self, kind: MarkKind, value: u64, space: SpaceId) -> Result<(), SimError> {
        match kind {
            MarkKind::KernelLaunch => self.launch(space)?,
            MarkKind::WorkGroup => {
                self.end_group()?;
                if !self.is_reading_enqueued()? && self.began.is_none() {
                    self.begin_kernel(space)?;
                }
                let warps = (value.div_ceil(32) as usize).min(1 << 16);
                self.group = Some(vec![WarpWork::default(); warps]);
                self.reading = 0;
            }
            MarkKind::Warp => self.reading = value as usize,
            MarkKind::GroupBarrier => {
                for warp in self.group.iter_mut().flatten() {
                    warp.steps.push(Step::Barrier);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The warp that is being read. An input without marks is one warp after the other of one lane each.
    fn warp(&mut self) -> &mut WarpWork {
        let group = self.group.get_or_insert_default();
        if self.reading >= group.len() {
            // A damaged number makes no more than one warp.
            self.reading = group.len();
            group.push(WarpWork::default());
        }
        &mut group[self.reading]
    }

    /// Whether what the GPU does is of a kernel that was enqueued. If it is of none, nothing overlaps any more.
    fn is_reading_enqueued(&mut self) -> Result<bool, SimError> {
        let is_enqueued = self.reads_enqueued();
        if !is_enqueued {
            self.end_overlap()?;
        }
        Ok(is_enqueued)
    }

    fn accesses(&mut self, batch: &Batch, rows: std::ops::Range<usize>) -> Result<(), SimError> {
        if rows.is_empty() {
            return Ok(());
        }
        let (space, agent) = self.of_stream(batch.stream.0)?;
        self.machine.shared.observers.issued(space, batch, rows.clone());
        match agent {
            Agent::Gpu => {
                if !self.is_reading_enqueued()? {
                    self.space = space;
                }
                for at in rows {
                    let write = batch.kind[at] == AccessKind::Write;
                    self.lanes[usize::from(write)] += 1;
                    let (addr, bytes) = (VirtAddr(batch.addr[at]), batch.size[at]);
                    let depends = batch.depends_on[at] > 0;
                    let instructions = batch.instructions[at];
                    self.warp().lane(addr, bytes, write, depends, instructions);
                }
                Ok(())
            }
            Agent::Cpu if self.overlap.is_some() => {
                for at in rows {
                    self.queue(batch.stream.0, Deed::Access(HostAccess::of(batch, at)));
                }
                Ok(())
            }
            Agent::Cpu => {
                self.end_kernel()?;
                self.threads[HOST].now = self.now;
                for at in rows {
                    self.host_access(HOST, space, HostAccess::of(batch, at))?;
                }
                self.now = self.threads[HOST].now;
                Ok(())
            }
        }
    }
}
