//! A limit on misses in flight.

use terrace_model::Time;

/// Completion times of the misses that occupy a fixed number of registers.
///
/// A binary heap with the earliest completion on top, because a new miss only ever replaces that one.
#[derive(Clone, Debug)]
pub struct Outstanding {
    heap: Vec<Time>,
}

impl Outstanding {
    /// `registers` registers, all free. Zero means no limit.
    pub fn new(registers: u32) -> Outstanding {
        Outstanding { heap: vec![Time::ZERO; registers as usize] }
    }

    /// When a miss that wants to start at `now` gets a register.
    #[inline(always)]
    pub fn start(&self, now: Time) -> Time {
        match self.heap.first() {
            Some(&earliest) => now.max(earliest),
            None => now,
        }
    }

    /// The register given by [`Outstanding::start`] is busy until `done`.
    #[inline(always)]
    pub fn occupy(&mut self, done: Time) {
        let n = self.heap.len();
        if n == 0 {
            return;
        }
        let mut at = 0;
        loop {
            let mut child = 2 * at + 1;
            if child >= n {
                break;
            }
            if child + 1 < n && self.heap[child + 1] < self.heap[child] {
                child += 1;
            }
            if self.heap[child] >= done {
                break;
            }
            self.heap[at] = self.heap[child];
            at = child;
        }
        self.heap[at] = done;
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
