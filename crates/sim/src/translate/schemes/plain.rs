//! What schemes share that have plain TLBs, alone or beside something else.

use crate::os::{Leaf, PageTable, Pte};
use crate::translate::{
    Probed, Request, Resolution, Stop, Target, TlbCounters, TlbHit, TlbSet, TlbSets, Tlbs, Translation, Walk,
    Walker,
};
use terrace_model::{AddressRange, PageSize, PhysAddr, SpaceId, Time, VirtAddr};

impl TlbSet for Tlbs {
    fn update(&mut self, _table: &PageTable, request: &Request, _leaf: &Leaf, _pte: Pte, hit: TlbHit) {
        Tlbs::update(self, request.space, request.addr, hit);
    }

    fn invalidate(&mut self, space: SpaceId, range: AddressRange) {
        Tlbs::invalidate(self, space, range);
    }

    fn flush_space(&mut self, space: SpaceId) {
        Tlbs::flush_space(self, space);
    }

    fn counters(&self) -> TlbCounters {
        self.counters
    }

    fn keep_co_tags(&mut self, notify_evicted: bool) {
        Tlbs::keep_co_tags(self, notify_evicted);
    }

    fn set_source(&mut self, entry: PhysAddr) {
        Tlbs::set_source(self, entry);
    }

    fn take_evicted(&mut self) -> Vec<PhysAddr> {
        Tlbs::take_evicted(self)
    }

    fn tlb_sets(&self, space: SpaceId, addr: VirtAddr, size: PageSize) -> TlbSets {
        Tlbs::tlb_sets(self, space, addr, size)
    }

    fn probe(&mut self, target: &Target, resolution: Resolution) -> Probed {
        Tlbs::probe(self, target, resolution)
    }

    fn holds(&self, address: PhysAddr, resolution: Resolution) -> (bool, u64) {
        Tlbs::holds(self, address, resolution)
    }
}

/// A scheme with plain TLBs.
pub trait PlainTlbs: Translation<Tlbs = Tlbs> {}

impl<T: Translation<Tlbs = Tlbs>> PlainTlbs for T {}

/// TLBs, then a page walk.
#[inline(always)]
pub fn translate_plain<T: PlainTlbs, W: Walker>(
    scheme: &mut T,
    kernel: &mut T::Kernel,
    walker: &mut W,
    request: &Request,
) -> Result<(TlbHit, Time), Stop> {
    if let Some(hit) = scheme.tlbs_mut().lookup_l1(request.space, request.addr) {
        if !request.write || hit.entry.is_dirty() {
            return Ok((hit, request.now));
        }
        return walker.set_dirty(scheme, kernel, request);
    }
    translate_beyond_l1(scheme, kernel, walker, request)
}

#[inline(never)]
fn translate_beyond_l1<T: PlainTlbs, W: Walker>(
    scheme: &mut T,
    kernel: &mut T::Kernel,
    walker: &mut W,
    request: &Request,
) -> Result<(TlbHit, Time), Stop> {
    let looked_up = request.now + walker.l2_tlb_latency();
    if let Some(hit) = scheme.tlbs_mut().lookup_l2(request.space, request.addr) {
        walker.note_lookup("L2 TLB: hit", request.now, looked_up);
        if request.write && !hit.entry.is_dirty() {
            return walker.set_dirty(scheme, kernel, &request.at(looked_up));
        }
        return Ok((hit, looked_up));
    }
    let (hit, walk) = walk_and_fill(scheme, kernel, walker, request, looked_up)?;
    Ok((hit, walk.done))
}

/// Looks both levels up: the page, and when that is known. None where neither level knows it.
#[inline(always)]
fn find(tlbs: &mut Tlbs, walker: &impl Walker, request: &Request) -> Option<(TlbHit, Time)> {
    match tlbs.lookup_l1(request.space, request.addr) {
        Some(hit) => Some((hit, request.now)),
        None => tlbs
            .lookup_l2(request.space, request.addr)
            .map(|hit| (hit, request.now + walker.l2_tlb_latency())),
    }
}

/// Looks up both levels of TLBs, and marks the page dirty at a store; none where neither knows the page.
#[inline(always)]
pub fn look_up<T: PlainTlbs, W: Walker>(
    scheme: &mut T,
    kernel: &mut T::Kernel,
    walker: &mut W,
    request: &Request,
) -> Result<Option<(TlbHit, Time)>, Stop> {
    let Some((hit, at)) = find(scheme.tlbs_mut(), walker, request) else { return Ok(None) };
    if request.write && !hit.entry.is_dirty() {
        return walker.set_dirty(scheme, kernel, &request.at(at)).map(Some);
    }
    Ok(Some((hit, at)))
}

/// Walks the page table and fills the TLBs with what it found.
#[inline(always)]
pub fn walk_and_fill<T: PlainTlbs, W: Walker>(
    scheme: &mut T,
    kernel: &mut T::Kernel,
    walker: &mut W,
    request: &Request,
    looked_up: Time,
) -> Result<(TlbHit, Walk), Stop> {
    let walk = walker.walk(scheme, kernel, request, looked_up)?;
    // After a fault they were asked again.
    let asked = walk.looked_up.saturating_sub(walker.l2_tlb_latency()).max(request.now);
    walker.note_lookup("TLBs: miss", asked, walk.looked_up);
    let hit = walker.splinter(request.addr, walk.hit());
    scheme.tlbs_mut().fill_after_walk(request.space, request.addr, hit);
    Ok((hit, walk))
}
