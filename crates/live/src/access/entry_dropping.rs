//! Accesses to shared memory of launched programs, by entry dropping: a thread of the program takes the page-table entries
//! out (`crates/preload/dropper`), the next access to a page makes a new one, and `PAGEMAP_SCAN` shows it.
//!
//! Exact to the page: the memory is registered for write protection, and the kernel maps no neighbours along with a page
//! there. Only this memory is managed then, for of other memory nothing is known.
//!
//! A page counts as accessed from its access until its entry is taken out again. The program pays for each page that it
//! accesses, so rounds are as far apart as keeps that within a share of its time.

use super::AccessSource;
use crate::world::{Sampling, World};
use std::io;
use std::time::Duration;
use terrace_model::Time;

/// The shortest time between two rounds.
const ROUND_LEAST: Duration = Duration::from_millis(250);
/// The longest: policies look every second or two.
const ROUND_MOST: Duration = Duration::from_secs(4);
/// What a page that is dropped and stored to again costs the program: 0.3 µs for the drop and 3.0 µs for the store, by
/// `examples/entry_drop_cost.rs` (`docs/src/live.md` has where that was measured).
const PAGE_COST: Duration = Duration::from_nanos(3_300);
/// Share of a processor's time that it may cost.
const SHARE: f64 = 0.02;

/// The source.
#[derive(Debug)]
pub struct EntryDropping {
    round: Duration,
    /// When the next round is due.
    next: Duration,
}

impl EntryDropping {
    /// An access source that has taken out nothing yet.
    pub fn new() -> EntryDropping {
        EntryDropping { round: ROUND_LEAST, next: Duration::ZERO }
    }
}

impl Default for EntryDropping {
    fn default() -> EntryDropping {
        EntryDropping::new()
    }
}

impl AccessSource for EntryDropping {
    fn name(&self) -> String {
        format!("entry dropping, shared memory only, every {} ms", self.round.as_millis())
    }

    fn collect(&mut self, world: &mut World) -> io::Result<Duration> {
        let now = world.kernel().now();
        let is_due = now >= self.next;
        world
            .set_sampling(Sampling { interval: Time::from_nanos(self.round.as_nanos() as u64), together: 1 });
        let dropped = world.look_at_entries(is_due);
        if is_due {
            world.looked(1);
            self.round = round_for(dropped);
            self.next = now + self.round;
        }
        Ok(self.next.saturating_sub(now))
    }

    fn stop(&mut self, _: &mut World) {
        // Entries come back by themselves, and the threads end with the sockets.
    }
}

/// How long a round lasts in which so many pages lose their entries.
fn round_for(dropped: u64) -> Duration {
    Duration::try_from_secs_f64(dropped as f64 * PAGE_COST.as_secs_f64() / SHARE)
        .unwrap_or(ROUND_MOST)
        .clamp(ROUND_LEAST, ROUND_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_keep_the_programs_share() {
        assert_eq!(round_for(0), ROUND_LEAST);
        // 10,000 pages at 3.3 µs are 33 ms, 2 % of 1.65 s.
        assert_eq!(round_for(10_000).as_millis(), 1650);
        assert_eq!(round_for(u64::MAX), ROUND_MOST);
    }
}
