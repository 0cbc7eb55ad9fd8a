//! VBI (ISCA 2020): a translation scheme in the memory controller, not a policy; delayed allocation and early
//! reservation happen below the seam. Its use case for tiers is a policy: frequently accessed virtual blocks lie in the
//! fast memory. Asked of the seam: a block as an [`Object`], and counted accesses.

use crate::{millis, two_tiers};
use std::collections::BTreeMap;
use terrace_in_memory::Driver;
use terrace_model::TierId;
use terrace_policy::*;

/// Blocks by accesses per page, counted over an epoch and halved at its end.
#[derive(Default)]
struct HotBlocks {
    accesses: BTreeMap<PageId, (PageRange, u64)>,
}

impl Policy for HotBlocks {
    fn needs(&self) -> Needs {
        Needs::of(&[Capability::ExactAccesses, Capability::Objects, Capability::Migration])
    }

    fn place(&mut self, _: &Fault, _: &Topology) -> Placement {
        Placement::tier(TierId(1))
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        memory.sample_accesses(1);
        for signal in signals {
            if let Signal::Access { page, count, .. } = *signal
                && let Some(block) = memory.area(page).and_then(|area| area.object)
            {
                let entry = self.accesses.entry(block.range.first).or_insert((block.range, 0));
                entry.1 += u64::from(count);
            }
        }
        if !signals.contains(&Signal::Tick) {
            return NextTick::Unchanged;
        }
        let mut blocks: Vec<(PageRange, u64)> = self.accesses.values().copied().collect();
        blocks.sort_by_key(|(range, accesses)| std::cmp::Reverse(accesses * 1000 / range.pages));
        let mut room = memory.topology().tier(TierId(0)).capacity.0 >> 12;
        let mut moves = Vec::new();
        for (range, _) in blocks {
            let to = TierId(u8::from(range.pages > room));
            room -= if to == TierId(0) { range.pages } else { 0 };
            moves.extend((0..range.pages).map(|at| Move { page: range.first.plus(at), to }));
        }
        moves.sort_by_key(|one| std::cmp::Reverse(one.to));
        memory.migrate(&moves, MoveOptions { in_flight: None, ..MoveOptions::default() });
        self.accesses.values_mut().for_each(|(_, accesses)| *accesses /= 2);
        NextTick::At(now.plus(millis(10)))
    }
}

#[test]
fn the_hot_block_ends_up_in_fast_memory() {
    let mut world = two_tiers(1, 4);
    for (site, vpn) in [(1, 0), (2, 200), (3, 400)] {
        let range = PageRange::new(PageId::new(0, vpn), 200);
        let object = Some(Object { site, range });
        world.map(Area { range, kind: AreaKind::Anonymous, writable: true, huge_advice: None, object });
    }
    let mut driver = Driver::new(Box::new(HotBlocks::default()), world);
    for _ in 0..5 {
        driver.touch_all(0, 0..600, false);
        driver.touch_all(0, 200..400, true);
        driver.advance(millis(10));
    }
    assert_eq!(driver.world.locate(PageId::new(0, 399)).unwrap().0, TierId(0));
    assert_eq!(driver.world.resident(TierId(0)), 200);
}
