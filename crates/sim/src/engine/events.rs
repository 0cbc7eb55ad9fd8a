//! What events of the input do: processes and threads that come and go, memory that is mapped and unmapped, marks.

use super::Engine;
use super::collect::Totals;
use super::streams::Stream;
use crate::coherence::Cause;
use crate::core::END_OF_TIME;
use crate::machine::System;
use crate::observe::ContiguityWatch;
use crate::outcome::SimError;
use crate::tiering::Change;
use crate::translate::{Stop, Translation};
use terrace_model::{AddressRange, CoreId, PageSize, SpaceId, Time, VirtAddr};
use terrace_trace::{Agent, Event, KernelAccess, MapKind, MarkKind};

/// Instructions of a `Compute` event by which its pace is known.
const COMPUTE_PIECE: u64 = 4096;

impl Engine<'_> {
    /// A stream without `Spawn` (a slice of a trace) belongs to the process of its number.
    pub(super) fn adopt(&mut self, stream: usize) -> Result<SpaceId, SimError> {
        // In a mix, its program's first process.
        let space = self.space_of(self.streams.program_of(stream) as u32)?;
        self.streams.streams[stream].space = Some(space);
        Ok(space)
    }

    fn space_of(&mut self, process: u32) -> Result<SpaceId, SimError> {
        if let Some(&space) = self.spaces.get(&process) {
            return Ok(space);
        }
        let vm = match &self.mix {
            Some(mix) => self.vms.of_program(process as usize % mix.programs()),
            None => self.vms.next(),
        };
        let space = self.machine.shared.os.new_space_in(vm)?;
        self.spaces.insert(process, space);
        Ok(space)
    }

    /// Applies one event of a stream.
    pub(super) fn apply<const F: u8, T: Translation>(
        &mut self,
        core: CoreId,
        stream: usize,
        event: &Event,
    ) -> Result<(), SimError> {
        if let Event::Spawn { process, forked_from, agent, .. } = event {
            self.streams.streams[stream].of_gpu = *agent == Agent::Gpu;
            return self.spawn(core, stream, *process, forked_from.map(|s| s.index()));
        }
        let space = match self.streams.streams[stream].space {
            Some(space) => space,
            None => self.adopt(stream)?,
        };
        self.machine.shared.running[core.index()] = Some(space);
        self.machine.shared.os.now = self.machine.cores[core.index()].pipeline.now;
        let machine = &mut self.machine;
        machine.scheme.kernel().runs_on(core);
        for gone in machine.scheme.kernel().before_event(space, event, &mut machine.shared.os) {
            self.before_change(core, space, gone, Change::Unmap);
            self.forget_lines(space, gone);
            self.machine.shared.os.advise(space, gone, terrace_trace::Advice::DontNeed)?;
            self.complete(core, Cause::Advise);
        }
        match event {
            Event::Map { range, kind, protection, .. } => {
                let range = *range;
                if self.machine.shared.os.areas(space).overlaps(range) {
                    self.before_change(core, space, range, Change::Unmap);
                    self.forget_lines(space, range);
                    self.machine.shared.os.map(space, range, *kind, *protection)?;
                    self.complete(core, Cause::Unmap);
                } else {
                    self.machine.shared.os.map(space, range, *kind, *protection)?;
                }
            }
            Event::Unmap { range } => {
                self.look_at_memory(false, false);
                self.before_change(core, space, *range, Change::Unmap);
                self.forget_lines(space, *range);
                self.machine.shared.os.unmap(space, *range)?;
                self.complete(core, Cause::Unmap);
            }
            Event::Remap { from, to } => {
                self.before_change(core, space, *from, Change::Rename);
                self.before_change(core, space, *to, Change::Unmap);
                self.forget_lines(space, *from);
                self.forget_lines(space, *to);
                self.machine.shared.os.remap(space, *from, *to)?;
                self.complete(core, Cause::Remap);
            }
            Event::Protect { range, protection } => {
                self.machine.shared.os.protect(space, *range, *protection);
                self.complete(core, Cause::Protect);
            }
            Event::Advise { range, advice } => {
                if *advice == terrace_trace::Advice::DontNeed {
                    self.look_at_memory(false, false);
                    self.before_change(core, space, *range, Change::Unmap);
                    self.forget_lines(space, *range);
                }
                self.machine.shared.os.advise(space, *range, *advice)?;
                self.complete(core, Cause::Advise);
            }
            Event::Kernel { range, kind } => {
                let write = *kind == KernelAccess::Write;
                let mut done = std::mem::take(&mut self.streams.streams[stream].kernel_lines);
                let stop = self.options.stop.clone();
                let (mut site, mut own) = self.site::<F, T>(core);
                let ended = site.kernel_access(&mut own, space, *range, write, &mut done, stop.as_deref());
                self.machine.drop_stale();
                if write {
                    self.machine.shared.os.note_stores_in(space, *range);
                }
                match ended {
                    Ok(()) => {}
                    // The access goes on after these lines when the page has arrived.
                    Err(Stop::Held) => self.streams.streams[stream].kernel_lines = done,
                    Err(Stop::Failed(error)) => return Err(error.into()),
                }
            }
            Event::Resident { start, bitmap } => self.make_resident(space, VirtAddr(*start), bitmap)?,
            Event::Exit { process_ends } => {
                if *process_ends {
                    self.ending.insert(space);
                }
                self.end_stream(core, stream)?;
            }
            Event::Exec { .. } => match self.goes_to_next_vm(stream, space) {
                None => self.end_process(core, space, false)?,
                Some(vm) => {
                    self.end_process(core, space, true)?;
                    self.move_to_vm(core, stream, vm)?;
                }
            },
            Event::Wait { nanos } => self.waited_nanos = self.waited_nanos.saturating_add(*nanos),
            Event::Compute { instructions } => {
                self.compute(core, stream, *instructions);
                if self.machine.cores[core.index()].pipeline.now > END_OF_TIME {
                    return Err(SimError::TooLong);
                }
            }
            Event::Mark { kind, value, .. } => self.mark(core, stream, *kind, *value)?,
            // Data structures matter to policies and designs that know them; a plain machine does not.
            Event::Spawn { .. } | Event::Alloc { .. } | Event::Realloc { .. } | Event::Site { .. } => {}
            // Mostly its memory goes back next, and then it would be nobody's.
            Event::Free { .. } => self.look_at_memory(false, false),
        }
        self.machine.discard_stale_names();
        self.machine.shared.observers.apply(space, event);
        if let Some(tiering) = self.tiering_of(space) {
            tiering.state.note_structures(space, event);
        }
        Ok(())
    }

    /// The kernel is about to change the pages of a range: orders give up what they hold of it.
    fn before_change(&mut self, core: CoreId, space: SpaceId, range: AddressRange, change: Change) {
        let now = self.machine.cores[core.index()].pipeline.now;
        let guest = self.guest_managed(space);
        if let Some(tiering) = self.tiering.get_mut(guest) {
            tiering.state.before_change(&mut self.machine, space, range, &change, now);
        }
    }

    /// Completes what the program on a core changed in page tables.
    fn complete(&mut self, core: CoreId, cause: Cause) {
        let now = self.machine.cores[core.index()].pipeline.now;
        self.machine.complete(cause, Some(core), now);
    }

    /// A stream has nothing left. Other threads may not have come as far as the one that ended their process: the last
    /// thread to end frees the address space.
    pub(super) fn end_stream(&mut self, core: CoreId, stream: usize) -> Result<(), SimError> {
        self.streams.streams[stream].exited = true;
        self.stalled(stream);
        self.machine.shared.running[core.index()] = None;
        let Some(space) = self.streams.streams[stream].space else { return Ok(()) };
        if !self.ending.contains(&space) {
            return Ok(());
        }
        let belongs = |stream: &Stream| match (stream.space, stream.process) {
            (Some(own), _) => own == space,
            // The stream's `Spawn` is still to come.
            (None, Some(process)) => self.spaces.get(&process) == Some(&space),
            (None, None) => false,
        };
        if !self.streams.streams.iter().any(|stream| !stream.exited && belongs(stream)) {
            self.ending.remove(&space);
            self.spaces.retain(|_, of| *of != space);
            self.end_process(core, space, true)?;
        }
        Ok(())
    }

    fn spawn(
        &mut self,
        core: CoreId,
        stream: usize,
        process: u32,
        forked_from: Option<usize>,
    ) -> Result<(), SimError> {
        let parent = forked_from.and_then(|parent| self.streams.streams.get(parent));
        let parent = parent.and_then(|stream| Some((stream.space?, stream.core)));
        let space = match parent {
            Some((parent, forks)) if !self.spaces.contains_key(&process) => {
                self.before_change(core, parent, AddressRange::new(0, u64::MAX), Change::Share);
                let shared_lines = self.machine.scheme.kernel().before_fork(parent);
                let now = self.machine.cores[forks.index()].pipeline.now;
                self.machine.flush_lines(shared_lines, now);
                self.machine.before_cloning(parent, now);
                let child = self.machine.shared.os.fork(parent)?;
                self.machine.scheme.kernel().forked(parent, child);
                self.machine.shared.observers.forked(parent, child);
                if let Some(tiering) = self.tiering_of(parent) {
                    tiering.state.note_fork(parent, child);
                }
                self.spaces.insert(process, child);
                if self.mix.is_none() {
                    self.vms.forked(process);
                }
                self.complete(forks, Cause::Fork);
                child
            }
            _ => self.space_of(process)?,
        };
        self.streams.streams[stream].space = Some(space);
        self.settle(core, stream);
        Ok(())
    }

    fn make_resident(&mut self, space: SpaceId, start: VirtAddr, bitmap: &[u64]) -> Result<(), SimError> {
        let os = &mut self.machine.shared.os;
        // Residency without an area (the input began in the middle): plain anonymous memory.
        for (word, &bits) in bitmap.iter().enumerate() {
            for bit in 0..64u64 {
                let page = VirtAddr(start.0.wrapping_add(4096 * (64 * word as u64 + bit)));
                if bits >> bit & 1 != 0 && os.areas(space).find(page).is_none() {
                    let kind = MapKind::Anonymous;
                    os.map(
                        space,
                        AddressRange::of_page(page, PageSize::Base),
                        kind,
                        terrace_trace::Protection::READ_WRITE,
                    )?;
                }
            }
        }
        os.make_resident(space, start, bitmap)?;
        self.make_resident_in_host(space, AddressRange::new(start.0, 64 * 4096 * bitmap.len() as u64))
    }

    pub(super) fn end_process(&mut self, core: CoreId, space: SpaceId, ends: bool) -> Result<(), SimError> {
        self.look_at_memory(true, false);
        self.before_change(core, space, AddressRange::new(0, u64::MAX), Change::Unmap);
        self.machine.scheme.kernel().ended(space, &mut self.machine.shared.os);
        self.forget_lines(space, AddressRange::new(0, u64::MAX));
        self.machine.shared.os.clear_space(space, ends)?;
        self.complete(core, Cause::Exit);
        Ok(())
    }

    /// Virtually tagged caches must not keep lines of addresses that get other memory.
    fn forget_lines(&mut self, space: SpaceId, range: AddressRange) {
        if self.machine.scheme.has_virtual_caches() {
            self.machine.discard_lines(space, range);
        }
    }

    fn mark(&mut self, core: CoreId, stream: usize, kind: MarkKind, value: u64) -> Result<(), SimError> {
        let pipeline = &self.machine.cores[core.index()].pipeline;
        match kind {
            MarkKind::RequestBegin => self.requests.begin(stream, pipeline.now),
            MarkKind::Clients => self.requests.clients(stream, value),
            MarkKind::RequestEnd => self.requests.end(stream, pipeline.loads_done()),
            MarkKind::RegionBegin if self.mix.is_some() => self.comes_to_region(core, stream)?,
            MarkKind::RegionBegin if self.region.begin.is_none() && !self.options.whole => {
                self.begin_region();
            }
            // The last end counts: threads end their parts one after the other.
            MarkKind::RegionEnd if self.region.begin.is_some() && self.leaves_region(core, stream) => {
                self.end_region();
            }
            MarkKind::Gap => self.gaps = self.gaps.saturating_add(value),
            _ => {}
        }
        Ok(())
    }

    /// Computes without an access. A policy and samples of contiguity may be due meanwhile: where one is, the
    /// stream goes on afterwards.
    fn compute(&mut self, core: CoreId, stream: usize, instructions: u64) {
        let due = self.policies_due();
        let pipeline = &mut self.machine.cores[core.index()].pipeline;
        if due.is_none() && self.contiguity.is_none() {
            return pipeline.compute(instructions);
        }
        let computed = &mut self.streams.streams[stream].computed;
        let sample = self.contiguity.as_ref().map_or(Time::MAX, ContiguityWatch::next);
        let due = due.flatten().unwrap_or(Time::MAX).min(sample);
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

    /// From here on everything counts.
    pub(super) fn begin_region(&mut self) {
        let now = self.latest();
        self.machine.shared.system_mut(System::Hypervisor).settle_usage(now);
        self.region.begin = Some(Box::new(Totals::of(self)));
        self.requests.forget();
        self.forwarding = false;
        if let Some(watch) = &mut self.watch {
            watch.region_begins(self.accesses);
        }
        if let Some(parts) = &mut self.machine.shared.observers.parts {
            parts.region_begins();
        }
    }

    /// From here on nothing counts, unless a later end comes.
    pub(super) fn end_region(&mut self) {
        self.region.end = Some(Box::new(Totals::of(self)));
        if let Some(parts) = &mut self.machine.shared.observers.parts {
            parts.region_ends();
        }
    }
}
