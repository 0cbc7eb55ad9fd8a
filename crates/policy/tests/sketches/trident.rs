//! Trident (MICRO 2021), in full in `src/policies/trident.rs`: decides the page size at the fault, zeroes 1 GiB regions
//! ahead, promotes, and compacts by region counters. Asked of the seam: the area at the fault, wishes with sizes, free
//! blocks that say whether they are zeroed, counters per region kept by the allocator, relocation of chosen frames to chosen
//! frames, a region kept from the allocator while it is emptied, and collapse to 1 GiB.

use crate::millis;
use terrace_in_memory::{Driver, InMemory};
use terrace_model::{Bytes, Frame, PageSize, TierId};
use terrace_policy::*;

const TIER: TierId = TierId(0);
const PERIOD: u64 = 10;

#[derive(Default)]
struct Trident {
    emptying: Option<Frame>,
    compactions: u64,
}

impl Trident {
    /// Smart compaction (§5.1.3): the region with most free frames and nothing unmovable is emptied into the fullest.
    fn compact(&mut self, physical: &mut dyn PhysicalMemory) {
        let mut regions = Vec::new();
        physical.regions(TIER, PageSize::Giant, &mut |region| regions.push(region));
        let whole = |region: &&FrameRegion| region.frames == PageSize::Giant.base_pages();
        let Some(source) = regions
            .iter()
            .filter(whole)
            .filter(|region| region.unmovable == 0 && region.free < region.frames)
            .max_by_key(|region| (region.free, std::cmp::Reverse(region.first)))
            .copied()
        else {
            return;
        };
        regions.retain(|region| region.first != source.first && region.free > 0);
        regions.sort_by_key(|region| (region.free, region.first));
        let mut free =
            regions.iter().flat_map(|region| (region.first.0..region.first.0 + region.frames).map(Frame));
        physical.isolate(source.first, PageSize::Giant, true);
        let mut moves = Vec::new();
        for at in source.first.0..source.first.0 + source.frames {
            if matches!(physical.state(Frame(at)), FrameState::Movable(_) | FrameState::MovableOther)
                && let Some(to) = free.find(|to| matches!(physical.state(*to), FrameState::Free { .. }))
            {
                moves.push(Relocate { from: Frame(at), to, exchange: false });
            }
        }
        physical.relocate(&moves, MoveOptions { in_flight: None, ..MoveOptions::default() });
        self.emptying = Some(source.first);
        self.compactions += 1;
    }
}

impl Policy for Trident {
    fn needs(&self) -> Needs {
        Needs::of(&[Capability::Frames, Capability::Collapse])
    }

    fn place(&mut self, fault: &Fault, _: &Topology) -> Placement {
        let largest = fault.area.largest_page(fault.page);
        let sizes = PageSize::ALL.into_iter().rev().filter(|size| *size <= largest);
        sizes.fold(Placement::ANYWHERE, |wishes, size| wishes.or(TIER, Some(size)))
    }

    fn on(&mut self, now: Moment, _: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        let mut mappable = Vec::new();
        memory.areas(None, &mut |area| {
            let start = area.range.first.aligned(PageSize::Giant);
            if area.range.covers(PageRange::of(start, PageSize::Giant)) {
                mappable.push(start);
            }
        });
        let small = |view: Option<PageView>| view.is_some_and(|view| view.size < PageSize::Giant);
        mappable.retain(|page| small(memory.page(*page)));
        let physical = memory.physical().unwrap();
        if let Some(region) = self.emptying.take() {
            physical.isolate(region, PageSize::Giant, false);
        }
        let mut to_zero = Vec::new();
        physical.regions(TIER, PageSize::Giant, &mut |region| {
            if region.free == PageSize::Giant.base_pages() && !region.zeroed {
                to_zero.push(region.first);
            }
        });
        let (free, _) = physical.free_blocks(TIER, PageSize::Giant);
        if mappable.is_empty() {
            physical.zero(&to_zero, PageSize::Giant);
        } else if free == 0 {
            self.compact(physical);
        } else {
            let wanted: Vec<Resize> =
                mappable.iter().map(|page| Resize { page: *page, to: PageSize::Giant }).collect();
            memory.resize(&wanted);
        }
        NextTick::At(now.plus(millis(PERIOD)))
    }
}

#[test]
fn falls_back_compacts_and_promotes() {
    let mut world = InMemory::new(&[("dram", Bytes::gib(2))]);
    let giant = PageSize::Giant.base_pages();
    // Fragmented: a few frames of either region are in use, in one of them by the kernel.
    world.take_frame(Frame(0), false);
    for frame in [giant, giant + 512, giant + 5000] {
        world.take_frame(Frame(frame), true);
    }
    world.map_anonymous(0, giant, giant);
    let mut driver = Driver::new(Box::new(Trident::default()), world);
    driver.touch(PageId::new(0, giant), true);
    assert_eq!(
        driver.world.locate(PageId::new(0, giant)).unwrap().1,
        PageSize::Huge,
        "no 1 GiB block is free"
    );
    driver.advance(millis(8 * PERIOD));
    assert_eq!(driver.world.locate(PageId::new(0, giant)).unwrap().1, PageSize::Giant);
    assert!(driver.world.frame(PageId::new(0, giant)).unwrap().0 >= giant, "only there nothing is unmovable");
}

#[test]
fn zeroes_regions_before_they_are_wanted() {
    let world = InMemory::new(&[("dram", Bytes::gib(2))]);
    let mut driver = Driver::new(Box::new(Trident::default()), world);
    driver.advance(millis(2 * PERIOD));
    assert_eq!(driver.world.free_blocks(TIER, PageSize::Giant), (2, 2));
}
