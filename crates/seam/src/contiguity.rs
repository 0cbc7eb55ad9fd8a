//! How contiguous a mapping is: runs of pages that are neighbours both in an address space and in physical memory.
//!
//! The metrics are those of Translation Ranger (Yan, PhD thesis, Rutgers 2019, §4.5: `TotalNum_ContigRegions`,
//! `MemCoverage_32Regions`, `MemCoverage_128Regions`).

use crate::Report;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use terrace_model::{ContiguityPoint, PageSize, Thinned};

/// Runs whose lengths are kept.
const KEPT: usize = 128;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Contiguity {
    /// Base pages in memory.
    pub pages: u64,
    /// Runs that cover them all.
    pub regions: u64,
    /// Base pages of the largest runs, largest first; at most 128.
    pub largest: Vec<u64>,
}

impl Contiguity {
    /// Share of the pages that lie in the `count` largest runs, 0 to 1; at most 128 are known.
    pub fn coverage(&self, count: usize) -> f64 {
        let covered: u64 = self.largest.iter().take(count).sum();
        self.share(covered)
    }

    /// Share of the pages that lie in runs of at least 1 GiB, 0 to 1; of the 128 largest, like all that is known.
    pub fn coverage_giant(&self) -> f64 {
        self.share(self.largest.iter().filter(|run| **run >= PageSize::Giant.base_pages()).sum())
    }

    fn share(&self, covered: u64) -> f64 {
        if self.pages == 0 { 0.0 } else { covered as f64 / self.pages as f64 }
    }
}

/// What was found over a run, sample by sample.
#[derive(Clone, Debug, Default)]
pub struct ContiguitySamples {
    count: u64,
    /// Sums over the samples: regions, coverage by 32, by 128.
    sums: (f64, f64, f64),
    last: Contiguity,
    over_time: Thinned<ContiguityPoint>,
}

impl ContiguitySamples {
    /// Adds a sample of so many seconds after the start. One without any memory counts for nothing.
    pub fn add(&mut self, found: Contiguity, seconds: f64) {
        if found.pages > 0 {
            let (coverage_32, coverage_128) = (found.coverage(32), found.coverage(128));
            self.count += 1;
            self.sums.0 += found.regions as f64;
            self.sums.1 += coverage_32;
            self.sums.2 += coverage_128;
            let regions = found.regions;
            self.over_time.add(|| ContiguityPoint { seconds, regions, coverage_32, coverage_128 });
            self.last = found;
        }
    }

    /// The last sample.
    pub fn last(&self) -> &Contiguity {
        &self.last
    }

    /// Samples over time, at most as many as a chart can show.
    pub fn over_time(&self) -> &[ContiguityPoint] {
        self.over_time.points()
    }

    /// Adds the last sample, the means over time, and the samples.
    pub fn report(&self, report: &mut Report) {
        report.contiguity = self.over_time().to_vec();
        let mean = |sum: f64| if self.count == 0 { 0.0 } else { sum / self.count as f64 };
        report.level("contiguous_regions", self.last.regions);
        report.ratio("coverage_32", self.last.coverage(32));
        report.ratio("coverage_128", self.last.coverage(128));
        report.ratio("coverage_1g", self.last.coverage_giant());
        report.ratio("contiguous_regions_mean", mean(self.sums.0));
        report.ratio("coverage_32_mean", mean(self.sums.1));
        report.ratio("coverage_128_mean", mean(self.sums.2));
        report.count("contiguity_samples", self.count);
    }
}

/// Collects runs from frames in the order of their pages.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    pages: u64,
    regions: u64,
    /// The longest so far, the shortest of them on top: the footprint may have millions of runs.
    longest: BinaryHeap<Reverse<u64>>,
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    next_page: u64,
    next_frame: u64,
    pages: u64,
}

impl Runs {
    /// `pages` base pages from `page` on lie in as many frames from `frame` on.
    pub fn add(&mut self, page: u64, frame: u64, pages: u64) {
        let length = match self.open {
            Some(open) if open.next_page == page && open.next_frame == frame => open.pages + pages,
            _ => {
                self.close();
                pages
            }
        };
        self.open = Some(Open { next_page: page + pages, next_frame: frame + pages, pages: length });
    }

    /// Ends a run: what follows is another area or space, whatever its numbers.
    pub fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        self.pages += open.pages;
        self.regions += 1;
        if self.longest.len() == KEPT {
            if self.longest.peek().is_some_and(|shortest| shortest.0 >= open.pages) {
                return;
            }
            self.longest.pop();
        }
        self.longest.push(Reverse(open.pages));
    }

    /// The metrics.
    pub fn finish(mut self) -> Contiguity {
        self.close();
        let largest = self.longest.into_sorted_vec().into_iter().map(|Reverse(pages)| pages).collect();
        Contiguity { pages: self.pages, regions: self.regions, largest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(pages: &[(u64, u64)]) -> Contiguity {
        let mut runs = Runs::default();
        pages.iter().for_each(|(page, frame)| runs.add(*page, *frame, 1));
        runs.finish()
    }

    #[test]
    fn a_run_ends_where_either_side_jumps() {
        let found = of(&[(10, 100), (11, 101), (12, 102), (13, 50), (15, 51), (16, 52)]);
        assert_eq!(found, Contiguity { pages: 6, regions: 3, largest: vec![3, 2, 1] });
        assert_eq!((found.coverage(1), found.coverage(2), found.coverage(32)), (0.5, 5.0 / 6.0, 1.0));
        assert_eq!(Contiguity::default().coverage(32), 0.0);
    }

    #[test]
    fn huge_pages_join_with_base_pages_and_areas_do_not() {
        let mut runs = Runs::default();
        runs.add(512, 1024, 512);
        runs.add(1024, 1536, 1);
        runs.close();
        runs.add(1025, 1537, 1);
        assert_eq!(runs.finish(), Contiguity { pages: 514, regions: 2, largest: vec![513, 1] });
    }

    #[test]
    fn only_runs_of_a_gibibyte_count_as_such() {
        let gib = PageSize::Giant.base_pages();
        let mut runs = Runs::default();
        runs.add(0, 5, gib);
        runs.add(gib, 0, gib - 1);
        runs.add(3 * gib, 3 * gib, gib + 1);
        assert_eq!(runs.finish().coverage_giant(), (2 * gib + 1) as f64 / (3 * gib) as f64);
        assert_eq!(Contiguity::default().coverage_giant(), 0.0);
    }

    proptest! {
        /// The obvious reference: a page begins a run unless the page before it is there and in the frame before.
        #[test]
        fn regions_are_counted_as_by_hand(frames in proptest::collection::btree_map(0u64..2000, 1u64..60, 0..900)) {
            let pages: Vec<(u64, u64)> = frames.iter().map(|(page, frame)| (*page, *frame)).collect();
            let begins = |(page, frame): &&(u64, u64)| {
                page.checked_sub(1).and_then(|before| frames.get(&before)) != Some(&(frame - 1))
            };
            let mut lengths = Vec::new();
            for page in &pages {
                if begins(&page) {
                    lengths.push(0);
                }
                *lengths.last_mut().unwrap() += 1;
            }
            lengths.sort_unstable_by(|a: &u64, b| b.cmp(a));
            let found = of(&pages);
            prop_assert_eq!(found.regions, lengths.len() as u64);
            prop_assert_eq!(found.pages, pages.len() as u64);
            prop_assert!(found.coverage(32) <= found.coverage(128));
            lengths.truncate(128);
            prop_assert_eq!(found.largest, lengths);
        }
    }
}
