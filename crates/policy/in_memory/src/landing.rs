//! Orders that land: what changes places.

use super::orders::{Flying, Item};
use super::{Holder, InMemory};
use terrace_model::{TierId, Time};
use terrace_seam::{CopyBy, Cost, Initiator, MoveOptions, Outcome, PageId, PageRange, Resize, Ticket};

impl InMemory {
    /// Carries out one piece of an order, if what it took is still as it was, and returns it.
    pub(super) fn land(&mut self, ticket: Ticket, options: MoveOptions, flying: Flying) {
        let Flying { item, doomed, reserved, held } = flying;
        let subject = item.subject();
        let intact =
            held.iter().all(|name| self.pages.get(name).is_some_and(|page| page.held_by == Some(ticket)));
        for name in &held {
            if let Some(page) = self.pages.get_mut(name).filter(|page| page.held_by == Some(ticket)) {
                page.held_by = None;
            }
        }
        let outcome = match doomed {
            Some(outcome) => outcome,
            None if !intact => Outcome::Gone,
            None => Outcome::Done,
        };
        let mut cost = Cost { time: Time::from_nanos(1000), ..Cost::default() };
        if outcome == Outcome::Done {
            match item {
                Item::Move(_) => {
                    for (name, block) in held.iter().zip(&reserved) {
                        self.put(*name, block.0, &mut cost);
                    }
                }
                Item::Exchange(_) => {
                    // First all of the one page, then all of the other.
                    let (ones, others) = held.split_at(held.len() / 2);
                    for (one, other) in ones.iter().zip(others) {
                        self.swap(*one, *other, &mut cost);
                    }
                }
                Item::Resize(resize) => self.land_resize(resize, &reserved, &mut cost),
                Item::Relocate(relocate) => self.land_relocate(relocate, &reserved, &held, &mut cost),
                Item::DropZeros(page) => {
                    self.land_drop_zeros(page);
                    cost.shootdowns += 1;
                }
                Item::Zero(frame, size) => {
                    if let Some(tier) = self.tier_of(frame.0) {
                        let zeroed = Holder::Free { zeroed: true };
                        self.frames[tier].set_block(frame.0, size.base_pages(), zeroed);
                    }
                }
            }
        } else {
            self.give_back(&reserved);
        }
        if let CopyBy::Mapping(pairs) = options.copy {
            let exchanged = cost.copied / terrace_model::PageSize::Huge.bytes();
            self.exchange_requests += exchanged.div_ceil(u64::from(pairs.get()));
            cost.copied = 0;
        }
        self.done(ticket, subject, outcome, cost);
    }

    /// Moves a page into a reserved block.
    fn put(&mut self, name: PageId, to: u64, cost: &mut Cost) {
        let (Some(page), Some(to_tier)) = (self.pages.get(&name).cloned(), self.tier_of(to)) else { return };
        let (from_tier, frames) = (page.tier.index(), page.size.base_pages());
        for at in 0..frames {
            let content = self.frames[from_tier].content(page.frame + at);
            self.frames[from_tier].set_content(page.frame + at, None);
            self.frames[to_tier].set_content(to + at, content);
        }
        self.frames[from_tier].set_block(page.frame, frames, Holder::Free { zeroed: false });
        self.frames[to_tier].set_block(to, frames, Holder::Page(name));
        if let Some(page) = self.pages.get_mut(&name) {
            page.frame = to;
            page.tier = TierId(to_tier as u8);
        }
        self.copied(from_tier, to_tier, page.size.bytes(), cost);
        self.flush(name);
    }

    pub(super) fn copied(&mut self, from: usize, to: usize, bytes: u64, cost: &mut Cost) {
        self.traffic[from].read[Initiator::Copy as usize] += bytes;
        self.traffic[to].written[Initiator::Copy as usize] += bytes;
        cost.copied += bytes;
        cost.shootdowns += 1;
    }

    fn swap(&mut self, one: PageId, other: PageId, cost: &mut Cost) {
        let (Some(a), Some(b)) = (self.pages.get(&one).cloned(), self.pages.get(&other).cloned()) else {
            return;
        };
        let (a_tier, b_tier) = (a.tier.index(), b.tier.index());
        for at in 0..a.size.base_pages() {
            let (from_a, from_b) =
                (self.frames[a_tier].content(a.frame + at), self.frames[b_tier].content(b.frame + at));
            self.frames[a_tier].set_content(a.frame + at, from_b);
            self.frames[b_tier].set_content(b.frame + at, from_a);
        }
        self.frames[a_tier].set_block(a.frame, a.size.base_pages(), Holder::Page(other));
        self.frames[b_tier].set_block(b.frame, b.size.base_pages(), Holder::Page(one));
        for (name, tier, frame) in [(one, b.tier, b.frame), (other, a.tier, a.frame)] {
            if let Some(page) = self.pages.get_mut(&name) {
                (page.tier, page.frame) = (tier, frame);
            }
            self.flush(name);
        }
        self.copied(a_tier, b_tier, a.size.bytes(), cost);
        self.copied(b_tier, a_tier, a.size.bytes(), cost);
    }

    fn land_resize(&mut self, resize: Resize, reserved: &[(u64, u64)], cost: &mut Cost) {
        let Resize { page: first, to } = resize;
        match self.pages.get(&first).map(|page| page.size) {
            Some(size) if size == to => return,
            Some(size) if size > to => {
                self.split(first, to);
                cost.shootdowns += 1;
                return;
            }
            _ => {}
        }
        let range = PageRange::of(first, to);
        let parts = self.parts(range);
        let block = match reserved.first() {
            Some((block, _)) => *block,
            None => self.pages[&first].frame,
        };
        let (mut accessed, mut dirty, mut writable) = (false, false, false);
        for name in &parts {
            let page = &self.pages[name];
            (accessed, dirty) = (accessed | page.accessed, dirty | page.dirty);
            writable |= page.writable;
            if !reserved.is_empty() {
                self.put(*name, block + name.vpn - first.vpn, cost);
            }
            self.flush(*name);
            self.pages.remove(name);
        }
        let Some(tier) = self.tier_of(block) else { return };
        self.insert(first, to, TierId(tier as u8), block, writable);
        if let Some(page) = self.pages.get_mut(&first) {
            (page.accessed, page.dirty) = (accessed, dirty);
        }
    }
}
