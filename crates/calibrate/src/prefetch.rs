//! Prefetching: whether loads in order come sooner than loads in random order, and up to which distance between them.
//!
//! Each load depends on the one before, so nothing but a prefetcher can have its line ready.

use crate::budget::Budget;
use crate::chase::{Chase, LINE};
use crate::region::Region;
use crate::spread::Spread;

/// Loads so many lines apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stride {
    /// Lines from one to the next.
    pub lines: usize,
    /// Nanoseconds per load.
    pub time: Spread,
}

/// Distances of 1 to 512 lines. The first half of the region is loaded from; the second drives it out of the caches.
pub fn strides(region: &Region, budget: Budget) -> Vec<Stride> {
    let half = region.bytes() / 2;
    let of = |lines: usize| {
        let chase = Chase::in_order(region, half, lines);
        for at in (half..region.bytes()).step_by(LINE) {
            // SAFETY: A line of the region.
            std::hint::black_box(unsafe { region.start().add(at).read_volatile() });
        }
        // All rounds together go over a line once, and so never find one that an earlier round has loaded.
        let steps = budget.steps.min(half / LINE / lines / (budget.rounds + 1)).max(1);
        Stride { lines, time: Spread::of(chase.run(steps, budget.rounds)) }
    };
    [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512].map(of).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Pages;

    #[test]
    fn every_distance_is_measured() {
        let region = Region::map(4 << 20, Pages::Huge).unwrap();
        region.touch(LINE);
        let strides = strides(&region, Budget::TINY);
        assert!(strides.iter().all(|stride| stride.time.median > 0.0), "{strides:?}");
    }
}
