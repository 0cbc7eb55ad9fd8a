//! Translation with hardware that profits from contiguity: where each mechanism stands between the TLBs and the walk.
//!
//! The mechanisms are told in `translate/contiguity`; here they meet the page table, the caches and the clock.

use super::access::{CONTIGUOUS, Stop, Walk};
use super::build::{Core, Machine, Shared};
use super::collect::cycles;
use crate::design::{ContiguityParameters, Design};
use crate::os::{Leaf, Pte};
use crate::translate::{
    Contiguity, ContiguityKind, PageRun, Prediction, RangeTables, SegmentChoices, TlbEntry, TlbHit,
    base_pages,
};
use terrace_model::{AddressRange, Bytes, LINE_BYTES, PageSize, Stats, Time, Unit};

/// Lines of a node of the range table.
const LINES_PER_NODE: u64 = 2;

/// What the kernel keeps for the hardware, and what only the whole machine can count.
#[derive(Debug)]
pub(super) struct KernelContiguity {
    /// Runs of the page tables.
    pub ranges: RangeTables,
    /// The segment of each process.
    pub segments: SegmentChoices,
    /// What a wrong prediction costs beyond the walk.
    flush: Time,
    /// Time of walks that right predictions hid.
    pub hidden: Time,
}

impl KernelContiguity {
    /// For the mechanism of a design, if it has one.
    pub fn new(design: &Design, cycle: Time) -> Option<KernelContiguity> {
        let (least, period, flush) = match design.translation.contiguity.as_ref()? {
            ContiguityParameters::Coalesced(_) => (Bytes(u64::MAX), Time::ZERO, Time::ZERO),
            ContiguityParameters::Range(own) => (own.least, Time::ZERO, Time::ZERO),
            ContiguityParameters::DirectSegment(own) => (own.least, own.period, Time::ZERO),
            ContiguityParameters::Spot(own) => (own.least, Time::ZERO, own.flush.at(cycle)),
        };
        let (ranges, segments) = (RangeTables::new(least), SegmentChoices::new(period));
        Some(KernelContiguity { ranges, segments, flush, hidden: Time::ZERO })
    }
}

impl Shared {
    /// The pages of `range` change, and all cores are told: the kernel's tables follow.
    pub(super) fn forget(&mut self, space: u32, range: AddressRange) {
        if let Some(kernel) = &mut self.contiguity {
            kernel.ranges.forget(space, range);
            let (first, end) = base_pages(range);
            kernel.segments.forget(space, first, end);
        }
    }

    /// The page of `addr`, if an access of this kind changes nothing in the page table; `frame` is what a mechanism says
    /// of its base page.
    fn confirm(&mut self, space: u32, addr: u64, write: bool, frame: u64) -> Option<TlbHit> {
        let leaf = self.find_leaf(space, addr)?;
        let at_once = if write { leaf.pte.is_writable_at_once() } else { leaf.pte.is_readable_at_once() };
        if !at_once {
            return None;
        }
        let within = (addr & (leaf.size.bytes() - 1)) >> 12;
        debug_assert_eq!(leaf.pte.frame().0 + within, frame, "{space}:{addr:#x}: stale");
        let entry = TlbEntry::new(frame - within, leaf.pte.is_writable_in_tlb());
        Some(TlbHit { entry, size: leaf.size })
    }

    /// Whether a translation is the page table's.
    fn agrees(&self, space: u32, addr: u64, hit: &TlbHit) -> bool {
        let frame = |first: u64, size: PageSize| first + ((addr & (size.bytes() - 1)) >> 12);
        self.os
            .table(space)
            .find(addr)
            .is_some_and(|leaf| frame(leaf.pte.frame().0, leaf.size) == frame(hit.entry.frame(), hit.size))
    }
}

impl Core {
    /// Translates with the mechanism of the design. Answers the page and when its address is known.
    #[inline(never)]
    pub(super) fn translate_contiguous<const F: u8>(
        &mut self,
        id: usize,
        shared: &mut Shared,
        space: u32,
        addr: u64,
        write: bool,
        now: Time,
    ) -> Result<(TlbHit, Time), Stop> {
        let answer = match self.tlbs.contiguity.kind() {
            ContiguityKind::Coalesced => self.translate_coalesced::<F>(id, shared, space, addr, write, now),
            ContiguityKind::Range => self.translate_by_range::<F>(id, shared, space, addr, write, now),
            ContiguityKind::Segment => self.translate_by_segment::<F>(id, shared, space, addr, write, now),
            ContiguityKind::Spot | ContiguityKind::None => {
                self.translate_by_prediction::<F>(id, shared, space, addr, write, now)
            }
        }?;
        debug_assert!(shared.agrees(space, addr, &answer.0), "{space}:{addr:#x}: stale translation");
        Ok(answer)
    }

    fn translate_coalesced<const F: u8>(
        &mut self,
        id: usize,
        shared: &mut Shared,
        space: u32,
        addr: u64,
        write: bool,
        now: Time,
    ) -> Result<(TlbHit, Time), Stop> {
        let looked_up = now + shared.timing.l2_tlb;
        let Contiguity::Coalesced(tlbs) = &mut self.tlbs.contiguity else { unreachable!("asked before") };
        let found = match tlbs.lookup_l1(space, addr) {
            Some(hit) => Some((hit, now)),
            None => tlbs.lookup_l2(space, addr).map(|hit| (hit, looked_up)),
        };
        if let Some((hit, at)) = found {
            if write && !hit.entry.is_dirty() {
                return self.set_dirty::<F, CONTIGUOUS>(id, shared, space, addr, at);
            }
            return Ok((hit, at));
        }
        let Walk { leaf, pte, done, .. } =
            self.walk::<F, CONTIGUOUS>(id, shared, space, addr, write, looked_up)?;
        let Contiguity::Coalesced(tlbs) = &mut self.tlbs.contiguity else { unreachable!("asked before") };
        let group = tlbs.group(leaf.size);
        let run = PageRun::around(shared.os.table(space), &leaf, pte, addr, group);
        let hit = tlbs.fill_after_walk(space, addr, leaf.size, run);
        if group * 8 > LINE_BYTES && pte.is_plain() {
            // The other line of the pair.
            let level = leaf.size.index() as u32 + 1;
            let entry = shared.os.table(space).entry_address(&leaf, addr, level).0 ^ LINE_BYTES;
            shared.fetch_entry::<F, CONTIGUOUS>(id, entry, false, done);
            shared.walks.memory_refs += 1;
        }
        Ok((hit, done))
    }

    /// The page of `addr` was found dirty, or made so, at a store through an entry that did not say so.
    pub(super) fn update_contiguous(
        &mut self,
        shared: &Shared,
        space: u32,
        addr: u64,
        leaf: &Leaf,
        pte: Pte,
        hit: TlbHit,
    ) {
        if let Contiguity::Coalesced(tlbs) = &mut self.tlbs.contiguity {
            let group = tlbs.group(leaf.size);
            let mut run = PageRun::around(shared.os.table(space), leaf, pte, addr, group);
            if !run.dirty {
                // As plain TLBs do: the store that led here has been let through.
                run =
                    PageRun { first: addr >> leaf.size.shift(), pages: 1, frame: pte.frame().0, dirty: true };
            }
            tlbs.update(space, addr, leaf.size, run);
        } else {
            self.tlbs.update(space, addr, hit);
        }
    }

    /// Both levels of plain TLBs; none where neither knows the page.
    fn look_up<const F: u8>(
        &mut self,
        id: usize,
        shared: &mut Shared,
        space: u32,
        addr: u64,
        write: bool,
        now: Time,
    ) -> Result<Option<(TlbHit, Time)>, Stop> {
        let (hit, at) = match self.tlbs.lookup_l1(space, addr) {
            Some(hit) => (hit, now),
            None => match self.tlbs.lookup_l2(space, addr) {
                Some(hit) => (hit, now + shared.timing.l2_tlb),
                None => return Ok(None),
            },
        };
        if write && !hit.entry.is_dirty() {
            return self.set_dirty::<F, CONTIGUOUS>(id, shared, space, addr, at).map(Some);
        }
        Ok(Some((hit, at)))
    }

    /// Walks the page table, fills plain TLBs, and lets the kernel's tables learn the page.
    fn walk_and_learn<const F: u8>(
        &mut self,
        id: usize,
        shared: &mut Shared,
        space: u32,
        addr: u64,
        write: bool,
        now: Time,
    ) -> Result<(TlbHit, Walk), Stop> {
        let looked_up = now + shared.timing.l2_tlb;
        let walk = self.walk::<F, CONTIGUOUS>(id, shared, space, addr, write, looked_up)?;
        let Walk { leaf, pte, .. } = walk;
        let hit = TlbHit { entry: TlbEntry::new(pte.frame().0, pte.is_writable_in_tlb()), size: leaf.size };
        self.tlbs.fill_after_walk(space, addr, hit);
        if let Some(kernel) = &mut shared.contiguity {
            kernel.ranges.learn(space, addr, shared.os.table(space));
        }
        Ok((hit, walk))
    }

    fn translate_by_range<const F: u8>(
        &mut self,
        id: usize,
        shared: &mut Shared,
        space: u32,
        addr: u64,
        write: bool,
        now: Time,
    ) -> Result<(TlbHit, Time), Stop> {
        if let Some(found) = self.look_up::<F>(id, shared, space, addr, write, now)? {
            return Ok(found);
        }
        let (page, looked_up) = (addr >> 12, now + shared.timing.l2_tlb);
        let Contiguity::Range(ranges) = &mut self.tlbs.contiguity else { unreachable!("asked before") };
        if let Some(frame) = ranges.lookup(space, page, looked_up)
            && let Some(hit) = shared.confirm(space, addr, write, frame)
        {
            ranges.hits += 1;
            self.tlbs.fill_l1(space, addr, hit);
            return Ok((hit, looked_up));
        }
        let (hit, walk) = self.walk_and_learn::<F>(id, shared, space, addr, write, now)?;
        let Contiguity::Range(ranges) = &mut self.tlbs.contiguity else { unreachable!("asked before") };
        ranges.misses += 1;
        if let Some(kernel) = &shared.contiguity
            && let Some(run) = kernel.ranges.range(space, page)
            && !ranges.holds(space, page)
        {
            let depth = kernel.ranges.depth(space);
            ranges.walks += 1;
            ranges.memory_refs += depth * LINES_PER_NODE;
            let ready = walk.done + shared.timing.llc.times(depth);
            ranges.insert(space, run.first, run.end, run.offset, ready);
        }
        Ok((hit, walk.done))
    }

    fn translate_by_segment<const F: u8>(
        &mut self,
        id: usize,
        shared: &mut Shared,
        space: u32,
        addr: u64,
        write: bool,
        now: Time,
    ) -> Result<(TlbHit, Time), Stop> {
        let Contiguity::Segment(registers) = &mut self.tlbs.contiguity else { unreachable!("asked before") };
        if registers.owner() != Some(space)
            && let Some(kernel) = &shared.contiguity
        {
            // The process came onto the core.
            registers.load(space, kernel.segments.of(space));
        }
        if let Some(frame) = registers.lookup(space, addr >> 12)
            && let Some(hit) = shared.confirm(space, addr, write, frame)
        {
            registers.hits += 1;
            return Ok((hit, now));
        }
        if let Some(found) = self.look_up::<F>(id, shared, space, addr, write, now)? {
            return Ok(found);
        }
        let (hit, walk) = self.walk_and_learn::<F>(id, shared, space, addr, write, now)?;
        if let Some(kernel) = &mut shared.contiguity
            && let Contiguity::Segment(registers) = &mut self.tlbs.contiguity
        {
            kernel.segments.look(space, &kernel.ranges, self.pipeline.now);
            registers.load(space, kernel.segments.of(space));
        }
        Ok((hit, walk.done))
    }

    fn translate_by_prediction<const F: u8>(
        &mut self,
        id: usize,
        shared: &mut Shared,
        space: u32,
        addr: u64,
        write: bool,
        now: Time,
    ) -> Result<(TlbHit, Time), Stop> {
        if let Some(found) = self.look_up::<F>(id, shared, space, addr, write, now)? {
            return Ok(found);
        }
        let (hit, walk) = self.walk_and_learn::<F>(id, shared, space, addr, write, now)?;
        let (Contiguity::Spot(spot), Some(kernel)) = (&mut self.tlbs.contiguity, &mut shared.contiguity)
        else {
            return Ok((hit, walk.done));
        };
        let page = addr >> 12;
        let first = page & !(hit.size.base_pages() - 1);
        let offset = hit.entry.frame().wrapping_sub(first);
        let marked = kernel.ranges.range(space, page).is_some();
        let known = match spot.predict_and_learn(space, addr, offset, marked) {
            Prediction::None => walk.done,
            Prediction::Right => {
                kernel.hidden += walk.done - walk.begin;
                walk.looked_up
            }
            Prediction::Wrong => walk.done + kernel.flush,
        };
        Ok((hit, known))
    }
}

impl Machine {
    /// What the mechanism did, over all cores.
    pub(super) fn count_contiguity(&self, stats: &mut Stats) {
        let Some(kernel) = &self.shared.contiguity else { return };
        let mut count = |name: &str, of: &dyn Fn(&Contiguity) -> u64| {
            stats.count(name, self.cores.iter().map(|core| of(&core.tlbs.contiguity)).sum(), Unit::Count);
        };
        let kind = self.cores.first().map_or(ContiguityKind::None, |core| core.tlbs.contiguity.kind());
        macro_rules! of {
            ($kind:ident, $own:ident => $what:expr) => {
                &|mechanism| if let Contiguity::$kind($own) = mechanism { $what } else { 0 }
            };
        }
        match kind {
            ContiguityKind::Coalesced => {
                count("tlb.coalesced.l1.hit", of!(Coalesced, own => own.coalesced.l1_hits));
                count("tlb.coalesced.l2.hit", of!(Coalesced, own => own.coalesced.l2_hits));
                count("tlb.coalesced.fills", of!(Coalesced, own => own.coalesced.fills));
                count("tlb.coalesced.covered", of!(Coalesced, own => own.coalesced.pages));
                count("walk.avoided", of!(Coalesced, own => own.coalesced.avoided));
            }
            ContiguityKind::Range => {
                count("tlb.range.hit", of!(Range, own => own.hits));
                count("tlb.range.miss", of!(Range, own => own.misses));
                count("walk.avoided", of!(Range, own => own.hits));
                count("walk.range.count", of!(Range, own => own.walks));
                count("walk.range.memory_refs", of!(Range, own => own.memory_refs));
                stats.count("os.ranges.pages", kernel.ranges.covered(), Unit::Pages);
            }
            ContiguityKind::Segment => {
                count("tlb.segment.hit", of!(Segment, own => own.hits));
                stats.count("os.segment.changes", kernel.segments.changes, Unit::Count);
                stats.count("os.segment.pages", kernel.segments.covered(), Unit::Pages);
            }
            ContiguityKind::Spot => {
                count("walk.predictions.right", of!(Spot, own => own.outcomes[0]));
                count("walk.predictions.wrong", of!(Spot, own => own.outcomes[1]));
                count("walk.predictions.none", of!(Spot, own => own.outcomes[2]));
                let hidden = cycles(kernel.hidden, self.shared.timing.cycle);
                stats.count("walk.hidden_cycles", hidden, Unit::Cycles);
            }
            ContiguityKind::None => {}
        }
    }
}
