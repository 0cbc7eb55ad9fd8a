//! Pages that a process touched while its accesses were left out: a sparse bitmap, cheap to set in a loop.

use std::collections::BTreeMap;
use terrace_trace::Event;

/// Base-2 logarithm of the page size.
const PAGE_SHIFT: u32 = 12;
/// Pages that one node of the bitmap covers: 128 MiB of addresses in 4 KiB.
const NODE_PAGES: u64 = 32_768;

type Node = Box<[u64; NODE_PAGES as usize / 64]>;

/// A set of base pages.
#[derive(Clone, Debug)]
pub struct Touched {
    nodes: BTreeMap<u64, Node>,
    /// The page set last: most accesses touch it again.
    last: u64,
}

impl Default for Touched {
    fn default() -> Touched {
        Touched { nodes: BTreeMap::new(), last: u64::MAX }
    }
}

impl Touched {
    /// Adds the pages of an access.
    #[inline]
    pub fn insert(&mut self, address: u64, bytes: u64) {
        let page = address >> PAGE_SHIFT;
        if page != self.last {
            self.set(page);
        }
        let end = address.saturating_add(bytes.max(1) - 1) >> PAGE_SHIFT;
        if end != page {
            (page + 1..=end).for_each(|page| self.set(page));
        }
    }

    /// Removes the pages in `bytes` at `start`: they were unmapped or dropped.
    pub fn remove(&mut self, start: u64, bytes: u64) {
        self.last = u64::MAX;
        let (first, end) = (start >> PAGE_SHIFT, start.saturating_add(bytes) >> PAGE_SHIFT);
        for (&number, node) in self.nodes.range_mut(first / NODE_PAGES..=end / NODE_PAGES) {
            let base = number * NODE_PAGES;
            for i in first.max(base)..end.min(base + NODE_PAGES) {
                node[((i - base) / 64) as usize] &= !(1 << (i % 64));
            }
        }
    }

    /// Moves what lies in `bytes` at `from` to `to`, as far as it fits.
    pub fn relocate(&mut self, from: u64, bytes: u64, to: u64, room: u64) {
        let (first, end) = (from >> PAGE_SHIFT, from.saturating_add(bytes) >> PAGE_SHIFT);
        let pages: Vec<u64> = self.pages().filter(|&page| page >= first && page < end).collect();
        self.remove(from, bytes);
        for page in pages {
            let offset = (page - first) << PAGE_SHIFT;
            if offset < room {
                self.set((to + offset) >> PAGE_SHIFT);
            }
        }
    }

    /// Whether no page is in the set.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Empties the set into [`Event::Resident`]s, in order of address.
    pub fn take(&mut self) -> Vec<Event> {
        self.last = u64::MAX;
        let nodes = std::mem::take(&mut self.nodes);
        nodes
            .into_iter()
            .filter_map(|(number, node)| {
                let first = node.iter().position(|&w| w != 0)?;
                let end = node.iter().rposition(|&w| w != 0)? + 1;
                let start = (number * NODE_PAGES + first as u64 * 64) << PAGE_SHIFT;
                Some(Event::Resident { start, bitmap: node[first..end].to_vec() })
            })
            .collect()
    }

    fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.nodes.iter().flat_map(|(&number, node)| {
            (0..NODE_PAGES)
                .filter(move |i| node[(i / 64) as usize] >> (i % 64) & 1 != 0)
                .map(move |i| number * NODE_PAGES + i)
        })
    }

    fn set(&mut self, page: u64) {
        let node =
            self.nodes.entry(page / NODE_PAGES).or_insert_with(|| Box::new([0; NODE_PAGES as usize / 64]));
        let i = page % NODE_PAGES;
        node[(i / 64) as usize] |= 1 << (i % 64);
        self.last = page;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn pages_of(events: &[Event]) -> BTreeSet<u64> {
        let mut pages = BTreeSet::new();
        for event in events {
            let Event::Resident { start, bitmap } = event else { panic!("{event:?}") };
            for i in 0..bitmap.len() as u64 * 64 {
                if bitmap[(i / 64) as usize] >> (i % 64) & 1 != 0 {
                    pages.insert((start >> 12) + i);
                }
            }
        }
        pages
    }

    #[test]
    fn agrees_with_a_plain_set() {
        let mut touched = Touched::default();
        let mut plain = BTreeSet::new();
        let mut random = 1u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random >> 33
        };
        for _ in 0..5000 {
            let page = next() % 100_000;
            match next() % 8 {
                0 => {
                    let count = next() % 300;
                    touched.remove(page << 12, count << 12);
                    plain.retain(|&p| p < page || p >= page + count);
                }
                1 => {
                    let (to, count, room) = (200_000 + next() % 1000, next() % 64, next() % 64);
                    touched.relocate(page << 12, count << 12, to << 12, room << 12);
                    let moved: Vec<u64> = plain.range(page..page + count).copied().collect();
                    plain.retain(|&p| p < page || p >= page + count);
                    plain.extend(moved.iter().filter(|&&p| p - page < room).map(|p| p - page + to));
                }
                _ => {
                    let offset = next() % 4096;
                    touched.insert((page << 12) + offset, 16);
                    plain.insert(page);
                    if offset > 4080 {
                        plain.insert(page + 1);
                    }
                }
            }
        }
        assert_eq!(pages_of(&touched.take()), plain);
        assert!(touched.is_empty());
    }
}
