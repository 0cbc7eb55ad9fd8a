//! Orders: moves, exchanges, splits and collapses, carried out step by step in simulated time.
//!
//! A move takes the five steps of Linux (Yan 2019, chapter 1): allocate, unmap with a TLB shootdown, copy, map, free.
//! An order takes as many pages through them together as it may have in flight: one shootdown for all of them, one copy
//! shared by its threads. Between unmap and map a page is held, and who touches it waits. The page table's own lines are
//! written by the thread, whose work the costs of the steps cover.

use super::State;
use super::copy::{Chunk, Copy};
use super::part::{Part, Work};
use super::processors::KernelThread;
use super::shootdown::{complete, flush};
use super::watched::unwatch;
use crate::coherence::Cause;
use crate::machine::{Machine, System};
use crate::os::Pte;
use std::collections::{BTreeSet, VecDeque};
use terrace_model::{Frame, PageSize, Time};
use terrace_policy::{
    Capability, CopyBy, Cost, Exchange, HugePages, Move, MoveOptions, Outcome, PageId, PageRange, Relocate,
    Resize, Signal, Subject, Ticket,
};

/// One piece of an order, as the policy gave it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    Move(Move),
    Exchange(Exchange),
    Resize(Resize),
    DropZeros(PageId),
    Relocate(Relocate),
    Zero(Frame, PageSize),
}

impl Item {
    fn subject(self) -> Subject {
        match self {
            Item::Move(one) => Subject::Page(one.page),
            Item::Exchange(pair) => Subject::Pair(pair.one, pair.other),
            Item::Resize(resize) => Subject::Page(resize.page),
            Item::DropZeros(page) => Subject::Page(page),
            Item::Relocate(one) => Subject::Frame(one.from),
            Item::Zero(frame, _) => Subject::Frame(frame),
        }
    }
}

/// What is left to do with one base page of a huge page that was split.
#[derive(Clone, Copy, Debug)]
enum SplitPart {
    Move(Move),
    Exchange(Exchange),
}

/// An item that was begun and is not answered.
#[derive(Debug)]
struct Begun {
    subject: Subject,
    /// Parts that are not over: one, or one for each base page of what is split first.
    parts: u64,
    outcome: Outcome,
    cost: Cost,
}

/// An order under way.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) ticket: Ticket,
    pub(super) options: MoveOptions,
    /// Not begun yet.
    pub(super) items: VecDeque<Item>,
    begun: Vec<Begun>,
    /// Base pages of huge pages that were split, to be moved or exchanged one by one, and the item each is of.
    split_parts: VecDeque<(usize, SplitPart)>,
    /// Between unmap and map.
    pub(super) flying: Vec<Part>,
    pub(super) copy: Option<Copy>,
    pub(super) copy_began: Time,
    /// Up to where its own thread has come.
    pub(super) now: Time,
    /// The order's threads; empty before the order begins. The first thread is the one that carries the order out.
    pub(super) kernel_threads: Vec<KernelThread>,
}

impl Order {
    pub fn new(ticket: Ticket, items: VecDeque<Item>, options: MoveOptions, now: Time) -> Order {
        Order {
            ticket,
            options,
            items,
            begun: Vec::new(),
            split_parts: VecDeque::new(),
            flying: Vec::new(),
            copy: None,
            copy_began: now,
            now,
            kernel_threads: Vec::new(),
        }
    }

    /// When it does something next.
    pub fn next(&self) -> Time {
        match &self.copy {
            Some(copy) => copy.next().unwrap_or_else(|| copy.arrived()),
            None => self.now,
        }
    }

    /// Does what comes next. Returns whether there is more to do.
    pub fn step<const F: u8>(&mut self, machine: &mut Machine, state: &mut State) -> bool {
        if self.kernel_threads.is_empty() {
            self.begin(machine, state);
            return true;
        }
        match &mut self.copy {
            Some(copy) if copy.next().is_some() => {
                if self.flying.iter().all(|part| part.is_taken_back(machine, state.system)) {
                    copy.stop();
                    return true;
                }
                copy.step::<F>(&mut machine.shared, state);
                for (thread, begin, span) in copy.charges() {
                    state.occupy(machine, self.kernel_threads[thread], begin, span);
                }
                true
            }
            Some(_) => {
                self.land(machine, state);
                true
            }
            None => {
                let begin = self.now;
                let more = self.launch(machine, state);
                state.occupy(machine, self.kernel_threads[0], begin, self.now - begin);
                more
            }
        }
    }

    /// Lets the order's threads go when nothing is left to do.
    pub fn end(&self, state: &mut State) {
        state.processors.leave(&self.kernel_threads);
    }

    /// The call itself. Callers that come while the lists of pages under way are drained share that.
    fn begin(&mut self, machine: &mut Machine, state: &mut State) {
        // The threads share the copies of the order.
        let most = state.processors.most_threads();
        let threads = self.options.threads.min(state.capabilities.copy_threads).clamp(1, most);
        self.kernel_threads = state.processors.take(threads.into());
        if !self.options.empties_lists {
            return;
        }
        if self.now < state.drained_at {
            self.now = state.drained_at;
            return;
        }
        state.occupy(machine, self.kernel_threads[0], self.now, state.costs.order);
        self.now += state.costs.order;
        state.drained_at = self.now;
        state.counters.migration_time += state.costs.order;
        state.spent += Cost { time: state.costs.order, ..Cost::default() };
    }

    /// Allocates and unmaps the next pages. Returns false when there are none.
    fn launch(&mut self, machine: &mut Machine, state: &mut State) -> bool {
        let most = self.options.in_flight.map_or(usize::MAX, |n| n.get() as usize);
        while self.flying.len() < most {
            if let Some((item, part)) = self.split_parts.pop_front() {
                let part = match part {
                    SplitPart::Move(Move { page, to }) => self.start_move(machine, state, page, to),
                    SplitPart::Exchange(pair) => self.start_exchange(machine, state, pair),
                };
                self.started_part(state, item, part);
            } else if let Some(item) = self.items.pop_front() {
                self.begin_item(machine, state, item);
            } else {
                break;
            }
        }
        if self.flying.is_empty() {
            return !self.items.is_empty() || !self.split_parts.is_empty();
        }
        for part in &mut self.flying {
            let held = part.pages();
            for (page, _) in &held {
                machine.shared.system_mut(state.system).set_held(*page, true);
            }
            let span = state.costs.unmap.times(part.cleared_entries());
            self.now += span;
            part.cost.time += span;
        }
        let (cost, waits) = complete(machine, state, Cause::Migration, self.now);
        self.now += waits;
        for part in &mut self.flying {
            let span = flush(machine, state, &part.pages(), self.now);
            self.now += span;
            part.cost.time += span;
        }
        let parts = self.flying.len() as u64;
        for (at, part) in self.flying.iter_mut().enumerate() {
            part.cost.time += Time(cost.time.0 / parts);
            // One shootdown for all of them: the first bears it.
            part.cost.shootdowns += if at == 0 { cost.shootdowns } else { 0 };
        }
        if let CopyBy::Mapping(pairs) = self.options.copy {
            self.exchange_in_host(machine, state, pairs.get().into());
        }
        let mut chunks: Vec<Chunk> = self.flying.iter().flat_map(Part::chunks_to_copy).collect();
        if state.system == System::Programs && machine.shared.hypervisor.is_some() {
            chunks = chunks.into_iter().flat_map(|chunk| chunk.in_machine(&mut machine.shared)).collect();
            self.now += machine.shared.hypervisor.as_mut().map_or(Time::ZERO, |host| host.take_owed());
        }
        self.copy = Some(Copy::new(state, &chunks, self.kernel_threads.len(), self.now));
        self.copy_began = self.now;
        true
    }

    fn begin_item(&mut self, machine: &mut Machine, state: &mut State, item: Item) {
        let at = self.begun.len();
        let begun =
            Begun { subject: item.subject(), parts: 1, outcome: Outcome::Done, cost: Cost::default() };
        self.begun.push(begun);
        let by_mapping = matches!(self.options.copy, CopyBy::Mapping(_));
        if by_mapping && !state.capabilities.has(Capability::CopylessExchange) {
            return self.started_part(state, at, Err(Outcome::Unsupported));
        }
        let part = match item {
            Item::Move(Move { page, to }) if self.options.huge == HugePages::SplitFirst => {
                match self.split_first(machine, state, page, to) {
                    Ok(true) => {
                        let part = |n| SplitPart::Move(Move { page: page.plus(n), to });
                        self.continue_with_parts(at, part);
                        return;
                    }
                    Ok(false) => self.start_move(machine, state, page, to),
                    Err(outcome) => Err(outcome),
                }
            }
            Item::Exchange(pair) if self.options.huge == HugePages::SplitFirst => {
                match self.split_pair(machine, state, pair) {
                    Ok(true) => {
                        let Exchange { one, other } = pair;
                        let part =
                            |n| SplitPart::Exchange(Exchange { one: one.plus(n), other: other.plus(n) });
                        self.continue_with_parts(at, part);
                        return;
                    }
                    Ok(false) => self.start_exchange(machine, state, pair),
                    Err(outcome) => Err(outcome),
                }
            }
            Item::Move(Move { page, to }) => self.start_move(machine, state, page, to),
            Item::Exchange(pair) => self.start_exchange(machine, state, pair),
            Item::Resize(resize) => self.start_resize(machine, state, resize),
            Item::DropZeros(page) => self.drop_zeros(machine, state, page),
            Item::Relocate(one) => self.start_relocate(machine, state, one),
            Item::Zero(frame, size) => self.start_zero(machine, state, frame, size),
        };
        self.started_part(state, at, part);
    }

    /// The huge pages of item `item` were split: their base pages come next.
    fn continue_with_parts(&mut self, item: usize, part: impl Fn(u64) -> SplitPart) {
        self.begun[item].parts = PageSize::Huge.base_pages();
        self.split_parts.extend((0..PageSize::Huge.base_pages()).map(|n| (item, part(n))));
    }

    /// A part was begun, was nothing to do, or failed.
    fn started_part(&mut self, state: &mut State, item: usize, part: Result<Option<Work>, Outcome>) {
        match part {
            Ok(Some(work)) => {
                let cost = Cost { time: state.costs.allocate, ..Cost::default() };
                let part = Part { item, work, lost: None, exchanged: BTreeSet::new(), cost };
                state.held.extend(part.pages().iter().map(|(page, _)| *page));
                self.flying.push(part);
            }
            Ok(None) => self.over(state, item, Outcome::Done, Cost::default()),
            Err(outcome) => {
                let cost = Cost { time: state.costs.allocate, ..Cost::default() };
                self.over(state, item, outcome, cost);
            }
        }
    }

    /// A part is over; the last one of an item answers it.
    fn over(&mut self, state: &mut State, item: usize, outcome: Outcome, cost: Cost) {
        let begun = &mut self.begun[item];
        begun.cost += cost;
        if begun.outcome == Outcome::Done {
            begun.outcome = outcome;
        }
        begun.parts -= 1;
        if begun.parts > 0 {
            return;
        }
        let (subject, outcome, cost) = (begun.subject, begun.outcome, begun.cost);
        state.spent += cost;
        state.counters.migration_time += cost.time;
        state.counters.copied_bytes += cost.copied;
        state.notified_at = state.notified_at.max(self.now);
        state.notify_at_once(Signal::Done { ticket: self.ticket, subject, outcome, cost });
    }

    /// The copy has arrived: maps the pages at their new places and frees the old ones.
    fn land(&mut self, machine: &mut Machine, state: &mut State) {
        let Some(copy) = self.copy.take() else { return };
        self.now = self.now.max(copy.arrived());
        let landed = self.now;
        let copy_time = copy.time_since(self.copy_began);
        let bytes: u64 = self.flying.iter().map(Part::copied_bytes).sum();
        let mut parts = std::mem::take(&mut self.flying);
        for part in parts.iter_mut().filter(|part| part.lost.is_none()) {
            if part.is_outgrown(machine, state.system) {
                part.give_up(machine, state, Outcome::Busy, self.now);
            } else if part.is_taken_back(machine, state.system) {
                part.lost = Some(Outcome::Gone);
            }
        }
        for part in &parts {
            if part.lost.is_none() {
                self.now += state.costs.map;
                self.map(machine, state, part);
            }
        }
        for mut part in parts {
            self.now += state.costs.free;
            part.cost.time += state.costs.map + state.costs.free;
            let share = part.copied_bytes() as f64 / bytes.max(1) as f64;
            part.cost.time += Time((copy_time.0 as f64 * share) as u64);
            part.cost.copied = part.copied_bytes();
            if let Some(parts) =
                machine.shared.observers.parts.as_deref_mut().filter(|_| part.cost.copied > 0)
            {
                let mut others = part.cost.copied;
                for (page, size) in part.copied_contents() {
                    parts.copied(page, size);
                    others -= size.bytes();
                }
                if others > 0 {
                    parts.copied_cached(others);
                }
            }
            self.over(state, part.item, part.lost.unwrap_or(Outcome::Done), part.cost);
        }
        state.occupy(machine, self.kernel_threads[0], landed, self.now - landed);
        state.account(machine.shared.system(state.system));
    }

    /// Maps the pages of a part.
    fn map(&mut self, machine: &mut Machine, state: &mut State, part: &Part) {
        let now = self.now;
        for (page, size) in part.pages() {
            state.held.remove(&page);
            state.released.push((page, size, now));
        }
        match &part.work {
            Work::Move { page, size, from, to } => {
                machine.shared.system_mut(state.system).point_to(*page, *to);
                let os = machine.shared.system_mut(state.system);
                os.free_block(*from);
                let (from, to) = (os.tier_of(*from), os.tier_of(*to));
                state.counters.moved(*page, *size, to < from, now);
            }
            Work::Swap { one, other, size } => {
                let os = machine.shared.system(state.system);
                let (a, b) = (os.tier_of(one.1), os.tier_of(other.1));
                machine.shared.system_mut(state.system).point_to(one.0, other.1);
                machine.shared.system_mut(state.system).point_to(other.0, one.1);
                state.counters.exchanged += 1;
                if a != b {
                    state.counters.moved(one.0, *size, b < a, now);
                    state.counters.moved(other.0, *size, a < b, now);
                }
            }
            Work::Relocate { size, back, cached, .. } => {
                Order::land_relocation(machine, state.system, &part.work);
                let back: u64 = back.iter().map(|(_, size, _)| size.base_pages()).sum();
                state.counters.relocated += size.base_pages() + back + cached.len() as u64;
            }
            Work::Zero { frame, size, filling } => {
                machine.shared.system_mut(state.system).end_zeroing(*frame, *filling);
                state.counters.zeroed_bytes += size.bytes();
            }
            Work::Collapse { page, size, to, parts } => {
                unwatch(machine, state, PageRange::of(*page, *size), |_, _| true);
                let os = machine.shared.system_mut(state.system);
                let mut pte = Pte::new(to.unwrap_or(parts[0].2));
                for (part, _, _) in parts {
                    if let Some(leaf) = os.table(page.space).find(part.addr()) {
                        pte = match (leaf.pte.is_dirty(), leaf.pte.is_accessed()) {
                            (true, _) => pte.dirtied(),
                            (false, true) => pte.accessed(),
                            (false, false) => pte,
                        };
                    }
                }
                // A failure would want a frame for a table that exists already.
                let _ = os.collapse(page.space, page.addr(), *size, pte, to.is_none());
                state.counters.collapsed += 1;
                state.released.push((*page, *size, now));
            }
        }
        complete(machine, state, Cause::Migration, now);
    }
}
