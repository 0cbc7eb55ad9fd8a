//! Cacheless request coalescing: loads of a line join those of it that are under way, and nothing is kept when they are
//! done.
//!
//! **Source.** Agarwal 2017, section 5.2.2.1: registers for misses have room for the data that comes back, as no cache takes
//! it; what nobody waits for by then is discarded.
//!
//! **Left open there, and chosen here.** A load waits for its own sectors only, where these come by themselves
//! (variable-size transfers); a load that needs more of a line than is under way shares the line's register. Later loads do
//! not join those that a store has overtaken.

use crate::gpu::line::GpuLine;
use std::collections::HashMap;
use terrace_model::Time;

/// Sectors of a line.
const SECTORS: usize = 4;

/// Lines under way, by number: when each sector is there.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    lines: HashMap<GpuLine, [Time; SECTORS]>,
    /// Size at which lines that have come are forgotten.
    bound: usize,
}

/// What is under way of what a load needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// When the sectors that are under way have come.
    pub done: Time,
    /// Sectors that are not under way.
    pub missing: u8,
    /// Whether anything of the line is under way, so that it has a register.
    pub has_register: bool,
}

impl InFlight {
    /// What a load of these sectors at `now` can join.
    pub fn find(&self, line: GpuLine, sectors: u8, now: Time) -> Found {
        let mut found = Found { done: now, missing: sectors, has_register: false };
        for (sector, &ready) in self.lines.get(&line).into_iter().flatten().enumerate() {
            if ready > now {
                found.has_register = true;
                if sectors & (1 << sector) != 0 {
                    found.missing &= !(1 << sector);
                    found.done = found.done.max(ready);
                }
            }
        }
        found
    }

    /// Sectors of a line are under way until `done`.
    pub fn begin(&mut self, line: GpuLine, sectors: u8, now: Time, done: Time) {
        if self.lines.len() >= self.bound.max(64) {
            self.lines.retain(|_, sectors| sectors.iter().any(|ready| *ready > now));
            self.bound = 2 * self.lines.len();
        }
        let all = self.lines.entry(line).or_default();
        for (sector, ready) in all.iter_mut().enumerate() {
            if sectors & (1 << sector) != 0 {
                *ready = (*ready).max(done);
            }
        }
    }

    /// Forgets a line: later loads do not join what is under way of it.
    pub fn forget(&mut self, line: GpuLine) {
        self.lines.remove(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_join_what_is_under_way_and_nothing_is_kept() {
        let mut under_way = InFlight::default();
        let none = Found { done: Time(10), missing: 0b0001, has_register: false };
        assert_eq!(under_way.find(GpuLine(7), 0b0001, Time(10)), none);
        under_way.begin(GpuLine(7), 0b0011, Time(10), Time(100));
        under_way.begin(GpuLine(7), 0b0100, Time(50), Time(150));
        let find = |sectors, now| {
            let found = under_way.find(GpuLine(7), sectors, Time(now));
            (found.done.0, found.missing, found.has_register)
        };
        assert_eq!(find(0b0001, 20), (100, 0, true));
        assert_eq!(find(0b0111, 60), (150, 0, true), "the latest of its sectors");
        assert_eq!(find(0b1001, 60), (100, 0b1000, true), "the fourth is not under way");
        assert_eq!(
            find(0b0001, 100),
            (100, 0b0001, true),
            "it has come and is gone, and the third is under way"
        );
        assert_eq!(find(0b0100, 150), (150, 0b0100, false));
        under_way.forget(GpuLine(7));
        assert_eq!(under_way.find(GpuLine(7), 0b0100, Time(60)).missing, 0b0100);
    }

    #[test]
    fn lines_that_have_come_are_forgotten() {
        let mut under_way = InFlight::default();
        for line in 0..10_000 {
            under_way.begin(GpuLine(line), 1, Time(line), Time(line + 5));
        }
        assert!(under_way.lines.len() <= 64, "{}", under_way.lines.len());
    }
}
