//! Stores that have retired and are not in the cache yet.

use super::clock::{Clock, Timeline};
use terrace_model::Time;

/// A store buffer: stores drain in order, one per cycle at most, and the core waits for the oldest when it is full.
#[derive(Clone, Debug)]
pub struct StoreBuffer {
    /// Drain times of the last stores, as a ring of the buffer's size, and what each waited for.
    done: Box<[Time]>,
    stores: Box<[Timeline]>,
    at: usize,
    last_drain: Time,
    cycle: Time,
}

impl StoreBuffer {
    /// An empty buffer of `entries` entries; one at least.
    pub fn new(entries: u32, cycle: Time) -> StoreBuffer {
        let entries = entries.max(1) as usize;
        StoreBuffer {
            done: vec![Time::ZERO; entries].into(),
            stores: vec![Timeline::default(); entries].into(),
            at: 0,
            last_drain: Time::ZERO,
            cycle,
        }
    }

    /// Waits for a free entry.
    #[inline(always)]
    pub fn make_room(&self, clock: &mut Clock) {
        if self.is_full(clock.now) {
            self.wait_for(self.at, clock);
        }
    }

    /// Whether a store at `now` would have to wait for an entry.
    #[inline(always)]
    pub fn is_full(&self, now: Time) -> bool {
        self.done[self.at] > now
    }

    /// A store with this [`Timeline`], whose line is there at the end of it, takes the entry that [`StoreBuffer::make_room`]
    /// freed. Times come one by one, so that they stay in registers.
    #[inline(always)]
    pub fn push(
        &mut self,
        start: Time,
        translated: Time,
        cache_start: Time,
        cache_end: Time,
        available: Time,
    ) {
        let done = available.max(self.last_drain + self.cycle);
        self.last_drain = done;
        self.done[self.at] = done;
        self.stores[self.at] = Timeline { start, translated, cache_start, cache_end, done: available };
        self.at = if self.at + 1 == self.stores.len() { 0 } else { self.at + 1 };
    }

    /// Waits for all of them.
    pub fn drain(&self, clock: &mut Clock) {
        // In the order of draining, which is that of their times.
        if self.last_drain > clock.now {
            for at in 0..self.stores.len() {
                self.wait_for((self.at + at) % self.stores.len(), clock);
            }
        }
    }

    #[inline(never)]
    fn wait_for(&self, at: usize, clock: &mut Clock) {
        clock.wait_for(&Timeline { done: self.done[at], ..self.stores[at] });
    }
}
