//! Pages whose accesses the policy wants to be signalled.
//!
//! No kernel lets one process count another's accesses to a page. What an access source does find out is whether a page was
//! accessed within an interval δ; `k` of `m` intervals with an access tell a rate of `-ln(1 - k/m) / δ`, if accesses come at
//! random. A hint needs only the first. Intervals in which the source could not see the page are none of the `m`.
//!
//! Where faults are sampled it finds out more: how long a page went without an access from a given moment on. `k` accesses
//! in exposures of `t` together tell a rate of `k / t`, under the same condition, with a standard error of `1 / sqrt(k)` of
//! it.

use std::collections::BTreeMap;
use std::ops::Range;
use terrace_model::{PageSize, Time};
use terrace_policy::{Agent, Moment, PageCount, PageId, PageRange, Signal, SpaceId, Watch};

/// A page under watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Watched {
    size: PageSize,
    how: Watch,
    /// When the watch began.
    since: Moment,
    /// How often the source had looked when the watch or its last reading began.
    looks_before: u64,
    /// Intervals since then that had an access.
    returns: u64,
    /// Intervals since then in which an access would not have shown.
    blind: u64,
    /// Accesses that were seen one by one.
    seen: u64,
    /// When the watch or its last reading began.
    read: Moment,
    /// For so long since then an access would have shown, and would have ended it.
    exposed: Time,
    /// So many did.
    ended: u64,
}

/// Exposures shorter than this say only that the page is in use: the drop itself takes some of that.
const RESOLUTION: Time = Time::from_nanos(20_000);
/// A page that was watched so long without any exposure has a rate that nobody knows.
const UNKNOWN: Time = Time::from_nanos(2_000_000_000);

/// How an access source looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    /// An access is distinguished from others this much earlier or later.
    pub interval: Time,
    /// Intervals that are reported together.
    pub together: u32,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Watches {
    pages: BTreeMap<PageId, Watched>,
    /// How often the source has looked.
    looks: u64,
    /// Grows with every page that is watched from now on.
    generation: u64,
    /// Exposures are reported, not looks.
    timed: bool,
}

impl Watches {
    /// Begins or ends the watch of pages of known sizes.
    pub fn set(&mut self, pages: &[(PageId, PageSize)], how: Watch, now: Moment) {
        self.generation += u64::from(!pages.is_empty() && how != Watch::Off);
        for (page, size) in pages {
            if how == Watch::Off {
                self.pages.remove(page);
            } else {
                let fresh = Watched {
                    size: *size,
                    how,
                    since: now,
                    looks_before: self.looks,
                    returns: 0,
                    blind: 0,
                    seen: 0,
                    read: now,
                    exposed: Time::default(),
                    ended: 0,
                };
                self.pages.entry(*page).and_modify(|watched| watched.how = how).or_insert(fresh);
            }
        }
    }

    /// Ends the watch of what is gone.
    pub fn forget(&mut self, range: PageRange) {
        let last = PageId { space: range.first.space, vpn: range.end() };
        let gone: Vec<PageId> = self.pages.range(range.first..last).map(|(page, _)| *page).collect();
        for page in gone {
            self.pages.remove(&page);
        }
    }

    /// The pages, and their sizes.
    pub fn pages(&self) -> impl Iterator<Item = (PageId, PageSize)> + '_ {
        self.pages.iter().map(|(page, watched)| (*page, watched.size))
    }

    /// Whether this page is watched.
    pub fn has(&self, page: PageId) -> bool {
        self.pages.contains_key(&page)
    }

    /// Changes when more pages are watched.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// A source has found accesses in some of the last intervals. Hints that have come true are signalled and end.
    pub fn accessed(
        &mut self,
        space: SpaceId,
        range: Range<u64>,
        intervals: u32,
        sampling: Sampling,
        now: Moment,
    ) -> Vec<Signal> {
        let [first, last] = [range.start, range.end].map(|vpn| PageId { space, vpn });
        let mut signals = Vec::new();
        let report = Time(sampling.interval.0.saturating_mul(u64::from(sampling.together)));
        for (page, watched) in self.pages.range_mut(first..last) {
            // What is reported may have happened before the watch began.
            if now.since(watched.since) < report {
                continue;
            }
            match watched.how {
                Watch::Count => watched.returns += u64::from(intervals),
                Watch::Hint => signals.push(Signal::HintFault {
                    page: *page,
                    write: false,
                    at: now,
                    latency: now.since(watched.since),
                    agent: Agent::default(),
                }),
                Watch::Off | Watch::HintStore => {}
            }
        }
        for signal in &signals {
            if let Signal::HintFault { page, .. } = signal {
                self.pages.remove(page);
            }
        }
        signals
    }

    /// So many accesses to a page were seen one by one.
    pub fn seen(&mut self, page: PageId, accesses: u64) {
        if let Some(watched) = self.pages.get_mut(&page) {
            watched.seen += accesses;
        }
    }

    /// In the last interval an access to this page would not have shown.
    pub fn unseen(&mut self, page: PageId) {
        if let Some(watched) = self.pages.get_mut(&page) {
            watched.blind += 1;
        }
    }

    /// From now on exposures are reported, not looks.
    pub fn time_exposures(&mut self) {
        self.timed = true;
    }

    /// A page was exposed for a span, which an access may have ended: when, and whether it was a store. A hint that has come
    /// true is signalled and ends.
    pub fn exposed(&mut self, page: PageId, span: Time, access: Option<(Moment, bool)>) -> Option<Signal> {
        let watched = self.pages.get_mut(&page)?;
        watched.exposed = Time(watched.exposed.0.saturating_add(span.0));
        let (at, write) = access?;
        watched.ended += 1;
        if watched.how != Watch::Hint {
            return None;
        }
        let latency = at.since(watched.since);
        self.pages.remove(&page);
        Some(Signal::HintFault { page, write, at, latency, agent: Agent::default() })
    }

    /// The source has looked so often since it last said so.
    pub fn looked(&mut self, times: u64) {
        self.looks += times;
    }

    /// Estimates of the accesses since the last reading.
    pub fn counts(&mut self, now: Moment, visit: &mut dyn FnMut(PageCount)) {
        for (page, watched) in self.pages.iter_mut().filter(|(_, watched)| watched.how == Watch::Count) {
            let (accesses, saturated) = match self.timed {
                true => timed(now.since(watched.read), watched.exposed, watched.ended),
                false => estimate(self.looks - watched.looks_before, watched.blind, watched.returns),
            };
            visit(PageCount { page: *page, accesses: accesses + watched.seen, saturated });
            (watched.looks_before, watched.returns, watched.blind, watched.seen) = (self.looks, 0, 0, 0);
            (watched.read, watched.exposed, watched.ended) = (now, Time::default(), 0);
        }
    }
}

/// Accesses that make `returns` of the intervals have one that were not blind, if they come at random and as often in the
/// others: `-looks · ln(1 - returns/seen)`. A page that was accessed in every interval was accessed at least as often as one
/// that missed half a one; of one that was never seen nobody knows anything.
fn estimate(looks: u64, blind: u64, returns: u64) -> (u64, bool) {
    if looks == 0 {
        return (0, false);
    }
    let seen = looks.saturating_sub(blind).max(returns);
    if seen == 0 {
        return (0, true);
    }
    let saturated = returns >= seen;
    let share = if saturated { 1.0 - 0.5 / seen as f64 } else { returns as f64 / seen as f64 };
    ((-(looks as f64) * (1.0 - share).ln()).round() as u64, saturated)
}

/// Accesses within a time, of a page that was exposed for a part of it, which so many of them ended.
fn timed(within: Time, exposed: Time, ended: u64) -> (u64, bool) {
    if exposed.0 == 0 {
        return (ended, ended > 0 || within >= UNKNOWN);
    }
    // No exposure is known to have been shorter than the drop took.
    let least = RESOLUTION.0.saturating_mul(ended);
    let rate = ended as f64 / exposed.0.max(least) as f64;
    ((rate * within.0 as f64).round() as u64, exposed.0 < least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_those_of_random_arrivals() {
        assert_eq!(estimate(0, 0, 0), (0, false));
        assert_eq!(estimate(100, 0, 0), (0, false));
        // 1 - e^-1 of the looks find a page that is accessed once per look on average.
        assert_eq!(estimate(1000, 0, 632), (1000, false));
        assert_eq!(estimate(1, 0, 1), (1, true));
        assert_eq!(estimate(100, 0, 100), (530, true));
    }

    #[test]
    fn intervals_in_which_a_page_could_not_be_seen_tell_nothing() {
        // The other half is as busy as this one.
        assert_eq!(estimate(1000, 500, 316), (1000, false));
        assert_eq!(estimate(100, 99, 0), (0, false), "it was idle when it was seen");
        assert_eq!(estimate(100, 100, 0), (0, true), "nobody knows");
        let (page, mut watches) = (PageId::new(0, 8), Watches::default());
        watches.set(&[(page, PageSize::Base)], Watch::Count, Moment::START);
        let mut counts = |blind: bool| {
            watches.looked(1);
            if blind {
                watches.unseen(page);
            }
            let mut counts = Vec::new();
            watches.counts(Moment::START, &mut |count| counts.push((count.accesses, count.saturated)));
            counts
        };
        assert_eq!([counts(true), counts(false)], [[(0, true)], [(0, false)]]);
    }

    #[test]
    fn exposures_tell_a_rate_up_to_the_time_that_dropping_takes() {
        let ms = |ms: u64| Time::from_nanos(ms * 1_000_000);
        assert_eq!(timed(ms(30_000), ms(3_000), 6), (60, false));
        assert_eq!(timed(ms(30_000), ms(30_000), 0), (0, false));
        // 10 accesses, each at once: 50,000 per second are as many as can be distinguished.
        assert_eq!(timed(ms(1000), Time(1), 10), (50_000, true));
        assert_eq!(timed(ms(1000), Time(0), 0), (0, false));
        assert_eq!(timed(ms(2000), Time(0), 0), (0, true), "nobody knows");
        assert_eq!(timed(ms(2000), Time(0), 3), (3, true));
    }

    #[test]
    fn an_access_is_a_hint_or_a_count_with_its_time() {
        let pages = [PageId::new(0, 8), PageId::new(0, 9)];
        let mut watches = Watches::default();
        watches.time_exposures();
        watches.set(&[(pages[0], PageSize::Base)], Watch::Hint, Moment(1000));
        watches.set(&[(pages[1], PageSize::Base)], Watch::Count, Moment(1000));
        let access = Some((Moment(5000), true));
        match watches.exposed(pages[0], Time::from_nanos(3000), access) {
            Some(Signal::HintFault { at, write: true, latency, .. }) => {
                assert_eq!((at, latency), (Moment(5000), Moment(5000).since(Moment(1000))));
            }
            other => panic!("{other:?}"),
        }
        assert!(!watches.has(pages[0]));
        assert_eq!(watches.exposed(pages[1], Time::from_nanos(1_000_000), access), None);
        assert_eq!(watches.exposed(pages[1], Time::from_nanos(3_000_000), None), None);
        let mut counts = Vec::new();
        for now in [8_001_000, 16_001_000] {
            watches.counts(Moment(now), &mut |count| counts.push((count.accesses, count.saturated)));
        }
        assert_eq!(counts, [(2, false), (0, false)], "one in 4 ms of 8; and anew");
    }

    #[test]
    fn a_hint_comes_once_and_not_for_what_was_before() {
        let page = PageId::new(0, 8);
        let sampling = Sampling { interval: Time::from_nanos(1_000_000), together: 4 };
        let mut watches = Watches::default();
        watches.set(&[(page, PageSize::Base)], Watch::Hint, Moment(10_000_000));
        let mut report = |at: u64| watches.accessed(SpaceId(0), 0..16, 1, sampling, Moment(at)).len();
        assert_eq!(report(12_000_000), 0, "this report covers time before the watch");
        assert_eq!(report(14_000_000), 1);
        assert_eq!(report(18_000_000), 0);
    }

    #[test]
    fn counts_begin_anew_with_each_reading() {
        let page = PageId::new(0, 8);
        let sampling = Sampling { interval: Time::from_nanos(1_000_000), together: 1 };
        let mut watches = Watches::default();
        watches.set(&[(page, PageSize::Base)], Watch::Count, Moment::START);
        let mut look = |times: u64, with_access: u64| {
            for at in 0..times {
                watches.looked(1);
                watches.accessed(SpaceId(0), 8..9, u32::from(at < with_access), sampling, Moment(9_000_000));
            }
            let mut counts = Vec::new();
            watches.counts(Moment::START, &mut |count| counts.push(count.accesses));
            counts
        };
        assert_eq!(look(100, 50), [69], "100 · ln 2");
        assert_eq!(look(100, 0), [0]);
    }
}
