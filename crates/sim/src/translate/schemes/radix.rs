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

use super::plain::translate_plain;
use crate::translate::{NoKeys, Request, Setup, Stop, TlbHit, Tlbs, Translation, Walker};
use terrace_model::{SpaceId, Time, VirtAddr};

/// The TLBs of one core.
#[derive(Debug)]
pub struct Radix {
    tlbs: Tlbs,
}

impl Translation for Radix {
    const NAME: &'static str = "radix";
    const RUNS_IN_VM: bool = true;
    const CO_TAGS: bool = true;
    const STATISTICS: &'static [(&'static str, &'static str)] = &[];
    type Keys = NoKeys;
    type Kernel = ();
    type Tlbs = Tlbs;

    fn new(setup: &Setup<'_, NoKeys>) -> Result<Radix, String> {
        Ok(Radix { tlbs: Tlbs::new(setup.translation)? })
    }

    fn kernel(_setup: &Setup<'_, NoKeys>) -> Result<(), String> {
        Ok(())
    }

    #[inline(always)]
    fn tlbs(&self) -> &Tlbs {
        &self.tlbs
    }

    #[inline(always)]
    fn tlbs_mut(&mut self) -> &mut Tlbs {
        &mut self.tlbs
    }

    #[inline(always)]
    fn recent(&mut self, space: SpaceId, addr: VirtAddr) -> Option<TlbHit> {
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
}
