//! Translation Ranger (Yan, ch. 4), in full in `src/policies/ranger.rs`: moves pages to chosen frames. Asked of the seam:
//! the areas of a space, the frame under a page, the state of any frame, relocation to exactly that frame by move or by
//! exchange with whatever lies there (a file's page of nobody's included), "busy, try later" told apart from "never", and
//! collapse in place.

use crate::{millis, two_tiers};
use std::collections::BTreeMap;
use terrace_in_memory::{Driver, InMemory};
use terrace_model::{Bytes, Frame, PageSize, TierId};
use terrace_policy::*;

/// Anchors: the frame that the first page of an area shall have.
struct Ranger {
    anchors: BTreeMap<PageId, u64>,
    tier: TierId,
}

impl Ranger {
    fn coalesce(&self, area: &Area, anchor: u64, memory: &mut dyn MemorySystem) {
        let mut work = Vec::new();
        let mut wrong = Vec::new();
        memory.scan(Scope::Range(area.range), &mut ScanHand::default(), Clear::NOTHING, &mut |view| {
            let target = anchor + view.page.vpn - area.range.first.vpn;
            let frame = view.frame.unwrap();
            if frame.0 != target && !view.in_flight {
                wrong.push((frame, Frame(target)));
            }
            Step::Keep
        });
        let physical = memory.physical().unwrap();
        for (from, to) in wrong {
            match physical.state(to) {
                FrameState::Free { .. } => work.push(Relocate { from, to, exchange: false }),
                FrameState::Movable(_) | FrameState::MovableOther => {
                    work.push(Relocate { from, to, exchange: true });
                }
                // Skipped now and tried again at the next tick, with the same anchor; or for good.
                FrameState::Busy | FrameState::Unmovable => {}
            }
            // One at a time: the next page may lie where this one was.
            if !work.is_empty() {
                break;
            }
        }
        physical.relocate(&work, MoveOptions::default());
        let huge = area.range.first.aligned(PageSize::Huge);
        if work.is_empty() && area.range.covers(PageRange::of(huge, PageSize::Huge)) {
            memory.resize(&[Resize { page: huge, to: PageSize::Huge }]);
        }
    }
}

impl Policy for Ranger {
    fn needs(&self) -> Needs {
        Needs::of(&[Capability::Frames, Capability::Migration, Capability::Exchange])
    }

    fn on(&mut self, now: Moment, _: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        let mut areas = Vec::new();
        memory.areas(None, &mut |area| areas.push(*area));
        let (first, _) = memory.physical().unwrap().tier_frames(self.tier);
        for area in areas {
            let anchor = *self.anchors.entry(area.range.first).or_insert(first.0 + 4);
            self.coalesce(&area, anchor, memory);
        }
        NextTick::At(now.plus(millis(5000)))
    }
}

/// Figure 4.6: anchor (V0, P4); V0 in P2, V1 in P9, V2 in P7, V3 in P3; P5 and P6 hold other pages.
#[test]
fn figure_4_6_by_moves_and_exchanges() {
    let mut world = InMemory::new(&[("dram", Bytes::kib(64))]);
    world.map_anonymous(0, 0x100, 4);
    for (vpn, frame) in [(0x100, 2), (0x101, 9), (0x102, 7), (0x103, 3)] {
        // The lowest free frame is given out: occupy those below for a moment.
        let below: Vec<u64> =
            (0..frame).filter(|f| !matches!(world.state(Frame(*f)), FrameState::Movable(_))).collect();
        for &frame in &below {
            world.isolate(Frame(frame), PageSize::Base, true);
        }
        let fault = world.touch(PageId::new(0, vpn), true).unwrap();
        world.fault_in(&fault, &Placement::ANYWHERE);
        for &frame in &below {
            world.isolate(Frame(frame), PageSize::Base, false);
        }
        assert_eq!(world.frame(PageId::new(0, vpn)), Some(Frame(frame)));
    }
    world.take_frame(Frame(5), true);
    world.take_frame(Frame(6), true);
    let mut driver = Driver::new(Box::new(Ranger { anchors: BTreeMap::new(), tier: TierId(0) }), world);
    driver.advance(millis(25_000));
    let frames: Vec<u64> = (0..4).map(|n| driver.world.frame(PageId::new(0, 0x100 + n)).unwrap().0).collect();
    assert_eq!(frames, [4, 5, 6, 7]);
}

#[test]
fn what_cannot_move_is_left_and_the_anchor_stays() {
    let mut world = two_tiers(1, 1);
    world.map_anonymous(0, 0x100, 8);
    world.take_frame(Frame(6), false);
    let mut driver = Driver::new(Box::new(Ranger { anchors: BTreeMap::new(), tier: TierId(0) }), world);
    driver.touch_all(0, 0x100..0x108, true);
    driver.advance(millis(80_000));
    let frames: Vec<u64> = (0..8).map(|n| driver.world.frame(PageId::new(0, 0x100 + n)).unwrap().0).collect();
    assert_eq!((frames[0], frames[1], frames[3], frames[7]), (4, 5, 7, 11));
    assert_ne!(frames[2], 6);
}
