//! Which base pages were ever stored to, since they were brought in: the others hold only zeros.

use std::collections::HashMap;
use terrace_model::{AddressRange, PageSize, SpaceId, VirtAddr};

/// Base pages that one bitmap speaks of.
const PAGES: u64 = 64 * 512;

/// Base pages with stores, by process and address.
#[derive(Clone, Debug, Default)]
pub struct Stores {
    bitmaps: HashMap<(SpaceId, u64), Box<[u64; 512]>>,
    /// The last base page that was marked.
    last: Option<(SpaceId, u64)>,
}

impl Stores {
    /// A store to this address.
    #[inline]
    pub fn mark(&mut self, space: SpaceId, addr: VirtAddr) {
        let page = addr.vpn();
        if self.last == Some((space, page)) {
            return;
        }
        self.last = Some((space, page));
        let bitmap = self.bitmaps.entry((space, page / PAGES)).or_insert_with(|| Box::new([0; 512]));
        bitmap[(page % PAGES / 64) as usize] |= 1 << (page % 64);
    }

    /// The process is gone, and its number goes to another.
    pub fn forget(&mut self, space: SpaceId) {
        self.bitmaps.retain(|(of, _), _| *of != space);
        self.last = None;
    }

    /// Whether it was ever stored to.
    pub fn contains(&self, space: SpaceId, addr: VirtAddr) -> bool {
        let page = addr.vpn();
        let bitmap = self.bitmaps.get(&(space, page / PAGES));
        bitmap.is_some_and(|bitmap| bitmap[(page % PAGES / 64) as usize] >> (page % 64) & 1 != 0)
    }

    /// The page at `addr` is new: all zeros.
    pub fn clear(&mut self, space: SpaceId, addr: VirtAddr, size: PageSize) {
        self.last = None;
        let first = addr.vpn() & !(size.base_pages() - 1);
        if size == PageSize::Base {
            if let Some(bitmap) = self.bitmaps.get_mut(&(space, first / PAGES)) {
                bitmap[(first % PAGES / 64) as usize] &= !(1 << (first % 64));
            }
            return;
        }
        for word in (first..first + size.base_pages()).step_by(64) {
            if let Some(bitmap) = self.bitmaps.get_mut(&(space, word / PAGES)) {
                bitmap[(word % PAGES / 64) as usize] = 0;
            }
        }
    }

    /// The child of a fork holds what its parent holds.
    pub fn fork(&mut self, parent: SpaceId, child: SpaceId) {
        let of_parent = self.bitmaps.iter().filter(|((space, _), _)| *space == parent);
        let copies: Vec<_> = of_parent.map(|((_, at), bitmap)| ((child, *at), bitmap.clone())).collect();
        self.bitmaps.extend(copies);
    }

    /// Contents move with their addresses.
    pub fn remap(&mut self, space: SpaceId, from: AddressRange, to: VirtAddr) {
        let pages = from.base_pages();
        let stored: Vec<VirtAddr> = pages.filter(|addr| self.contains(space, *addr)).collect();
        for addr in stored {
            self.mark(space, to + (addr - from.start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_known_until_a_page_is_new() {
        let mut stores = Stores::default();
        for addr in [0x1000, 0x20_0fff, 0x4000_0000, 0x4020_0000].map(VirtAddr) {
            stores.mark(SpaceId(1), addr);
            assert!(
                stores.contains(SpaceId(1), addr)
                    && !stores.contains(SpaceId(2), addr)
                    && !stores.contains(SpaceId(1), addr + 4096)
            );
        }
        stores.fork(SpaceId(1), SpaceId(2));
        stores.clear(SpaceId(1), VirtAddr(0x4000_0000), PageSize::Huge);
        assert!(
            !stores.contains(SpaceId(1), VirtAddr(0x4000_0000))
                && stores.contains(SpaceId(2), VirtAddr(0x4000_0000))
        );
        assert!(stores.contains(SpaceId(1), VirtAddr(0x4020_0000)));
        stores.clear(SpaceId(1), VirtAddr(0x4000_0000), PageSize::Giant);
        assert!(
            !stores.contains(SpaceId(1), VirtAddr(0x4020_0000))
                && stores.contains(SpaceId(1), VirtAddr(0x1000))
        );
        stores.clear(SpaceId(1), VirtAddr(0x1000), PageSize::Base);
        assert!(!stores.contains(SpaceId(1), VirtAddr(0x1000)));
        stores.remap(SpaceId(1), AddressRange::new(0x20_0000, 0x2000), VirtAddr(0x80_0000));
        assert!(
            stores.contains(SpaceId(1), VirtAddr(0x80_0000))
                && !stores.contains(SpaceId(1), VirtAddr(0x80_1000))
        );
    }
}
