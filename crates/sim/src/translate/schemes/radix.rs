//! Radix: x86-64 page tables behind two levels of TLBs, before the first-level cache.
//!
//! **What it does.** An access asks its core's level-1 TLBs, then level 2; what misses both walks the page table, and the
//! walk's references are loads through the data caches. The first store through a clean entry sets the dirty bit in the
//! page table.
//!
//! **Source.** Intel, Software Developer's Manual, volume 3, chapter 4.
//!
//! **Left open, and chosen here.** Levels are neither inclusive nor exclusive of each other. All arrays of a level are
//! probed at once.

use super::plain::{PlainTlbs, translate_plain};
use crate::os::{Leaf, PageTable, Pte};
use crate::translate::{NoKeys, Request, Setup, Stop, TlbCounters, TlbHit, Tlbs, Translation, Walker};
use terrace_model::{AddressRange, Time};

/// The TLBs of one core.
#[derive(Debug)]
pub struct Radix {
    tlbs: Tlbs,
}

impl PlainTlbs for Radix {
    #[inline(always)]
    fn tlbs(&mut self) -> &mut Tlbs {
        &mut self.tlbs
    }
}

impl Translation for Radix {
    const NAME: &'static str = "radix";
    const STATISTICS: &'static [(&'static str, &'static str)] = &[];
    type Keys = NoKeys;
    type Kernel = ();

    fn new(setup: &Setup<'_, NoKeys>) -> Result<Radix, String> {
        Ok(Radix { tlbs: Tlbs::new(setup.translation)? })
    }

    fn kernel(_setup: &Setup<'_, NoKeys>) {}

    #[inline(always)]
    fn recent(&mut self, space: u32, addr: u64) -> Option<TlbHit> {
        self.tlbs.recent(space, addr)
    }

    #[inline(always)]
    fn count_hit(&mut self, hit: TlbHit) {
        self.tlbs.count_hit(hit);
    }

    #[inline(always)]
    fn translate<W: Walker>(
        &mut self,
        kernel: &mut (),
        walker: &mut W,
        request: &Request,
    ) -> Result<(TlbHit, Time), Stop> {
        translate_plain(self, kernel, walker, request)
    }

    fn update(&mut self, _table: &PageTable, request: &Request, _leaf: &Leaf, _pte: Pte, hit: TlbHit) {
        self.tlbs.update(request.space, request.addr, hit);
    }

    fn invalidate(&mut self, space: u32, range: AddressRange) {
        self.tlbs.invalidate(space, range);
    }

    fn flush_space(&mut self, space: u32) {
        self.tlbs.flush_space(space);
    }

    fn tlb_counters(&self) -> TlbCounters {
        self.tlbs.counters
    }
}
