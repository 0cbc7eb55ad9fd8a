//! How the items of an order begin: what each takes, splits or refuses.

use super::State;
use super::orders::Order;
use super::part::Work;
use super::shootdown::complete;
use super::watched::unwatch;
use crate::coherence::Cause;
use crate::machine::Machine;
use crate::os::Leaf;
use terrace_model::{AddressRange, PageSize, TierId};
use terrace_policy::{Exchange, Outcome, PageId, PageRange, Resize};

impl Order {
    /// Splits a huge page that is to move as base pages. Returns whether it was one.
    pub(super) fn split_first(
        &mut self,
        machine: &mut Machine,
        state: &mut State,
        page: PageId,
        to: TierId,
    ) -> Result<bool, Outcome> {
        let leaf = available(machine, state, page)?;
        let os = machine.shared.system(state.system);
        if leaf.size == PageSize::Base || state.guest.tier_of(os, leaf.pte.frame()) == to {
            return Ok(false);
        }
        if leaf.size == PageSize::Giant {
            return Err(Outcome::Unsupported);
        }
        if os.buddy(checked_tier(state, to)?).free_frames() < leaf.size.base_pages() {
            return Err(Outcome::NoSpace);
        }
        self.split(machine, state, page, leaf.size, PageSize::Base)?;
        Ok(true)
    }

    /// Splits both huge pages of a pair that is to change places as base pages. Returns whether they were huge.
    pub(super) fn split_pair(
        &mut self,
        machine: &mut Machine,
        state: &mut State,
        pair: Exchange,
    ) -> Result<bool, Outcome> {
        let size = exchangeable(machine, state, pair)?.0.size;
        match size {
            PageSize::Base => return Ok(false),
            PageSize::Huge => {}
            PageSize::Giant => return Err(Outcome::Unsupported),
        }
        for page in [pair.one, pair.other] {
            self.split(machine, state, page, size, PageSize::Base)?;
        }
        Ok(true)
    }

    pub(super) fn split(
        &mut self,
        machine: &mut Machine,
        state: &mut State,
        page: PageId,
        size: PageSize,
        parts: PageSize,
    ) -> Result<(), Outcome> {
        unwatch(machine, state, PageRange::of(page, size), |_, _| true);
        machine
            .shared
            .system_mut(state.system)
            .split_page(page.space, page.addr(), parts)
            .map_err(|_| Outcome::NoSpace)?;
        let (_, waits) = complete(machine, state, Cause::Migration, self.now);
        self.now += state.costs.split + waits;
        state.counters.migration_time += state.costs.split + waits;
        state.counters.split += 1;
        Ok(())
    }

    pub(super) fn start_move(
        &mut self,
        machine: &mut Machine,
        state: &mut State,
        page: PageId,
        to: TierId,
    ) -> Result<Option<Work>, Outcome> {
        let leaf = available(machine, state, page)?;
        let from = leaf.pte.frame();
        let to = checked_tier(state, to)?;
        if machine.shared.system(state.system).tier_of(from) == to {
            return Ok(None);
        }
        self.now += state.costs.allocate;
        let block = machine.shared.system_mut(state.system).take_block(to, leaf.size);
        let Some(block) = block else {
            state.counters.gave_up(leaf.size);
            return Err(Outcome::NoSpace);
        };
        state.account(machine.shared.system(state.system));
        Ok(Some(Work::Move { page, size: leaf.size, from, to: block }))
    }

    pub(super) fn start_exchange(
        &mut self,
        machine: &mut Machine,
        state: &mut State,
        pair: Exchange,
    ) -> Result<Option<Work>, Outcome> {
        let (one, other) = exchangeable(machine, state, pair)?;
        self.now += state.costs.allocate;
        Ok(Some(Work::Swap {
            one: (pair.one, one.pte.frame()),
            other: (pair.other, other.pte.frame()),
            size: one.size,
        }))
    }

    pub(super) fn start_resize(
        &mut self,
        machine: &mut Machine,
        state: &mut State,
        resize: Resize,
    ) -> Result<Option<Work>, Outcome> {
        let Resize { page, to } = resize;
        if !state.guest.is_live(machine.shared.system(state.system), page.space) {
            return Err(Outcome::Gone);
        }
        if let Some(leaf) = machine.shared.system(state.system).table(page.space).find(page.addr())
            && leaf.size >= to
        {
            if !page.is_aligned(leaf.size) {
                return Err(Outcome::Gone);
            }
            if leaf.size == to {
                return Ok(None);
            }
            available(machine, state, page)?;
            return self.split(machine, state, page, leaf.size, to).map(|()| None);
        }
        let os = machine.shared.system_mut(state.system);
        let range = PageRange::of(page, to);
        let bytes = AddressRange { start: page.addr(), bytes: to.bytes() };
        let fits = page.is_aligned(to) && to <= state.capabilities.largest_page;
        let area = os.areas(page.space).find(page.addr());
        if !fits || area.is_none_or(|(_, area)| area.end < bytes.end()) {
            return Err(Outcome::Gone);
        }
        let mut parts = Vec::new();
        let mut pages_in = vec![0u64; state.topology.tiers.len()];
        for (addr, size, pte) in os.table(page.space).pages_in(bytes) {
            if state.held.contains(&PageId::of(page.space, addr)) {
                return Err(Outcome::Busy);
            }
            if os.is_shared(pte.frame()) {
                return Err(Outcome::Unmovable);
            }
            pages_in[state.guest.tier_of(os, pte.frame()).index()] += size.base_pages();
            parts.push((PageId::of(page.space, addr), size, pte.frame()));
        }
        let most = pages_in.iter().copied().max().filter(|most| *most > 0).ok_or(Outcome::Gone)?;
        self.now += state.costs.collapse;
        let first = parts[0].2;
        let in_place = first.0.is_multiple_of(to.base_pages())
            && pages_in.iter().sum::<u64>() == range.pages
            && parts.iter().all(|(part, _, frame)| frame.0 == first.0 + part.vpn - page.vpn);
        let block = if in_place {
            None
        } else {
            let tier = TierId(pages_in.iter().position(|pages| *pages == most).unwrap_or_default() as u8);
            Some(os.take_block(state.guest.in_os(tier), to).ok_or(Outcome::NoSpace)?)
        };
        state.account(machine.shared.system(state.system));
        Ok(Some(Work::Collapse { page, size: to, to: block, parts }))
    }
}

/// The leaf of the page that begins at `page`, if an order may have it.
pub(super) fn available(machine: &Machine, state: &State, page: PageId) -> Result<Leaf, Outcome> {
    let os = machine.shared.system(state.system);
    let leaf = state.guest.leaf_of(os, page).ok_or(Outcome::Gone)?;
    if !page.is_aligned(leaf.size) {
        Err(Outcome::Gone)
    } else if state.held.contains(&page) {
        Err(Outcome::Busy)
    } else if os.is_shared(leaf.pte.frame()) {
        // Linux moves pages that several processes map only when told to (MPOL_MF_MOVE_ALL).
        Err(Outcome::Unmovable)
    } else {
        Ok(leaf)
    }
}

/// The leaves of two pages of equal size that may change places.
fn exchangeable(machine: &Machine, state: &State, pair: Exchange) -> Result<(Leaf, Leaf), Outcome> {
    let one = available(machine, state, pair.one)?;
    let other = available(machine, state, pair.other)?;
    if one.size != other.size || pair.one == pair.other { Err(Outcome::Gone) } else { Ok((one, other)) }
}

/// The number that a tier of the policy's has in the operating system.
fn checked_tier(state: &State, tier: TierId) -> Result<TierId, Outcome> {
    if tier.index() < state.topology.tiers.len() {
        Ok(state.guest.in_os(tier))
    } else {
        Err(Outcome::Unsupported)
    }
}
