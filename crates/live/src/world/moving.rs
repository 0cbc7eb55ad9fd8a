//! Carrying out orders with the kernel's calls: moves in batches, both ways, verified.

use super::World;
use super::orders::{Work, answers, outcome_of, outcome_of_call};
use crate::kernel::{Advice, Kernel, Process};
use crate::space::{PageState, bytes_of};
use std::collections::BTreeSet;
use std::io;
use terrace_model::{PageSize, TierId, Time};
use terrace_policy::{Exchange, HugePages, Move, MoveOptions, Outcome, PageId, Resize, SpaceId, Subject};

/// Pages per batch, at first and at least. The kernel waits for all processors once per call, so more are better.
pub(super) const BATCH: usize = 512;
/// And at most: what a batch needs to know of its pages then stays within what the allocator keeps at hand.
const BATCH_MOST: usize = 1024;
/// Batches grow while they take less than this, and shrink where they take twice as long, so that a stop or a pause is
/// obeyed soon.
const BATCH_TIME: Time = Time::from_nanos(20_000_000);
/// `status` before the kernel has written it: no node and no error has this number.
const UNTOLD: i32 = i32::MIN;
/// Calls for the same pages that get nowhere before they count as busy.
const ATTEMPTS: u32 = 3;

/// What became of one piece of work, and the bytes that moved for it.
pub(super) type Answer = (Outcome, u64);

/// A page as it is when its turn comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub page: PageId,
    pub size: PageSize,
    pub tier: TierId,
}

impl World {
    /// Carries out one batch; answers the bytes that were moved, or none where there was nothing to do.
    pub fn step(&mut self) -> Option<u64> {
        let (ticket, how, work) = self.orders.next(self.batch)?;
        let started = self.kernel.now();
        let results: Vec<Answer> = if self.dry_run {
            self.counters.planned += work.len() as u64;
            vec![(Outcome::Done, 0); work.len()]
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
                        Work::Resize(one) => Some((self.resize_page(*one), 0)),
                        _ => None,
                    })
                    .collect(),
                Work::DropZeros(_) => vec![(Outcome::Unsupported, 0); work.len()],
            }
        };
        let time = Time::from_nanos((self.kernel.now() - started).as_nanos() as u64);
        if time > BATCH_TIME + BATCH_TIME {
            self.batch = (self.batch / 2).max(BATCH);
        } else if time < BATCH_TIME && work.len() == self.batch {
            self.batch = (self.batch * 2).min(BATCH_MOST);
        }
        let bytes = results.iter().map(|(_, copied)| copied).sum();
        self.spent.time += time;
        self.spent.copied += bytes;
        self.counters.failed +=
            results.iter().filter(|(outcome, _)| *outcome != Outcome::Done).count() as u64;
        let done: Vec<(Subject, Outcome, u64)> = work
            .iter()
            .zip(results)
            .map(|(work, (outcome, copied))| (work.subject(), outcome, copied))
            .collect();
        for (subject, ..) in &done {
            self.set_in_flight(*subject, false);
        }
        self.signals.extend(answers(ticket, done.into_iter(), time));
        self.account();
        Some(bytes)
    }

    pub(super) fn found(&self, page: PageId) -> Option<Found> {
        let (size, state) = self.state(page)?;
        (state.is_resident() && state.is_located()).then(|| Found {
            page: page.aligned(size),
            size,
            tier: state.tier(),
        })
    }

    pub(super) fn state(&self, page: PageId) -> Option<(PageSize, PageState)> {
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

    /// Moves pages to tiers, never more of them than the tiers' capacities allow at that moment. The tier with the most
    /// room is filled first, and what leaves makes room for what follows.
    fn move_pages(&mut self, moves: &[Move], how: MoveOptions) -> Vec<Answer> {
        let mut answers = vec![(Outcome::Gone, 0); moves.len()];
        let mut ordered = Once::default();
        let mut left: Vec<(usize, Found, TierId)> = Vec::new();
        for (at, one) in moves.iter().enumerate() {
            let Some(found) = self.found(one.page) else { continue };
            answers[at].0 = if one.to.index() >= self.topology.tiers.len() {
                Outcome::Unsupported
            } else if !ordered.take(found.page) {
                // It is on its way already.
                Outcome::Busy
            } else if found.tier == one.to {
                Outcome::Done
            } else {
                left.push((at, found, one.to));
                Outcome::NoSpace
            };
        }
        loop {
            let mut got_on = false;
            let mut tiers: Vec<TierId> = self.topology.ids().collect();
            tiers.sort_by_key(|tier| std::cmp::Reverse(self.topology.free_pages(*tier)));
            for tier in tiers {
                let mut room = self.topology.free_pages(tier);
                let fits = |(_, found, to): &mut (usize, Found, TierId)| {
                    let fits = *to == tier && found.size.base_pages() <= room;
                    room -= if fits { found.size.base_pages() } else { 0 };
                    fits
                };
                let some: Vec<(usize, Found, TierId)> = left.extract_if(.., fits).collect();
                if some.is_empty() {
                    continue;
                }
                let wanted: Vec<(Found, TierId)> = some.iter().map(|(_, found, to)| (*found, *to)).collect();
                for ((at, ..), answer) in some.iter().zip(self.transfer(&wanted, how)) {
                    answers[*at] = answer;
                    got_on |= answer.0 == Outcome::Done;
                }
                self.account();
            }
            if left.is_empty() || !got_on {
                return answers;
            }
        }
    }

    /// Moves pages without asking whether the tiers' limits allow it.
    pub(super) fn transfer(&mut self, wanted: &[(Found, TierId)], how: MoveOptions) -> Vec<Answer> {
        let mut answers = vec![(Outcome::Busy, 0); wanted.len()];
        // By process and destination: one call each.
        let mut groups: Vec<((SpaceId, TierId), Vec<usize>)> = Vec::new();
        for (at, (found, to)) in wanted.iter().enumerate() {
            let group = (found.page.space, *to);
            match groups.iter_mut().find(|(known, _)| *known == group) {
                Some((_, members)) => members.push(at),
                None => groups.push((group, vec![at])),
            }
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
            members.into_iter().zip(results).for_each(|(at, answer)| answers[at] = answer);
        }
        answers
    }

    /// By `move_pages(2)`, shared among `how.threads` workers.
    fn move_to_node(&mut self, id: SpaceId, to: TierId, pages: &[Found], how: MoveOptions) -> Vec<Answer> {
        let Some(node) = self.roomiest_node(to) else { return vec![(Outcome::NoSpace, 0); pages.len()] };
        if how.huge == HugePages::SplitFirst {
            let huge: Vec<PageId> =
                pages.iter().filter(|found| found.size == PageSize::Huge).map(|found| found.page).collect();
            for page in huge {
                self.resize_page(Resize { page, to: PageSize::Base });
            }
        }
        let Some(space) = self.spaces.get_mut(&id) else { return vec![(Outcome::Gone, 0); pages.len()] };
        // A page that was split is now many.
        let mut addresses = Vec::with_capacity(pages.len());
        let mut owner = Vec::with_capacity(pages.len());
        for (at, found) in pages.iter().enumerate() {
            let split = space.pages.get(found.page.vpn).is_some_and(|(page, _)| page.size < found.size);
            let parts = if split { found.size.base_pages() } else { 1 };
            addresses.extend((0..parts).map(|part| (found.page.vpn + part) << 12));
            owner.extend(std::iter::repeat_n(at, parts as usize));
        }
        space.put_back(&*self.kernel, &addresses);
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
        let mut answers = vec![(Outcome::Done, 0); pages.len()];
        let mut left = vec![0; self.topology.tiers.len()];
        for ((address, at), status) in addresses.iter().zip(owner).zip(status) {
            let (outcome, copied) = &mut answers[at];
            if status != node {
                *outcome = if status < 0 { outcome_of(-status) } else { Outcome::Busy };
            } else if let Some((size, from)) = space.relocate(address >> 12, to) {
                *copied += size.bytes();
                left[from.index()] += size.bytes();
                self.counters.moved(from, to, size);
            }
        }
        for (from, bytes) in self.topology.ids().zip(left) {
            self.occupy(from, to, bytes);
        }
        answers
    }

    /// Keeps what is known of free memory right until it is looked at again.
    fn occupy(&mut self, from: TierId, to: TierId, bytes: u64) {
        if let Some(node) = self.roomiest_node(to)
            && let Some(free) = self.node_free.get_mut(&(node as u32))
        {
            *free -= bytes as i64;
        }
        // Which node it has left is not known; one that has little gains the least by a mistake.
        let nodes = &self.tiers.nodes[from.index()];
        let fullest = nodes.iter().min_by_key(|node| self.node_free.get(node).copied().unwrap_or(0));
        if let Some(free) = fullest.and_then(|node| self.node_free.get_mut(node)) {
            *free += bytes as i64;
        }
    }

    /// To swap. The call says yes to pages that it passed over, so each is looked at afterwards.
    fn page_out(&mut self, id: SpaceId, pages: &[Found]) -> Vec<Answer> {
        let Some(space) = self.spaces.get_mut(&id) else { return vec![(Outcome::Gone, 0); pages.len()] };
        let ranges = joined(pages.iter().map(|found| bytes_of(found.page.vpn, found.size)));
        if let Err(error) = advise(&*self.kernel, &space.process, &ranges, Advice::PageOut) {
            return vec![(outcome_of_call(&error), 0); pages.len()];
        }
        self.look_after(id, pages, |state| state.is_swapped())
    }

    /// Back from swap: read ahead, then touched.
    fn bring_in(&mut self, id: SpaceId, pages: &[Found]) -> Vec<Answer> {
        let Some(space) = self.spaces.get_mut(&id) else { return vec![(Outcome::Gone, 0); pages.len()] };
        let ranges = joined(pages.iter().map(|found| bytes_of(found.page.vpn, found.size)));
        // Only a help to what follows.
        let _ = advise(&*self.kernel, &space.process, &ranges, Advice::WillNeed);
        let addresses: Vec<u64> = pages
            .iter()
            .flat_map(|found| (0..found.size.base_pages()).map(|part| (found.page.vpn + part) << 12))
            .collect();
        if let Err(error) = self.kernel.touch(&space.process, &addresses) {
            return vec![(outcome_of_call(&error), 0); pages.len()];
        }
        self.look_after(id, pages, |state| !state.is_swapped())
    }

    fn look_after(&mut self, id: SpaceId, pages: &[Found], good: impl Fn(PageState) -> bool) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(pages.len());
        for found in pages {
            let Some(space) = self.spaces.get_mut(&id) else {
                answers.push((Outcome::Gone, 0));
                continue;
            };
            let range = found.page.vpn..found.page.vpn + found.size.base_pages();
            if let Err(error) = space.look_at(&*self.kernel, &self.tiers, range.clone()) {
                answers.push((outcome_of_call(&error), 0));
                continue;
            }
            let mut all = true;
            let mut changed: Vec<(PageSize, TierId)> = Vec::new();
            space.pages.visit_mut(range, |at, state| {
                all &= good(*state);
                if good(*state) && state.is_located() && state.tier() != found.tier {
                    changed.push((at.size, state.tier()));
                }
                true
            });
            let copied = changed.iter().map(|(size, _)| size.bytes()).sum();
            for (size, to) in changed {
                self.counters.moved(found.tier, to, size);
                self.occupy(found.tier, to, size.bytes());
            }
            answers.push((if all { Outcome::Done } else { Outcome::Busy }, copied));
        }
        answers
    }
}

/// Tells pages that come for the first time from those that come again.
#[derive(Default)]
pub(super) struct Once {
    /// Policies order by address, so almost all come ascending.
    ascending: Vec<PageId>,
    others: BTreeSet<PageId>,
}

impl Once {
    /// Whether it has not come before.
    pub fn take(&mut self, page: PageId) -> bool {
        if self.ascending.last().is_none_or(|last| *last < page) {
            self.ascending.push(page);
            return true;
        }
        self.ascending.binary_search(&page).is_err() && self.others.insert(page)
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

/// Gives advice for all ranges; one that is gone, or is taken only in part, keeps it from no other.
///
/// # Errors
/// Advice cannot be given to this process at all.
fn advise(kernel: &dyn Kernel, process: &Process, ranges: &[(u64, u64)], advice: Advice) -> io::Result<()> {
    let mut left = ranges;
    while !left.is_empty() {
        let some = &left[..left.len().min(libc::UIO_MAXIOV as usize)];
        let mut advised = match kernel.advise(process, some, advice) {
            Ok(advised) => advised,
            Err(error) => match error.raw_os_error() {
                Some(libc::ESRCH | libc::EPERM | libc::ENOSYS) => return Err(error),
                _ => 0,
            },
        };
        let taken = some.iter().take_while(|(_, bytes)| {
            let whole = *bytes <= advised;
            advised = advised.saturating_sub(*bytes);
            whole
        });
        let taken = taken.count();
        left = &left[(taken + usize::from(taken < some.len()))..];
    }
    Ok(())
}

/// Moves pages to a node; `status` has the node of each that arrived, and an error for each other.
///
/// The kernel stops at the first group with a page that does not move and leaves the status of what follows untold,
/// so the call is made again for the rest as long as that gets anywhere. Where it fails as a whole, as it does when the
/// node is full, some pages have moved all the same.
fn move_to(kernel: &dyn Kernel, process: &Process, addresses: &[u64], node: i32, status: &mut [i32]) {
    let mut left: Vec<usize> = (0..addresses.len()).collect();
    let mut fruitless = 0;
    while !left.is_empty() && fruitless < ATTEMPTS {
        let pages: Vec<u64> = left.iter().map(|at| addresses[*at]).collect();
        let mut told = vec![UNTOLD; pages.len()];
        let moved = kernel.move_pages(process, &pages, Some(&vec![node; pages.len()]), &mut told);
        let failed = moved.err().map(|error| match error.raw_os_error() {
            // The arguments are right; it is how the call says that the process has ended.
            Some(libc::EINVAL) => libc::ESRCH,
            errno => errno.unwrap_or(libc::EIO),
        });
        if failed.is_some() {
            told.fill(UNTOLD);
        }
        let untold: Vec<usize> = (0..told.len()).filter(|at| told[*at] == UNTOLD).collect();
        if !untold.is_empty() && failed != Some(libc::ESRCH) {
            let asked: Vec<u64> = untold.iter().map(|at| pages[*at]).collect();
            let mut where_now = vec![UNTOLD; asked.len()];
            if kernel.move_pages(process, &asked, None, &mut where_now).is_ok() {
                for (at, found) in untold.iter().zip(where_now) {
                    told[*at] = if found >= 0 && found != node { UNTOLD } else { found };
                }
            }
        }
        for (at, told) in left.iter().zip(&told) {
            status[*at] = if *told == UNTOLD { -failed.unwrap_or(libc::EBUSY) } else { *told };
        }
        if failed.is_some() {
            return;
        }
        let before = left.len();
        let retried: Vec<usize> =
            left.iter().zip(&told).filter(|(_, told)| **told == UNTOLD).map(|(at, _)| *at).collect();
        fruitless = if retried.len() == before { fruitless + 1 } else { 0 };
        left = retried;
    }
}
