//! What curves and times say: where a latency rises, and what a page fault consists of.

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
    if huge_held <= base || huge < huge_held {
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
    }
}
