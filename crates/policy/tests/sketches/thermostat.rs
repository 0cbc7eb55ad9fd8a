//! Thermostat (Agarwal, ch. 6), in full in `src/policies/thermostat.rs`. Asked of the seam: names that survive splitting
//! and collapsing, accessed bits of the parts, counted faults that leave the page armed, on base pages of the sample and
//! on whole huge pages in slow memory, and what all of it costs.

use crate::support::Open;
use crate::{millis, two_tiers};
use terrace_in_memory::Driver;
use terrace_model::{PageSize, TierId};
use terrace_policy::*;

#[test]
fn a_page_keeps_its_name_through_split_count_collapse_and_move() {
    let mut world = two_tiers(2, 4).with_huge_pages().with_tlb(1);
    world.map_anonymous(0, 0, 1024);
    let mut driver = Driver::open("first-touch", "", world).unwrap();
    let page = PageId::new(0, 0);
    driver.touch(page, true);
    let step = |driver: &mut Driver| driver.advance(millis(1));
    driver.world.resize(&[Resize { page, to: PageSize::Base }]);
    step(&mut driver);
    driver.world.watch(&[page.plus(3), page.plus(4)], Watch::Count);
    for sub in [3, 4, 3, 3, 5] {
        driver.touch(page.plus(sub), false);
    }
    let mut counts = Vec::new();
    driver.world.counts(&mut |count| counts.push(count.accesses));
    assert_eq!(counts, [2, 1], "TLB misses, not accesses");
    driver.world.resize(&[Resize { page, to: PageSize::Huge }]);
    step(&mut driver);
    driver.world.migrate(&[Move { page, to: TierId(1) }], MoveOptions::default());
    step(&mut driver);
    assert_eq!(driver.world.locate(page), Some((TierId(1), PageSize::Huge)));
    driver.world.watch(&[page], Watch::Count);
    driver.touch(page.plus(100), false);
    driver.world.counts(&mut |count| assert_eq!((count.page, count.accesses), (page, 1)));
    assert!(driver.world.spent().faults >= 4);
}
