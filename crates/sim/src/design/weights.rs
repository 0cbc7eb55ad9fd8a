//! Weights of weighted interleaving in proportion to the tiers' bandwidths.
//!
//! BW-AWARE placement spreads pages in the ratio of the memories' bandwidths; Linux derives its default weights the same
//! way since 6.16. Small whole numbers keep the round short, so that neighbouring pages still alternate.

use super::schema::{Design, TierParameters};
use crate::memory::Device;

/// Largest weight of the slowest tier that is tried.
const LONGEST: u32 = 16;
/// Error of a ratio that is good enough to stop looking for a closer one.
const CLOSE_ENOUGH: f64 = 0.02;

/// One weight per tier, in the machine's order. Errors: a device that cannot be built.
pub(crate) fn by_bandwidth(design: &Design) -> Result<Vec<u32>, String> {
    let bandwidths =
        design.tiers.iter().map(|tier| bandwidth(design, tier)).collect::<Result<Vec<_>, _>>()?;
    Ok(in_proportion(&bandwidths))
}

/// Bytes per second that reads of a tier can reach: the device's share, or the link's where that is less.
fn bandwidth(design: &Design, tier: &TierParameters) -> Result<f64, String> {
    let device = Device::new(&design.devices[&tier.device])?;
    let sharers = design.tiers.iter().filter(|other| other.device == tier.device).count();
    let device = device.peak_read_bandwidth().0 / sharers as f64;
    Ok(tier.link.as_ref().map_or(device, |link| device.min(link.payload(link.read_bandwidth).0)))
}

/// The smallest whole numbers whose ratios are within [`CLOSE_ENOUGH`], else the closest that were tried.
fn in_proportion(bandwidths: &[f64]) -> Vec<u32> {
    let slowest = bandwidths.iter().copied().fold(f64::INFINITY, f64::min).max(1.0);
    let candidate = |least: u32| {
        let weights: Vec<u32> = bandwidths
            .iter()
            .map(|bandwidth| ((bandwidth / slowest * f64::from(least)).round() as u32).max(1))
            .collect();
        let error = bandwidths
            .iter()
            .zip(&weights)
            .map(|(bandwidth, weight)| {
                (f64::from(*weight) / (bandwidth / slowest * f64::from(least)) - 1.0).abs()
            })
            .fold(0.0, f64::max);
        (error, weights)
    };
    let mut best = candidate(1);
    for least in 2..=LONGEST {
        if best.0 <= CLOSE_ENOUGH {
            break;
        }
        let next = candidate(least);
        if next.0 < best.0 {
            best = next;
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::in_proportion;

    #[test]
    fn ratios_become_small_whole_numbers() {
        assert_eq!(in_proportion(&[80e9, 20e9]), [4, 1]);
        assert_eq!(in_proportion(&[30e9, 20e9]), [3, 2]);
        assert_eq!(in_proportion(&[20e9, 20e9]), [1, 1]);
        assert_eq!(in_proportion(&[39.5e9, 10e9]), [4, 1], "1.3 % off is close enough");
        assert_eq!(in_proportion(&[100e9, 40e9, 10e9]), [10, 4, 1]);
        assert_eq!(in_proportion(&[20e9]), [1]);
    }
}
