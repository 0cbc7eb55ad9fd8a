//! Perfect TLB: radix page tables whose translations cost nothing.
//!
//! **What it does.** No access ever misses the level-1 TLB, and no walk is made. Page faults cost what they cost: the
//! bound of all that better translation can bring.
//!
//! **Source.** None; every paper on translation compares with it.
//!
//! **Left open, and chosen here.** Accessed and dirty bits are set as by the page walker, without traffic.

use crate::os::{Leaf, PageTable, Pte};
use crate::translate::{
    NoKeys, Request, Setup, Stop, TlbCounters, TlbEntry, TlbHit, TlbSet, Translation, Walker,
};
use terrace_model::{AddressRange, PageSize, SpaceId, Time};

/// TLBs that hold everything: nothing but what they count.
#[derive(Debug, Default)]
pub struct AllHits {
    counters: TlbCounters,
}

impl TlbSet for AllHits {
    fn update(&mut self, _: &PageTable, _: &Request, _: &Leaf, _: Pte, _: TlbHit) {}

    fn invalidate(&mut self, _space: SpaceId, _range: AddressRange) {}

    fn flush_space(&mut self, _space: SpaceId) {}

    fn counters(&self) -> TlbCounters {
        self.counters
    }
}

/// One core.
#[derive(Debug, Default)]
pub struct PerfectTlb {
    tlbs: AllHits,
}

impl Translation for PerfectTlb {
    const NAME: &'static str = "perfect-tlb";
    const STATISTICS: &'static [(&'static str, &'static str)] = &[];
    const WALKS: bool = false;
    type Keys = NoKeys;
    type Kernel = ();
    type Tlbs = AllHits;

    fn new(_setup: &Setup<'_, NoKeys>) -> Result<PerfectTlb, String> {
        Ok(PerfectTlb::default())
    }

    fn kernel(_setup: &Setup<'_, NoKeys>) -> Result<(), String> {
        Ok(())
    }

    fn tlbs(&self) -> &AllHits {
        &self.tlbs
    }

    fn tlbs_mut(&mut self) -> &mut AllHits {
        &mut self.tlbs
    }

    #[inline(always)]
    fn translate<W: Walker>(
        &mut self,
        kernel: &mut (),
        walker: &mut W,
        request: &Request,
    ) -> Result<(TlbHit, Time), Stop> {
        let (frame, size) = walker.translate_for_free(self, kernel, request)?;
        self.tlbs.counters.l1_hits[size.index()] += 1;
        let hit = TlbHit { entry: TlbEntry::new(frame, true), size: PageSize::Base };
        Ok((hit, request.now.max(walker.now())))
    }
}
