//! Orders under way: what they take when they start, what they change when they land.

use super::{Holder, InMemory};
use std::collections::VecDeque;
use terrace_model::{Frame, PageSize, TierId};
use terrace_seam::{
    Capability, CopyBy, Exchange, HugePages, Moment, Move, MoveOptions, Outcome, PageId, PageRange, Relocate,
    Resize, Subject, Ticket,
};

/// One piece of an order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    Move(Move),
    Exchange(Exchange),
    Resize(Resize),
    Relocate(Relocate),
    Zero(Frame, PageSize),
    DropZeros(PageId),
}

impl Item {
    pub fn subject(&self) -> Subject {
        match self {
            Item::Move(one) => Subject::Page(one.page),
            Item::Exchange(pair) => Subject::Pair(pair.one, pair.other),
            Item::Resize(resize) => Subject::Page(resize.page),
            Item::Relocate(relocate) => Subject::Frame(relocate.from),
            Item::Zero(frame, _) => Subject::Frame(*frame),
            Item::DropZeros(page) => Subject::Page(*page),
        }
    }
}

/// An order and those of its moves that are not finished.
#[derive(Clone, Debug)]
pub(super) struct Order {
    ticket: Ticket,
    waiting: VecDeque<Item>,
    options: MoveOptions,
    flying: Vec<Flying>,
    lands: Moment,
}

#[derive(Clone, Debug)]
pub(super) struct Flying {
    pub item: Item,
    /// How it will end whatever happens; none: it is attempted.
    pub doomed: Option<Outcome>,
    /// Blocks taken at the destination.
    pub reserved: Vec<(u64, u64)>,
    /// Pages in its hands.
    pub held: Vec<PageId>,
}

impl Flying {
    fn failed(item: Item, outcome: Outcome) -> Flying {
        Flying { item, doomed: Some(outcome), reserved: Vec::new(), held: Vec::new() }
    }
}

impl InMemory {
    pub(super) fn order(&mut self, items: Vec<Item>, options: MoveOptions) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.ordered_pages += items.len() as u64;
        let mut order = Order { ticket, waiting: items.into(), options, flying: Vec::new(), lands: self.now };
        self.launch(&mut order);
        if !order.flying.is_empty() {
            self.orders.push(order);
        }
        ticket
    }

    /// When the next order lands.
    pub(super) fn next_landing(&self) -> Option<Moment> {
        self.orders.iter().map(|order| order.lands).min()
    }

    /// Goes to `moment`, landing what falls due until then.
    pub fn advance_to(&mut self, moment: Moment) {
        while let Some(at) = self.next_landing().filter(|at| *at <= moment) {
            self.now = self.now.max(at);
            let due = self.orders.iter().position(|order| order.lands == at);
            let Some(mut order) = due.map(|due| self.orders.remove(due)) else { break };
            for flying in std::mem::take(&mut order.flying) {
                self.land(order.ticket, order.options, flying);
            }
            self.launch(&mut order);
            if !order.flying.is_empty() {
                self.orders.push(order);
            }
            self.account();
        }
        self.now = self.now.max(moment);
    }

    fn launch(&mut self, order: &mut Order) {
        let batch = order.options.in_flight.map_or(usize::MAX, |n| n.get() as usize);
        while order.flying.len() < batch
            && let Some(item) = order.waiting.pop_front()
        {
            let flying = self.start(order.ticket, order.options, item);
            order.flying.push(flying);
        }
        order.lands = self.now.plus(self.delay);
        self.account();
    }

    fn start(&mut self, ticket: Ticket, options: MoveOptions, item: Item) -> Flying {
        if let Some(outcome) = self.injected() {
            return Flying::failed(item, outcome);
        }
        let attempt = match item {
            Item::Move(one) => self.start_move(ticket, options, one),
            Item::Exchange(pair) => self.start_exchange(options, pair),
            Item::Resize(resize) => self.start_resize(ticket, options, resize),
            Item::Relocate(relocate) => self.start_relocate(ticket, options, relocate),
            Item::Zero(frame, size) => self.start_zero(ticket, frame, size),
            Item::DropZeros(page) => self
                .needs(Capability::ZeroPages)
                .and_then(|()| self.available(page))
                .map(|_| (Vec::new(), vec![page])),
        };
        match attempt {
            Err(outcome) => Flying::failed(item, outcome),
            Ok((reserved, held)) => {
                for page in &held {
                    if let Some(page) = self.pages.get_mut(page) {
                        page.held_by = Some(ticket);
                    }
                }
                Flying { item, doomed: None, reserved, held }
            }
        }
    }

    fn injected(&mut self) -> Option<Outcome> {
        let failures = &mut self.failures;
        if let Some(outcome) = failures.next.pop_front() {
            return Some(outcome);
        }
        (failures.one_in > 0 && failures.random.below(failures.one_in) == 0).then_some(failures.outcome)
    }

    /// The page that begins at `name`, if it is free to be worked on.
    pub(super) fn available(&self, name: PageId) -> Result<PageSize, Outcome> {
        let page = self.pages.get(&name).ok_or(Outcome::Gone)?;
        match (page.held_by, page.pinned) {
            (Some(_), _) => Err(Outcome::Busy),
            (None, true) => Err(Outcome::Unmovable),
            (None, false) => Ok(page.size),
        }
    }

    pub(super) fn needs(&self, capability: Capability) -> Result<(), Outcome> {
        if self.capabilities.has(capability) { Ok(()) } else { Err(Outcome::Unsupported) }
    }

    fn reserve(&mut self, ticket: Ticket, tier: TierId, size: PageSize) -> Result<(u64, u64), Outcome> {
        let frames = self.frames.get_mut(tier.index()).ok_or(Outcome::Unsupported)?;
        let first = frames.find(size).ok_or(Outcome::NoSpace)?;
        frames.set_block(first, size.base_pages(), Holder::Reserved(ticket));
        Ok((first, size.base_pages()))
    }

    fn start_move(&mut self, ticket: Ticket, options: MoveOptions, one: Move) -> Attempt {
        self.needs(Capability::Migration)?;
        let size = self.available(one.page)?;
        if self.pages[&one.page].tier == one.to {
            return Ok((Vec::new(), vec![one.page]));
        }
        if size > PageSize::Base && options.huge == HugePages::SplitFirst {
            self.needs(Capability::Split)?;
            let free = self.frames.get(one.to.index()).ok_or(Outcome::Unsupported)?.free();
            if free < size.base_pages() {
                return Err(Outcome::NoSpace);
            }
            let mut reserved = Vec::new();
            for _ in 0..size.base_pages() {
                match self.reserve(ticket, one.to, PageSize::Base) {
                    Ok(block) => reserved.push(block),
                    Err(outcome) => {
                        self.give_back(&reserved);
                        return Err(outcome);
                    }
                }
            }
            self.split(one.page, PageSize::Base);
            return Ok((reserved, (0..size.base_pages()).map(|at| one.page.plus(at)).collect()));
        }
        if size > PageSize::Base {
            self.needs(Capability::WholeHugePages)?;
        }
        Ok((vec![self.reserve(ticket, one.to, size)?], vec![one.page]))
    }

    fn start_exchange(&mut self, options: MoveOptions, pair: Exchange) -> Attempt {
        self.needs(Capability::Exchange)?;
        let (one, other) = (self.available(pair.one)?, self.available(pair.other)?);
        if one != other || pair.one == pair.other {
            return Err(Outcome::Gone);
        }
        if one > PageSize::Base && options.huge == HugePages::SplitFirst {
            self.needs(Capability::Split)?;
            let parts = |page: PageId| (0..one.base_pages()).map(move |at| page.plus(at));
            for page in [pair.one, pair.other] {
                self.split(page, PageSize::Base);
            }
            return Ok((Vec::new(), parts(pair.one).chain(parts(pair.other)).collect()));
        }
        Ok((Vec::new(), vec![pair.one, pair.other]))
    }

    fn start_resize(&mut self, ticket: Ticket, options: MoveOptions, resize: Resize) -> Attempt {
        if matches!(options.copy, CopyBy::Mapping(_)) {
            self.needs(Capability::CopylessExchange)?;
        }
        let Resize { page: first, to } = resize;
        let size = self.pages.get(&first).map(|page| page.size);
        if size == Some(to) {
            return Ok((Vec::new(), vec![first]));
        }
        if size.is_some_and(|size| size > to) {
            self.needs(Capability::Split)?;
            self.available(first)?;
            return Ok((Vec::new(), vec![first]));
        }
        self.needs(Capability::Collapse)?;
        let range = PageRange::of(first, to);
        let fits = first.is_aligned(to) && to <= self.capabilities.largest_page;
        if !fits || !self.area_of(first).is_some_and(|area| area.range.covers(range)) {
            return Err(Outcome::Gone);
        }
        let parts = self.parts(range);
        let mut pages_in = vec![0u64; self.frames.len()];
        for part in &parts {
            pages_in[self.pages[part].tier.index()] += self.available(*part)?.base_pages();
        }
        let most = pages_in.iter().copied().max().filter(|most| *most > 0).ok_or(Outcome::Gone)?;
        if self.lies_in_place(range, to) {
            return Ok((Vec::new(), parts));
        }
        let tier = pages_in.iter().position(|pages| *pages == most).unwrap_or_default();
        Ok((vec![self.reserve(ticket, TierId(tier as u8), to)?], parts))
    }

    pub(super) fn parts(&self, range: PageRange) -> Vec<PageId> {
        let end = PageId { space: range.first.space, vpn: range.end() };
        self.pages.range(range.first..end).map(|(name, _)| *name).collect()
    }

    /// Whether the pages of `range` fill it and lie in one aligned block already.
    fn lies_in_place(&self, range: PageRange, size: PageSize) -> bool {
        let Some(first) = self.pages.get(&range.first).map(|page| page.frame) else { return false };
        let in_place = |name: &PageId| self.pages[name].frame == first + name.vpn - range.first.vpn;
        let parts = self.parts(range);
        let filled = parts.iter().map(|name| self.pages[name].size.base_pages()).sum::<u64>();
        first.is_multiple_of(size.base_pages()) && filled == range.pages && parts.iter().all(in_place)
    }

    fn start_zero(&mut self, ticket: Ticket, frame: Frame, size: PageSize) -> Attempt {
        self.needs(Capability::Frames)?;
        let tier = self.tier_of(frame.0).ok_or(Outcome::Gone)?;
        if !self.frames[tier].is_free(frame.0, size.base_pages()) {
            return Err(Outcome::Gone);
        }
        self.frames[tier].set_block(frame.0, size.base_pages(), Holder::Reserved(ticket));
        Ok((vec![(frame.0, size.base_pages())], Vec::new()))
    }
}

/// What an item takes when it starts: blocks at the destination, and pages.
pub(super) type Attempt = Result<(Vec<(u64, u64)>, Vec<PageId>), Outcome>;

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::{Bytes, Time};
    use terrace_seam::{MemorySystem, Placement, Signal};

    fn world() -> InMemory {
        let mut world = InMemory::new(&[("fast", Bytes::mib(2)), ("slow", Bytes::mib(8))]);
        world.map_anonymous(0, 0, 1024);
        world
    }

    fn fill(world: &mut InMemory, vpn: u64, tier: u8, size: PageSize) -> PageId {
        let page = PageId::new(0, vpn);
        let fault = world.touch(page, true).unwrap();
        world.fault_in(&fault, &Placement::ANYWHERE.or(TierId(tier), Some(size)));
        page
    }

    fn outcomes(world: &mut InMemory) -> Vec<Outcome> {
        world.advance_to(world.now().plus(Time::from_nanos(10_000_000)));
        world.check().unwrap();
        let done = |signal: &Signal| match signal {
            Signal::Done { outcome, .. } => Some(*outcome),
            _ => None,
        };
        world.take_signals().iter().filter_map(done).collect()
    }

    #[test]
    fn huge_pages_move_whole_or_split_and_come_back() {
        let mut world = world();
        let page = fill(&mut world, 0, 1, PageSize::Huge);
        world.migrate(&[Move { page, to: TierId(0) }], MoveOptions::default());
        assert_eq!(world.tiers().free_pages(TierId(0)), 0, "the destination counts as used during the move");
        assert_eq!(outcomes(&mut world), [Outcome::Done]);
        assert_eq!(world.locate(page), Some((TierId(0), PageSize::Huge)));
        let split = MoveOptions { huge: HugePages::SplitFirst, ..MoveOptions::default() };
        world.migrate(&[Move { page, to: TierId(1) }], split);
        assert_eq!(outcomes(&mut world), [Outcome::Done]);
        assert_eq!(world.locate(page.plus(511)), Some((TierId(1), PageSize::Base)));
        world.resize(&[Resize { page, to: PageSize::Huge }]);
        assert_eq!(outcomes(&mut world), [Outcome::Done]);
        assert_eq!(world.locate(page.plus(511)), Some((TierId(1), PageSize::Huge)));
    }

    #[test]
    fn an_exchange_needs_no_room_and_keeps_every_byte() {
        let mut world = world();
        let (one, other) = (fill(&mut world, 0, 0, PageSize::Huge), fill(&mut world, 512, 1, PageSize::Huge));
        world.exchange(&[Exchange { one, other }], MoveOptions::default());
        assert_eq!(outcomes(&mut world), [Outcome::Done]);
        assert_eq!(world.locate(one).unwrap().0, TierId(1));
        assert_eq!(world.locate(other).unwrap().0, TierId(0));
        world.migrate(&[Move { page: one, to: TierId(0) }], MoveOptions::default());
        assert_eq!(outcomes(&mut world), [Outcome::NoSpace]);
        let split = MoveOptions { huge: HugePages::SplitFirst, ..MoveOptions::default() };
        world.exchange(&[Exchange { one, other }], split);
        assert_eq!(outcomes(&mut world), [Outcome::Done]);
        for at in [0, 511] {
            assert_eq!(world.locate(one.plus(at)), Some((TierId(0), PageSize::Base)));
            assert_eq!(world.locate(other.plus(at)), Some((TierId(1), PageSize::Base)));
        }
    }

    #[test]
    fn a_page_that_is_unmapped_in_flight_is_gone_and_its_frames_are_free() {
        let mut world = world();
        let page = fill(&mut world, 0, 1, PageSize::Huge);
        world.migrate(&[Move { page, to: TierId(0) }], MoveOptions::default());
        world.migrate(&[Move { page, to: TierId(0) }], MoveOptions::default());
        world.unmap(PageRange::new(PageId::new(0, 100), 1));
        assert_eq!(outcomes(&mut world), [Outcome::Gone, Outcome::Busy]);
        assert_eq!(world.tiers().free_pages(TierId(0)), 512);
        assert_eq!(world.resident(TierId(1)), 511);
        world.fail_next(Outcome::Unmovable);
        world.migrate(&[Move { page, to: TierId(0) }], MoveOptions::default());
        assert_eq!(outcomes(&mut world), [Outcome::Unmovable]);
        world.pin(page);
        world.migrate(&[Move { page, to: TierId(0) }], MoveOptions::default());
        assert_eq!(outcomes(&mut world), [Outcome::Unmovable]);
    }

    #[test]
    fn pages_in_flight_land_together() {
        let mut world = world();
        let pages: Vec<Move> = (0..4)
            .map(|vpn| Move { page: fill(&mut world, vpn, 1, PageSize::Base), to: TierId(0) })
            .collect();
        let two = MoveOptions { in_flight: std::num::NonZeroU32::new(2), ..MoveOptions::default() };
        world.migrate(&pages, two);
        world.advance_to(Moment(10_000));
        assert_eq!(world.resident(TierId(0)), 2);
        world.advance_to(Moment(20_000));
        assert_eq!(world.resident(TierId(0)), 4);
    }
}
