//! What the program changes while orders and watches hold its pages, and a check that nothing is lost.

use super::orders::Order;
use super::part::Part;
use super::watched::unwatch;
use super::{Change, State, pages_of};
use crate::machine::Machine;
use terrace_model::{AddressRange, Frame, PageSize, SpaceId, Time};
use terrace_policy::{Outcome, PageId, PageRange, Signal, SignalKind};

impl Order {
    /// Gives up the parts that hold pages of `range`.
    fn lose(
        &mut self,
        machine: &mut Machine,
        state: &mut State,
        range: PageRange,
        outcome: Outcome,
        now: Time,
    ) {
        for part in &mut self.flying {
            let pages = part.pages();
            let touches = |(page, size): &(PageId, PageSize)| {
                page.space == range.first.space
                    && page.vpn < range.end()
                    && page.vpn + size.base_pages() > range.first.vpn
            };
            if part.lost.is_none() && pages.iter().any(touches) {
                part.give_up(machine, state, outcome, now);
            }
        }
    }
}

impl State {
    /// Counts all frames anew, and checks that pages are held by the orders that say so and by nobody else.
    ///
    /// # Errors
    /// The first thing that is wrong, in words.
    pub fn audit(&self, machine: &Machine) -> Result<(), String> {
        let orders = self.orders.values();
        let goes_on = |part: &&Part| part.lost.is_none() && !part.is_taken_back(machine, self.system);
        let flying = || orders.clone().flat_map(|order| &order.flying).filter(goes_on);
        let cached = flying().flat_map(Part::cached).map(|frame| (*frame, PageSize::Base));
        let taken: Vec<(Frame, PageSize)> = flying().flat_map(Part::blocks).chain(cached).collect();
        let set_aside = machine.scheme.frames_set_aside().into_iter().map(|frame| (frame, PageSize::Base));
        let taken: Vec<(Frame, PageSize)> = taken.into_iter().chain(set_aside).collect();
        machine.shared.system(self.system).audit(self.guest.number, &taken, &self.reserved)?;
        let mut held: Vec<PageId> = flying().flat_map(Part::pages).map(|(page, _)| page).collect();
        held.sort_unstable();
        let mut known: Vec<PageId> = self.held.iter().copied().collect();
        known.sort_unstable();
        if held != known {
            return Err(format!("orders hold {held:?}, the kernel knows of {known:?}"));
        }
        for space in self.guest.live_spaces(machine.shared.system(self.system)) {
            for (addr, _, pte) in machine.shared.system(self.system).table(space).pages_in(AddressRange::ALL)
            {
                if pte.is_held() != self.held.contains(&PageId::of(space, addr)) {
                    return Err(format!("{space}:{addr:#x}: held {} by its entry only", pte.is_held()));
                }
            }
        }
        Ok(())
    }

    /// The kernel is about to change the pages of a range for the program: orders that hold them give them up.
    pub fn before_change(
        &mut self,
        machine: &mut Machine,
        space: SpaceId,
        range: AddressRange,
        change: &Change,
        now: Time,
    ) {
        let outcome = match change {
            Change::Unmap | Change::Rename => Outcome::Gone,
            Change::Share => Outcome::Busy,
        };
        let pages = pages_of(space, range);
        let mut orders = std::mem::take(&mut self.orders);
        for order in orders.values_mut() {
            order.lose(machine, self, pages, outcome, now);
        }
        self.orders = orders;
        if !matches!(change, Change::Share) {
            if self.wanted.contains(SignalKind::Unmapped) {
                self.signals.push(Signal::Unmapped { range: pages });
            }
            // Large pages that reach into the range are split by what follows, and lose their watch with that.
            let first = pages.first.aligned(PageSize::Giant);
            let wide = PageRange { first, pages: pages.end() - first.vpn };
            unwatch(machine, self, wide, |page, size| page.vpn + size.base_pages() > pages.first.vpn);
        }
    }
}
