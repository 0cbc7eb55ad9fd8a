//! Watched pages of shared memory whose next access is to fault: their entries are taken out, and how long they stay out
//! shows how often they are accessed.
//!
//! A page goes round: *in* (it has an entry, or nobody knows) → *asked* (the process's thread was asked to take it out) →
//! *out* → in, with the access. Each span from the drop to the access, or to now, is an exposure; accesses that come at
//! random have a rate of as many as there were, by the sum of the exposures.

use super::pages::CHUNK;
use super::{PageStates, Space};
use crate::kernel::{Answer, Faults, IN_MEMORY, Kernel, Sample};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::ops::Range;
use std::time::Duration;
use terrace_model::PageSize;

/// Pieces of 2 MiB of one process that are registered at a time: each is a mapping of its own meanwhile.
const PIECES: usize = 1024;
/// One in so many pages that are out is looked at with each call, whether it is out still.
const CHECKED: u64 = 8;

/// The first access to a page that was out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// When it was answered, by the clock of [`Kernel::now`].
    pub at: Duration,
    /// The access was a store.
    pub store: bool,
}

/// A time for which the entry of a sampled page was dropped, and the access that ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposure {
    /// The page.
    pub vpn: u64,
    /// The time without an access since the last report.
    pub span: Duration,
    /// The access that ended it, if one did.
    pub access: Option<Access>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    In,
    /// With the last fault since, if there was one: it may have come before the drop or after.
    Asked(Option<Fault>),
    /// Since then, or since its exposure was last reported.
    Out(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fault {
    access: Access,
    /// Made by Terrace itself, to move the page.
    ours: bool,
}

/// The sampling of one process.
pub struct Sampling {
    faults: Box<dyn Faults>,
    /// Registered pieces, by their first pages: where each ends, and how its faults are answered.
    pieces: BTreeMap<u64, (u64, Answer)>,
    /// Areas of which the kernel reports no minor faults: System V segments.
    refused: Vec<Range<u64>>,
    pages: BTreeMap<u64, (PageSize, State)>,
    /// What the thread was asked to take out, in order.
    asked: VecDeque<u64>,
    /// Pages that are out and were found with an entry, each with the faults taken by then: the one that made the entry may
    /// be answered and not yet reported.
    doubtful: BTreeMap<u64, u64>,
    /// Faults that the last call had all reports of.
    reported: u64,
    /// Where the next call begins to take pages out.
    from: u64,
    calls: u64,
}

impl std::fmt::Debug for Sampling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampling").field("pieces", &self.pieces.len()).finish_non_exhaustive()
    }
}

impl Sampling {
    pub fn new(faults: Box<dyn Faults>) -> Sampling {
        Sampling {
            faults,
            pieces: BTreeMap::new(),
            refused: Vec::new(),
            pages: BTreeMap::new(),
            asked: VecDeque::new(),
            doubtful: BTreeMap::new(),
            reported: 0,
            from: 0,
            calls: 0,
        }
    }

    /// Forgets what is out: another thread takes entries out from now on, or none.
    pub fn begin_anew(&mut self) {
        let pieces: Vec<u64> = self.pieces.keys().copied().collect();
        pieces.into_iter().for_each(|piece| self.leave(piece));
        self.refused.clear();
        self.asked.clear();
        self.doubtful.clear();
        self.pages.clear();
    }

    /// From now on these pages are watched, and no others. Pieces without any are registered no longer, nor those that are
    /// not covered as a whole: the program may be about to move them.
    fn watch(&mut self, watched: &[(u64, PageSize)], covered: &[Range<u64>]) {
        let before = std::mem::take(&mut self.pages);
        let kept = |(vpn, size): &(u64, PageSize)| match before.get(vpn) {
            Some((before, state)) if before == size => (*vpn, (*size, *state)),
            _ => (*vpn, (*size, State::In)),
        };
        self.pages = watched.iter().filter(|(_, size)| *size != PageSize::Giant).map(kept).collect();
        let used: BTreeSet<u64> = self.pages.keys().filter_map(|vpn| Some(self.piece(*vpn)?.0)).collect();
        let is_covered =
            |first: u64, end: u64| covered.iter().any(|area| area.start <= first && end <= area.end);
        let is_idle =
            |(first, (end, _)): &(&u64, &(u64, Answer))| !used.contains(first) || !is_covered(**first, *end);
        let idle: Vec<u64> = self.pieces.iter().filter(is_idle).map(|(first, _)| *first).collect();
        idle.into_iter().for_each(|piece| self.leave(piece));
    }

    /// The registered piece that holds a page: its first page, and how its faults are answered.
    fn piece(&self, vpn: u64) -> Option<(u64, Answer)> {
        let (first, (end, answer)) = self.pieces.range(..=vpn).next_back()?;
        (vpn < *end).then_some((*first, *answer))
    }

    fn leave(&mut self, first: u64) {
        let Some((end, _)) = self.pieces.remove(&first) else { return };
        for (_, (_, state)) in self.pages.range_mut(first..end) {
            *state = State::In;
        }
        // Memory that has gone is registered no longer.
        let _ = self.faults.end(first << 12, (end - first) << 12);
    }

    /// Registers what is around a page.
    fn enter(&mut self, vpn: u64, size: PageSize, covered: &[Range<u64>]) -> io::Result<()> {
        let answer = if size == PageSize::Huge { Answer::Whole } else { Answer::Page };
        match self.piece(vpn) {
            Some((_, how)) if how == answer => return Ok(()),
            Some((first, _)) => self.leave(first),
            None if self.pieces.len() >= PIECES => return Err(io::ErrorKind::QuotaExceeded.into()),
            None => {}
        }
        let area = covered.iter().find(|area| area.contains(&vpn)).ok_or(io::ErrorKind::NotFound)?;
        if self.refused.contains(area) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let chunk = vpn / CHUNK * CHUNK;
        let range = chunk.max(area.start)..(chunk + CHUNK).min(area.end);
        if answer == Answer::Whole && range.end - range.start < CHUNK {
            return Err(io::ErrorKind::NotFound.into());
        }
        let begun = self.faults.begin(range.start << 12, (range.end - range.start) << 12, answer);
        if begun.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL)) {
            self.refused.push(area.clone());
        }
        begun?;
        self.pieces.insert(range.start, (range.end, answer));
        Ok(())
    }

    /// Takes over the faults, and which drops were done.
    fn take_over(&mut self, pid: u32, drops: Vec<Option<Duration>>, exposures: &mut Vec<Exposure>) {
        let mut faults: Vec<Sample> = Vec::new();
        // Before they are read: what is reported afterwards is left for the next call.
        self.reported = self.faults.reported();
        let lost = self.faults.read(&mut |fault| faults.push(fault));
        for fault in faults {
            self.faulted(pid, &fault, exposures);
        }
        for began in drops {
            let Some(vpn) = self.asked.pop_front() else { break };
            self.dropped(vpn, began, exposures);
        }
        if lost > 0 {
            tracing::debug!(pid, lost, "more faults than were kept; the pages are looked at instead");
            self.pages.values_mut().for_each(|(_, state)| *state = State::In);
        }
    }

    fn faulted(&mut self, pid: u32, fault: &Sample, exposures: &mut Vec<Exposure>) {
        let vpn = fault.address >> 12;
        let access = Access { at: Duration::from_nanos(fault.time), store: fault.store };
        let ours = fault.pid != pid;
        let vpn = match self.piece(vpn) {
            // The kernel maps it as a whole again, and the thread has ended the registration.
            Some((first, Answer::Whole)) => {
                self.pieces.remove(&first);
                first
            }
            _ => vpn,
        };
        self.doubtful.remove(&vpn);
        let Some((_, state)) = self.pages.get_mut(&vpn) else { return };
        match *state {
            State::In => {}
            State::Asked(_) => *state = State::Asked(Some(Fault { access, ours })),
            State::Out(since) => {
                *state = State::In;
                let span = access.at.saturating_sub(since);
                exposures.push(Exposure { vpn, span, access: Some(access).filter(|_| !ours) });
            }
        }
    }

    fn dropped(&mut self, vpn: u64, began: Option<Duration>, exposures: &mut Vec<Exposure>) {
        let Some((size, state)) = self.pages.get_mut(&vpn) else { return };
        let State::Asked(fault) = *state else { return };
        *state = match (began, fault) {
            (None, _) => State::In,
            (Some(began), Some(fault)) if fault.access.at >= began => {
                let access = Some(fault.access).filter(|_| !fault.ours);
                exposures.push(Exposure { vpn, span: fault.access.at - began, access });
                State::In
            }
            // The fault has ended the registration, and the drop came after it: the next access will not be reported.
            (Some(_), Some(_)) if *size == PageSize::Huge => State::In,
            (Some(began), _) => State::Out(began),
        };
    }

    /// Exposures that go on are reported up to now.
    fn credit(&mut self, now: Duration, exposures: &mut Vec<Exposure>) {
        for (vpn, (_, state)) in &mut self.pages {
            if let State::Out(since) = state {
                exposures.push(Exposure { vpn: *vpn, span: now.saturating_sub(*since), access: None });
                *since = now.max(*since);
            }
        }
    }

    /// Pages that have an entry, twice in a row, are in where no fault made it, as after a mapping has gone and come: all
    /// faults that were taken before the first look are reported by the second.
    fn check(&mut self, mut has_entry: impl FnMut(u64) -> bool) {
        self.calls += 1;
        let turn = self.calls % CHECKED;
        for (vpn, (_, state)) in &mut self.pages {
            if !matches!(state, State::Out(_)) || vpn % CHECKED != turn {
                continue;
            }
            if !has_entry(*vpn) {
                self.doubtful.remove(vpn);
                continue;
            }
            match self.doubtful.get(vpn) {
                None => {
                    self.doubtful.insert(*vpn, self.faults.taken());
                }
                Some(taken) if *taken <= self.reported => {
                    self.doubtful.remove(vpn);
                    *state = State::In;
                }
                Some(_) => {}
            }
        }
    }

    /// Pages that may be taken out now, each in its turn.
    fn next(&self) -> Vec<(u64, PageSize)> {
        let parts = self.pages.range(self.from..).chain(self.pages.range(..self.from));
        let are_in = parts.filter(|(_, (_, state))| *state == State::In);
        are_in.map(|(vpn, (size, _))| (*vpn, *size)).collect()
    }
}

impl Space {
    /// Takes over what was accessed of the watched pages, and has those that are in taken out, as long as `may` says yes.
    ///
    /// # Errors
    /// The process has ended, or may not be looked into.
    pub fn sample_faults(
        &mut self,
        kernel: &dyn Kernel,
        watched: &[(u64, PageSize)],
        may: &mut dyn FnMut() -> bool,
    ) -> io::Result<Vec<Exposure>> {
        let mut exposures = Vec::new();
        let (Some(dropper), Some(sampling)) = (&mut self.dropper, &mut self.sampling) else {
            return Ok(exposures);
        };
        let drops = match dropper.poll().and_then(|drops| dropper.ask().map(|()| drops)) {
            Ok(drops) => drops,
            Err(_) => {
                // The thread ends with the process, and when the process executes another program.
                self.dropper = None;
                sampling.begin_anew();
                self.covered = Some(Vec::new());
                return Ok(exposures);
            }
        };
        let mut covered = dropper.areas().to_vec();
        sampling.take_over(self.process.pid, drops, &mut exposures);
        for one in exposures.iter().filter(|one| one.access.is_some()) {
            mark(&mut self.pages, one.vpn, 1, false);
        }
        sampling.credit(kernel.now(), &mut exposures);
        sampling.watch(watched, &covered);
        sampling.check(|vpn| {
            let mut entry = [0];
            kernel.pagemap(&self.process, vpn, &mut entry).is_ok() && entry[0] & IN_MEMORY != 0
        });
        for (vpn, size) in sampling.next() {
            if !may() {
                sampling.from = vpn;
                break;
            }
            if let Err(error) = sampling.enter(vpn, size, &covered) {
                if error.raw_os_error() == Some(libc::ENOTTY) {
                    tracing::warn!(
                        pid = self.process.pid,
                        "the kernel answers no more faults of the program; its accesses are no longer sampled"
                    );
                    self.sampling = None;
                    break;
                }
                tracing::debug!(vpn, %error, "a page cannot be sampled");
                continue;
            }
            // A thread that is behind with its work, or has ended.
            if !dropper.drop_entries(vpn..vpn + size.base_pages()).unwrap_or(false) {
                sampling.from = vpn;
                break;
            }
            sampling.asked.push_back(vpn);
            sampling.pages.insert(vpn, (size, State::Asked(None)));
            mark(&mut self.pages, vpn, size.base_pages(), true);
        }
        if let Some(sampling) = &self.sampling {
            covered.retain(|area| !sampling.refused.contains(area));
        }
        self.covered = Some(covered);
        Ok(exposures)
    }
}

impl Space {
    /// Before a page is split or joined: the kernel is to map what comes of it in its own way.
    pub fn rest_at(&mut self, vpn: u64) {
        if let Some(sampling) = &mut self.sampling
            && let Some((first, _)) = sampling.piece(vpn)
        {
            sampling.leave(first);
        }
    }

    /// After that: has entries made, without which these pages would not be found. The kernel takes out those of shared
    /// memory.
    pub fn show(&mut self, kernel: &dyn Kernel, pages: Range<u64>) {
        if self.is_sampled {
            mark(&mut self.pages, pages.start, pages.end - pages.start, true);
            let addresses: Vec<u64> = pages.map(|vpn| vpn << 12).collect();
            self.put_back(kernel, &addresses);
        }
    }
}

/// Whether pages may be there although they have no entry.
fn mark(pages: &mut PageStates, vpn: u64, count: u64, dropped: bool) {
    pages.visit_mut(vpn..vpn + count, |_, state| {
        state.set_entry_dropped(dropped);
        true
    });
}

#[cfg(test)]
mod tests;
