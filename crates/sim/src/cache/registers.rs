//! A limit on misses under way whose requests do not come in the order of time.
//!
//! A thread's accesses are simulated in the order of the program. One that waits for its walk asks for a miss register at
//! a later time than the walk of the access after it does. So a register is busy from the request on, and what was free
//! before stays free for others.

use super::outstanding::Outstanding;
use terrace_model::Time;

/// Times kept at which a register is free before it is asked for. Walks in two dimensions on one walker need 32: with 16
/// a program that misses the TLB everywhere takes 14 % longer, with 64 as long.
const GAPS: usize = 32;

/// When a register is free that a later miss has been given.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    from: Time,
    until: Time,
    /// When this gap and all that were noted before it have ended.
    all_ended: Time,
}

/// The misses that hold a fixed number of registers, or will. A miss that starts in a gap and ends after it takes the rest
/// of its time from the register that is free first.
#[derive(Clone, Debug)]
pub struct MissRegisters {
    misses: Outstanding,
    gaps: [Gap; GAPS],
    /// The gap that the next one replaces.
    oldest: usize,
}

impl MissRegisters {
    /// `registers` registers, all free. Zero means no limit.
    pub fn new(registers: u32) -> MissRegisters {
        MissRegisters { misses: Outstanding::new(registers), gaps: [Gap::default(); GAPS], oldest: 0 }
    }

    /// When a miss that wants to start at `now` gets a register.
    #[inline(always)]
    pub fn start(&self, now: Time) -> Time {
        let behind_all = self.misses.start(now);
        if behind_all == now { now } else { self.earliest(now, behind_all) }
    }

    /// The gaps from the newest on: behind the first that has ended with all before it there is none to start in.
    fn earliest(&self, now: Time, behind_all: Time) -> Time {
        let (newer, older) = self.gaps.split_at(self.oldest);
        let mut earliest = behind_all;
        for gap in newer.iter().rev().chain(older.iter().rev()) {
            if now >= gap.all_ended {
                break;
            }
            let start = now.max(gap.from);
            if start < gap.until && start < earliest {
                earliest = start;
                if start == now {
                    break;
                }
            }
        }
        earliest
    }

    /// The gap with the lowest number that a time lies in. As for [`MissRegisters::earliest`], none that has ended with all
    /// before it is looked at.
    fn gap_around(&self, time: Time) -> Option<usize> {
        let mut found = None;
        for at in (0..self.oldest).rev() {
            let gap = &self.gaps[at];
            if time >= gap.all_ended {
                return found;
            }
            if gap.from <= time && time < gap.until {
                found = Some(at);
            }
        }
        if found.is_some() {
            return found;
        }
        for at in (self.oldest..GAPS).rev() {
            let gap = &self.gaps[at];
            if time >= gap.all_ended {
                break;
            }
            if gap.from <= time && time < gap.until {
                found = Some(at);
            }
        }
        found
    }

    /// The gap that was noted last.
    fn newest(&self) -> &Gap {
        &self.gaps[(self.oldest + GAPS - 1) % GAPS]
    }

    /// The register given by [`MissRegisters::start`] is busy until `done`.
    #[inline(always)]
    pub fn occupy(&mut self, start: Time, done: Time) {
        debug_assert!(start <= done, "a miss that starts at {start:?} ends at {done:?}");
        let free = self.misses.start(Time::ZERO);
        if start < free {
            return self.fill(start, done);
        }
        if start > free {
            self.note(free, start);
        }
        self.misses.occupy(done);
    }

    fn note(&mut self, from: Time, until: Time) {
        let all_ended = self.newest().all_ended.max(until);
        self.gaps[self.oldest] = Gap { from, until, all_ended };
        self.oldest = (self.oldest + 1) % GAPS;
    }

    /// A miss takes a register in a gap. What is left of that before and behind it stays free.
    fn fill(&mut self, start: Time, done: Time) {
        let Some(gap) = self.gap_around(start) else {
            return self.misses.occupy(done);
        };
        let gap = &mut self.gaps[gap];
        let until = gap.until;
        if done <= until {
            if start == gap.from {
                gap.from = done;
            } else {
                gap.until = start;
                if done < until {
                    self.note(done, until);
                }
            }
            return;
        }
        let rest = done - until;
        gap.until = start;
        self.misses.occupy(self.misses.start(Time::ZERO) + rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Starts a miss that takes `span`; returns when it began.
    fn miss(registers: &mut MissRegisters, now: u64, span: u64) -> u64 {
        let start = registers.start(Time(now));
        registers.occupy(start, start + Time(span));
        start.0
    }

    /// When misses that want to start at some time and take some began, one after the other.
    fn begun<const N: usize>(registers: u32, misses: [(u64, u64); N]) -> [u64; N] {
        let mut registers = MissRegisters::new(registers);
        misses.map(|(now, span)| miss(&mut registers, now, span))
    }

    #[test]
    fn the_third_miss_waits_for_the_first_of_two() {
        assert_eq!(begun(2, [(0, 100), (1, 49), (2, 100), (60, 30)]), [0, 1, 50, 100]);
    }

    /// An access that waits for its walk until 100 does not keep the next one's walk from a register before.
    #[test]
    fn a_register_is_free_before_it_is_asked_for() {
        assert_eq!(begun(1, [(100, 50), (0, 60), (70, 20), (110, 10)]), [100, 0, 70, 150]);
    }

    /// What is left of a gap on both sides of a miss stays free.
    #[test]
    fn a_gap_is_split() {
        assert_eq!(begun(1, [(100, 50), (40, 20), (0, 40), (60, 40), (0, 10)]), [100, 40, 0, 60, 150]);
    }

    /// Ten accesses, each with a walk of 100 before its miss of 100, all asked for at once, and two registers: 2,000 of
    /// work take 1,000, and not 2,000 as if registers were held during the walks.
    #[test]
    fn walks_and_misses_share_registers() {
        let mut registers = MissRegisters::new(2);
        let ends = [(); 10].map(|()| {
            let walked = miss(&mut registers, 0, 100) + 100;
            miss(&mut registers, walked, 100) + 100
        });
        assert!(ends[9] <= 1100, "{ends:?}");
    }

    proptest! {
        /// All registers are free from 0 on, so that what they did fits the time until each is free again.
        #[test]
        fn no_time_of_a_register_is_given_twice(
            count in 1u32..6,
            misses in prop::collection::vec((0u64..400, 1u64..300), 0..100),
        ) {
            let mut registers = MissRegisters::new(count);
            let mut done = 0;
            for (at, (ahead, span)) in misses.into_iter().enumerate() {
                miss(&mut registers, 20 * at as u64 + ahead, span);
                done += span;
            }
            let mut until = 0;
            for _ in 0..count {
                until += registers.misses.start(Time::ZERO).0;
                registers.misses.occupy(Time(1 << 40));
            }
            prop_assert!(done <= until, "{done} in {until}");
        }

        #[test]
        fn nothing_changes_where_requests_come_in_order(
            count in 0u32..12,
            misses in prop::collection::vec((0u64..10, 1u64..300), 0..200),
        ) {
            let (mut registers, mut others) = (MissRegisters::new(count), Outstanding::new(count));
            let mut now = 0;
            for (apart, span) in misses {
                now += apart;
                let expected = others.start(Time(now));
                others.occupy(expected + Time(span));
                prop_assert_eq!(miss(&mut registers, now, span), expected.0);
                now = expected.0;
            }
        }

        /// Each register is held by one miss at a time, where none outlasts the gap that it began in.
        #[test]
        fn no_more_are_under_way_than_there_are_registers(
            count in 1u32..6,
            misses in prop::collection::vec((0u64..400, 1u64..100), 0..100),
        ) {
            let mut registers = MissRegisters::new(count);
            let mut list: Vec<(u64, u64)> = Vec::new();
            for (ahead, span) in misses {
                let now = ahead + list.iter().map(|(from, _)| from / 2).max().unwrap_or(0);
                let start = registers.start(Time(now));
                let gap = registers.gaps.iter().filter(|gap| gap.from.0 <= start.0 && start < gap.until);
                let most = gap.map(|gap| gap.until.0).min();
                let behind_all = registers.misses.start(Time(now)) == start;
                let done = if behind_all { start.0 + span } else { (start.0 + span).min(most.unwrap()) };
                registers.occupy(start, Time(done));
                list.push((start.0, done));
                let under_way = |time: u64| list.iter().filter(|(from, until)| *from <= time && time < *until).count();
                prop_assert!(start.0 >= now);
                prop_assert!(list.iter().all(|(from, _)| under_way(*from) <= count as usize));
            }
        }
    }
}
