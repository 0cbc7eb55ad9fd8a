//! TLBs and page walks, by loads that depend on one another, one in each of so many pages.
//!
//! The same number of lines side by side needs next to no translations: what a line in a page of its own takes longer is
//! translation. Side by side rather than on the same lines of huge pages, because a hypervisor may back a guest's huge pages
//! by base pages, and then both would miss.

use crate::budget::Budget;
use crate::chase::{Chase, LINE, shuffle};
use crate::clock::OwnTime;
use crate::region::{BASE, HUGE, Pages, Region};
use crate::spread::Spread;
use std::hint::black_box;

/// Nanoseconds that a load takes longer where it lies in one of so many pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Pages that take turns.
    pub pages: u64,
    /// Nanoseconds of translation.
    pub extra: Spread,
    /// Nanoseconds of translation in the least disturbed repetitions. Another program that has its turn leaves a TLB without
    /// entries, which looks like a smaller TLB.
    pub quiet: f64,
}

/// Loads of several chains at once, one line in each page of more pages than the TLBs hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Walks {
    /// Chains at once.
    pub chains: usize,
    /// Nanoseconds per load.
    pub apart: Spread,
    /// Nanoseconds per load with the lines side by side, without walks.
    pub dense: Spread,
    /// Nanoseconds of the least disturbed repetitions, apart and side by side.
    pub quiet: (f64, f64),
}

/// The least of repetitions: what disturbs a chase only makes it slower.
fn least(times: &[f64]) -> f64 {
    times.iter().copied().min_by(f64::total_cmp).unwrap_or(0.0)
}

/// Repetitions of two measurements in turn, so that both see the same disturbances.
fn in_turn(
    rounds: usize,
    mut one: impl FnMut() -> Vec<f64>,
    mut other: impl FnMut() -> Vec<f64>,
) -> (Vec<f64>, Vec<f64>) {
    (0..rounds).map(|_| (one(), other())).fold(Default::default(), |(mut ones, mut others), (one, other)| {
        ones.extend(one);
        others.extend(other);
        (ones, others)
    })
}

/// The difference of two measurements that took turns.
fn point(pages: usize, (apart, dense): &(Vec<f64>, Vec<f64>)) -> Point {
    let extra = Spread::of(apart.iter().zip(dense).map(|(apart, dense)| apart - dense).collect());
    Point { pages: pages as u64, extra, quiet: least(apart) - least(dense) }
}

/// The numbers of pages that are tried: four between a power of two and the next.
fn sizes(most: usize) -> impl Iterator<Item = usize> {
    (4..)
        .flat_map(|power| (4..8).map(move |quarter| quarter << (power - 2)))
        .take_while(move |size| *size <= most)
}

/// On base pages, up to as many as `small` has; `dense` is another region for the lines side by side.
pub fn base_curve(small: &Region, dense: &Region, budget: Budget) -> Vec<Point> {
    let of = |pages: usize| {
        let steps = (budget.steps / 6).max(pages);
        let (apart, beside) = (Chase::over_pages(small, pages), Chase::over_lines(dense, pages * LINE));
        point(pages, &in_turn(budget.rounds, || apart.run(steps, 1), || beside.run(steps, 1)))
    };
    sizes(small.bytes() / BASE).map(of).collect()
}

/// Pieces of 4 KiB over which [`pieces`] is measured: more than any TLB has entries, in sixteen pages of 2 MiB.
pub const PIECES: usize = 8192;

/// Lines that lie apart in so many pieces of 4 KiB of pages of 2 MiB, which `large` is made of: these take translations
/// where a hypervisor maps its guest with base pages, and none where it does so with pages as large as the guest's.
pub fn pieces(large: &Region, budget: Budget) -> std::io::Result<Point> {
    let pieces = PIECES.min(large.bytes() / BASE);
    let dense = Region::map(HUGE.max(pieces * LINE), Pages::Huge)?;
    dense.touch(BASE);
    let steps = (budget.steps / 6).max(pieces);
    let (apart, beside) = (Chase::over_pages(large, pieces), Chase::over_lines(&dense, pieces * LINE));
    Ok(point(pieces, &in_turn(budget.rounds, || apart.run(steps, 1), || beside.run(steps, 1))))
}

/// On pages of 2 MiB. They are all the same page of zeros, which the kernel maps where huge pages are read before anything
/// was written to them, so next to no memory is needed. Error: why there are none.
pub fn huge_curve(most: usize, budget: Budget) -> Result<Vec<Point>, String> {
    let region =
        Region::map(most * HUGE, Pages::Huge).map_err(|error| format!("no room for them: {error}"))?;
    // One more page of zeros for the lines side by side.
    let dense = Region::map(HUGE, Pages::Huge).map_err(|error| format!("no room for them: {error}"))?;
    for page in [region.start(), dense.start()] {
        // SAFETY: The first byte of a region.
        black_box(unsafe { page.read_volatile() });
        if !is_resident(page) {
            return Err("the system maps no huge page of zeros, which this is measured with".to_owned());
        }
    }
    let of = |pages: usize| {
        let mut places: Vec<usize> = (0..pages).collect();
        shuffle(&mut places);
        let line = |page: usize| page * LINE % HUGE;
        let apart: Vec<usize> = places.iter().map(|page| page * HUGE + line(*page)).collect();
        let beside: Vec<usize> = places.iter().map(|page| line(*page)).collect();
        let steps = (budget.steps / 6).max(pages);
        let times = in_turn(
            budget.rounds,
            || read_zeros(&region, &apart, steps),
            || read_zeros(&dense, &beside, steps),
        );
        point(pages, &times)
    };
    Ok(sizes(most).map(of).collect())
}

/// Whether a huge page that was read once is there as a whole.
fn is_resident(page: *mut u8) -> bool {
    let mut resident = vec![0u8; HUGE / BASE];
    // SAFETY: A byte per base page of the region.
    let asked = unsafe { libc::mincore(page.cast(), HUGE, resident.as_mut_ptr()) };
    asked == 0 && resident.iter().all(|page| page & 1 == 1)
}

/// Nanoseconds per load where each depends on the one before, which was a zero: their places come from a list.
fn read_zeros(region: &Region, places: &[usize], steps: usize) -> Vec<f64> {
    let start = region.start().cast_const();
    let (mut at, mut value, mut nanos) = (0, 0, 0.0);
    // The first time warms the caches.
    for _ in 0..2 {
        let begin = OwnTime::now();
        for _ in 0..steps {
            // SAFETY: A place of the region, whose bytes are all zero.
            value = unsafe { start.add(places[at] + value).cast::<usize>().read_volatile() };
            at = if at + 1 == places.len() { 0 } else { at + 1 };
        }
        nanos = begin.nanos();
    }
    black_box(value);
    vec![nanos / steps as f64]
}

/// By the number of chains, over all base pages of `small`. All numbers take turns.
pub fn walks(small: &Region, dense: &Region, budget: Budget) -> Vec<Walks> {
    const CHAINS: [usize; 5] = [1, 2, 4, 8, 16];
    let pages = small.bytes() / BASE;
    let (apart, beside) = (Chase::over_pages(small, pages), Chase::over_lines(dense, pages * LINE));
    let mut times = CHAINS.map(|_| (Vec::new(), Vec::new()));
    for _ in 0..budget.rounds {
        for (chains, times) in CHAINS.into_iter().zip(&mut times) {
            let steps = (budget.steps / 6).max(pages) / chains;
            times.0.extend(apart.run_chains(chains, steps, 1));
            times.1.extend(beside.run_chains(chains, steps, 1));
        }
    }
    let of = |(chains, (apart, dense)): (usize, (Vec<f64>, Vec<f64>))| {
        let quiet = (least(&apart), least(&dense));
        Walks { chains, apart: Spread::of(apart), dense: Spread::of(dense), quiet }
    };
    CHAINS.into_iter().zip(times).map(of).collect()
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
