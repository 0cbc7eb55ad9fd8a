//! A limit on misses in flight.

use terrace_model::Time;

/// Completion times of the misses that occupy a fixed number of registers.
///
/// A sorted ring, because misses complete nearly in the order of their start: a new one replaces the earliest and
/// seldom has to move past more than one or two others.
#[derive(Clone, Debug)]
pub struct Outstanding {
    /// Power-of-two many slots, of which `registers` from `first` on are in use, earliest first.
    ring: Box<[Time]>,
    first: usize,
    registers: usize,
}

impl Outstanding {
    /// `registers` registers, all free. Zero means no limit.
    pub fn new(registers: u32) -> Outstanding {
        let registers = registers as usize;
        Outstanding { ring: vec![Time::ZERO; registers.next_power_of_two()].into(), first: 0, registers }
    }

    /// The slot at a place that counts on round the ring.
    #[inline(always)]
    fn slot(&self, at: usize) -> usize {
        at & (self.ring.len() - 1)
    }

    #[inline(always)]
    fn get(&self, at: usize) -> Time {
        // SAFETY: the length is a power of two, so the slot lies below it.
        unsafe { *self.ring.get_unchecked(self.slot(at)) }
    }

    #[inline(always)]
    fn put(&mut self, at: usize, time: Time) {
        let slot = self.slot(at);
        // SAFETY: as in `get`.
        unsafe { *self.ring.get_unchecked_mut(slot) = time }
    }

    /// When a miss that wants to start at `now` gets a register.
    #[inline(always)]
    pub fn start(&self, now: Time) -> Time {
        if self.registers == 0 { now } else { now.max(self.get(self.first)) }
    }

    /// The register given by [`Outstanding::start`] is busy until `done`.
    #[inline(always)]
    pub fn occupy(&mut self, done: Time) {
        if self.registers == 0 {
            return;
        }
        // The earliest leaves; the new one goes in from the back.
        self.first = self.first.wrapping_add(1);
        let mut at = self.first.wrapping_add(self.registers - 1);
        while at != self.first {
            let before = self.get(at.wrapping_sub(1));
            if before <= done {
                break;
            }
            self.put(at, before);
            at = at.wrapping_sub(1);
        }
        self.put(at, done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_third_miss_waits_for_the_first_of_two() {
        let mut outstanding = Outstanding::new(2);
        for (now, done, expected) in [(0, 100, 0), (1, 50, 1), (2, 150, 50), (60, 90, 100)] {
            assert_eq!(outstanding.start(Time(now)), Time(expected));
            outstanding.occupy(Time(done));
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_list(registers in 1u32..20, dones in prop::collection::vec(0u64..1000, 0..200)) {
            let mut outstanding = Outstanding::new(registers);
            let mut list = vec![0; registers as usize];
            for done in dones {
                list.sort_unstable();
                prop_assert_eq!(outstanding.start(Time(0)), Time(list[0]));
                let done = done.max(list[0]);
                list[0] = done;
                outstanding.occupy(Time(done));
            }
        }
    }
}
