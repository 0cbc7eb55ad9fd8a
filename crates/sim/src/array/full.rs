//! A fully associative array with true LRU: a hash index over a doubly linked list, each step in constant time.

/// Key of an empty slot. No caller uses it.
const EMPTY: u64 = u64::MAX;
const NIL: u16 = u16::MAX;

/// One entry, a member of the recency list.
#[derive(Clone, Debug)]
struct Node {
    key: u64,
    payload: u64,
    newer: u16,
    older: u16,
    /// Where in the index it stands.
    place: u32,
}

/// Up to 32,767 entries, each a key and a payload.
#[derive(Clone, Debug)]
pub struct FullyAssociative {
    /// Open addressing: node number of a key, at most an eighth full.
    index: Box<[u16]>,
    index_shift: u32,
    nodes: Box<[Node]>,
    most_recent: u16,
    least_recent: u16,
    used: u16,
}

impl FullyAssociative {
    /// An empty array of `capacity` entries. Panics on zero or more than 32,767.
    pub fn new(capacity: u32) -> FullyAssociative {
        assert!((1..=32_767).contains(&capacity), "{capacity} entries");
        let slots = (8 * capacity as usize).next_power_of_two();
        let empty = Node { key: EMPTY, payload: 0, newer: NIL, older: NIL, place: 0 };
        FullyAssociative {
            index: vec![NIL; slots].into(),
            index_shift: 64 - slots.trailing_zeros(),
            nodes: vec![empty; capacity as usize].into(),
            most_recent: NIL,
            least_recent: NIL,
            used: 0,
        }
    }

    #[inline(always)]
    fn home(&self, key: u64) -> usize {
        (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.index_shift) as usize
    }

    #[inline(always)]
    fn find(&self, key: u64) -> Option<u16> {
        let mask = self.index.len() - 1;
        let mut at = self.home(key);
        loop {
            // SAFETY: `home` and the mask keep `at` below the index's length, a power of two.
            let slot = unsafe { *self.index.get_unchecked(at) };
            if slot == NIL {
                return None;
            }
            if self.nodes[slot as usize].key == key {
                return Some(slot);
            }
            at = (at + 1) & mask;
        }
    }

    #[inline(always)]
    fn unlink(&mut self, slot: u16) {
        let Node { newer, older, .. } = self.nodes[slot as usize];
        match newer {
            NIL => self.most_recent = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NIL => self.least_recent = newer,
            older => self.nodes[older as usize].newer = newer,
        }
    }

    #[inline(always)]
    fn push_front(&mut self, slot: u16) {
        let front = self.most_recent;
        let node = &mut self.nodes[slot as usize];
        (node.newer, node.older) = (NIL, front);
        match front {
            NIL => self.least_recent = slot,
            front => self.nodes[front as usize].newer = slot,
        }
        self.most_recent = slot;
    }

    /// Looks `key` up, makes it the most recent, and returns its payload's place.
    #[inline(always)]
    pub fn touch(&mut self, key: u64) -> Option<&mut u64> {
        let slot = self.find(key)?;
        if self.most_recent != slot {
            self.unlink(slot);
            self.push_front(slot);
        }
        Some(&mut self.nodes[slot as usize].payload)
    }

    /// Replaces the payload of `key` where it is present, without changing the order.
    pub fn update(&mut self, key: u64, payload: u64) {
        if let Some(slot) = self.find(key) {
            self.nodes[slot as usize].payload = payload;
        }
    }

    /// Inserts a key that is not there; returns the evicted key and payload when the array was full.
    pub fn insert(&mut self, key: u64, payload: u64) -> Option<(u64, u64)> {
        debug_assert!(key != EMPTY && self.find(key).is_none());
        let (slot, evicted) = if (self.used as usize) < self.nodes.len() {
            // With no removals the free slots are simply the next ones.
            let slot = if self.nodes[self.used as usize].key == EMPTY {
                self.used
            } else {
                self.nodes.iter().position(|node| node.key == EMPTY).expect("an unused slot exists") as u16
            };
            self.used += 1;
            (slot, None)
        } else {
            let slot = self.least_recent;
            let node = &self.nodes[slot as usize];
            let old = (node.key, node.payload);
            self.remove_from_index(slot);
            self.unlink(slot);
            (slot, Some(old))
        };
        let mask = self.index.len() - 1;
        let mut at = self.home(key);
        while self.index[at] != NIL {
            at = (at + 1) & mask;
        }
        self.index[at] = slot;
        let node = &mut self.nodes[slot as usize];
        (node.key, node.payload, node.place) = (key, payload, at as u32);
        self.push_front(slot);
        evicted
    }

    /// Removes `key`; returns its payload.
    pub fn remove(&mut self, key: u64) -> Option<u64> {
        let slot = self.find(key)?;
        self.remove_from_index(slot);
        self.unlink(slot);
        self.nodes[slot as usize].key = EMPTY;
        self.used -= 1;
        Some(self.nodes[slot as usize].payload)
    }

    /// Deletes by moving later members of the probe chain back, so that no tombstones build up.
    fn remove_from_index(&mut self, slot: u16) {
        let mask = self.index.len() - 1;
        let mut hole = self.nodes[slot as usize].place as usize;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = self.index[at];
            if slot == NIL {
                break;
            }
            let home = self.home(self.nodes[slot as usize].key);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.index[hole] = slot;
                self.nodes[slot as usize].place = hole as u32;
                hole = at;
            }
        }
        self.index[hole] = NIL;
    }

    /// Removes every entry for whose key `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(u64) -> bool) {
        let doomed: Vec<u64> =
            self.nodes.iter().map(|node| node.key).filter(|&k| k != EMPTY && !keep(k)).collect();
        for key in doomed {
            self.remove(key);
        }
    }

    /// Number of entries that it can hold.
    pub fn capacity(&self) -> usize {
        self.nodes.len()
    }

    /// Where the entry of `key` stands, below the capacity. It stays there until it leaves.
    pub fn place(&self, key: u64) -> Option<usize> {
        self.find(key).map(usize::from)
    }

    /// The key of the entry that stands at a place.
    pub fn key_at(&self, place: usize) -> Option<u64> {
        Some(self.nodes[place].key).filter(|key| *key != EMPTY)
    }

    /// Key and payload of the entry that stands at a place.
    pub fn entry_at(&self, place: usize) -> Option<(u64, u64)> {
        self.key_at(place).map(|key| (key, self.nodes[place].payload))
    }

    /// Number of entries in use.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.used as usize
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
                        if list.iter().any(|e| e.0 == key) {
                            continue;
                        }
                        let expected = if list.len() == capacity as usize { list.pop() } else { None };
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
