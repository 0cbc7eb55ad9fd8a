//! Frames by number: relocation, zeroing, and pages of zeros given back.

use super::State;
use super::begin::available;
use super::orders::Order;
use super::part::Work;
use super::shootdown::{complete, flush};
use crate::coherence::Cause;
use crate::machine::{Machine, System};
use crate::os::{Mappers, Os, Owner};
use terrace_model::{Frame, PageSize, Time};
use terrace_policy::{Outcome, PageId, Relocate};

/// The pages that map a block, if it may be moved now; none for a page of a file.
fn held_by(
    os: &Os,
    state: &State,
    first: Frame,
    size: PageSize,
    owner: Owner,
) -> Result<Option<Mappers>, Outcome> {
    match owner {
        Owner::Cache(_) => Ok(None),
        Owner::Table | Owner::Kernel => Err(Outcome::Unmovable),
        Owner::Taken => Err(Outcome::Busy),
        Owner::Page(page) => {
            // What its first owner left to another stays.
            let pages = os.mappers(first, size, page).ok_or(Outcome::Unmovable)?;
            let held = pages.iter().any(|page| state.held.contains(&page));
            if held { Err(Outcome::Busy) } else { Ok(Some(pages)) }
        }
    }
}

impl State {
    /// What a frame holds, as a policy sees it.
    pub(super) fn frame_state(&self, os: &Os, frame: Frame) -> terrace_policy::FrameState {
        use terrace_policy::FrameState;
        if !self.guest.contains(os, frame) {
            return FrameState::Unmovable;
        }
        let Some((first, size, owner)) = os.block_of(frame) else {
            return FrameState::Free { zeroed: os.is_zeroed(frame) };
        };
        match held_by(os, self, first, size, owner) {
            Ok(Some(pages)) => FrameState::Movable(pages.first),
            Ok(None) => FrameState::MovableOther,
            Err(Outcome::Busy) => FrameState::Busy,
            Err(_) => FrameState::Unmovable,
        }
    }
}

impl Order {
    /// Takes what a relocation needs.
    pub(super) fn start_relocate(
        &mut self,
        machine: &mut Machine,
        state: &mut State,
        relocate: Relocate,
    ) -> Result<Option<Work>, Outcome> {
        let Relocate { from, to, exchange } = relocate;
        let os = machine.shared.system_mut(state.system);
        let (first, size, owner) = os.block_of(from).ok_or(Outcome::Gone)?;
        if first != from || !state.guest.contains(os, from) {
            return Err(Outcome::Gone);
        }
        let pages = held_by(os, state, from, size, owner)?;
        // Moves between tiers are for `migrate`.
        if !state.guest.contains(os, to)
            || !to.0.is_multiple_of(size.base_pages())
            || os.tier_of(from) != os.tier_of(to)
        {
            return Err(Outcome::Unsupported);
        }
        if from == to {
            return Ok(None);
        }
        let (mut back, mut cached, mut free) = (Vec::new(), Vec::new(), Vec::new());
        if !exchange || os.is_free(to, size) {
            if !os.take_block_at(to, size) {
                return Err(Outcome::NoSpace);
            }
            free.push((to, size));
        } else {
            let mut at = to.0;
            while at < to.0 + size.base_pages() {
                let Some((first, part, owner)) = os.block_of(Frame(at)) else {
                    free.push((Frame(at), PageSize::Base));
                    at += 1;
                    continue;
                };
                if part > size {
                    return Err(Outcome::Unmovable);
                }
                match held_by(os, state, first, part, owner)? {
                    Some(pages) => back.push((pages, part, first)),
                    None => cached.push(first),
                }
                at += part.base_pages();
            }
            for (frame, part) in &free {
                os.take_block_at(*frame, *part);
            }
            for frame in &cached {
                os.hold_cached(*frame);
            }
        }
        if pages.is_none() {
            os.hold_cached(from);
            cached.push(from);
        }
        self.now += state.costs.allocate;
        state.account(machine.shared.system(state.system));
        Ok(Some(Work::Relocate { from, to, size, pages, back, cached, free }))
    }

    /// Takes a free block to be filled with zeros.
    pub(super) fn start_zero(
        &mut self,
        machine: &mut Machine,
        state: &mut State,
        frame: Frame,
        size: PageSize,
    ) -> Result<Option<Work>, Outcome> {
        let os = machine.shared.system_mut(state.system);
        if size == PageSize::Base
            || !state.guest.contains(os, frame)
            || !frame.0.is_multiple_of(size.base_pages())
        {
            return Err(Outcome::Unsupported);
        }
        if os.is_zeroed_block(frame, size) {
            return Ok(None);
        }
        let filling = os.begin_zeroing(frame, size).ok_or(Outcome::Gone)?;
        self.now += state.costs.allocate;
        state.account(machine.shared.system(state.system));
        Ok(Some(Work::Zero { frame, size, filling }))
    }

    /// Gives back the base pages of a page that hold only zeros.
    pub(super) fn drop_zeros(
        &mut self,
        machine: &mut Machine,
        state: &mut State,
        page: PageId,
    ) -> Result<Option<Work>, Outcome> {
        if !machine.shared.system(state.system).knows_zeros() {
            return Err(Outcome::Unsupported);
        }
        let size = available(machine, state, page)?.size;
        if size != PageSize::Base {
            self.split(machine, state, page, size, PageSize::Base)?;
        }
        let flushed = flush(machine, state, &[(page, size)], self.now);
        let dropped = machine.shared.system_mut(state.system).drop_zeros(page.space, page.addr(), size);
        for addr in &dropped {
            state.watched.remove(&PageId::of(page.space, *addr));
        }
        let (cost, waits) = complete(machine, state, Cause::Migration, self.now);
        let span = state.costs.free.times(dropped.len() as u64) + waits + flushed;
        self.now += span;
        state.spent += cost;
        state.counters.migration_time += span;
        state.counters.zeros_dropped += dropped.len() as u64;
        state.account(machine.shared.system(state.system));
        Ok(None)
    }

    /// A relocation has landed.
    pub(super) fn land_relocation(machine: &mut Machine, system: System, work: &Work) {
        let Work::Relocate { from, to, size, pages, back, cached, free } = work else { return };
        let os = machine.shared.system_mut(system);
        os.swap_frames(*from, *to, size.base_pages());
        let returned = |frame: Frame| Frame(if frame == *from { to.0 } else { from.0 + frame.0 - to.0 });
        let moved = pages.iter().map(|pages| (pages, *to));
        for (pages, frame) in moved.chain(back.iter().map(|(pages, _, frame)| (pages, returned(*frame)))) {
            // The first one last, as the block is named after it.
            for page in pages.iter().rev() {
                os.point_to(page, frame);
            }
        }
        for frame in cached {
            os.release_cached(returned(*frame));
        }
        for (frame, _) in free {
            os.free_block(returned(*frame));
        }
    }
}

/// Time to look at the contents of so many base pages, `zeros` of which hold only zeros: those are read whole, of the
/// others mostly the first line.
pub(super) fn looking_time(state: &State, pages: u64, zeros: u64) -> Time {
    let bandwidth = state.topology.tiers[0].read_bandwidth.0.max(1.0);
    let read = Time::from_nanos_f64((zeros * PageSize::Base.bytes()) as f64 * 1e9 / bandwidth);
    state.costs.scan_entry.times(pages) + read
}
