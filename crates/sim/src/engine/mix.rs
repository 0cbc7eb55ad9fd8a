//! Programs of a mix: where each runs, when its region of interest counts, and what it did in it.
//!
//! All regions of interest begin together: a program that has come to its own waits there for the others, and a program
//! that marks none begins then. The run ends when every program has ended once. A program that ends before the others begins
//! again from its beginning, in new processes, so that the others go on to share the machine with it; what it does then
//! counts in the machine's statistics, and no more in its own.

use super::Engine;
use super::streams::Stream;
use crate::outcome::SimError;
use terrace_model::{CoreId, Stats, Time, Unit};
use terrace_trace::MixedProgram;

/// Where the programs of a mix stand.
#[derive(Debug)]
pub(super) struct MixRun {
    each: Vec<OfProgram>,
    /// The regions of interest have begun.
    begun: bool,
    /// Programs of which a stream stopped for want of batches, of an event, or at its end.
    stalled: Vec<usize>,
}

#[derive(Clone, Debug, Default)]
struct OfProgram {
    name: String,
    marks_region: bool,
    /// The program waits at the begin of its region, or has begun it.
    arrived: bool,
    /// The program has ended once.
    over: bool,
    counted: Counted,
    begin: Option<(Time, Counted)>,
    end: Option<(Time, Counted)>,
    /// How often it began again, and what was counted when it began last.
    repeats: u64,
    last_begin: Counted,
}

/// What a program has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    accesses: u64,
    instructions: u64,
}

impl MixRun {
    /// The run of these programs, each of which counts from its beginning where the `whole` input counts.
    pub fn of(programs: &[MixedProgram], whole: bool) -> Option<MixRun> {
        let begun = whole || !programs.iter().any(|program| program.marks_region);
        let of_program = |program: &MixedProgram| OfProgram {
            // A dot would make a branch of the statistics tree.
            name: program.name.replace('.', "_"),
            marks_region: program.marks_region,
            begin: begun.then(Default::default),
            ..OfProgram::default()
        };
        let each: Vec<OfProgram> = programs.iter().map(of_program).collect();
        (!each.is_empty()).then_some(MixRun { each, begun, stalled: Vec::new() })
    }

    /// How many programs there are.
    pub fn programs(&self) -> usize {
        self.each.len()
    }

    /// Whether a program waits for the others to come to their regions.
    pub fn holds(&self, program: usize) -> bool {
        let of_program = &self.each[program];
        !self.begun && !of_program.over && (of_program.arrived || !of_program.marks_region)
    }

    /// Whether every program has ended once.
    pub fn is_over(&self) -> bool {
        self.each.iter().all(|of_program| of_program.over)
    }

    /// When the last program ended for the first time; none before.
    pub fn ended_at(&self) -> Option<Time> {
        self.each.iter().try_fold(Time::ZERO, |last, one| Some(last.max(one.end?.0)))
    }

    /// What each program did in its region, into a statistics tree; `now` is the end of those that were cut short.
    pub fn count_into(&self, now: Time, cycle: Time, stats: &mut Stats) {
        stats.count("mix.programs", self.each.len() as u64, Unit::Count);
        for one in &self.each {
            let (end, did) = one.end.unwrap_or((now, one.counted));
            let (begin, before) = one.begin.unwrap_or((end, did));
            let time = end.saturating_sub(begin);
            let cycles = time.in_cycles(cycle);
            let instructions = did.instructions - before.instructions;
            let name = |what: &str| format!("mix.program.{}.{what}", one.name);
            stats.count(name("accesses"), did.accesses - before.accesses, Unit::Count);
            stats.count(name("instructions"), instructions, Unit::Count);
            stats.count(name("cycles"), cycles, Unit::Cycles);
            stats.real(name("time"), time.as_nanos(), Unit::Nanoseconds);
            stats.real(name("ipc"), instructions as f64 / cycles.max(1) as f64, Unit::Ratio);
            stats.count(name("repeats"), one.repeats, Unit::Count);
        }
    }
}

impl Engine<'_> {
    /// The core that a stream runs on. Each program of a mix has every n-th core where there are as many cores as programs,
    /// and shares one with others where there are fewer.
    pub(super) fn core_for(&self, stream: usize) -> CoreId {
        let cores = self.run_queues.len();
        if let Some(hypervisor) = &self.machine.shared.hypervisor {
            // The guest's threads run on its virtual CPUs in turn, and those are pinned to cores in turn.
            return CoreId::at(hypervisor.vcpu(0, stream) % cores);
        }
        let programs = self.streams.programs.len();
        let (program, thread) = (stream % programs, stream / programs);
        if program >= cores {
            return CoreId::at(program % cores);
        }
        let own = (cores - program).div_ceil(programs);
        CoreId::at(program + programs * (thread % own))
    }

    /// The first batch of a program, unless others have to come first.
    pub(super) fn begin_program(&mut self, program: usize, now: Time) -> Result<(), SimError> {
        if self.mix.as_ref().is_none_or(|mix| !mix.holds(program)) {
            self.pull(program, now)?;
        }
        Ok(())
    }

    /// Counts for its program what a stream did on a core.
    pub(super) fn account(&mut self, core: CoreId, stream: usize) {
        let Some(mix) = &mut self.mix else { return };
        let counted = &mut mix.each[self.streams.program_of(stream)].counted;
        let of_core = self.machine.cores[core.index()].pipeline.program_instructions();
        let before = std::mem::replace(&mut self.run_queues[core.index()].accounted, of_core);
        counted.instructions += of_core - before;
        let entry = &mut self.streams.streams[stream];
        counted.accesses += entry.accesses - std::mem::replace(&mut entry.accounted, entry.accesses);
    }

    /// A stream has come to the begin of its program's region.
    pub(super) fn comes_to_region(&mut self, core: CoreId, stream: usize) -> Result<(), SimError> {
        self.account(core, stream);
        let program = self.streams.program_of(stream);
        let Some(mix) = &mut self.mix else { return Ok(()) };
        if mix.begun || mix.each[program].over || std::mem::replace(&mut mix.each[program].arrived, true) {
            return Ok(());
        }
        let programs = self.streams.programs.len();
        let streams = self.streams.streams.iter_mut().skip(program).step_by(programs);
        streams.for_each(|stream| stream.held = true);
        self.begin_regions(self.machine.cores[core.index()].pipeline.now)
    }

    /// All regions begin where every program has come to its own.
    fn begin_regions(&mut self, now: Time) -> Result<(), SimError> {
        let Some(mix) = &mut self.mix else { return Ok(()) };
        let waits = |one: &OfProgram| one.marks_region && !one.arrived && !one.over;
        if mix.begun || mix.each.iter().any(waits) {
            return Ok(());
        }
        mix.begun = true;
        for one in &mut mix.each {
            one.begin = Some((now, one.counted));
        }
        let begin: Vec<usize> = (0..mix.each.len()).filter(|&at| !mix.each[at].marks_region).collect();
        for stream in self.streams.streams.iter_mut().filter(|stream| stream.held) {
            stream.held = false;
            self.agenda.add(stream.core);
            self.machine.cores[stream.core.index()].pipeline.idle_until(now);
        }
        self.begin_region();
        for program in begin {
            self.pull(program, now)?;
        }
        Ok(())
    }

    /// A stream has come to an end of its program's region. Returns whether that ends the machine's.
    pub(super) fn leaves_region(&mut self, core: CoreId, stream: usize) -> bool {
        self.account(core, stream);
        let program = self.streams.program_of(stream);
        let Some(mix) = &mut self.mix else { return true };
        let one = &mut mix.each[program];
        if one.over {
            return false;
        }
        one.end = Some((self.machine.cores[core.index()].pipeline.now, one.counted));
        mix.each.iter().all(|one| one.end.is_some())
    }

    /// A stream of a mix stopped: its program may need batches, or be over.
    pub(super) fn stalled(&mut self, stream: usize) {
        let program = self.streams.program_of(stream);
        if let Some(mix) = &mut self.mix {
            mix.stalled.push(program);
        }
    }

    /// Sees to programs of a mix of which nothing can run, while others may go on.
    pub(super) fn serve_stalled(&mut self) -> Result<(), SimError> {
        while let Some(program) = self.mix.as_mut().and_then(|mix| mix.stalled.pop()) {
            while !self.mix.as_ref().is_some_and(MixRun::is_over) && !self.can_run(program) {
                let now = self.clock_of(program);
                if self.is_at_end(program) {
                    if !self.ends(program, now)? {
                        break;
                    }
                } else if !self.provide(program, now)? && !self.streams.programs[program].exhausted {
                    break;
                }
            }
        }
        Ok(())
    }

    fn streams_of(&self, program: usize) -> impl Iterator<Item = &Stream> {
        self.streams.streams.iter().skip(program).step_by(self.streams.programs.len())
    }

    /// Whether a stream of a program may run; one at the end of its input may, to end.
    fn can_run(&self, program: usize) -> bool {
        // Numbers that no stream of the program has stand for nothing.
        let has_begun = |one: &Stream| one.space.is_some() || one.current.is_some() || !one.queue.is_empty();
        self.streams_of(program).any(|stream| has_begun(stream) && stream.may_run())
    }

    /// Whether nothing is left of a program's input, read or not.
    fn is_at_end(&self, program: usize) -> bool {
        let is_empty = |stream: &Stream| stream.queue.is_empty() && stream.current.is_none();
        self.streams.programs[program].exhausted
            && self.streams_of(program).all(|stream| stream.exited || is_empty(stream))
    }

    /// The clock of the program's core that is furthest ahead.
    fn clock_of(&self, program: usize) -> Time {
        let has_core = |stream: &&Stream| stream.space.is_some();
        let clock = |stream: &Stream| self.machine.cores[stream.core.index()].pipeline.now;
        self.streams_of(program).filter(has_core).map(clock).max().unwrap_or_default()
    }

    /// A program has come to its end, for the first time or again. Returns whether it began once more.
    fn ends(&mut self, program: usize, mut now: Time) -> Result<bool, SimError> {
        let mut cores: Vec<CoreId> = self
            .streams_of(program)
            .filter(|stream| stream.space.is_some())
            .map(|stream| stream.core)
            .collect();
        cores.sort_unstable();
        cores.dedup();
        for &core in &cores {
            self.machine.cores[core.index()].pipeline.drain();
            now = now.max(self.machine.cores[core.index()].pipeline.now);
        }
        let Some(mix) = &mut self.mix else { return Ok(false) };
        let one = &mut mix.each[program];
        one.over = true;
        let counted = one.counted;
        let ends_now = one.end.is_none();
        one.end = one.end.or(Some((now, counted)));
        let does_nothing = counted == one.last_begin;
        let ended = mix.each.iter().all(|one| one.end.is_some());
        if mix.is_over() {
            return Ok(false);
        }
        if ends_now && ended && self.region.begin.is_some() {
            self.end_region();
        }
        self.begin_regions(now)?;
        if does_nothing {
            return Ok(false);
        }
        self.clear(program, cores.first().copied().unwrap_or_default())?;
        self.streams.restart(program)?;
        if let Some(mix) = &mut self.mix {
            let one = &mut mix.each[program];
            one.repeats += 1;
            one.last_begin = counted;
        }
        self.pull(program, now)?;
        Ok(true)
    }

    /// Clears a program away: streams leave their cores, and memory that its input did not free is freed by `core`.
    fn clear(&mut self, program: usize, core: CoreId) -> Result<(), SimError> {
        let programs = self.streams.programs.len();
        let is_other = |stream: usize| stream % programs != program;
        for (queue, space) in self.run_queues.iter_mut().zip(&mut self.machine.shared.running) {
            queue.waiting.retain(|&stream| is_other(stream));
            if queue.running.is_some_and(|stream| !is_other(stream)) {
                queue.running = None;
                *space = None;
            }
        }
        self.blocked.retain(|&stream| is_other(stream));
        let own = self.spaces.keys().copied().filter(|&process| !is_other(process as usize));
        let mut own: Vec<u32> = own.collect();
        own.sort_unstable();
        for process in own {
            if let Some(space) = self.spaces.remove(&process) {
                self.ending.remove(&space);
                self.end_process(core, space, true)?;
            }
        }
        Ok(())
    }
}
