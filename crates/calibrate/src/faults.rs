//! Page faults: the time of a first store, by page size, with frames that the caches hold or not.

use crate::clock::OwnTime;
use crate::region::{BASE, HUGE, Pages, Region};
use crate::spread::Spread;

/// Nanoseconds of a first store to a page, by the pages asked for, over `bytes` that are mapped anew in each of `rounds`
/// rounds. The first round is not counted: the host of a virtual machine may back memory in it.
pub fn first_store(bytes: usize, pages: Pages, rounds: usize) -> std::io::Result<Spread> {
    let stride = match pages {
        Pages::Base => BASE,
        Pages::Huge => HUGE,
    };
    let mut times = Vec::new();
    for round in 0..=rounds {
        let region = Region::map(bytes, pages)?;
        let begin = OwnTime::now();
        region.touch(stride);
        let took = begin.nanos() / (bytes / stride) as f64;
        if round > 0 {
            times.push(took);
        }
    }
    Ok(Spread::of(times))
}

/// Whether a first store that asks for a huge page gets one: it then brings in all of the page's base pages.
pub fn gets_huge_pages() -> bool {
    let Ok(region) = Region::map(HUGE, Pages::Huge) else { return false };
    region.touch(HUGE);
    let mut resident = vec![0u8; HUGE / BASE];
    // SAFETY: A byte per base page of the region.
    let asked = unsafe { libc::mincore(region.start().cast(), HUGE, resident.as_mut_ptr()) };
    asked == 0 && resident.iter().all(|page| page & 1 == 1)
}
