//! HATRIC (Yan, ch. 2): hardware, not a policy. It listens to the stores that change page-table entries, and every
//! move ordered here makes such stores; the seam's part is that each answer carries the shootdowns it cost.
//!
//! What its evaluation does need is the hypervisor's paging: a touch of an off-chip page brings it into the die-stacked
//! memory (`lru`), a daemon keeps frames free (`&mig-dmn`), and N neighbours come along (`&pref`). Asked of the seam:
//! faults at the next access of chosen pages, signals of fresh pages so that they can be armed, and a clock hand.

use crate::{millis, two_tiers};
use terrace_in_memory::Driver;
use terrace_model::TierId;
use terrace_policy::*;

const FAST: TierId = TierId(0);
const SLOW: TierId = TierId(1);

struct Paging {
    hand: ScanHand,
    keep_free: u64,
    prefetch: u64,
    shootdowns: u64,
}

impl Policy for Paging {
    fn needs(&self) -> Needs {
        Needs::of(&[Capability::HintFaults, Capability::AccessedBits, Capability::Migration])
            .and_signals(&[SignalKind::Allocated])
    }

    fn place(&mut self, _: &Fault, _: &Topology) -> Placement {
        Placement::tier(SLOW)
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        let mut moves = Vec::new();
        for signal in signals {
            match *signal {
                Signal::Allocated { page, tier: SLOW, .. } => memory.watch(&[page], Watch::Hint),
                Signal::HintFault { page, .. } => {
                    let neighbours = (0..=self.prefetch).map(|n| page.plus(n));
                    moves.extend(neighbours.map(|page| Move { page, to: FAST }));
                }
                Signal::Done { subject, outcome: Outcome::Done, cost, .. } => {
                    self.shootdowns += cost.shootdowns;
                    let page = subject.page().unwrap();
                    if memory.page(page).is_some_and(|view| view.tier == SLOW) {
                        memory.watch(&[page], Watch::Hint);
                    }
                }
                _ => {}
            }
        }
        let free = memory.topology().free_pages(FAST);
        let wanted = (self.keep_free + moves.len() as u64).saturating_sub(free) as usize;
        let mut victims = Vec::new();
        for _ in 0..2 {
            memory.scan(Scope::Tier(FAST), &mut self.hand, Clear::ACCESSED, &mut |view| {
                match (victims.len() == wanted, view.accessed) {
                    (true, _) => return Step::Stop,
                    (false, true) => return Step::Clear,
                    (false, false) => victims.push(Move { page: view.page, to: SLOW }),
                }
                Step::Keep
            });
        }
        victims.extend(moves);
        memory.migrate(&victims, MoveOptions::default());
        NextTick::At(now.plus(millis(1)))
    }
}

#[test]
fn demand_paging_with_a_daemon_and_prefetching() {
    let mut world = two_tiers(1, 4);
    world.map_anonymous(0, 0, 512);
    let policy = Paging { hand: ScanHand::default(), keep_free: 16, prefetch: 3, shootdowns: 0 };
    let mut driver = Driver::new(Box::new(policy), world);
    driver.touch_all(0, 0..512, true);
    driver.advance(millis(1));
    for vpn in (0..512).step_by(4) {
        driver.touch(PageId::new(0, vpn), false);
        driver.advance(millis(2));
    }
    let free = driver.world.tiers().free_pages(FAST);
    assert!((16..64).contains(&free), "{free} frames are free");
    assert_eq!(driver.world.locate(PageId::new(0, 511)).unwrap().0, FAST, "prefetched");
    assert!(driver.world.spent().shootdowns > 512);
}
