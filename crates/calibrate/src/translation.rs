//! TLBs and page walks, by loads that depend on one another, one in each of so many pages.
//!
//! The same number of lines side by side needs next to no translations: what a line in a page of its own takes longer is
//! translation. Side by side rather than on the same lines of huge pages, because a hypervisor may back a guest's huge pages
//! by base pages, and then both would miss.

use crate::chase::{Chase, LINE};
use crate::clock::OwnTime;
use crate::measure::Budget;
use crate::region::{BASE, HUGE, Pages, Region};
use crate::spread::Spread;
use std::hint::black_box;
use terrace_model::Random;

/// Nanoseconds that a load takes longer where it lies in one of so many pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Pages that take turns.
    pub pages: u64,
    /// Nanoseconds of translation.
    pub extra: Spread,
}

/// Loads of several chains at once, one line in each page of more pages than the TLBs hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Walks {
    /// Chains at once.
    pub chains: usize,
    /// Nanoseconds per load.
    pub apart: Spread,
    /// The same with the lines side by side, without walks.
    pub dense: Spread,
}

/// The numbers of pages that are tried: four between a power of two and the next.
fn sizes(most: usize) -> impl Iterator<Item = usize> {
    (4..).flat_map(|power| (4..8).map(move |quarter| quarter << (power - 2))).take_while(move |size| *size <= most)
}

/// On base pages, up to as many as `small` has; `dense` is another region for the lines side by side.
pub fn base_curve(small: &Region, dense: &Region, budget: Budget) -> Vec<Point> {
    let (steps, rounds) = (budget.steps / 3, budget.rounds);
    let point = |pages: usize| {
        let apart = Chase::over_pages(small, pages, 1).run(steps.max(pages), rounds);
        let beside = Chase::over_lines(dense, pages * LINE, 1).run(steps.max(pages), rounds);
        Point { pages: pages as u64, extra: apart.minus(beside) }
    };
    sizes(small.bytes() / BASE).map(point).collect()
}

/// On pages of 2 MiB. They are all the same page of zeros, which the kernel maps where huge pages are read before anything
/// was written to them, so next to no memory is needed. Error: why there are none.
pub fn huge_curve(most: usize, budget: Budget) -> Result<Vec<Point>, String> {
    let region = Region::map(most * HUGE, Pages::Huge).map_err(|error| format!("no room for them: {error}"))?;
    // One more page of zeros for the lines side by side.
    let dense = Region::map(HUGE, Pages::Huge).map_err(|error| format!("no room for them: {error}"))?;
    for page in [region.start(), dense.start()] {
        // SAFETY: The first byte of a region.
        black_box(unsafe { page.read_volatile() });
        if !is_resident(page) {
            return Err("the system maps no huge page of zeros, which this is measured with".to_owned());
        }
    }
    let (steps, rounds) = (budget.steps / 3, budget.rounds);
    let point = |pages: usize| {
        let mut places: Vec<usize> = (0..pages).collect();
        let mut random = Random::new(1);
        for at in (1..pages).rev() {
            places.swap(at, random.below(at as u64 + 1) as usize);
        }
        let line = |page: usize| page * LINE % HUGE;
        let apart: Vec<usize> = places.iter().map(|page| page * HUGE + line(*page)).collect();
        let beside: Vec<usize> = places.iter().map(|page| line(*page)).collect();
        let steps = steps.max(pages);
        let extra = read_zeros(&region, &apart, steps, rounds).minus(read_zeros(&dense, &beside, steps, rounds));
        Point { pages: pages as u64, extra }
    };
    Ok(sizes(most).map(point).collect())
}

/// Whether a huge page that was read once is there as a whole.
fn is_resident(page: *mut u8) -> bool {
    let mut resident = vec![0u8; HUGE / BASE];
    // SAFETY: A byte per base page of the region.
    let asked = unsafe { libc::mincore(page.cast(), HUGE, resident.as_mut_ptr()) };
    asked == 0 && resident.iter().all(|page| page & 1 == 1)
}

/// Nanoseconds per load where each depends on the one before, which was a zero: their places come from a list.
fn read_zeros(region: &Region, places: &[usize], steps: usize, rounds: usize) -> Spread {
    let start = region.start().cast_const();
    let (mut at, mut value) = (0, 0);
    let mut times = Vec::new();
    for round in 0..=rounds {
        let begin = OwnTime::now();
        for _ in 0..steps {
            // SAFETY: A place of the region, whose bytes are all zero.
            value = unsafe { start.add(places[at] + value).cast::<usize>().read_volatile() };
            at = if at + 1 == places.len() { 0 } else { at + 1 };
        }
        // The first round warms the caches.
        if round > 0 {
            times.push(begin.nanos() / steps as f64);
        }
    }
    black_box(value);
    Spread::of(times)
}

/// By the number of chains, over all base pages of `small`.
pub fn walks(small: &Region, dense: &Region, budget: Budget) -> Vec<Walks> {
    let pages = small.bytes() / BASE;
    let of = |chains: usize| {
        let steps = (budget.steps / chains).max(pages / chains);
        let apart = Chase::over_pages(small, pages, chains).run(steps, budget.rounds);
        let dense = Chase::over_lines(dense, pages * LINE, chains).run(steps, budget.rounds);
        Walks { chains, apart, dense }
    };
    [1, 2, 4, 8, 16].map(of).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_lie_four_to_a_doubling() {
        assert_eq!(sizes(70).collect::<Vec<_>>(), [16, 20, 24, 28, 32, 40, 48, 56, 64]);
    }

    #[test]
    fn curves_go_up_to_what_there_is() {
        let small = Region::map(1 << 20, Pages::Base).unwrap();
        let dense = Region::map(HUGE, Pages::Huge).unwrap();
        let curve = base_curve(&small, &dense, Budget::TINY);
        assert_eq!(curve.last().unwrap().pages, 256);
        let chains: Vec<usize> = walks(&small, &dense, Budget::TINY).iter().map(|one| one.chains).collect();
        assert_eq!(chains, [1, 2, 4, 8, 16]);
        match huge_curve(64, Budget::TINY) {
            Ok(curve) => assert_eq!(curve.len(), 9),
            Err(reason) => assert!(reason.contains("huge page of zeros"), "{reason}"),
        }
    }
}
