//! State per base page, in chunks of 2 MiB: a scan in page order finds each entry without a search.

use crate::{PageId, PageRange};
use std::collections::BTreeMap;
use terrace_model::PageSize;

/// Entries of a chunk.
const CHUNK: u64 = PageSize::Huge.base_pages();

/// A value per page, the default where none was set. A huge page uses the entry of its first base page.
#[derive(Clone, Debug)]
pub struct PageMap<T> {
    chunks: Vec<Box<[T]>>,
    index: BTreeMap<PageId, usize>,
    unused: Vec<usize>,
    /// The chunk that was used last.
    last: Option<(PageId, usize)>,
}

impl<T: Copy + Default> Default for PageMap<T> {
    fn default() -> PageMap<T> {
        PageMap { chunks: Vec::new(), index: BTreeMap::new(), unused: Vec::new(), last: None }
    }
}

impl<T: Copy + Default> PageMap<T> {
    /// The value of `page`, to change. Allocates once per 2 MiB of address space.
    #[inline]
    pub fn entry(&mut self, page: PageId) -> &mut T {
        let start = page.aligned(PageSize::Huge);
        let chunk = match self.last {
            Some((last, chunk)) if last == start => chunk,
            _ => self.chunk(start),
        };
        &mut self.chunks[chunk][(page.vpn - start.vpn) as usize]
    }

    fn chunk(&mut self, start: PageId) -> usize {
        let chunk = match self.index.get(&start) {
            Some(chunk) => *chunk,
            None => {
                let fresh = || vec![T::default(); CHUNK as usize].into_boxed_slice();
                let chunk = match self.unused.pop() {
                    Some(chunk) => {
                        self.chunks[chunk] = fresh();
                        chunk
                    }
                    None => {
                        self.chunks.push(fresh());
                        self.chunks.len() - 1
                    }
                };
                self.index.insert(start, chunk);
                chunk
            }
        };
        self.last = Some((start, chunk));
        chunk
    }

    /// The value of `page`.
    pub fn get(&self, page: PageId) -> T {
        let start = page.aligned(PageSize::Huge);
        let chunk = self.index.get(&start);
        chunk.map_or_else(T::default, |chunk| self.chunks[*chunk][(page.vpn - start.vpn) as usize])
    }

    /// The values of the pages of `range` in pieces that lie side by side; pages that never had a value are left out.
    pub fn pieces(&self, range: PageRange) -> impl Iterator<Item = &[T]> {
        let end = PageId { space: range.first.space, vpn: range.end() };
        self.index.range(range.first.aligned(PageSize::Huge)..end).map(move |(start, chunk)| {
            let from = range.first.vpn.saturating_sub(start.vpn);
            let to = (range.end() - start.vpn).min(CHUNK);
            &self.chunks[*chunk][from as usize..to as usize]
        })
    }

    /// Shows the value of every page of the chunks in use, in page order, to change.
    pub fn for_each(&mut self, mut visit: impl FnMut(PageId, &mut T)) {
        for (start, chunk) in &self.index {
            for (at, value) in self.chunks[*chunk].iter_mut().enumerate() {
                visit(start.plus(at as u64), value);
            }
        }
    }

    /// Forgets the pages of `range`.
    pub fn forget(&mut self, range: PageRange) {
        let end = PageId { space: range.first.space, vpn: range.end() };
        let starts: Vec<PageId> =
            self.index.range(range.first.aligned(PageSize::Huge)..end).map(|(start, _)| *start).collect();
        for start in starts {
            if range.covers(PageRange::of(start, PageSize::Huge)) {
                self.unused.extend(self.index.remove(&start));
            } else {
                let chunk = self.index[&start];
                for at in 0..CHUNK {
                    if range.contains(start.plus(at)) {
                        self.chunks[chunk][at as usize] = T::default();
                    }
                }
            }
        }
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_until_their_range_is_forgotten() {
        let mut map = PageMap::<u8>::default();
        for vpn in [0, 511, 512, 5000] {
            *map.entry(PageId::new(0, vpn)) += 1;
            *map.entry(PageId::new(1, vpn)) += 2;
        }
        let mut sum = 0;
        map.for_each(|_, value| sum += u32::from(*value));
        assert_eq!(sum, 12);
        let pieces = |first, pages| -> Vec<u32> {
            let range = PageRange::new(PageId::new(0, first), pages);
            map.pieces(range).map(|piece| piece.iter().map(|value| u32::from(*value)).sum()).collect()
        };
        assert_eq!(pieces(0, 1024), [2, 1]);
        assert_eq!(pieces(1, 511), [1]);
        assert_eq!(pieces(512, 1), [1]);
        assert_eq!(pieces(1024, 512), []);
        map.forget(PageRange::new(PageId::new(0, 511), 600));
        let values: Vec<u8> = [0, 511, 512, 5000].iter().map(|vpn| map.get(PageId::new(0, *vpn))).collect();
        assert_eq!(values, [1, 0, 0, 1]);
        assert_eq!(map.get(PageId::new(1, 512)), 2);
        map.forget(PageRange::new(PageId::new(0, 0), 1 << 20));
        *map.entry(PageId::new(0, 7 << 20)) = 9;
        assert_eq!((map.get(PageId::new(0, 0)), map.get(PageId::new(0, 7 << 20))), (0, 9));
    }
}
