//! Carrying out orders with the kernel's calls: moves in batches, both ways, verified.

use super::World;
use super::orders::{Work, answers, outcome_of, outcome_of_call};
use crate::kernel::Advice;
use crate::space::{PageState, bytes_of};
use std::collections::BTreeMap;
use terrace_model::{PageSize, TierId, Time};
use terrace_policy::{Exchange, HugePages, Move, MoveOptions, Outcome, PageId, Resize, SpaceId, Subject};

/// Most pages per batch: what a slice of time holds, so that a stop or a pause is obeyed soon.
const BATCH: usize = 512;
/// Pairs that are under way at once in an exchange, at most: so much room is needed for a moment.
const PAIRS: usize = 64;
/// `status` before the kernel has written it: no node and no error has this number.
const UNTOLD: i32 = i32::MIN;
/// Calls for the same pages that get nowhere before they count as busy.
const ATTEMPTS: u32 = 3;

/// A page as it is when its turn comes.
#[derive(Clone, Copy, Debug)]
struct Found {
    page: PageId,
    size: PageSize,
    tier: TierId,
}

impl World {
    /// Carries out one batch; answers the bytes that were moved, or none where there was nothing to do.
    pub fn step(&mut self) -> Option<u64> {
        let (ticket, how, work) = self.orders.next(BATCH)?;
        let started = self.kernel.now();
        let outcomes: Vec<Outcome> = if self.dry_run {
            self.counters.planned += work.len() as u64;
            vec![Outcome::Done; work.len()]
        } else {
            match work[0] {
                Work::Move(_) => {
                    let moves: Vec<Move> = of(&work, |work| match work {
                        Work::Move(one) => Some(one),
                        _ => None,
                    });
                    self.move_pages(&moves, how)
                }
                Work::Exchange(_) => {
                    let pairs: Vec<Exchange> = of(&work, |work| match work {
                        Work::Exchange(pair) => Some(pair),
                        _ => None,
                    });
                    self.exchange_pages(&pairs, how)
                }
                Work::Resize(_) => work
                    .iter()
                    .filter_map(|work| match work {
                        Work::Resize(one) => Some(self.resize_page(*one)),
                        _ => None,
                    })
                    .collect(),
            }
        };
        let time = Time::from_nanos((self.kernel.now() - started).as_nanos() as u64);
        let copied: Vec<u64> =
            work.iter().zip(&outcomes).map(|(work, outcome)| self.copied(work, *outcome)).collect();
        let bytes = copied.iter().sum();
        self.spent.time += time;
        self.spent.copied += bytes;
        self.counters.failed += outcomes.iter().filter(|outcome| **outcome != Outcome::Done).count() as u64;
        let done = work.iter().zip(outcomes).zip(copied);
        let done: Vec<(Subject, Outcome, u64)> =
            done.map(|((work, outcome), copied)| (work.subject(), outcome, copied)).collect();
        for (subject, ..) in &done {
            self.set_in_flight(*subject, false);
        }
        self.signals.extend(answers(ticket, done.into_iter(), time));
        self.account();
        Some(bytes)
    }

    fn copied(&self, work: &Work, outcome: Outcome) -> u64 {
        let size = |page: PageId| self.state(page).map_or(0, |(size, _)| size.bytes());
        match work {
            _ if outcome != Outcome::Done || self.dry_run => 0,
            Work::Move(one) => size(one.page),
            Work::Exchange(pair) => size(pair.one) + size(pair.other),
            Work::Resize(_) => 0,
        }
    }

    fn found(&self, page: PageId) -> Option<Found> {
        let (size, state) = self.state(page)?;
        (state.is_resident() && state.is_located()).then(|| Found {
            page: page.aligned(size),
            size,
            tier: state.tier(),
        })
    }

    fn state(&self, page: PageId) -> Option<(PageSize, PageState)> {
        let (at, state) = self.spaces.get(&page.space)?.pages.get(page.vpn)?;
        Some((at.size, state))
    }

    pub(super) fn set_in_flight(&mut self, subject: Subject, on: bool) {
        let pages = match subject {
            Subject::Page(page) => [Some(page), None],
            Subject::Pair(one, other) => [Some(one), Some(other)],
            Subject::Frame(_) => [None, None],
        };
        for page in pages.into_iter().flatten() {
            if let Some(space) = self.spaces.get_mut(&page.space)
                && let Some(state) = space.pages.get_mut(page.vpn)
            {
                state.set_in_flight(on);
            }
        }
    }

    /// Moves pages to tiers, with room kept as the tiers' capacities say.
    fn move_pages(&mut self, moves: &[Move], how: MoveOptions) -> Vec<Outcome> {
        let mut outcomes = vec![Outcome::Gone; moves.len()];
        let mut free: Vec<u64> = self.topology.ids().map(|tier| self.topology.free_pages(tier)).collect();
        let mut wanted: Vec<(usize, Found, TierId)> = Vec::new();
        for (at, one) in moves.iter().enumerate() {
            let Some(found) = self.found(one.page) else { continue };
            let pages = found.size.base_pages();
            let Some(room) = free.get_mut(one.to.index()) else {
                outcomes[at] = Outcome::Unsupported;
                continue;
            };
            outcomes[at] = if found.tier == one.to {
                Outcome::Done
            } else if *room < pages {
                Outcome::NoSpace
            } else {
                *room -= pages;
                // What leaves makes room for what follows.
                free[found.tier.index()] += pages;
                wanted.push((at, found, one.to));
                Outcome::Busy
            };
        }
        let results =
            self.transfer(&wanted.iter().map(|(_, found, to)| (*found, *to)).collect::<Vec<_>>(), how);
        for ((at, ..), outcome) in wanted.iter().zip(results) {
            outcomes[*at] = outcome;
        }
        outcomes
    }

    /// Swaps pairs, a few at a time: the one whose destination has more room goes first, then the other takes its
    /// place; where it cannot, the first goes back.
    fn exchange_pages(&mut self, pairs: &[Exchange], how: MoveOptions) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(pairs.len());
        let mut from = 0;
        let mut most = PAIRS;
        while from < pairs.len() {
            let some = &pairs[from..pairs.len().min(from + most)];
            let results = self.exchange_some(some, how);
            // Not even room for one on either side: as many as that allows at a time.
            if most > 1 && results.contains(&Outcome::NoSpace) {
                most = (most / 4).max(1);
                let done = results.iter().take_while(|outcome| **outcome != Outcome::NoSpace).count();
                outcomes.extend(&results[..done]);
                from += done;
                continue;
            }
            from += some.len();
            outcomes.extend(results);
        }
        outcomes
    }

    fn exchange_some(&mut self, pairs: &[Exchange], how: MoveOptions) -> Vec<Outcome> {
        let mut outcomes = vec![Outcome::Gone; pairs.len()];
        let mut whole: Vec<(usize, Found, Found)> = Vec::new();
        for (at, pair) in pairs.iter().enumerate() {
            let (Some(one), Some(other)) = (self.found(pair.one), self.found(pair.other)) else { continue };
            outcomes[at] = if one.size != other.size {
                Outcome::Gone
            } else if one.tier == other.tier {
                Outcome::Done
            } else {
                // The one that goes to the roomier side first.
                let room = |tier: TierId| self.physical_free(tier);
                let (first, second) =
                    if room(other.tier) >= room(one.tier) { (one, other) } else { (other, one) };
                whole.push((at, first, second));
                Outcome::Busy
            };
        }
        let there: Vec<(Found, TierId)> =
            whole.iter().map(|(_, first, second)| (*first, second.tier)).collect();
        let first = self.transfer(&there, how);
        let gone: Vec<&(usize, Found, Found)> = whole
            .iter()
            .zip(&first)
            .filter(|(_, outcome)| **outcome == Outcome::Done)
            .map(|(pair, _)| pair)
            .collect();
        for ((at, ..), outcome) in whole.iter().zip(&first) {
            outcomes[*at] = *outcome;
        }
        let back: Vec<(Found, TierId)> =
            gone.iter().map(|(_, first, second)| (*second, first.tier)).collect();
        let second = self.transfer(&back, how);
        let mut undo = Vec::new();
        for ((at, first, second), outcome) in gone.iter().zip(second) {
            outcomes[*at] = outcome;
            if outcome != Outcome::Done {
                undo.push((Found { tier: second.tier, ..*first }, first.tier));
            } else {
                self.counters.exchanged += 1;
            }
        }
        // Either both change or none. What cannot even go back lies where it is; the next look shows it.
        self.transfer(&undo, how);
        outcomes
    }

    /// Moves pages without asking whether the tiers' limits allow it.
    fn transfer(&mut self, wanted: &[(Found, TierId)], how: MoveOptions) -> Vec<Outcome> {
        let mut outcomes = vec![Outcome::Busy; wanted.len()];
        // By process and destination: one call each.
        let mut groups: BTreeMap<(SpaceId, TierId), Vec<usize>> = BTreeMap::new();
        for (at, (found, to)) in wanted.iter().enumerate() {
            groups.entry((found.page.space, *to)).or_default().push(at);
        }
        for ((space, to), members) in groups {
            let pages: Vec<Found> = members.iter().map(|at| wanted[*at].0).collect();
            let results = if Some(to) == self.tiers.compressed() {
                self.page_out(space, &pages)
            } else if pages.iter().all(|found| Some(found.tier) == self.tiers.compressed()) {
                self.bring_in(space, &pages)
            } else {
                self.move_to_node(space, to, &pages, how)
            };
            for ((at, found), outcome) in members.iter().zip(&pages).zip(results) {
                outcomes[*at] = outcome;
                if outcome == Outcome::Done {
                    self.counters.moved(found.tier, to, found.size);
                }
            }
        }
        outcomes
    }

    /// By `move_pages(2)`, shared among `how.threads` workers.
    fn move_to_node(&mut self, id: SpaceId, to: TierId, pages: &[Found], how: MoveOptions) -> Vec<Outcome> {
        let Some(node) = self.roomiest_node(to) else { return vec![Outcome::NoSpace; pages.len()] };
        if how.huge == HugePages::SplitFirst {
            let huge: Vec<PageId> =
                pages.iter().filter(|found| found.size == PageSize::Huge).map(|found| found.page).collect();
            for page in huge {
                self.resize_page(Resize { page, to: PageSize::Base });
            }
        }
        let Some(space) = self.spaces.get_mut(&id) else { return vec![Outcome::Gone; pages.len()] };
        // A page that was split is now many.
        let mut addresses = Vec::with_capacity(pages.len());
        let mut owner = Vec::with_capacity(pages.len());
        for (at, found) in pages.iter().enumerate() {
            let split = space.pages.get(found.page.vpn).is_some_and(|(page, _)| page.size < found.size);
            let parts = if split { found.size.base_pages() } else { 1 };
            addresses.extend((0..parts).map(|part| (found.page.vpn + part) << 12));
            owner.extend(std::iter::repeat_n(at, parts as usize));
        }
        let workers =
            usize::from(how.threads.max(1)).min(self.workers).min(addresses.len().div_ceil(16).max(1));
        let mut status = vec![UNTOLD; addresses.len()];
        let part = addresses.len().div_ceil(workers);
        let (kernel, process) = (&*self.kernel, &space.process);
        if workers == 1 {
            move_to(kernel, process, &addresses, node, &mut status);
        } else {
            std::thread::scope(|scope| {
                for (addresses, status) in addresses.chunks(part).zip(status.chunks_mut(part)) {
                    scope.spawn(move || move_to(kernel, process, addresses, node, status));
                }
            });
        }
        let mut outcomes = vec![Outcome::Done; pages.len()];
        for ((address, at), status) in addresses.iter().zip(owner).zip(status) {
            if status == node {
                if let Some(state) = space.pages.get_mut(address >> 12) {
                    state.set_tier(to);
                }
            } else {
                outcomes[at] = if status < 0 { outcome_of(-status) } else { Outcome::Busy };
            }
        }
        outcomes
    }

    /// To swap. The call says yes to pages that it passed over, so each is looked at afterwards.
    fn page_out(&mut self, id: SpaceId, pages: &[Found]) -> Vec<Outcome> {
        let Some(space) = self.spaces.get_mut(&id) else { return vec![Outcome::Gone; pages.len()] };
        let ranges = joined(pages.iter().map(|found| bytes_of(found.page.vpn, found.size)));
        for some in ranges.chunks(libc::UIO_MAXIOV as usize) {
            if let Err(error) = self.kernel.advise(&space.process, some, Advice::PageOut) {
                return vec![outcome_of_call(&error); pages.len()];
            }
        }
        self.look_after(id, pages, |state| state.is_swapped())
    }

    /// Back from swap: read ahead, then touched.
    fn bring_in(&mut self, id: SpaceId, pages: &[Found]) -> Vec<Outcome> {
        let Some(space) = self.spaces.get_mut(&id) else { return vec![Outcome::Gone; pages.len()] };
        let ranges = joined(pages.iter().map(|found| bytes_of(found.page.vpn, found.size)));
        for some in ranges.chunks(libc::UIO_MAXIOV as usize) {
            // Only a help to what follows.
            let _ = self.kernel.advise(&space.process, some, Advice::WillNeed);
        }
        let addresses: Vec<u64> = pages
            .iter()
            .flat_map(|found| (0..found.size.base_pages()).map(|part| (found.page.vpn + part) << 12))
            .collect();
        if let Err(error) = self.kernel.touch(&space.process, &addresses) {
            return vec![outcome_of_call(&error); pages.len()];
        }
        self.look_after(id, pages, |state| !state.is_swapped())
    }

    fn look_after(&mut self, id: SpaceId, pages: &[Found], good: impl Fn(PageState) -> bool) -> Vec<Outcome> {
        let Some(space) = self.spaces.get_mut(&id) else { return vec![Outcome::Gone; pages.len()] };
        let mut outcome = |found: &Found| {
            let range = found.page.vpn..found.page.vpn + found.size.base_pages();
            if let Err(error) = space.look_at(&*self.kernel, &self.tiers, range.clone()) {
                return outcome_of_call(&error);
            }
            let mut all = true;
            space.pages.visit_mut(range, |_, state| {
                all &= good(*state);
                all
            });
            if all { Outcome::Done } else { Outcome::Busy }
        };
        pages.iter().map(&mut outcome).collect()
    }

    /// Splits by advice for a part of the page, which the kernel can give only to base pages; joins by collapse.
    fn resize_page(&mut self, order: Resize) -> Outcome {
        let Some((size, state)) = self.state(order.page) else { return Outcome::Gone };
        if !state.is_resident() {
            return Outcome::Gone;
        }
        if size == order.to {
            return Outcome::Done;
        }
        let (advice, range, pages) = match order.to {
            PageSize::Base if size == PageSize::Huge => {
                let page = order.page.aligned(size);
                (Advice::Cold, (page.vpn << 12, 4096), page.vpn..page.vpn + size.base_pages())
            }
            PageSize::Huge if order.page.is_aligned(PageSize::Huge) => {
                let vpn = order.page.vpn;
                (Advice::Collapse, bytes_of(vpn, PageSize::Huge), vpn..vpn + PageSize::Huge.base_pages())
            }
            _ => return Outcome::Unsupported,
        };
        let Some(space) = self.spaces.get_mut(&order.page.space) else { return Outcome::Gone };
        let advised = self.kernel.advise(&space.process, &[range], advice);
        if let Err(error) = advised.and_then(|_| space.look_at(&*self.kernel, &self.tiers, pages)) {
            return outcome_of_call(&error);
        }
        if space.pages.get(order.page.vpn).is_some_and(|(page, _)| page.size == order.to) {
            match order.to {
                PageSize::Base => self.counters.split += 1,
                _ => self.counters.collapsed += 1,
            }
            Outcome::Done
        } else {
            Outcome::Busy
        }
    }
}

fn of<T>(work: &[Work], pick: impl Fn(Work) -> Option<T>) -> Vec<T> {
    work.iter().copied().filter_map(pick).collect()
}

/// Ranges of `(address, bytes)` with neighbours joined.
fn joined(ranges: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, bytes) in ranges {
        match joined.last_mut() {
            Some((first, length)) if *first + *length == start => *length += bytes,
            _ => joined.push((start, bytes)),
        }
    }
    joined
}

/// Moves pages to a node; `status` has the node of each that arrived, and an error for each other.
///
/// The kernel stops at the first group with a page that does not move and leaves the status of what follows untold,
/// so the call is made again for the rest as long as that gets anywhere.
fn move_to(
    kernel: &dyn crate::kernel::Kernel,
    process: &crate::kernel::Process,
    addresses: &[u64],
    node: i32,
    status: &mut [i32],
) {
    let mut left: Vec<usize> = (0..addresses.len()).collect();
    let mut fruitless = 0;
    while !left.is_empty() && fruitless < ATTEMPTS {
        let pages: Vec<u64> = left.iter().map(|at| addresses[*at]).collect();
        let mut told = vec![UNTOLD; pages.len()];
        let moved = kernel.move_pages(process, &pages, Some(&vec![node; pages.len()]), &mut told);
        if let Err(error) = moved {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            left.iter().for_each(|at| status[*at] = -errno);
            return;
        }
        // What was left untold may have moved all the same.
        let untold: Vec<usize> = (0..told.len()).filter(|at| told[*at] == UNTOLD).collect();
        if !untold.is_empty() {
            let asked: Vec<u64> = untold.iter().map(|at| pages[*at]).collect();
            let mut where_now = vec![UNTOLD; asked.len()];
            if kernel.move_pages(process, &asked, None, &mut where_now).is_ok() {
                for (at, found) in untold.iter().zip(where_now) {
                    told[*at] = if found >= 0 && found != node { UNTOLD } else { found };
                }
            }
        }
        let before = left.len();
        for (at, told) in left.iter().zip(&told) {
            status[*at] = if *told == UNTOLD { -libc::EBUSY } else { *told };
        }
        let retried: Vec<usize> =
            left.iter().zip(&told).filter(|(_, told)| **told == UNTOLD).map(|(at, _)| *at).collect();
        fruitless = if retried.len() == before { fruitless + 1 } else { 0 };
        left = retried;
    }
}
