//! What the tests of several policies share.

#[path = "../tests/support/open.rs"]
mod open;

pub use open::Open;

use crate::spans::millis;
use crate::{Driver, InMemory, PageId};
use terrace_model::{Bytes, TierId};

/// Sixteen mapped pages over a fast tier of four pages and a slow one with room for all.
pub fn four_fast_pages() -> InMemory {
    let mut world = InMemory::new(&[("dram", Bytes::kib(16)), ("pcm", Bytes::kib(64))]);
    world.map_anonymous(0, 0, 16);
    world
}

/// Whether the page lies in the first tier.
pub fn in_fast(driver: &Driver, vpn: u64) -> bool {
    driver.world.locate(PageId::new(0, vpn)).unwrap().0 == TierId(0)
}

/// Accesses the page `times` times and lets a millisecond pass: whether it lies in the first tier then.
pub fn access(driver: &mut Driver, vpn: u64, times: u32, write: bool) -> bool {
    for _ in 0..times {
        driver.touch(PageId::new(0, vpn), write);
    }
    driver.advance(millis(1));
    in_fast(driver, vpn)
}
