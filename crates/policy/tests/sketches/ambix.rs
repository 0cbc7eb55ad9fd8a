//! Ambix (Marques 2021), in full in `src/policies/ambix.rs`. Asked of the seam: a scan whose visitor decides page by
//! page whether bits are cleared (Algorithm 1 clears those of every page it does not take), that stops at a quota and
//! goes on there, over all spaces; clearing with or without a flush; write bandwidth per tier; a second tick 50 ms after
//! the first.

use crate::support::Open;
use crate::two_tiers;
use terrace_in_memory::Driver;
use terrace_model::TierId;
use terrace_policy::*;

#[test]
fn one_scan_tells_bits_clears_some_and_remembers_where_it_stopped() {
    let mut world = two_tiers(1, 1);
    world.map_anonymous(0, 0, 8);
    let mut driver = Driver::open("first-touch", "", world).unwrap();
    driver.touch_all(0, 0..8, false);
    let world = &mut driver.world;
    let mut hand = ScanHand::default();
    let mut seen = 0;
    let half = world.scan(Scope::Tier(TierId(0)), &mut hand, Clear::BOTH, &mut |view| {
        if view.page.vpn == 4 {
            return Step::Stop;
        }
        seen += 1;
        if view.page.vpn.is_multiple_of(2) { Step::Clear } else { Step::Keep }
    });
    assert_eq!((seen, half.lap, hand.next), (4, false, PageId::new(0, 4)));
    let accessed: Vec<bool> = (0..5).map(|vpn| world.page(PageId::new(0, vpn)).unwrap().accessed).collect();
    assert_eq!(accessed, [false, true, false, true, true]);
}
