//! Division of line and page numbers by a number of sets that need not be a power of two.

/// Divides numbers below 2^40 by a fixed divisor of at most 2^24, without a division instruction.
///
/// Sets are rarely a power of two (a 24.75 MiB last-level cache, a 1536-entry TLB of 12 ways). With
/// `M = ceil(2^64 / d)` the high half of `n * M` is `n / d` exactly as long as `n * (M * d - 2^64) < 2^64`, and the
/// error term is below `d`.
#[derive(Clone, Copy, Debug)]
pub struct Divider {
    divisor: u64,
    magic: u64,
    /// `log2(divisor)` for powers of two, else `u32::MAX`.
    shift: u32,
}

impl Divider {
    /// Panics unless `1 <= divisor <= 2^24`.
    pub fn new(divisor: u64) -> Divider {
        assert!((1..=1 << 24).contains(&divisor), "divisor {divisor} out of range");
        let shift = if divisor.is_power_of_two() { divisor.trailing_zeros() } else { u32::MAX };
        Divider { divisor, magic: (u64::MAX / divisor).wrapping_add(1), shift }
    }

    /// The divisor.
    pub fn divisor(&self) -> u64 {
        self.divisor
    }

    /// Quotient and remainder of `n`, which must be below 2^40 when the divisor is no power of two.
    #[inline(always)]
    pub fn divide(&self, n: u64) -> (u64, u64) {
        if self.shift != u32::MAX {
            return (n >> self.shift, n & (self.divisor - 1));
        }
        debug_assert!(n < 1 << 40);
        let quotient = ((u128::from(n) * u128::from(self.magic)) >> 64) as u64;
        (quotient, n - quotient * self.divisor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_division(n in 0u64..1 << 40, divisor in 1u64..=1 << 24) {
            prop_assert_eq!(Divider::new(divisor).divide(n), (n / divisor, n % divisor));
        }

        #[test]
        fn agrees_at_multiples(k in 0u64..1 << 20, divisor in 1u64..=1 << 20) {
            let n = (k * divisor).min((1 << 40) - 1);
            let divider = Divider::new(divisor);
            prop_assert_eq!(divider.divide(n), (n / divisor, n % divisor));
            prop_assert_eq!(divider.divide(n.saturating_sub(1)), (n.saturating_sub(1) / divisor, n.saturating_sub(1) % divisor));
        }
    }
}
