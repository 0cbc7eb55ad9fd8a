//! Relocation to chosen frames: a page goes whole, and what lies at its destination comes back frame by frame.

use super::orders::Attempt;
use super::{Holder, InMemory};
use terrace_model::{PageSize, TierId};
use terrace_seam::{Capability, CopyBy, Cost, MoveOptions, Outcome, PageId, Relocate, Ticket};

impl InMemory {
    pub(super) fn start_relocate(
        &mut self,
        ticket: Ticket,
        options: MoveOptions,
        relocate: Relocate,
    ) -> Attempt {
        self.needs(Capability::Frames)?;
        if matches!(options.copy, CopyBy::Mapping(_)) {
            self.needs(Capability::CopylessExchange)?;
        }
        let Relocate { from, to, exchange } = relocate;
        let from_tier = self.tier_of(from.0).ok_or(Outcome::Gone)?;
        let (size, mut held) = match self.frames[from_tier].holder(from.0) {
            Holder::Page(name) if self.pages[&name].frame == from.0 => (self.available(name)?, vec![name]),
            Holder::Other => (PageSize::Base, Vec::new()),
            Holder::Kernel => return Err(Outcome::Unmovable),
            Holder::Reserved(_) | Holder::OtherInFlight(_) => return Err(Outcome::Busy),
            _ => return Err(Outcome::Gone),
        };
        let length = size.base_pages();
        let fits = |tier: &usize| self.frames[*tier].contains(to.0 + length - 1);
        let to_tier = self.tier_of(to.0).filter(fits).ok_or(Outcome::Gone)?;
        if !to.0.is_multiple_of(length) {
            return Err(Outcome::Gone);
        }
        if from == to {
            return Ok((Vec::new(), held));
        }
        if !exchange && !self.frames[to_tier].is_free(to.0, length) {
            let kernel = (to.0..to.0 + length).any(|at| self.frames[to_tier].holder(at) == Holder::Kernel);
            return Err(if kernel { Outcome::Unmovable } else { Outcome::NoSpace });
        }
        self.take_part_of_exchange(to_tier, to.0, length, &mut held)?;
        let mut frames: Vec<(usize, u64)> = (to.0..to.0 + length).map(|at| (to_tier, at)).collect();
        frames.push((from_tier, from.0));
        let mut reserved = Vec::new();
        for (tier, at) in frames {
            let taken = match self.frames[tier].holder(at) {
                Holder::Free { .. } => Holder::Reserved(ticket),
                Holder::Other => Holder::OtherInFlight(ticket),
                _ => continue,
            };
            self.frames[tier].set(at, taken);
            reserved.push((at, 1));
        }
        Ok((reserved, held))
    }

    /// Adds the pages in a block to `held`, if all of it can be exchanged now.
    fn take_part_of_exchange(
        &self,
        tier: usize,
        first: u64,
        length: u64,
        held: &mut Vec<PageId>,
    ) -> Result<(), Outcome> {
        let mut busy = false;
        for at in first..first + length {
            match self.frames[tier].holder(at) {
                Holder::Free { .. } | Holder::Other => {}
                Holder::Kernel => return Err(Outcome::Unmovable),
                Holder::Reserved(_) | Holder::OtherInFlight(_) => busy = true,
                Holder::Page(name) => {
                    let page = &self.pages[&name];
                    if page.pinned || page.size.base_pages() > length {
                        return Err(Outcome::Unmovable);
                    }
                    busy |= page.held_by.is_some();
                    if page.frame == at {
                        held.push(name);
                    }
                }
            }
        }
        if busy { Err(Outcome::Busy) } else { Ok(()) }
    }

    /// The holder once the order that has it in its hands is over.
    fn after_order(holder: Holder) -> Holder {
        match holder {
            Holder::Reserved(_) => Holder::Free { zeroed: false },
            Holder::OtherInFlight(_) => Holder::Other,
            other => other,
        }
    }

    pub(super) fn give_back(&mut self, reserved: &[(u64, u64)]) {
        for &(first, frames) in reserved {
            let Some(tier) = self.tier_of(first) else { continue };
            for at in first..first + frames {
                let holder = Self::after_order(self.frames[tier].holder(at));
                self.frames[tier].set(at, holder);
            }
        }
    }

    /// Swaps two blocks frame by frame; those that are free come along.
    pub(super) fn land_relocate(
        &mut self,
        relocate: Relocate,
        reserved: &[(u64, u64)],
        held: &[PageId],
        cost: &mut Cost,
    ) {
        self.give_back(reserved);
        let (from, to) = (relocate.from.0, relocate.to.0);
        let (Some(a), Some(b)) = (self.tier_of(from), self.tier_of(to)) else { return };
        if from == to {
            return;
        }
        let mover = held.first().filter(|name| self.pages[name].frame == from);
        let length = mover.map_or(1, |name| self.pages[name].size.base_pages());
        let mut back = 0;
        for at in 0..length {
            let (holder_a, content_a) = (self.frames[a].holder(from + at), self.frames[a].content(from + at));
            let (holder_b, content_b) = (self.frames[b].holder(to + at), self.frames[b].content(to + at));
            back += u64::from(!matches!(holder_b, Holder::Free { .. }));
            self.frames[a].set(from + at, holder_b);
            self.frames[b].set(to + at, holder_a);
            self.frames[a].set_content(from + at, content_b);
            self.frames[b].set_content(to + at, content_a);
        }
        for name in held {
            if let Some(page) = self.pages.get_mut(name) {
                let was = page.frame;
                if (from..from + length).contains(&was) {
                    (page.frame, page.tier) = (to + was - from, TierId(b as u8));
                } else {
                    (page.frame, page.tier) = (from + was - to, TierId(a as u8));
                }
            }
            self.flush(*name);
        }
        self.copied(a, b, length * PageSize::Base.bytes(), cost);
        if back > 0 {
            self.copied(b, a, back * PageSize::Base.bytes(), cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::{Bytes, Frame, Time};
    use terrace_seam::{MemorySystem, Move, PageRange, PhysicalMemory, Placement, Signal};

    const HUGE: u64 = 512;

    fn world() -> InMemory {
        let mut world = InMemory::new(&[("dram", Bytes::mib(8))]);
        world.map_anonymous(0, 0, 4 * HUGE);
        world
    }

    fn fill(world: &mut InMemory, vpn: u64, size: PageSize) -> Frame {
        let fault = world.touch(PageId::new(0, vpn), true).unwrap();
        world.fault_in(&fault, &Placement::ANYWHERE.or(TierId(0), Some(size)));
        assert!(world.touch(PageId::new(0, vpn), true).is_none());
        world.frame(PageId::new(0, vpn)).unwrap()
    }

    fn relocate(world: &mut InMemory, from: u64, to: u64, exchange: bool) -> Outcome {
        let moves = [Relocate { from: Frame(from), to: Frame(to), exchange }];
        PhysicalMemory::relocate(world, &moves, MoveOptions::default());
        world.advance_to(world.now().plus(Time::from_nanos(1_000_000)));
        world.check().unwrap();
        match world.take_signals()[..] {
            [Signal::Done { outcome, .. }] => outcome,
            ref other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_huge_page_changes_places_with_a_mixture() {
        let mut world = world();
        assert_eq!(fill(&mut world, 0, PageSize::Huge), Frame(0));
        // Base pages at 512 and 513, the page cache at 600, the rest of that block free.
        assert_eq!(fill(&mut world, HUGE, PageSize::Base), Frame(512));
        assert_eq!(fill(&mut world, HUGE + 1, PageSize::Base), Frame(513));
        world.take_frame(Frame(600), true);
        let free = world.tiers().free_pages(TierId(0));
        assert_eq!(relocate(&mut world, 0, 512, false), Outcome::NoSpace);
        assert_eq!(relocate(&mut world, 0, 512, true), Outcome::Done);
        assert_eq!(world.frame(PageId::new(0, 5)), Some(Frame(517)));
        assert_eq!(world.locate(PageId::new(0, 5)).unwrap().1, PageSize::Huge);
        assert_eq!(world.frame(PageId::new(0, HUGE + 1)), Some(Frame(1)));
        assert_eq!(world.state(Frame(88)), terrace_seam::FrameState::MovableOther);
        assert_eq!(world.tiers().free_pages(TierId(0)), free);
        assert_eq!(relocate(&mut world, 512, 1024, false), Outcome::Done, "a free block");
        assert_eq!(relocate(&mut world, 1024, 1024, true), Outcome::Done, "there already");
    }

    #[test]
    fn what_cannot_move_or_is_larger_refuses() {
        let mut world = world();
        fill(&mut world, 0, PageSize::Huge);
        let base = fill(&mut world, HUGE, PageSize::Base).0;
        assert_eq!(relocate(&mut world, base, 7, true), Outcome::Unmovable, "part of a larger page");
        assert_eq!(relocate(&mut world, base, 0, true), Outcome::Unmovable, "a larger page");
        world.take_frame(Frame(1030), false);
        assert_eq!(relocate(&mut world, 0, 1024, true), Outcome::Unmovable);
        assert_eq!(relocate(&mut world, 0, 513, true), Outcome::Gone, "not aligned");
        world.pin(PageId::new(0, HUGE));
        assert_eq!(relocate(&mut world, 0, 512, true), Outcome::Unmovable);
    }

    #[test]
    fn what_is_in_flight_is_busy_and_comes_back_after_a_failure() {
        let mut world = world();
        fill(&mut world, 0, PageSize::Huge);
        fill(&mut world, HUGE, PageSize::Base);
        world.take_frame(Frame(600), true);
        let (to, one) = (Frame(512), Relocate { from: Frame(0), to: Frame(512), exchange: true });
        let order = |world: &mut InMemory, moves: &[Relocate]| {
            PhysicalMemory::relocate(world, moves, MoveOptions::default());
        };
        order(&mut world, &[one]);
        assert_eq!(world.state(to), terrace_seam::FrameState::Busy);
        assert_eq!(world.state(Frame(600)), terrace_seam::FrameState::Busy);
        order(&mut world, &[one]);
        world.migrate(&[Move { page: PageId::new(0, HUGE), to: TierId(0) }], MoveOptions::default());
        world.unmap(PageRange::new(PageId::new(0, HUGE), 1));
        world.advance_to(world.now().plus(Time::from_nanos(1_000_000)));
        world.check().unwrap();
        let outcomes: Vec<Outcome> = world
            .take_signals()
            .iter()
            .filter_map(|signal| match signal {
                Signal::Done { outcome, .. } => Some(*outcome),
                _ => None,
            })
            .collect();
        assert_eq!(outcomes, [Outcome::Gone, Outcome::Busy, Outcome::Busy]);
        assert_eq!(world.state(Frame(600)), terrace_seam::FrameState::MovableOther);
        assert_eq!(world.frame(PageId::new(0, 0)), Some(Frame(0)));
    }

    #[test]
    fn zeros_are_dropped_and_stores_survive() {
        let mut world = world();
        fill(&mut world, 0, PageSize::Huge);
        assert!(world.touch(PageId::new(0, 9), true).is_none());
        assert!(world.touch(PageId::new(0, 10), false).is_none());
        assert_eq!(world.zero_pages(PageId::new(0, 3)), Some(510));
        assert_eq!(world.zero_pages(PageId::new(0, HUGE)), None);
        world.drop_zeros(&[PageId::new(0, 0)]);
        world.advance_to(world.now().plus(Time::from_nanos(1_000_000)));
        world.check().unwrap();
        assert_eq!(world.resident(TierId(0)), 2);
        let (stored, zero) = (PageId::new(0, 9), PageId::new(0, 10));
        assert_eq!(world.locate(stored).unwrap().1, PageSize::Base);
        assert!(world.reads_as_zeros(zero) && world.touch(zero, false).is_none());
        assert_eq!(world.resident(TierId(0)), 2, "a load faults nothing in");
        fill(&mut world, 10, PageSize::Base);
        assert!(!world.reads_as_zeros(zero));
        world.check().unwrap();
    }
}
