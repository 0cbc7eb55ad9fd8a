//! The engine: runs streams on cores in the order of simulated time.
//!
//! The core whose clock is furthest behind runs until it is [`QUANTUM`] ahead of the next one. A stream runs on core
//! `stream number mod cores`, one of a mix on its program's cores; streams that share a core alternate by time slice.
//! Everything is decided by the input and the design, never by the host's timing: equal inputs give equal statistics.

mod agenda;
mod collect;
mod events;
mod mix;
mod schedule;
mod streams;
mod virtual_machines;
mod watch;

use crate::design::{Design, PolicyParameters};
use crate::gpu;
use crate::host::HostPrefetch;
use crate::machine::{FULL, Machine, Manager, Own, PAGES, Site, System, TRANSLATION};
use crate::observe::{ContiguityWatch, MapMaker, ProfileCounter, Requests};
use crate::outcome::{Fidelity, OpenPolicy, Options, Outcome, SimError};
use crate::tiering::Tiering;
use crate::translate::{KernelState, Scheme, Translation, cannot_go_with, schemes};
use agenda::Agenda;
use mix::MixRun;
use schedule::RunQueue;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use streams::Streams;
use terrace_model::{CoreId, SpaceId, Time};
use terrace_trace::{Batch, Event, EventSource};
use virtual_machines::VirtualMachines;
use watch::AccessWatch;

/// How far a core may run ahead of the slowest. Measured on the bandwidth-bound IWB tables: 1 µs bends them by 16 %.
const QUANTUM: Time = Time::from_nanos(100);

/// How far a core may run before a policy is notified of what happened.
const SIGNAL_INTERVAL: Time = Time::from_nanos(5000);

/// Simulates a design on an input, to the input's end.
///
/// # Errors
/// A design that cannot be built, an input that fails, or simulated memory that is full.
pub fn simulate(
    design: &Design,
    source: &mut dyn EventSource,
    mut options: Options,
) -> Result<Outcome, SimError> {
    if let Some(gpu) = &design.gpu {
        if !source.programs().is_empty() {
            let problem = "a GPU runs one program, not a mix".to_owned();
            return Err(SimError::Design { design: design.name.clone(), problem });
        }
        if options.fast_forward {
            let problem = "a GPU counts its kernels alone, so that --fast-forward has nothing to pass over; leave it out";
            return Err(SimError::Design { design: design.name.clone(), problem: problem.to_owned() });
        }
        return gpu::simulate(design, gpu, source, options);
    }
    let problem = |problem: String| SimError::Design { design: design.name.clone(), problem };
    if options.watch_access.is_some() && options.fidelity != Fidelity::Full {
        return Err(problem(
            "an access is watched through caches and memory: use --fidelity full".to_owned(),
        ));
    }
    if options.count_accesses && options.fidelity != Fidelity::Full {
        return Err(problem(
            "a first pass counts the accesses that reach memory, so it needs the caches: use --fidelity full"
                .to_owned(),
        ));
    }
    if options.fast_forward && options.whole {
        return Err(problem(
            "the whole input is to be counted, so no part of it can be passed over".to_owned(),
        ));
    }
    if options.fidelity == Fidelity::Pages && (design.vm.is_some() || design.translation.nested.is_some()) {
        let key = if design.vm.is_some() { "vm" } else { "translation.nested" };
        return Err(problem(format!(
            "{key}: without walks a virtual machine costs nothing: use --fidelity translation or full"
        )));
    }
    if design.vm_count() > 1 && options.policy.is_some() {
        return Err(problem(
            "a policy that is handed to the run manages one virtual machine: name one in the design (os.policy)".to_owned(),
        ));
    }
    let mut machine = Machine::new(design, &options).map_err(problem)?;
    let host_policy = design.hypervisor().and_then(|host| host.policy);
    let [(given, chosen), (of_host, chosen_for_host)] = [
        (options.policy.take(), design.os.policy.as_ref()),
        (options.host_policy.take().filter(|_| design.vm.is_some()), host_policy.as_ref()),
    ];
    let mut manage = |given: Option<Box<OpenPolicy>>, chosen: Option<&PolicyParameters>, (system, guest)| {
        let shared = &mut machine.shared;
        let tiering = match (given, chosen) {
            (Some(open), _) => Tiering::new(open, 1, (system, guest), design, shared, &options),
            (None, Some(chosen)) => Tiering::of_design(chosen, (system, guest), design, shared, &options),
            (None, None) => return Ok(None),
        };
        tiering.map(Some)
    };
    let mut tiering = Vec::from_iter(manage(given, chosen, (System::Programs, 0)).map_err(problem)?);
    for guest in 1..design.vm_count() {
        tiering.extend(manage(None, chosen, (System::Programs, guest)).map_err(problem)?);
    }
    let host_tiering = manage(of_host, chosen_for_host, (System::Hypervisor, 0))
        .map_err(|reason| problem(format!("host.policy: {reason}")))?;
    let kind = &design.translation.scheme.kind;
    if options.fidelity == Fidelity::Translation
        && schemes::find(kind).is_some_and(|scheme| scheme.virtual_caches)
    {
        let why = "it translates what misses caches, so it needs them: use --fidelity full";
        let refusal = cannot_go_with(kind, "the level without caches", why);
        return Err(problem(format!("translation.scheme: {refusal}")));
    }
    let mut engine = Engine::new(machine, tiering, source, options, design.os.sample_contiguity);
    engine.host_tiering = host_tiering;
    match schemes::visit(kind, engine) {
        Ok(outcome) => outcome,
        Err(_) => Err(problem(format!("translation.scheme: there is no scheme \"{kind}\""))),
    }
}

impl schemes::Visitor for Engine<'_> {
    type Output = Result<Outcome, SimError>;

    fn visit<T: Translation>(self) -> Result<Outcome, SimError> {
        match self.options.fidelity {
            Fidelity::Full => self.run::<FULL, T>(),
            Fidelity::Translation => self.run::<TRANSLATION, T>(),
            Fidelity::Pages => self.run::<PAGES, T>(),
        }
    }
}

/// Where the region of interest stands.
#[derive(Clone, Debug, Default)]
struct Region {
    /// Statistics when it began.
    pub begin: Option<Box<collect::Totals>>,
    /// Statistics when it ended.
    pub end: Option<Box<collect::Totals>>,
}

pub(crate) struct Engine<'a> {
    pub machine: Machine,
    /// The policy that manages the programs' memory, if there is one; of several guests each has its own.
    pub tiering: Vec<Tiering>,
    /// The policy that manages the hypervisor's memory.
    pub host_tiering: Option<Tiering>,
    streams: Streams<'a>,
    run_queues: Vec<RunQueue>,
    /// Cores that may have something to run.
    agenda: Agenda,
    /// Simulated process of each process of the input.
    spaces: HashMap<u32, SpaceId>,
    /// Simulated processes that exited while some of their threads still had to catch up.
    ending: HashSet<SpaceId>,
    pub options: Options,
    pub accesses: u64,
    pub waited_nanos: u64,
    pub order_violations: u64,
    /// Streams whose next batch follows a global event that was not applied yet.
    blocked: Vec<usize>,
    pub gaps: u64,
    pub requests: Requests,
    region: Region,
    vms: VirtualMachines,
    /// Where the programs of a mix stand; none where the input is no mix.
    mix: Option<MixRun>,
    /// The region of interest is still to come, and only the operating system is simulated until then.
    pub forwarding: bool,
    pub map_maker: Option<MapMaker>,
    pub contiguity: Option<ContiguityWatch>,
    watch: Option<AccessWatch>,
    stopped: bool,
}

impl<'a> Engine<'a> {
    fn new(
        mut machine: Machine,
        tiering: Vec<Tiering>,
        source: &'a mut dyn EventSource,
        options: Options,
        sample_contiguity: Option<Time>,
    ) -> Engine<'a> {
        let mut run_queues = Vec::new();
        run_queues.resize_with(machine.cores.len(), RunQueue::default);
        let levels = machine.shared.os.levels();
        let mix = MixRun::of(source.programs(), options.whole);
        let shared = &mut machine.shared;
        let vms = shared.hypervisor.as_ref().map_or(1, |hypervisor| hypervisor.count());
        let vms = VirtualMachines::new(vms);
        let parts = shared.observers.parts.as_deref_mut().filter(|_| options.memory_map);
        let map_maker = parts.map(|parts| MapMaker::new(&shared.os, parts));
        Engine {
            watch: options.watch_access.map(AccessWatch::new),
            machine,
            tiering,
            host_tiering: None,
            forwarding: options.fast_forward,
            streams: Streams::new(source, levels),
            agenda: Agenda::new(run_queues.len()),
            run_queues,
            spaces: HashMap::new(),
            ending: HashSet::new(),
            options,
            accesses: 0,
            waited_nanos: 0,
            order_violations: 0,
            blocked: Vec::new(),
            gaps: 0,
            requests: Requests::default(),
            region: Region::default(),
            vms,
            mix,
            map_maker,
            contiguity: sample_contiguity.map(ContiguityWatch::new),
            stopped: false,
        }
    }

    fn run<const F: u8, T: Translation>(mut self) -> Result<Outcome, SimError> {
        for tiering in self.tiering.iter_mut().chain(&mut self.host_tiering) {
            tiering.call(&mut self.machine, Time::ZERO);
        }
        for program in 0..self.streams.programs.len() {
            self.begin_program(program, Time::ZERO)?;
        }
        if self.forwarding {
            self.advance::<PAGES, T>()?;
            if self.forwarding && !self.stopped {
                return Err(SimError::NoRegion);
            }
            // What it counts on the host's behalf is another thing from here on.
            self.machine.cores.iter_mut().for_each(|core| core.host_prefetch = HostPrefetch::new());
        }
        if !self.forwarding {
            self.advance::<F, T>()?;
        }
        for (core, queue) in self.machine.cores.iter_mut().zip(&self.run_queues) {
            if queue.used {
                core.pipeline.drain();
            }
        }
        if cfg!(debug_assertions) {
            self.policies().for_each(|tiering| tiering.audit(&self.machine));
        }
        let cores_used = self.run_queues.iter().filter(|queue| queue.used).count() as u64;
        self.look_at_memory(true, true);
        let mut outcome = collect::outcome(&self, cores_used);
        outcome.stopped = self.stopped;
        outcome.profile = self.machine.shared.observers.profile.take().map(ProfileCounter::finish);
        outcome.memory_map = self.memory_map();
        outcome.placement_map = self.placement_map();
        outcome.access = self.watch.take().and_then(|watch| watch.path);
        if let Some(parts) = self.machine.shared.observers.parts.as_mut().filter(|_| self.options.parts) {
            outcome.parts = parts.uses(self.machine.shared.timing.cycle);
        }
        Ok(outcome)
    }

    /// Runs to the end of the input, or of the part that is passed over.
    fn advance<const F: u8, T: Translation>(&mut self) -> Result<(), SimError> {
        let forwarding = self.forwarding;
        self.machine.shared.has_caches = F == FULL;
        while self.forwarding == forwarding
            && !self.mix.as_ref().is_some_and(MixRun::is_over)
            && let Some((core, horizon)) = self.next_core::<F>()?
        {
            if self.is_stopped() {
                self.stopped = true;
                break;
            }
            let now = self.machine.cores[core.index()].pipeline.now;
            self.look_at_placement(now);
            self.look_at_contiguity(now);
            self.run_core::<F, T>(core, horizon)?;
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Reads one batch of a program; a new stream gets its core. `now` is the clock of whoever needed input.
    fn pull(&mut self, program: usize, now: Time) -> Result<bool, SimError> {
        let Some((stream, is_new)) = self.streams.pull(program)? else { return Ok(false) };
        let entry = &mut self.streams.streams[stream];
        if is_new && entry.space.is_none() {
            entry.held = self.mix.as_ref().is_some_and(|mix| mix.holds(program));
            let core = self.core_for(stream);
            self.put_on(core, stream, now);
        } else if entry.starved {
            entry.starved = false;
            let core = entry.core;
            self.agenda.add(core);
            let queue = &self.run_queues[core.index()];
            let alone = queue.running.is_none_or(|running| running == stream);
            if alone && queue.waiting.iter().all(|&s| s == stream || self.streams.streams[s].starved) {
                self.machine.cores[core.index()].pipeline.idle_until(now);
            }
        }
        Ok(true)
    }

    /// A stream waits for its turn on a core from `now` on.
    fn put_on(&mut self, core: CoreId, stream: usize, now: Time) {
        self.streams.streams[stream].core = core;
        let queue = &mut self.run_queues[core.index()];
        if !std::mem::replace(&mut queue.used, true) {
            self.machine.shared.caches.activate(core);
        }
        if queue.running.is_none() && queue.waiting.is_empty() {
            self.machine.cores[core.index()].pipeline.idle_until(now);
        }
        queue.waiting.push_back(stream);
        self.agenda.add(core);
    }

    /// Runs a core's stream until it passes the horizon or has nothing to run.
    fn run_core<const F: u8, T: Translation>(&mut self, core: CoreId, horizon: Time) -> Result<(), SimError> {
        let Some(stream) = self.choose_stream(core) else { return Ok(()) };
        // A stream without `Spawn` has none before its first batch.
        self.machine.shared.running[core.index()] = self.streams.streams[stream].space;
        if !self.streams.advance(stream) {
            let now = self.machine.cores[core.index()].pipeline.now;
            let program = self.streams.program_of(stream);
            if self.streams.programs[program].exhausted {
                // Without an `Exit`: the input was cut off, and what it had stays.
                self.streams.streams[stream].exited = true;
                self.stalled(stream);
                return Ok(());
            }
            if self.streams.programs[program].is_full() {
                self.streams.streams[stream].starved = true;
                self.stalled(stream);
                return Ok(());
            }
            // What comes may belong to another core: the horizon is another.
            self.pull(program, now)?;
            return Ok(());
        }
        let Some(batch) = self.streams.streams[stream].current.clone() else { return Ok(()) };
        let begins =
            self.streams.streams[stream].next_access == 0 && self.streams.streams[stream].next_event == 0;
        if begins && batch.after > self.streams.input_of(stream).order.watermark {
            self.streams.streams[stream].blocked = true;
            self.blocked.push(stream);
            self.stalled(stream);
            return Ok(());
        }
        let ran = self.run_batch::<F, T>(core, stream, &batch, horizon);
        self.account(core, stream);
        ran
    }

    /// Runs the current batch of a stream from where it stands.
    fn run_batch<const F: u8, T: Translation>(
        &mut self,
        core: CoreId,
        stream: usize,
        batch: &Arc<Batch>,
        horizon: Time,
    ) -> Result<(), SimError> {
        loop {
            let state = &mut self.streams.streams[stream];
            let event = batch.events.get(state.next_event);
            let stop_at = event.map_or(batch.len(), |event| event.before as usize);
            if state.next_access < stop_at {
                let space = match state.space {
                    Some(space) => space,
                    None => self.adopt(stream)?,
                };
                self.machine.shared.running[core.index()] = Some(space);
                let from = self.streams.streams[stream].next_access;
                let watch = self.watch.as_ref().filter(|_| F == FULL);
                let (stop_at, watched) =
                    watch.map_or((stop_at, false), |w| w.cut(self.accesses, from, stop_at));
                let (mut site, mut own) = self.site::<F, T>(core);
                let reached = if watched {
                    let path = site.run_watched(&mut own, space, batch, from)?;
                    let made = usize::from(path.is_some());
                    self.watch.iter_mut().for_each(|watch| watch.path.clone_from(&path));
                    from + made
                } else {
                    site.run(&mut own, space, batch, from, stop_at, horizon)?
                };
                self.machine.drop_stale();
                self.machine.shared.os.note_stores(space, batch, from..reached);
                self.machine.shared.observers.issued(space, batch, from..reached);
                self.accesses += (reached - from) as u64;
                self.streams.streams[stream].accesses += (reached - from) as u64;
                let (os, now) = (&self.machine.shared.os, self.machine.cores[core.index()].pipeline.now);
                self.vms.ran(|| os.guest_of(space), (reached - from) as u64, now);
                self.streams.streams[stream].next_access = reached;
                if self.waits_for_page(core) {
                    return Ok(());
                }
                if reached < stop_at || self.machine.cores[core.index()].pipeline.now > horizon {
                    if reached == batch.len() && event.is_none() {
                        self.finish_batch(stream);
                    }
                    return Ok(());
                }
                continue;
            }
            let Some(event) = event else {
                self.finish_batch(stream);
                return Ok(());
            };
            state.next_event += 1;
            let forwarding = self.forwarding;
            self.apply::<F, T>(core, stream, &event.event)?;
            if self.waits_for_page(core) || self.streams.streams[stream].computed > 0 {
                // The event is not over.
                self.streams.streams[stream].next_event -= 1;
                return Ok(());
            }
            if event.sequence != 0 {
                self.streams.input_of(stream).order.apply(event.sequence);
                if !self.blocked.is_empty() {
                    self.unblock(self.machine.cores[core.index()].pipeline.now);
                    // Others may run now: the horizon is another.
                    return Ok(());
                }
            }
            if forwarding != self.forwarding {
                // What follows is simulated otherwise.
                return Ok(());
            }
            if matches!(event.event, Event::Wait { .. }) && !self.run_queues[core.index()].waiting.is_empty()
            {
                // The thread slept: its core is free for another.
                self.run_queues[core.index()].slice_ends = Time::ZERO;
                return Ok(());
            }
            // An event can take long: others come first.
            let state = &self.streams.streams[stream];
            if state.exited
                || state.held
                || state.core != core
                || self.machine.cores[core.index()].pipeline.now > horizon
            {
                return Ok(());
            }
        }
    }

    /// Whether the core had to stop at a page on the move.
    fn waits_for_page(&mut self, core: CoreId) -> bool {
        let Some(at) = self.machine.shared.stopped_at.take() else { return false };
        self.run_queues[core.index()].waits_for = Some(at);
        let tiering = match at.system {
            System::Programs => self.tiering_of(at.page.space),
            System::Hypervisor => self.host_tiering.as_mut(),
        };
        if let Some(tiering) = tiering {
            // Faults that wait are counted as such.
            tiering.state.counters.waits += u64::from(!tiering.state.is_stalled(at.page));
        }
        true
    }

    /// A core, and what it and the kernel have of the scheme.
    fn site<const F: u8, T: Translation>(&mut self, core: CoreId) -> (Site<'_, F>, Own<'_, T>) {
        let running = self.machine.shared.running[core.index()];
        let guest = running.map_or(0, |space| self.guest_managed(space));
        let Machine { cores, shared, scheme, .. } = &mut self.machine;
        let scheme: &mut Scheme<T> =
            scheme.as_any().downcast_mut().expect("the engine runs the machine's scheme");
        scheme.kernel.runs_on(core);
        let own = Own { scheme: &mut scheme.cores[core.index()], kernel: &mut scheme.kernel };
        let manager = self.tiering.get_mut(guest).map(|tiering| tiering as &mut dyn Manager);
        let host_manager = self.host_tiering.as_mut().map(|tiering| tiering as &mut dyn Manager);
        (Site { id: core, core: &mut cores[core.index()], shared, manager, host_manager }, own)
    }

    fn finish_batch(&mut self, stream: usize) {
        self.streams.streams[stream].current = None;
        if let Some(progress) = &mut self.options.progress {
            progress(self.accesses);
        }
    }
}
