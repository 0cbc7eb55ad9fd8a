//! Trident^PV (§6): the guest asks the hypervisor to exchange guest frames instead of copying. Asked of the seam: the
//! same relocation with [`CopyBy::Mapping`], up to 512 pairs in one order, the outcome of each pair, and no copied
//! bytes in its cost. What fails is copied by the guest.

use crate::millis;
use std::num::NonZeroU16;
use terrace_in_memory::{Driver, InMemory};
use terrace_model::{Bytes, Frame, PageSize, TierId};
use terrace_policy::*;

struct Promotion {
    page: PageId,
    block: u64,
    by_copy: Vec<Relocate>,
    copied: u64,
    ordered: bool,
}

impl Policy for Promotion {
    fn needs(&self) -> Needs {
        Needs::of(&[Capability::Frames, Capability::CopylessExchange, Capability::Collapse])
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        if !std::mem::replace(&mut self.ordered, true) {
            return NextTick::At(now.plus(millis(1)));
        }
        for signal in signals {
            if let Signal::Done { subject: Subject::Frame(from), outcome, cost, .. } = *signal {
                self.copied += cost.copied;
                if outcome == Outcome::Busy {
                    self.by_copy.push(Relocate { from, to: Frame(0), exchange: true });
                }
            }
        }
        let mut pairs = Vec::new();
        let range = PageRange::of(self.page, PageSize::Huge);
        memory.scan(Scope::Range(range), &mut ScanHand::default(), Clear::NOTHING, &mut |view| {
            let (from, to) = (view.frame.unwrap(), Frame(self.block + view.page.vpn - self.page.vpn));
            if from != to && view.size == PageSize::Base {
                pairs.push(Relocate { from, to, exchange: true });
            }
            Step::Keep
        });
        let copy = if self.by_copy.is_empty() { CopyBy::Mapping(NonZeroU16::MAX) } else { CopyBy::Bytes };
        let how = MoveOptions { copy, in_flight: None, ..MoveOptions::default() };
        if pairs.is_empty() {
            memory.resize(&[Resize { page: self.page, to: PageSize::Huge }]);
            return NextTick::Never;
        }
        memory.physical().unwrap().relocate(&pairs, how);
        NextTick::At(now.plus(millis(1)))
    }
}

#[test]
fn one_call_promotes_without_a_copy_and_failures_are_copied() {
    let mut world = InMemory::new(&[("dram", Bytes::mib(8))]);
    world.map_anonymous(0, 0, 512);
    let policy =
        Promotion { page: PageId::new(0, 0), block: 512, by_copy: Vec::new(), copied: 0, ordered: false };
    let mut driver = Driver::new(Box::new(policy), world);
    driver.touch_all(0, 0..512, true);
    assert_eq!(driver.world.locate(PageId::new(0, 0)), Some((TierId(0), PageSize::Base)));
    driver.world.fail_next(Outcome::Busy);
    driver.advance(millis(10));
    assert_eq!(driver.world.locate(PageId::new(0, 0)), Some((TierId(0), PageSize::Huge)));
    assert_eq!(driver.world.frame(PageId::new(0, 0)), Some(Frame(512)));
    assert_eq!(driver.world.spent().copied, 4096, "only what the hypervisor refused was copied");
}
