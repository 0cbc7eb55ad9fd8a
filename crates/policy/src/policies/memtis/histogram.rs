//! How much memory is how hot, in bins of powers of two.

/// Bins.
pub(super) const BINS: usize = 16;

/// The bin of a heat: 0 for none, then one per power of two.
pub(super) fn bin_of(heat: u64) -> usize {
    ((64 - heat.leading_zeros()) as usize).min(BINS - 1)
}

/// The bins from which on memory counts as hot, and as warm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thresholds {
    pub hot: usize,
    pub warm: usize,
}

impl Default for Thresholds {
    /// Before the first adaptation: whatever was sampled is hot, nothing is demoted for being cold.
    fn default() -> Thresholds {
        Thresholds { hot: 1, warm: 0 }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    /// Base pages per bin.
    pages: [u64; BINS],
    /// Accesses per bin.
    accesses: [u64; BINS],
}

impl Histogram {
    pub fn add(&mut self, heat: u64, pages: u64, accesses: u64) {
        let bin = bin_of(heat);
        self.pages[bin] += pages;
        self.accesses[bin] += accesses;
    }

    /// The lowest bin from which on everything fits into `capacity` base pages. Bin 0, memory without any access, is
    /// never hot.
    pub fn thresholds(&self, capacity: u64, alpha: f64) -> Thresholds {
        let mut sum = 0;
        let mut hot = BINS;
        while hot > 1 && sum + self.pages[hot - 1] <= capacity {
            hot -= 1;
            sum += self.pages[hot];
        }
        let full = sum as f64 >= alpha * capacity as f64;
        Thresholds { hot, warm: if full { hot } else { hot - 1 } }
    }

    /// The share of all accesses that the hottest `capacity` base pages get; a bin that does not fit counts in part.
    pub fn hit_ratio(&self, capacity: u64) -> f64 {
        let all: u64 = self.accesses.iter().sum();
        let (mut left, mut hits) = (capacity as f64, 0.0);
        for (pages, accesses) in self.pages.iter().zip(&self.accesses).rev().filter(|(pages, _)| **pages > 0)
        {
            let part = (left / *pages as f64).min(1.0);
            hits += *accesses as f64 * part;
            left -= *pages as f64 * part;
        }
        if all == 0 { 0.0 } else { hits / all as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_powers_of_two() {
        assert_eq!([0, 1, 2, 3, 4, 1 << 14, 1 << 40].map(bin_of), [0, 1, 2, 2, 3, 15, 15]);
    }

    #[test]
    fn hot_is_what_fits() {
        let mut histogram = Histogram::default();
        for (heat, pages) in [(0, 100), (1, 50), (4, 30), (16, 20)] {
            histogram.add(heat, pages, heat * pages);
        }
        assert_eq!(histogram.thresholds(50, 0.9), Thresholds { hot: 2, warm: 2 }, "20 + 30, exactly full");
        assert_eq!(histogram.thresholds(60, 0.9), Thresholds { hot: 2, warm: 1 }, "bin 2 is empty; 50 of 60");
        assert_eq!(
            histogram.thresholds(10, 0.9),
            Thresholds { hot: 6, warm: 5 },
            "the hottest bin does not fit"
        );
        assert_eq!(histogram.thresholds(1000, 0.9), Thresholds { hot: 1, warm: 0 });
        // 320 + 120 + 50 accesses.
        assert!((histogram.hit_ratio(20) - 320.0 / 490.0).abs() < 1e-12);
        assert!((histogram.hit_ratio(35) - 380.0 / 490.0).abs() < 1e-12, "half of the second bin");
        assert_eq!(Histogram::default().hit_ratio(5), 0.0);
    }
}
