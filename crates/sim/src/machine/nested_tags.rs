//! Co-tags of what two-dimensional walks fill: the addresses of the hypervisor's page-table entries (HATRIC, Yan 2019,
//! section
//! 2.4.1).
//!
//! A TLB entry and a page of the nested TLB carry the address of the entry that maps the page for the hypervisor, an entry
//! of the page-walk cache for the hypervisor's tables that of the entry itself. For the guest's tables the page-walk cache
//! holds where the next table lies, by the entry that maps it; where it holds a guest-physical address only, no entry of the
//! hypervisor's concerns it, and it has no co-tag.

use super::nested::{data_of, in_guest};
use super::site::Site;
use crate::os::Leaf;
use crate::translate::{HOST, Request, TlbHit, TlbSet, TlbSets, Translation, WalkCacheTags, Walker};
use terrace_model::{GuestPhysAddr, PhysAddr};

impl<const F: u8> Site<'_, F> {
    /// A walk of the hypervisor's table fetched its entries from level `start` down to `leaf`'s, and they were put into the
    /// nested TLB and the page-walk cache.
    pub(super) fn tag_walk_of_host(&mut self, addr: GuestPhysAddr, leaf: &Leaf, lowest: u32, start: u32) {
        if self.shared.hardware.as_ref().is_none_or(|hardware| !hardware.covers.walk_cache) {
            return;
        }
        let caches_host = self.core.nested.as_ref().is_some_and(|nested| nested.caches_host);
        let in_walk_cache = caches_host && self.core.page_walk_cache.has_co_tags();
        let top = if in_walk_cache { start } else { lowest };
        for level in lowest..=top {
            let Some(entry) = self.host_entry(leaf, addr, level) else { continue };
            let evicted = if level == lowest {
                self.core.nested.as_mut().and_then(|nested| nested.tag(addr, leaf.size, entry))
            } else {
                self.core.page_walk_cache.tag(HOST, addr.in_host_space(), level, entry)
            };
            self.mark_entry(entry, None, evicted);
        }
    }

    /// A translation was made from the hypervisor's entry at `entry`, in the place of one with the co-tag `evicted`.
    fn mark_entry(&mut self, entry: PhysAddr, tlb_sets: Option<TlbSets>, evicted: Option<PhysAddr>) {
        let shared = &mut *self.shared;
        let now = self.core.pipeline.now;
        let marked = shared.caches.mark(self.id, entry.line().in_caches(), now, &mut shared.memory);
        let Some(hardware) = &mut shared.hardware else { return };
        hardware.filled(self.id, entry, tlb_sets, marked);
        if hardware.is_eager() {
            hardware.evicted.extend(evicted);
        }
    }

    /// The address of the hypervisor's entry that maps a guest-physical address.
    fn source_of(&self, addr: GuestPhysAddr) -> Option<PhysAddr> {
        let leaf = self.shared.hypervisor.as_ref()?.find(addr)?;
        self.host_entry(&leaf, addr, leaf.size.index() as u32 + 1)
    }

    /// Tags the entries that a whole walk has filled: it fetched the guest's entries from level `start` down to `leaf`'s.
    pub(super) fn tag_fill_of_guest<T: Translation>(
        &mut self,
        scheme: &mut T,
        request: &Request,
        leaf: &Leaf,
        start: u32,
        hit: TlbHit,
    ) {
        let Request { space, addr, .. } = *request;
        let leaf_level = leaf.size.index() as u32 + 1;
        if self.core.page_walk_cache.has_co_tags() {
            let knows_places = self
                .core
                .nested
                .as_ref()
                .is_some_and(|nested| nested.walk_cache == WalkCacheTags::GuestVirtual);
            for level in leaf_level + 1..=start {
                let next = in_guest(self.shared.os.table(space).entry_address(leaf, addr, level - 1));
                match self.source_of(next).filter(|_| knows_places) {
                    Some(source) => {
                        let evicted = self.core.page_walk_cache.tag(space, addr, level, source);
                        self.mark_entry(source, None, evicted);
                    }
                    None => {
                        let evicted = self.core.page_walk_cache.untag(space, addr, level);
                        if let Some(hardware) = &mut self.shared.hardware
                            && hardware.is_eager()
                        {
                            hardware.evicted.extend(evicted);
                        }
                    }
                }
            }
        }
        let Some(source) = self.source_of(data_of(leaf.pte.frame(), addr, leaf.size)) else { return };
        let size = self.splinter(addr, hit).size;
        let tlb_sets = scheme.tlbs().tlb_sets(space, addr, size);
        scheme.tlbs_mut().set_source(source);
        self.mark_entry(source, Some(tlb_sets), None);
        let Some(hardware) = &mut self.shared.hardware else { return };
        if hardware.is_eager() {
            let mut evicted = std::mem::take(&mut hardware.evicted);
            evicted.extend(scheme.tlbs_mut().take_evicted());
            // The TLBs are filled next.
            self.leave_sharers(scheme, evicted, source.line());
        }
    }
}
