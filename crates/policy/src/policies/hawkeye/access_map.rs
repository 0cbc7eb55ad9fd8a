//! Ranges of 2 MiB by how many of their base pages are accessed.

use crate::{PageId, SpaceId};
use std::collections::{BTreeMap, VecDeque};
use terrace_model::{PageSize, TierId};

/// Buckets; the fuller a range is accessed, the higher.
const BUCKETS: usize = 10;
/// Base pages per bucket: 0 to 49 accessed, 50 to 99, and so on; the last takes the rest.
const WIDTH: f64 = 50.0;
/// A range is promoted above this coverage (released: the lowest bin, of averages of at most 1, never is).
const IDLE: f64 = 1.0;

/// A range under observation.
#[derive(Clone, Copy, Debug)]
struct Range {
    /// Moving average of its accessed base pages.
    coverage: f64,
    bucket: usize,
    tier: TierId,
    /// The one valid place of the range in the queues.
    turn: u64,
}

/// The `access_map` of all spaces.
#[derive(Clone, Debug)]
pub struct AccessMap {
    ranges: BTreeMap<PageId, Range>,
    /// Places by bucket, then by space. Places that a range has left stay until they are met.
    buckets: Vec<BTreeMap<SpaceId, VecDeque<(PageId, u64)>>>,
    turns: u64,
    last: SpaceId,
    /// Weight of the newest sample.
    weight: f64,
}

impl AccessMap {
    /// A map of which nothing is observed yet.
    pub fn new(weight: f64) -> AccessMap {
        AccessMap {
            ranges: BTreeMap::new(),
            buckets: vec![BTreeMap::new(); BUCKETS],
            turns: 0,
            last: SpaceId::default(),
            weight,
        }
    }

    /// Takes a sample: all ranges of base pages, each with how many were accessed. A range that moves up goes to the head of
    /// its bucket, one that moves down or is new to the tail.
    pub fn sample(&mut self, sample: &[(PageId, u64, TierId)]) {
        let before = std::mem::take(&mut self.ranges);
        for &(page, accessed, tier) in sample {
            let old = before.get(&page);
            let now = accessed.min(PageSize::Huge.base_pages()) as f64;
            let before = old.map_or(0.0, |old| old.coverage);
            let coverage = self.weight * now + (1.0 - self.weight) * before;
            let bucket = ((coverage / WIDTH) as usize).min(BUCKETS - 1);
            let turn = match old {
                Some(old) if old.bucket == bucket => old.turn,
                _ => {
                    self.turns += 1;
                    let queue = self.buckets[bucket].entry(page.space).or_default();
                    if old.is_some_and(|old| old.bucket < bucket) {
                        queue.push_front((page, self.turns));
                    } else {
                        queue.push_back((page, self.turns));
                    }
                    self.turns
                }
            };
            self.ranges.insert(page, Range { coverage, bucket, tier, turn });
        }
    }

    /// The next range to promote: from the highest bucket, the head of its queue; spaces take turns. It is observed no
    /// longer. Ranges that are hardly accessed are worth nothing.
    pub fn next(&mut self) -> Option<(PageId, TierId)> {
        for bucket in (0..BUCKETS).rev() {
            let spaces: Vec<SpaceId> = self.buckets[bucket].keys().copied().collect();
            let after = spaces.partition_point(|space| *space <= self.last);
            for &space in spaces[after..].iter().chain(&spaces[..after]) {
                if let Some(found) = self.head(bucket, space) {
                    self.last = space;
                    return Some(found);
                }
            }
        }
        None
    }

    fn head(&mut self, bucket: usize, space: SpaceId) -> Option<(PageId, TierId)> {
        let queue = self.buckets[bucket].get_mut(&space)?;
        let mut idle = Vec::new();
        let mut found = None;
        while let Some((page, turn)) = queue.pop_front() {
            match self.ranges.get(&page) {
                Some(range) if range.turn == turn && range.coverage > IDLE => {
                    found = Some((page, range.tier));
                    break;
                }
                Some(range) if range.turn == turn => idle.push((page, turn)),
                _ => {}
            }
        }
        queue.extend(idle);
        if queue.is_empty() {
            self.buckets[bucket].remove(&space);
        }
        if let Some((page, _)) = found {
            self.ranges.remove(&page);
        }
        found
    }

    /// Ranges under observation.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIER: TierId = TierId(0);

    fn at(space: u32, range: u64) -> PageId {
        PageId::new(space, range * 512)
    }

    fn order(map: &mut AccessMap) -> Vec<PageId> {
        std::iter::from_fn(|| map.next().map(|(page, _)| page)).collect()
    }

    #[test]
    fn the_fullest_bucket_comes_first_and_spaces_take_turns() {
        let mut map = AccessMap::new(1.0);
        let sample = [
            (at(1, 0), 49, TIER),
            (at(1, 1), 50, TIER),
            (at(1, 2), 512, TIER),
            (at(1, 3), 460, TIER),
            (at(2, 0), 451, TIER),
            (at(2, 1), 0, TIER),
        ];
        map.sample(&sample);
        assert_eq!(map.len(), 6);
        let expected = [at(1, 2), at(2, 0), at(1, 3), at(1, 1), at(1, 0)];
        assert_eq!(order(&mut map), expected, "a range without accesses stays");
        assert_eq!(map.len(), 1);
    }

    #[test]
    fn what_gets_hotter_goes_to_the_head() {
        let mut map = AccessMap::new(1.0);
        map.sample(&[
            (at(0, 0), 120, TIER),
            (at(0, 1), 110, TIER),
            (at(0, 2), 10, TIER),
            (at(0, 3), 300, TIER),
        ]);
        map.sample(&[
            (at(0, 0), 130, TIER),
            (at(0, 1), 140, TIER),
            (at(0, 2), 149, TIER),
            (at(0, 3), 100, TIER),
        ]);
        assert_eq!(order(&mut map), [at(0, 2), at(0, 0), at(0, 1), at(0, 3)]);
    }

    #[test]
    fn coverage_is_a_moving_average_and_what_is_gone_is_forgotten() {
        let mut map = AccessMap::new(0.5);
        map.sample(&[(at(0, 0), 400, TIER), (at(0, 1), 260, TIER)]);
        map.sample(&[(at(0, 0), 0, TIER), (at(0, 1), 260, TIER)]);
        assert_eq!(order(&mut map.clone()), [at(0, 1), at(0, 0)], "100 against 195");
        map.sample(&[(at(0, 0), 0, TIER)]);
        assert_eq!(order(&mut map.clone()), [at(0, 0)]);
        for _ in 0..6 {
            map.sample(&[(at(0, 0), 0, TIER)]);
        }
        assert_eq!(order(&mut map), [], "below one page on average");
    }
}
