//! The engine: runs streams on cores in the order of simulated time.
//!
//! The core whose clock is furthest behind runs until it is [`QUANTUM`] ahead of the next one. A stream runs on core
//! `stream number mod cores`; streams that share a core take turns by time slice. Everything is decided by the input and
//! the design, never by the host's timing: equal inputs give equal statistics.

mod events;

use super::access::{CONTIGUOUS, FULL, PAGES, PERFECT, RADIX, TRANSLATION, VIVT};
use super::build::Machine;
use super::contiguity_samples::ContiguityWatch;
use super::look_ahead::LookAhead;
use super::memory_map::{MapMaker, MemoryMap};
use super::parts::PartUse;
use super::placement_map::PlacementMap;
use super::profile::ProfileCounter;
use super::requests::Requests;
use super::streams::Streams;
use super::tiering::{Change, OpenPolicy, Tiering};
use crate::design::{Design, TranslationScheme};
use crate::os::OsError;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_model::{AddressRange, ContiguityPoint, PageSize, Stats, Time};
use terrace_policy::{PageId, PageRange, Profile};
use terrace_trace::{Batch, Event, EventSource, SourceError};

/// How far a core may run ahead of the slowest. Measured on the bandwidth-bound IWB tables: 1 µs bends them by 16 %.
const QUANTUM: Time = Time::from_nanos(100);

/// How far a core may run before a policy hears of what happened.
const NEWS: Time = Time::from_nanos(5000);

/// Instructions of a `Compute` event by which its pace is known.
const COMPUTE_PIECE: u64 = 4096;

/// How much of the machine is simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fidelity {
    /// Everything.
    #[default]
    Full,
    /// TLBs, page-walk cache, walks, paging; no data caches and no memory timing.
    Translation,
    /// Page residency and unfiltered tier traffic only.
    Pages,
}

impl Fidelity {
    /// The name used in options and output.
    pub const fn name(self) -> &'static str {
        match self {
            Fidelity::Full => "full",
            Fidelity::Translation => "translation",
            Fidelity::Pages => "pages",
        }
    }

    /// What a run at this level leaves out, for its output.
    pub fn left_out(self) -> &'static [&'static str] {
        match self {
            Fidelity::Full => &[],
            Fidelity::Translation => &[
                "data caches and memory: accesses cost nothing, every page-table entry comes from the last level",
                "tier traffic",
            ],
            Fidelity::Pages => &[
                "TLBs and page walks",
                "data caches and memory timing: cycles count instructions and page faults only",
                "tier traffic after the caches: tier.<name>.unfiltered_{reads,writes} count every access",
            ],
        }
    }
}

/// How to run.
#[derive(Default)]
pub struct Options {
    /// How much is simulated.
    pub fidelity: Fidelity,
    /// Count the whole input, even where it marks a region of interest.
    pub whole: bool,
    /// Simulate only the operating system until the region of interest begins, as [`Fidelity::Pages`] does. TLBs and
    /// caches are empty when it begins.
    pub fast_forward: bool,
    /// Set from outside to end the run early; what was simulated until then is reported.
    pub stop: Option<Arc<AtomicBool>>,
    /// Called with the number of accesses simulated so far, once per batch.
    pub progress: Option<Box<dyn FnMut(u64) + Send>>,
    /// Count the accesses of every page that reach memory: [`Outcome::profile`]. Needs [`Fidelity::Full`].
    pub count_accesses: bool,
    /// Tell the parts of the programs apart: [`Outcome::parts`].
    pub parts: bool,
    /// Take pictures of physical memory: [`Outcome::memory_map`].
    pub memory_map: bool,
    /// Record where memory lies over time: [`Outcome::placement_map`].
    pub placement_map: bool,
    /// What such a run found, for policies in two passes.
    pub profile: Option<Arc<Profile>>,
    /// A policy instead of the design's.
    pub policy: Option<Box<OpenPolicy>>,
}

/// What a run found.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The statistics tree.
    pub stats: Stats,
    /// Loads and stores simulated (inside the region of interest, where the input marks one).
    pub accesses: u64,
    /// Instructions retired.
    pub instructions: u64,
    /// Cycles from the start to the end of the last core.
    pub cycles: u64,
    /// The same in seconds of simulated time.
    pub seconds_simulated: f64,
    /// What the fidelity leaves out.
    pub left_out: Vec<String>,
    /// What a reader of the numbers should know.
    pub notes: Vec<String>,
    /// How contiguous memory was over time, where the policy or `os.sample_contiguity` sampled that.
    pub contiguity: Vec<ContiguityPoint>,
    /// The run was stopped from outside before the input's end.
    pub stopped: bool,
    /// Accesses that reached memory, by page, where [`Options::count_accesses`] asked for it.
    pub profile: Option<Profile>,
    /// Areas and data structures in the order of their appearance, where [`Options::parts`] asked for them.
    pub parts: Vec<PartUse>,
    /// Memory before and after, where [`Options::memory_map`] asked for it.
    pub memory_map: Option<MemoryMap>,
    /// Where memory lay over time, where [`Options::placement_map`] asked for it.
    pub placement_map: Option<PlacementMap>,
}

/// A run that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The design describes a machine that cannot be built.
    #[error("design {design}: {problem}")]
    Design {
        /// The design's name.
        design: String,
        /// Key and reason.
        problem: String,
    },
    /// The input failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The simulated kernel failed.
    #[error("{0}")]
    Os(#[from] OsError),
}

/// Simulates a design on an input, to the input's end.
///
/// # Errors
/// A design that cannot be built, an input that fails, or simulated memory that is full.
pub fn simulate(
    design: &Design,
    source: &mut dyn EventSource,
    mut options: Options,
) -> Result<Outcome, SimError> {
    let problem = |problem: String| SimError::Design { design: design.name.clone(), problem };
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
    let mut machine = Machine::new(design, &options).map_err(problem)?;
    let tiering = match (options.policy.take(), &design.os.policy) {
        (Some(open), _) => Some(Tiering::new(open, 1, design, &mut machine.shared, &options)),
        (None, Some(chosen)) => Some(Tiering::of_design(chosen, design, &mut machine.shared, &options)),
        (None, None) => None,
    };
    machine.shared.tiering = tiering.transpose().map_err(problem)?.map(Box::new);
    let engine = Engine::new(machine, source, options, design.os.sample_contiguity);
    match (engine.options.fidelity, engine.machine.scheme) {
        (Fidelity::Full, TranslationScheme::Radix) if engine.machine.contiguous => {
            engine.run::<FULL, CONTIGUOUS>()
        }
        (Fidelity::Translation, TranslationScheme::Radix) if engine.machine.contiguous => {
            engine.run::<TRANSLATION, CONTIGUOUS>()
        }
        (Fidelity::Full, TranslationScheme::Radix) => engine.run::<FULL, RADIX>(),
        (Fidelity::Full, TranslationScheme::PerfectTlb) => engine.run::<FULL, PERFECT>(),
        (Fidelity::Full, TranslationScheme::Vivt) => engine.run::<FULL, VIVT>(),
        (Fidelity::Translation, TranslationScheme::Radix) => engine.run::<TRANSLATION, RADIX>(),
        (Fidelity::Translation, TranslationScheme::PerfectTlb) => engine.run::<TRANSLATION, PERFECT>(),
        (Fidelity::Translation, TranslationScheme::Vivt) => Err(problem(
            "translation.scheme: vivt translates what misses the L2, so it needs the caches: use --fidelity full"
                .to_owned(),
        )),
        (Fidelity::Pages, _) => engine.run::<PAGES, PERFECT>(),
    }
}

/// The streams of one core and whose turn it is.
#[derive(Debug, Default)]
struct Turn {
    running: Option<usize>,
    waiting: VecDeque<usize>,
    slice_ends: Time,
    used: bool,
    /// The base page that its thread waits for: it is on the move, or its fault waits for a block.
    waits_for: Option<(u32, u64)>,
}

/// Lets the threads go on that wait for these pages. Answers how long they have waited.
fn wake(turns: &mut [Turn], machine: &mut Machine, pages: &[(PageId, PageSize, Time)]) -> Time {
    let mut waited = Time::ZERO;
    for (page, size, at) in pages {
        for (turn, core) in turns.iter_mut().zip(&mut machine.cores) {
            let arrived = turn
                .waits_for
                .is_some_and(|(space, vpn)| PageRange::of(*page, *size).contains(PageId::new(space, vpn)));
            if arrived {
                turn.waits_for = None;
                core.pipeline.drain();
                let span = at.saturating_sub(core.pipeline.now);
                core.pipeline.kernel(span);
                waited += span;
            }
        }
    }
    waited
}

/// Where the region of interest stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Region {
    /// Statistics when it began.
    pub begin: Option<Box<super::collect::Totals>>,
    /// Statistics when it ended.
    pub end: Option<Box<super::collect::Totals>>,
}

pub(super) struct Engine<'a> {
    pub machine: Machine,
    streams: Streams<'a>,
    turns: Vec<Turn>,
    /// Simulated process of each process of the input.
    spaces: HashMap<u32, u32>,
    /// Simulated processes that exited while some of their threads still had to catch up.
    ending: HashSet<u32>,
    pub options: Options,
    pub accesses: u64,
    pub waited_nanos: u64,
    pub order_violations: u64,
    /// Streams whose next batch follows a global event that was not applied yet.
    blocked: Vec<usize>,
    pub gaps: u64,
    pub requests: Requests,
    pub region: Region,
    /// The region of interest is still to come, and only the operating system is simulated until then.
    pub forwarding: bool,
    pub map_maker: Option<MapMaker>,
    pub contiguity: Option<ContiguityWatch>,
    stopped: bool,
}

impl<'a> Engine<'a> {
    fn new(
        mut machine: Machine,
        source: &'a mut dyn EventSource,
        options: Options,
        sample_contiguity: Option<Time>,
    ) -> Engine<'a> {
        let mut turns = Vec::new();
        turns.resize_with(machine.cores.len(), Turn::default);
        let levels = machine.shared.os.levels();
        let shared = &mut machine.shared;
        let parts = shared.parts.as_deref_mut().filter(|_| options.memory_map);
        let map_maker = parts.map(|parts| MapMaker::new(&shared.os, parts));
        Engine {
            machine,
            forwarding: options.fast_forward,
            streams: Streams::new(source, levels),
            turns,
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
            map_maker,
            contiguity: sample_contiguity.map(ContiguityWatch::new),
            stopped: false,
        }
    }

    fn run<const F: u8, const S: u8>(mut self) -> Result<Outcome, SimError> {
        self.machine.with_tiering(|tiering, machine| tiering.call(machine, Time::ZERO));
        self.pull(Time::ZERO)?;
        if self.forwarding {
            self.advance::<PAGES, PERFECT>()?;
            // What it counts on the host's behalf is another thing from here on.
            self.machine.cores.iter_mut().for_each(|core| core.look_ahead = LookAhead::new());
        }
        if !self.forwarding {
            self.advance::<F, S>()?;
        }
        for (core, turn) in self.machine.cores.iter_mut().zip(&self.turns) {
            if turn.used {
                core.pipeline.drain();
            }
        }
        if cfg!(debug_assertions)
            && let Some(tiering) = &self.machine.shared.tiering
        {
            tiering.audit(&self.machine);
        }
        let cores_used = self.turns.iter().filter(|turn| turn.used).count() as u64;
        self.look_at_memory(true, true);
        let mut outcome = super::collect::outcome(&self, cores_used);
        outcome.stopped = self.stopped;
        outcome.profile = self.machine.shared.profile.take().map(ProfileCounter::finish);
        outcome.memory_map = self.memory_map();
        outcome.placement_map = self.placement_map();
        if let Some(parts) = self.machine.shared.parts.as_mut().filter(|_| self.options.parts) {
            outcome.parts = parts.uses(self.machine.shared.timing.cycle);
        }
        Ok(outcome)
    }

    /// Runs to the end of the input, or of the part that is passed over.
    fn advance<const F: u8, const S: u8>(&mut self) -> Result<(), SimError> {
        let forwarding = self.forwarding;
        while self.forwarding == forwarding
            && let Some((core, horizon)) = self.next_core::<F>()?
        {
            if self.is_stopped() {
                self.stopped = true;
                break;
            }
            let now = self.machine.cores[core].pipeline.now;
            self.look_at_placement(now);
            self.look_at_contiguity(now);
            self.run_core::<F, S>(core, horizon)?;
        }
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Reads one batch; a new stream gets its core. `now` is the clock of whoever needed input.
    fn pull(&mut self, now: Time) -> Result<bool, SimError> {
        let Some((stream, is_new)) = self.streams.pull()? else { return Ok(false) };
        let entry = &mut self.streams.streams[stream];
        if is_new && entry.space.is_none() {
            entry.core = stream % self.turns.len();
            let core = entry.core;
            if !self.turns[core].used {
                self.turns[core].used = true;
                self.machine.shared.caches.activate(core);
            }
            if self.turns[core].running.is_none() && self.turns[core].waiting.is_empty() {
                self.machine.cores[core].pipeline.idle_until(now);
            }
            self.turns[core].waiting.push_back(stream);
        } else if entry.starved {
            entry.starved = false;
            let core = entry.core;
            let alone = self.turns[core].running.is_none_or(|running| running == stream);
            if alone
                && self.turns[core].waiting.iter().all(|&s| s == stream || self.streams.streams[s].starved)
            {
                self.machine.cores[core].pipeline.idle_until(now);
            }
        }
        Ok(true)
    }

    /// The core to run next and how far it may go; `None` when nothing is left.
    fn next_core<const F: u8>(&mut self) -> Result<Option<(usize, Time)>, SimError> {
        loop {
            let due = self.machine.shared.tiering.as_ref().map(|tiering| tiering.due());
            let mut first: Option<(Time, usize)> = None;
            let mut second = Time::MAX;
            for core in 0..self.turns.len() {
                if !self.turns[core].used || !self.has_runnable(core) {
                    continue;
                }
                let now = self.machine.cores[core].pipeline.now;
                match first {
                    Some((time, _)) if now >= time => second = second.min(now),
                    _ => {
                        if let Some((time, _)) = first {
                            second = second.min(time);
                        }
                        first = Some((now, core));
                    }
                }
            }
            if let Some((now, core)) = first {
                let mut horizon = if second == Time::MAX { Time::MAX } else { second + QUANTUM };
                if let Some(watch) = &self.contiguity {
                    horizon = horizon.min(watch.next() + QUANTUM);
                }
                if let Some(due) = due {
                    if due.is_some_and(|due| due <= now) {
                        self.act::<F>(now);
                        continue;
                    }
                    horizon = horizon.min(now + NEWS).min(due.map_or(Time::MAX, |due| due + QUANTUM));
                }
                return Ok(Some((core, horizon)));
            }
            if let Some(due) = due.flatten()
                && self.turns.iter().any(|turn| turn.waits_for.is_some())
            {
                // Whoever could run waits for a page.
                let told = self.machine.shared.tiering.as_ref().map(|tiering| tiering.state.told_at());
                self.act::<F>(due.max(told.unwrap_or_default()));
                continue;
            }
            // Every stream is blocked, starved or done.
            let now = self.machine.cores.iter().map(|c| c.pipeline.now).max().unwrap_or_default();
            if !self.blocked.is_empty() && (self.streams.exhausted || self.streams.is_full()) {
                self.give_up_waiting();
            } else if self.streams.exhausted || (!self.pull(now)? && self.blocked.is_empty()) {
                return Ok(None);
            }
        }
    }

    /// The policy or one of its orders has its turn.
    fn act<const F: u8>(&mut self, now: Time) {
        self.machine.shared.os.now = now;
        self.tell_busy_cores();
        let turns = &mut self.turns;
        self.machine.with_tiering(|tiering, machine| {
            tiering.act::<F>(machine, now);
            let state = &mut tiering.state;
            let (released, resumed) = (state.take_released(), state.take_resumed());
            state.counters.wait_time += wake(turns, machine, &released);
            state.counters.stall_time += wake(turns, machine, &resumed);
        });
    }

    /// Kernel threads that share the cores go where the program leaves one idle.
    fn tell_busy_cores(&mut self) {
        let shares = |tiering: &Tiering| tiering.state.processors.share_cores();
        if !self.machine.shared.tiering.as_deref().is_some_and(shares) {
            return;
        }
        let busy = (0..self.turns.len()).filter(|core| self.has_runnable(*core)).collect();
        if let Some(tiering) = &mut self.machine.shared.tiering {
            tiering.state.processors.busy = busy;
        }
    }

    /// The kernel is about to change the pages of a range: orders give up what they hold of it.
    fn before_change(&mut self, core: usize, space: u32, range: AddressRange, change: Change) {
        let now = self.machine.cores[core].pipeline.now;
        self.machine.with_tiering(|tiering, machine| {
            tiering.state.before_change(machine, space, range, &change, now);
        });
    }

    /// Whether a core has a stream that may run now.
    fn has_runnable(&self, core: usize) -> bool {
        let turn = &self.turns[core];
        if turn.waits_for.is_some() {
            return false;
        }
        let runnable = |&stream: &usize| self.streams.streams[stream].may_run();
        turn.running.as_ref().is_some_and(runnable) || turn.waiting.iter().any(runnable)
    }

    /// Makes sure that the core's running stream is one that can run.
    fn choose_stream(&mut self, core: usize) -> Option<usize> {
        let now = self.machine.cores[core].pipeline.now;
        let turn = &mut self.turns[core];
        if let Some(running) = turn.running {
            let stream = &self.streams.streams[running];
            let over = now >= turn.slice_ends && !turn.waiting.is_empty();
            if stream.may_run() && !over {
                return Some(running);
            }
            if !stream.exited {
                turn.waiting.push_back(running);
            }
            turn.running = None;
        }
        turn.waiting.retain(|&stream| !self.streams.streams[stream].exited);
        let at = turn.waiting.iter().position(|&stream| self.streams.streams[stream].may_run())?;
        let next = turn.waiting.remove(at)?;
        turn.running = Some(next);
        let pipeline = &mut self.machine.cores[core].pipeline;
        pipeline.drain();
        if pipeline.instructions > 0 {
            pipeline.kernel(self.machine.shared.timing.context_switch);
        }
        turn.slice_ends = pipeline.now + self.machine.shared.timing.timeslice;
        Some(next)
    }

    /// Runs a core's stream until it passes the horizon or has nothing to run.
    fn run_core<const F: u8, const S: u8>(&mut self, core: usize, horizon: Time) -> Result<(), SimError> {
        let Some(stream) = self.choose_stream(core) else { return Ok(()) };
        self.machine.cores[core].space = self.streams.streams[stream].space;
        if !self.streams.advance(stream) {
            let now = self.machine.cores[core].pipeline.now;
            if self.streams.exhausted {
                // Without an `Exit`: the input was cut off, and what it had stays.
                self.streams.streams[stream].exited = true;
                return Ok(());
            }
            if self.streams.is_full() {
                self.streams.streams[stream].starved = true;
                return Ok(());
            }
            // What comes may belong to another core: the horizon is another.
            self.pull(now)?;
            return Ok(());
        }
        let Some(batch) = self.streams.streams[stream].current.clone() else { return Ok(()) };
        let begins =
            self.streams.streams[stream].next_access == 0 && self.streams.streams[stream].next_event == 0;
        if begins && batch.after > self.streams.order.watermark {
            self.streams.streams[stream].blocked = true;
            self.blocked.push(stream);
            return Ok(());
        }
        self.run_batch::<F, S>(core, stream, &batch, horizon)
    }

    /// A global event was applied at `now`: streams that waited for it may run, but not before that time.
    fn unblock(&mut self, now: Time) {
        let watermark = self.streams.order.watermark;
        let (streams, turns, cores) = (&mut self.streams.streams, &mut self.turns, &mut self.machine.cores);
        self.blocked.retain(|&at| {
            let stream = &mut streams[at];
            let waits = stream.current.as_ref().is_some_and(|batch| batch.after > watermark);
            if !waits {
                stream.blocked = false;
                // A core that had nothing else to do waited with its stream.
                let core = stream.core;
                let turn = &mut turns[core];
                let idle = turn.running.is_none_or(|running| running == at)
                    && turn.waiting.iter().all(|&other| other == at || !streams[other].may_run());
                if idle {
                    cores[core].pipeline.idle_until(now);
                }
            }
            waits
        });
    }

    /// Nothing can run but streams that wait for events which nobody is left to apply: the input lost them.
    fn give_up_waiting(&mut self) {
        let needed = |&stream: &usize| self.streams.streams[stream].current.as_ref().map_or(0, |b| b.after);
        if let Some(sequence) = self.blocked.iter().map(needed).min() {
            self.streams.order.give_up_before(sequence);
            self.order_violations += 1;
            self.unblock(Time::ZERO);
        }
    }

    /// Runs the current batch of a stream from where it stands.
    fn run_batch<const F: u8, const S: u8>(
        &mut self,
        core: usize,
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
                let from = self.streams.streams[stream].next_access;
                let reached = self.machine.cores[core].run::<F, S>(
                    core,
                    &mut self.machine.shared,
                    space,
                    batch,
                    from,
                    stop_at,
                    horizon,
                )?;
                self.machine.drop_pages(core);
                self.machine.shared.os.note_stores(space, batch, from..reached);
                self.accesses += (reached - from) as u64;
                self.streams.streams[stream].accesses += (reached - from) as u64;
                self.streams.streams[stream].next_access = reached;
                if self.waits_for_page(core) {
                    return Ok(());
                }
                if reached < stop_at || self.machine.cores[core].pipeline.now > horizon {
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
            self.apply::<F, S>(core, stream, &event.event)?;
            if self.waits_for_page(core) || self.streams.streams[stream].computed > 0 {
                // The event is not over.
                self.streams.streams[stream].next_event -= 1;
                return Ok(());
            }
            if event.sequence != 0 {
                self.streams.order.apply(event.sequence);
                if !self.blocked.is_empty() {
                    self.unblock(self.machine.cores[core].pipeline.now);
                    // Others may run now: the horizon is another.
                    return Ok(());
                }
            }
            if forwarding != self.forwarding {
                // What follows is simulated otherwise.
                return Ok(());
            }
            if matches!(event.event, Event::Wait { .. }) && !self.turns[core].waiting.is_empty() {
                // The thread slept: its core is free for another.
                self.turns[core].slice_ends = Time::ZERO;
                return Ok(());
            }
            // An event can take long: others come first.
            if self.streams.streams[stream].exited || self.machine.cores[core].pipeline.now > horizon {
                return Ok(());
            }
        }
    }

    /// Computes without an access. A policy and samples of contiguity have their turns meanwhile: where one is due, the
    /// stream goes on afterwards.
    fn compute(&mut self, core: usize, stream: usize, instructions: u64) {
        let pipeline = &mut self.machine.cores[core].pipeline;
        let tiering = &self.machine.shared.tiering;
        if tiering.is_none() && self.contiguity.is_none() {
            return pipeline.compute(instructions);
        }
        let computed = &mut self.streams.streams[stream].computed;
        let sample = self.contiguity.as_ref().map_or(Time::MAX, ContiguityWatch::next);
        let due = tiering.as_ref().and_then(|tiering| tiering.due()).unwrap_or(Time::MAX).min(sample);
        loop {
            let begin = pipeline.now;
            let little = (instructions - *computed).min(COMPUTE_PIECE);
            pipeline.compute(little);
            *computed += little;
            let took = (pipeline.now - begin).0.max(1);
            // Up to what is due, by the pace of this piece.
            let pieces = due.saturating_sub(pipeline.now).0 / took;
            let rest = pieces.saturating_mul(little).min(instructions - *computed);
            pipeline.compute(rest);
            *computed += rest;
            if *computed == instructions {
                *computed = 0;
                return;
            }
            if pipeline.now > due {
                return;
            }
        }
    }

    /// Whether the core had to stop at a page on the move.
    fn waits_for_page(&mut self, core: usize) -> bool {
        let Some(page) = self.machine.shared.stopped_at.take() else { return false };
        self.turns[core].waits_for = Some(page);
        if let Some(tiering) = &mut self.machine.shared.tiering {
            // Faults that wait are counted as such.
            tiering.state.counters.waits += u64::from(!tiering.state.is_stalled(page.0, page.1));
        }
        true
    }

    fn finish_batch(&mut self, stream: usize) {
        self.streams.streams[stream].current = None;
        if let Some(progress) = &mut self.options.progress {
            progress(self.accesses);
        }
    }
}
