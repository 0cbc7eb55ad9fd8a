//! A fully associative array with true LRU: a hash index over a doubly linked list, each step in constant time.

/// Key of an empty slot. No caller uses it.
const EMPTY: u64 = u64::MAX;
const NIL: u16 = u16::MAX;

/// Up to 32,767 entries, each a key and a payload.
#[derive(Clone, Debug)]
pub struct FullyAssociative {
    /// Open addressing: slot number of a key, at most half full.
    index: Vec<u16>,
    index_shift: u32,
    keys: Vec<u64>,
    payloads: Vec<u64>,
    newer: Vec<u16>,
    older: Vec<u16>,
    most_recent: u16,
    least_recent: u16,
    used: u16,
    capacity: u16,
}

impl FullyAssociative {
    /// An empty array of `capacity` entries. Panics on zero or more than 32,767.
    pub fn new(capacity: u32) -> FullyAssociative {
        assert!((1..=32_767).contains(&capacity), "{capacity} entries");
        let slots = (2 * capacity as usize).next_power_of_two();
        FullyAssociative {
            index: vec![NIL; slots],
            index_shift: 64 - slots.trailing_zeros(),
            keys: vec![EMPTY; capacity as usize],
            payloads: vec![0; capacity as usize],
            newer: vec![NIL; capacity as usize],
            older: vec![NIL; capacity as usize],
            most_recent: NIL,
            least_recent: NIL,
            used: 0,
            capacity: capacity as u16,
        }
    }

    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.index_shift) as usize
    }

    #[inline(always)]
    fn find(&self, key: u64) -> Option<(usize, u16)> {
        let mask = self.index.len() - 1;
        let mut at = self.home(key);
        loop {
            let slot = self.index[at];
            if slot == NIL {
                return None;
            }
            if self.keys[slot as usize] == key {
                return Some((at, slot));
            }
            at = (at + 1) & mask;
        }
    }

    fn unlink(&mut self, slot: u16) {
        let (newer, older) = (self.newer[slot as usize], self.older[slot as usize]);
        if newer == NIL {
            self.most_recent = older
        } else {
            self.older[newer as usize] = older
        }
        if older == NIL { self.least_recent = newer } else { self.newer[older as usize] = newer }
    }

    fn push_front(&mut self, slot: u16) {
        self.newer[slot as usize] = NIL;
        self.older[slot as usize] = self.most_recent;
        if self.most_recent == NIL {
            self.least_recent = slot;
        } else {
            self.newer[self.most_recent as usize] = slot;
        }
        self.most_recent = slot;
    }

    /// Looks `key` up, makes it the most recent, and returns its payload's place.
    #[inline(always)]
    pub fn touch(&mut self, key: u64) -> Option<&mut u64> {
        let (_, slot) = self.find(key)?;
        if self.most_recent != slot {
            self.unlink(slot);
            self.push_front(slot);
        }
        Some(&mut self.payloads[slot as usize])
    }

    /// Replaces the payload of `key` where it is present, without changing the order.
    pub fn update(&mut self, key: u64, payload: u64) {
        if let Some((_, slot)) = self.find(key) {
            self.payloads[slot as usize] = payload;
        }
    }

    /// Inserts or replaces; returns the evicted key and payload when the array was full.
    pub fn insert(&mut self, key: u64, payload: u64) -> Option<(u64, u64)> {
        debug_assert!(key != EMPTY);
        if let Some(place) = self.touch(key) {
            *place = payload;
            return None;
        }
        let (slot, evicted) = if self.used < self.capacity {
            // Free slots are those whose key is empty; with no removals they are simply the next one.
            let slot = if self.keys[self.used as usize] == EMPTY {
                self.used
            } else {
                self.keys.iter().position(|&k| k == EMPTY).expect("an unused slot exists") as u16
            };
            self.used += 1;
            (slot, None)
        } else {
            let slot = self.least_recent;
            let old = (self.keys[slot as usize], self.payloads[slot as usize]);
            self.remove_from_index(old.0);
            self.unlink(slot);
            (slot, Some(old))
        };
        self.keys[slot as usize] = key;
        self.payloads[slot as usize] = payload;
        self.push_front(slot);
        let mask = self.index.len() - 1;
        let mut at = self.home(key);
        while self.index[at] != NIL {
            at = (at + 1) & mask;
        }
        self.index[at] = slot;
        evicted
    }

    /// Removes `key`; returns its payload.
    pub fn remove(&mut self, key: u64) -> Option<u64> {
        let (_, slot) = self.find(key)?;
        self.remove_from_index(key);
        self.unlink(slot);
        self.keys[slot as usize] = EMPTY;
        self.used -= 1;
        Some(self.payloads[slot as usize])
    }

    /// Deletes by moving later members of the probe chain back, so that no tombstones build up.
    fn remove_from_index(&mut self, key: u64) {
        let mask = self.index.len() - 1;
        let Some((mut hole, _)) = self.find(key) else { return };
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = self.index[at];
            if slot == NIL {
                break;
            }
            let home = self.home(self.keys[slot as usize]);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.index[hole] = slot;
                hole = at;
            }
        }
        self.index[hole] = NIL;
    }

    /// Removes every entry for whose key `keep` answers false.
    pub fn retain(&mut self, mut keep: impl FnMut(u64) -> bool) {
        let doomed: Vec<u64> = self.keys.iter().copied().filter(|&k| k != EMPTY && !keep(k)).collect();
        for key in doomed {
            self.remove(key);
        }
    }

    /// Number of entries in use.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.used as usize
    }

    /// Whether no entry is in use.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Touch(u64),
        Insert(u64, u64),
        Remove(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u64..40).prop_map(Step::Touch),
            (0u64..40, 0u64..1000).prop_map(|(k, p)| Step::Insert(k, p)),
            (0u64..40).prop_map(Step::Remove),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_list(capacity in 1u32..20, steps in prop::collection::vec(step(), 0..300)) {
            let mut array = FullyAssociative::new(capacity);
            let mut list: Vec<(u64, u64)> = Vec::new(); // most recent first
            for step in steps {
                match step {
                    Step::Touch(key) => {
                        let expected = list.iter().position(|e| e.0 == key).map(|at| {
                            let entry = list.remove(at);
                            list.insert(0, entry);
                            entry.1
                        });
                        prop_assert_eq!(array.touch(key).map(|p| *p), expected);
                    }
                    Step::Insert(key, payload) => {
                        let mut expected = None;
                        if let Some(at) = list.iter().position(|e| e.0 == key) {
                            list.remove(at);
                        } else if list.len() == capacity as usize {
                            expected = list.pop();
                        }
                        list.insert(0, (key, payload));
                        prop_assert_eq!(array.insert(key, payload), expected);
                    }
                    Step::Remove(key) => {
                        let expected = list.iter().position(|e| e.0 == key).map(|at| list.remove(at).1);
                        prop_assert_eq!(array.remove(key), expected);
                    }
                }
                prop_assert_eq!(array.len(), list.len());
            }
        }
    }
}
