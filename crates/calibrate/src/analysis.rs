//! What curves and times say: where a latency rises, and what a page fault consists of.

use terrace_model::PageSize;

/// A plateau of a latency curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The largest size on the plateau.
    pub until: u64,
    /// Median latency on it.
    pub level: f64,
}

/// The plateaus of a curve of latencies over sizes, smallest size first. A new one begins where the latency lies above
/// `rise` times the median of the plateau so far, at two sizes in a row: one slow measurement is no step. Sizes on the way
/// up, at which the latency is still rising by `rise` at the next, belong to no plateau.
pub fn steps(curve: &[(u64, f64)], rise: f64) -> Vec<Step> {
    let mut found = Vec::new();
    let mut plateau: Vec<(u64, f64)> = Vec::new();
    let median = |plateau: &[(u64, f64)]| {
        let mut levels: Vec<f64> = plateau.iter().map(|point| point.1).collect();
        levels.sort_by(f64::total_cmp);
        levels.get(levels.len() / 2).copied().unwrap_or(0.0)
    };
    for (at, point) in curve.iter().enumerate() {
        let next = curve.get(at + 1);
        let above = |level: f64| point.1 > rise * level && next.is_none_or(|next| next.1 > rise * level);
        if !plateau.is_empty() && above(median(&plateau)) {
            found.push(Step { until: plateau[plateau.len() - 1].0, level: median(&plateau) });
            plateau.clear();
        }
        let climbing = plateau.is_empty() && next.is_some_and(|next| next.1 > rise * point.1);
        if !climbing || at == 0 {
            plateau.push(*point);
        }
    }
    if let Some(last) = plateau.last() {
        found.push(Step { until: last.0, level: median(&plateau) });
    }
    found
}

/// What a curve of added latencies says of the TLBs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tlbs {
    /// The knee of the level-1 TLB.
    pub first: Option<Knee>,
    /// The knee of the level-2 TLB. Missing it is a page walk.
    pub second: Option<Knee>,
}

/// Where a curve rises. A TLB has more entries than `fits`, as a program also has pages for its code and stack, and not more
/// than `exceeds`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knee {
    /// The largest number of pages before the rise.
    pub fits: u64,
    /// The next that was measured.
    pub exceeds: u64,
    /// Nanoseconds on the plateau behind it.
    pub beyond: f64,
}

/// No level-1 TLB of a processor has many more entries than this, and no level-2 TLB fewer than that: where a curve has a
/// single knee, it tells which of them it is.
const LARGEST_FIRST: u64 = 256;
const SMALLEST_SECOND: u64 = 500;

/// The knees of a curve of nanoseconds that translation adds, by the number of pages. The first may hide: some
/// processors miss a level-1 TLB at next to no cost. Whatever rises later is caches of page-table entries.
pub fn tlbs(curve: &[(u64, f64)]) -> Tlbs {
    // A TLB that still answers adds next to nothing, so a rise is one over a nanosecond.
    let raised: Vec<(u64, f64)> = curve.iter().map(|(pages, extra)| (*pages, 1.0 + extra.max(0.0))).collect();
    let steps = steps(&raised, 1.8);
    let mut knees = steps.windows(2).filter_map(|pair| {
        let below = curve.iter().map(|point| point.0).find(|pages| *pages > pair[0].until)?;
        Some(Knee { fits: pair[0].until, exceeds: below, beyond: pair[1].level - 1.0 })
    });
    let first = knees.next();
    match first {
        Some(knee) if knee.fits >= SMALLEST_SECOND => Tlbs { first: None, second: Some(knee) },
        _ => Tlbs {
            first: first.filter(|knee| knee.fits <= LARGEST_FIRST),
            second: knees.find(|knee| knee.exceeds >= SMALLEST_SECOND),
        },
    }
}

/// Size of the pages by which a hypervisor maps its guest: from nanoseconds that translation adds to loads in more base
/// pages than TLBs hold, and to loads in as many pieces of huge pages. The TLBs hold the huge pages, unless the hypervisor
/// maps them by base pages. None where the times do not tell.
pub fn hypervisor_pages(base: f64, pieces: f64) -> Option<PageSize> {
    // Less than that is in the noise.
    if base < 4.0 {
        return None;
    }
    match pieces / base {
        share if share > 0.25 => Some(PageSize::Base),
        share if share < 0.125 => Some(PageSize::Huge),
        _ => None,
    }
}

/// The largest size of a curve of latencies that takes no longer than `limit`, and the next. None where even the smallest
/// takes longer, or the largest does not.
pub fn held(curve: &[(u64, f64)], limit: f64) -> Option<(u64, u64)> {
    let pair = curve.windows(2).find(|pair| pair[1].1 > limit)?;
    (pair[0].1 <= limit).then(|| (pair[0].0, pair[1].0))
}

/// What the throughput of several chains of loads says of page walks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overlap {
    /// Walks under way at once, at most.
    pub walks: f64,
    /// Whether more chains stopped helping, so that this is all that the processor has; otherwise it has at least these.
    pub saturated: bool,
}

/// `(chains, nanoseconds per load apart, and side by side)`, fewest chains first. None where no walk was seen.
pub fn overlap(rates: &[(usize, f64, f64)]) -> Option<Overlap> {
    let (_, apart, dense) = *rates.first()?;
    let walk = apart - dense;
    // Less than that is in the noise.
    if walk < 2.0 {
        return None;
    }
    let most = rates.iter().map(|(_, apart, _)| walk / apart).fold(0.0, f64::max);
    // Several chains cannot be faster than each alone: the times are of a machine that was busy with something else.
    if rates.iter().any(|(chains, several, _)| apart / several > 1.3 * *chains as f64) {
        return None;
    }
    let saturated = rates.windows(2).last().is_some_and(|pair| {
        let ((_, before, _), (_, last, last_dense)) = (pair[0], pair[1]);
        // The last doubling paid less than a tenth, and loads without walks go on faster than that.
        last > 0.9 * before && last > 1.3 * last_dense
    });
    Some(Overlap { walks: most.max(1.0), saturated })
}

/// How far apart loads in order may lie and still come sooner than loads in random order: the largest distance in lines up
/// to which all take less than half of `random` nanoseconds. None where even neighbours do not.
pub fn prefetched(times: &[(usize, f64)], random: f64) -> Option<usize> {
    times.iter().take_while(|(_, time)| *time < random / 2.0).map(|(lines, _)| *lines).last()
}

/// The parts of a page fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultCosts {
    /// Nanoseconds of the kernel's path, without zeroing.
    pub path_ns: f64,
    /// Bytes per second at which a base page, or what caches hold, is zeroed.
    pub zero: f64,
    /// Bytes per second at which the rest of a huge page is zeroed.
    pub huge_zero: f64,
}

/// Splits what was measured of faults, in nanoseconds: on a base page, on a huge page whose frame the caches hold, and on
/// one whose frame they do not. The path is taken to be the same for both sizes. None where the times contradict that:
/// a huge page no dearer than a base page, or held frames dearer than others.
pub fn split_faults(base: f64, huge_held: f64, huge: f64) -> Option<FaultCosts> {
    const BASE_BYTES: f64 = 4096.0;
    const HUGE_BYTES: f64 = 2_097_152.0;
    let is_possible = 0.0 < base && base < huge_held && huge_held <= huge && huge.is_finite();
    if !is_possible {
        return None;
    }
    let zero_per_byte = (huge_held - base) / (HUGE_BYTES - BASE_BYTES);
    let path_ns = base - BASE_BYTES * zero_per_byte;
    if path_ns <= 0.0 {
        return None;
    }
    let huge_per_byte = (huge - path_ns - BASE_BYTES * zero_per_byte) / (HUGE_BYTES - BASE_BYTES);
    Some(FaultCosts { path_ns, zero: 1e9 / zero_per_byte, huge_zero: 1e9 / huge_per_byte })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dependent loads over an EPYC of the Zen 5 generation (48 KiB, 1 MiB, 32 MiB), huge pages, as recorded.
    const ZEN5: [(u64, f64); 14] = [
        (16 << 10, 1.11),
        (32 << 10, 1.11),
        (64 << 10, 2.90),
        (128 << 10, 3.55),
        (256 << 10, 3.78),
        (512 << 10, 3.90),
        (1 << 20, 4.60),
        (2 << 20, 11.9),
        (4 << 20, 13.1),
        (8 << 20, 13.9),
        (16 << 20, 15.2),
        (32 << 20, 39.0),
        (64 << 20, 101.0),
        (128 << 20, 142.0),
    ];

    #[test]
    fn a_recorded_curve_has_the_steps_of_its_caches() {
        let found = steps(&ZEN5, 1.5);
        let until: Vec<u64> = found.iter().map(|step| step.until).collect();
        assert_eq!(until[..3], [32 << 10, 1 << 20, 16 << 20], "{found:?}");
        assert!((found[1].level - 3.8).abs() < 0.3, "{found:?}");
        assert!((found[2].level - 13.9).abs() < 1.0, "{found:?}");
    }

    #[test]
    fn one_slow_measurement_is_no_step() {
        let mut curve: Vec<(u64, f64)> = (0..8).map(|at| (1 << at, 4.0)).collect();
        curve[3].1 = 30.0;
        assert_eq!(steps(&curve, 1.5), [Step { until: 128, level: 4.0 }]);
        assert_eq!(steps(&[], 1.5), []);
    }

    #[test]
    fn tlbs_are_the_knees_of_a_curve() {
        // Made up: 64 entries and 7 cycles, 2048 entries, and caches of page-table entries that end at 8192 pages.
        let sizes = [16u64, 32, 48, 64, 80, 128, 512, 1024, 1536, 2048, 2560, 4096, 8192, 16_384, 32_768];
        let extra = |pages: u64| match pages {
            0..=64 => 0.1,
            65..=2048 => 2.1,
            2049..=8192 => 14.0,
            _ => 60.0,
        };
        let curve = sizes.map(|pages| (pages, extra(pages)));
        let found = tlbs(&curve);
        let first = found.first.unwrap();
        assert_eq!((first.fits, first.exceeds), (64, 80));
        assert!((first.beyond - 2.1).abs() < 0.01, "{found:?}");
        let second = found.second.unwrap();
        assert_eq!((second.fits, second.exceeds), (2048, 2560));
        assert!((second.beyond - 14.0).abs() < 0.01, "{found:?}");

        // A level-1 TLB that costs nothing to miss.
        let hidden = curve.map(|(pages, extra)| (pages, if pages <= 2048 { 0.0 } else { extra }));
        assert_eq!((tlbs(&hidden).first, tlbs(&hidden).second.unwrap().fits), (None, 2048));
        // A level-2 TLB that was not reached.
        let short = tlbs(&curve[..9]);
        assert_eq!((short.first.unwrap().fits, short.second), (64, None));
        // None at all, and noise.
        let flat = sizes.map(|pages| (pages, if pages == 128 { 5.0 } else { -0.2 }));
        assert_eq!(tlbs(&flat), Tlbs::default());
        assert_eq!(tlbs(&[]), Tlbs::default());
    }

    #[test]
    fn a_cache_holds_what_comes_soon() {
        let curve = [(8, 45.0), (12, 70.0), (16, 105.0), (24, 140.0), (32, 99.0)];
        assert_eq!(held(&curve, 100.0), Some((12, 16)), "where it rises first");
        assert_eq!(held(&curve, 40.0), None);
        assert_eq!(held(&curve[..2], 100.0), None);
        assert_eq!(held(&[], 100.0), None);
    }

    #[test]
    fn walks_overlap_until_all_walkers_are_busy() {
        // Walks of 20 ns beside 10 ns of data: four at most.
        let bound = [(1, 30.0, 10.0), (2, 15.0, 5.0), (4, 7.5, 2.5), (8, 5.0, 1.3), (16, 5.0, 1.0)];
        assert_eq!(overlap(&bound), Some(Overlap { walks: 4.0, saturated: true }));
        let open = overlap(&bound[..3]).unwrap();
        assert!(!open.saturated && (open.walks - 20.0 / 7.5).abs() < 1e-9, "{open:?}");
        // What memory bounds says nothing of walkers.
        let memory = [(1, 120.0, 100.0), (2, 60.0, 50.0), (4, 58.0, 50.0)];
        assert!(!overlap(&memory).unwrap().saturated);
        assert_eq!(overlap(&[(1, 10.0, 9.5)]), None, "no walk was seen");
        assert_eq!(overlap(&[(1, 300.0, 40.0), (2, 90.0, 9.0)]), None, "more than twice as fast by two");
        assert_eq!(overlap(&[]), None);
    }

    #[test]
    fn prefetching_ends_at_a_distance() {
        let times = [(1, 5.0), (2, 9.0), (4, 20.0), (8, 70.0), (16, 20.0)];
        assert_eq!(prefetched(&times, 80.0), Some(4), "what comes behind a slow one is chance");
        assert_eq!(prefetched(&times, 9.0), None);
        assert_eq!(prefetched(&[], 80.0), None);
    }

    #[test]
    fn faults_split_into_path_and_rates() {
        // Measured: 1.30 us, 28.2 us, 105 us.
        let costs = split_faults(1300.0, 28_200.0, 105_000.0).unwrap();
        assert!((costs.path_ns - 1247.0).abs() < 1.0, "{costs:?}");
        assert!((costs.zero / 1e9 - 77.8).abs() < 0.1, "{costs:?}");
        assert!((costs.huge_zero / 1e9 - 20.2).abs() < 0.1, "{costs:?}");
        // The parts give back the whole.
        let whole =
            costs.path_ns + 4096.0 / costs.zero * 1e9 + (2_097_152.0 - 4096.0) / costs.huge_zero * 1e9;
        assert!((whole - 105_000.0).abs() < 1.0);
    }

    #[test]
    fn times_that_contradict_the_model_give_nothing() {
        assert_eq!(split_faults(1300.0, 1200.0, 1200.0), None, "no huge page was had");
        assert_eq!(split_faults(1300.0, 90_000.0, 80_000.0), None);
        assert_eq!(split_faults(100.0, 400_000.0, 500_000.0), None, "no path is left");
        assert_eq!(split_faults(f64::NAN, 400_000.0, 500_000.0), None);
        assert_eq!(split_faults(1300.0, 90_000.0, f64::INFINITY), None);
    }
}
