//! Carrying out orders with the kernel's calls: moves in batches, both ways, verified.

use super::World;
use super::counters::Moved;
use super::orders::{Work, answers, outcome_of, outcome_of_call};
use crate::kernel::{Advice, Kernel, Process};
use crate::space::{Found, PageState, Space, bytes_of};
use std::collections::BTreeSet;
use std::io;
use terrace_model::{PageSize, TierId, Time};
use terrace_policy::{CopyBy, Exchange, HugePages, Move, MoveOptions, Outcome, PageId, Resize, SpaceId};

/// Pages per batch, at first and at least. The kernel waits for all processors once per call, so more are better.
pub(super) const BATCH: usize = 512;
/// And at most: what a batch needs to know of its pages then stays within what the allocator keeps at hand.
const BATCH_MOST: usize = 1024;
/// Batches grow while they take less than this, and shrink where they take twice as long, so that a stop or a pause is
/// obeyed soon.
const BATCH_TIME: Time = Time::from_nanos(20_000_000);
/// `status` before the kernel has written it: no node and no error has this number.
const UNKNOWN: i32 = i32::MIN;
/// Calls for the same pages that get nowhere before they count as busy.
const ATTEMPTS: u32 = 3;

/// The outcome of one piece of work, and the bytes that were moved for it.
pub(super) type Answer = (Outcome, u64);

/// A page that is to move.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// Where its answer belongs.
    at: usize,
    found: Found,
    to: TierId,
}

impl World {
    /// Carries out one batch; returns the bytes that were moved, or none where there was nothing to do.
    pub fn step(&mut self) -> Option<u64> {
        let work = self.orders.next(self.batch)?;
        let how = work.how;
        let started = self.kernel.now();
        let results: Vec<Answer> = if self.dry_run {
            self.counters.planned += work.len() as u64;
            if tracing::enabled!(tracing::Level::INFO) {
                self.plan(&work).iter().for_each(|line| tracing::info!("{line}"));
            }
            vec![(Outcome::Done, 0); work.len()]
        } else if matches!(how.copy, CopyBy::Mapping(_)) {
            // There is no hypervisor to ask.
            vec![(Outcome::Unsupported, 0); work.len()]
        } else {
            match work[0] {
                Work::Move(_) => self.move_pages(&work, how),
                Work::Exchange(_) => {
                    let pair = |work: &Work| match work {
                        Work::Exchange(pair) => Some(*pair),
                        _ => None,
                    };
                    let pairs: Vec<Exchange> = work.iter().filter_map(pair).collect();
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
        self.set_in_flight(&work, false);
        let done = work.iter().zip(results);
        let done = done.map(|(work, (outcome, copied))| (work.subject(), outcome, copied));
        self.signals.extend(answers(work.ticket, done, time));
        self.account();
        Some(bytes)
    }

    pub(super) fn found(&self, page: PageId) -> Option<Found> {
        self.spaces.get(&page.space)?.found(page)
    }

    pub(super) fn state(&self, page: PageId) -> Option<(PageSize, PageState)> {
        let (at, state) = self.spaces.get(&page.space)?.pages.get(page.vpn)?;
        Some((at.size, state))
    }

    /// Marks the pages of orders as on their way, or as no longer.
    pub(super) fn set_in_flight(&mut self, work: &[Work], on: bool) {
        let others = work.iter().filter_map(|work| match work {
            Work::Exchange(pair) => Some(pair.other),
            _ => None,
        });
        let mut space: Option<&mut Space> = None;
        for page in work.iter().filter_map(|work| work.subject().page()).chain(others) {
            // Neighbours are mostly of one space.
            if space.as_ref().is_none_or(|space| space.id != page.space) {
                space = self.spaces.get_mut(&page.space);
            }
            if let Some((_, state)) = space.as_mut().and_then(|space| space.pages.get_mut(page.vpn)) {
                state.set_in_flight(on);
            }
        }
    }

    /// Moves pages to tiers, never more of them than the tiers' capacities allow at that moment. The tier with the most
    /// room is filled first, and what leaves makes room for what follows.
    fn move_pages(&mut self, work: &[Work], how: MoveOptions) -> Vec<Answer> {
        let mut answers = vec![(Outcome::Gone, 0); work.len()];
        let mut ordered = Once::default();
        let mut left: Vec<Wanted> = Vec::with_capacity(work.len());
        let mut space: Option<&Space> = None;
        for (at, work) in work.iter().enumerate() {
            let Work::Move(Move { page, to }) = *work else { continue };
            if space.is_none_or(|space| space.id != page.space) {
                space = self.spaces.get(&page.space);
            }
            let Some(found) = space.and_then(|space| space.found(page)) else { continue };
            answers[at].0 = if to.index() >= self.topology.tiers.len() {
                Outcome::Unsupported
            } else if !ordered.take(found.page) {
                // The page is on its way already.
                Outcome::Busy
            } else if found.tier == to {
                Outcome::Done
            } else {
                left.push(Wanted { at, found, to });
                Outcome::NoSpace
            };
        }
        while !left.is_empty() {
            let mut got_on = false;
            let mut tiers: Vec<TierId> = self.topology.ids().collect();
            tiers.sort_by_key(|tier| std::cmp::Reverse(self.topology.free_pages(*tier)));
            for tier in tiers {
                let mut room = self.topology.free_pages(tier);
                let mut fits = |one: &mut Wanted| {
                    let fits = one.to == tier && one.found.size.base_pages() <= room;
                    room -= if fits { one.found.size.base_pages() } else { 0 };
                    fits
                };
                let first = left.iter_mut().position(|one| !fits(one)).unwrap_or(left.len());
                // Mostly there is room for all.
                let mut rest = left.split_off(first);
                left.extend(rest.extract_if(.., fits));
                let some = std::mem::replace(&mut left, rest);
                if some.is_empty() {
                    continue;
                }
                got_on |= self.carry(some, how, &mut answers);
                self.account();
            }
            if !got_on {
                break;
            }
        }
        answers
    }

    /// Moves pages without asking whether the tiers' limits allow it.
    pub(super) fn transfer(&mut self, wanted: &[(Found, TierId)], how: MoveOptions) -> Vec<Answer> {
        let mut answers = vec![(Outcome::Busy, 0); wanted.len()];
        let wanted = wanted.iter().enumerate().map(|(at, (found, to))| Wanted { at, found: *found, to: *to });
        self.carry(wanted.collect(), how, &mut answers);
        answers
    }

    /// Moves pages and puts the answers in their places; returns whether any page moved. One call for each process and
    /// destination.
    fn carry(&mut self, mut wanted: Vec<Wanted>, how: MoveOptions, answers: &mut [Answer]) -> bool {
        let group = |one: &Wanted| (one.found.page.space, one.to);
        wanted.sort_by_key(group);
        let (compressed, mut any) = (self.tiers.compressed(), false);
        for some in wanted.chunk_by(|one, other| group(one) == group(other)) {
            let (space, to) = group(&some[0]);
            let results = match compressed {
                Some(tier) if tier == to => self.page_out(space, some),
                Some(tier) if some.iter().all(|one| one.found.tier == tier) => self.bring_in(space, some),
                _ => self.move_to_node(space, to, some, how),
            };
            for (one, answer) in some.iter().zip(results) {
                answers[one.at] = answer;
                any |= answer.0 == Outcome::Done;
            }
        }
        any
    }

    /// By `move_pages(2)`, shared among `how.threads` workers.
    fn move_to_node(&mut self, id: SpaceId, to: TierId, pages: &[Wanted], how: MoveOptions) -> Vec<Answer> {
        let Some(node) = self.roomiest_node(to) else { return vec![(Outcome::NoSpace, 0); pages.len()] };
        let splits = how.huge == HugePages::SplitFirst;
        let huge = pages.iter().map(|one| one.found).filter(|found| splits && found.size == PageSize::Huge);
        for found in huge {
            self.resize_page(Resize { page: found.page, to: PageSize::Base });
        }
        let Some(space) = self.spaces.get_mut(&id) else { return vec![(Outcome::Gone, 0); pages.len()] };
        // A page that was split is now many.
        let mut addresses = Vec::with_capacity(pages.len());
        let mut owner = Vec::with_capacity(pages.len());
        for (at, Wanted { found, .. }) in pages.iter().enumerate() {
            let split =
                splits && space.pages.get(found.page.vpn).is_some_and(|(page, _)| page.size < found.size);
            let parts = if split { found.size.base_pages() } else { 1 };
            for part in 0..parts {
                addresses.push((found.page.vpn + part) << 12);
                owner.push(at);
            }
        }
        space.put_back(&*self.kernel, &addresses);
        let workers =
            usize::from(how.threads.max(1)).min(self.workers).min(addresses.len().div_ceil(16).max(1));
        let mut status = vec![UNKNOWN; addresses.len()];
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
        let mut left = vec![Moved::default(); self.topology.tiers.len()];
        for ((address, at), status) in addresses.iter().zip(owner).zip(status) {
            let (outcome, copied) = &mut answers[at];
            if status != node {
                *outcome = if status < 0 { outcome_of(-status) } else { Outcome::Busy };
            } else if let Some((size, from)) = space.relocate(address >> 12, to) {
                *copied += size.bytes();
                left[from.index()].add(size);
            }
        }
        for (from, moved) in self.topology.ids().zip(&left) {
            space.moved(from, to, moved.pages);
            self.counters.moved(from, to, *moved);
        }
        for (from, moved) in self.topology.ids().zip(left) {
            self.occupy(from, to, moved.pages << 12);
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
    fn page_out(&mut self, id: SpaceId, pages: &[Wanted]) -> Vec<Answer> {
        let Some(space) = self.spaces.get_mut(&id) else { return vec![(Outcome::Gone, 0); pages.len()] };
        let ranges = joined(pages.iter().map(|one| bytes_of(one.found.page.vpn, one.found.size)));
        if let Err(error) = advise(&*self.kernel, &space.process, &ranges, Advice::PageOut) {
            return vec![(outcome_of_call(&error), 0); pages.len()];
        }
        self.look_after(id, pages, |state| state.is_swapped())
    }

    /// Back from swap: read ahead, then touched.
    fn bring_in(&mut self, id: SpaceId, pages: &[Wanted]) -> Vec<Answer> {
        let Some(space) = self.spaces.get_mut(&id) else { return vec![(Outcome::Gone, 0); pages.len()] };
        let ranges = joined(pages.iter().map(|one| bytes_of(one.found.page.vpn, one.found.size)));
        // Only a help to what follows.
        let _ = advise(&*self.kernel, &space.process, &ranges, Advice::WillNeed);
        let addresses: Vec<u64> = pages
            .iter()
            .flat_map(|Wanted { found, .. }| {
                (0..found.size.base_pages()).map(|part| (found.page.vpn + part) << 12)
            })
            .collect();
        if let Err(error) = self.kernel.touch(&space.process, &addresses) {
            return vec![(outcome_of_call(&error), 0); pages.len()];
        }
        self.look_after(id, pages, |state| !state.is_swapped())
    }

    fn look_after(&mut self, id: SpaceId, pages: &[Wanted], good: impl Fn(PageState) -> bool) -> Vec<Answer> {
        let mut answers = Vec::with_capacity(pages.len());
        for Wanted { found, .. } in pages {
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
                let mut moved = Moved::default();
                moved.add(size);
                self.counters.moved(found.tier, to, moved);
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
    #[inline]
    pub fn take(&mut self, page: PageId) -> bool {
        if self.ascending.last().is_none_or(|last| *last < page) {
            self.ascending.push(page);
            return true;
        }
        self.ascending.binary_search(&page).is_err() && self.others.insert(page)
    }
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
/// The kernel stops at the first group with a page that does not move and leaves the status of what follows unreported,
/// so the call is made again for the rest as long as that gets anywhere. Where it fails as a whole, as it does when the
/// node is full, some pages have moved all the same.
fn move_to(kernel: &dyn Kernel, process: &Process, addresses: &[u64], node: i32, status: &mut [i32]) {
    let mut failed = attempt(kernel, process, addresses, node, status);
    let mut left: Vec<usize> = (0..status.len()).filter(|at| status[*at] == UNKNOWN).collect();
    let mut fruitless = u32::from(left.len() == status.len());
    while failed.is_none() && !left.is_empty() && fruitless < ATTEMPTS {
        let pages: Vec<u64> = left.iter().map(|at| addresses[*at]).collect();
        let mut statuses = vec![UNKNOWN; pages.len()];
        failed = attempt(kernel, process, &pages, node, &mut statuses);
        left.iter().zip(statuses).for_each(|(at, found)| status[*at] = found);
        let before = left.len();
        left.retain(|at| status[*at] == UNKNOWN);
        fruitless = if left.len() == before { fruitless + 1 } else { 0 };
    }
    left.into_iter().for_each(|at| status[at] = -failed.unwrap_or(libc::EBUSY));
}

/// One call, and a look at where those pages are of which it reported nothing; returns the error of a call that failed as a
/// whole.
fn attempt(
    kernel: &dyn Kernel,
    process: &Process,
    pages: &[u64],
    node: i32,
    statuses: &mut [i32],
) -> Option<i32> {
    let moved = kernel.move_pages(process, pages, Some(&vec![node; pages.len()]), statuses);
    let failed = moved.err().map(|error| match error.raw_os_error() {
        // The arguments are right; it is how the call says that the process has ended.
        Some(libc::EINVAL) => libc::ESRCH,
        errno => errno.unwrap_or(libc::EIO),
    });
    if failed.is_some() {
        statuses.fill(UNKNOWN);
    }
    let unreported: Vec<usize> = (0..statuses.len()).filter(|at| statuses[*at] == UNKNOWN).collect();
    if !unreported.is_empty() && failed != Some(libc::ESRCH) {
        let asked: Vec<u64> = unreported.iter().map(|at| pages[*at]).collect();
        let mut where_now = vec![UNKNOWN; asked.len()];
        if kernel.move_pages(process, &asked, None, &mut where_now).is_ok() {
            for (at, found) in unreported.iter().zip(where_now) {
                statuses[*at] = if found >= 0 && found != node { UNKNOWN } else { found };
            }
        }
    }
    failed
}
