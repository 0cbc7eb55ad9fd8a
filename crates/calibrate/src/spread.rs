//! Repetitions of one measurement.

/// Median and quartiles of repetitions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle repetition.
    pub median: f64,
    /// A quarter of the repetitions are at most this.
    pub low: f64,
    /// A quarter of the repetitions are at least this.
    pub high: f64,
    /// Number of repetitions.
    pub count: usize,
}

impl Spread {
    /// The spread of at least one repetition; none is all zeros.
    pub fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let at = |share: usize| values.get(values.len() * share / 4).copied().unwrap_or(0.0);
        let count = values.len();
        let high = values.get(count.saturating_sub(1 + count / 4)).copied().unwrap_or(0.0);
        Spread { median: at(2), low: at(1), high, count }
    }

    /// The spread in another unit.
    #[must_use]
    pub fn times(self, factor: f64) -> Spread {
        Spread { median: self.median * factor, low: self.low * factor, high: self.high * factor, ..self }
    }

    /// The difference of two measurements. Its ends are those of the two that lie farthest apart, so it is never narrower
    /// than either.
    #[must_use]
    pub fn minus(self, other: Spread) -> Spread {
        Spread {
            median: self.median - other.median,
            low: self.low - other.high,
            high: self.high - other.low,
            count: self.count.min(other.count),
        }
    }

    /// The quotient of two measurements, both above zero, with ends as those of a difference.
    #[must_use]
    pub fn over(self, other: Spread) -> Spread {
        Spread {
            median: self.median / other.median,
            low: self.low / other.high,
            high: self.high / other.low,
            count: self.count.min(other.count),
        }
    }

    /// The spread with nothing outside these bounds.
    #[must_use]
    pub fn clamp(self, least: f64, most: f64) -> Spread {
        let bounded = |value: f64| if value.is_nan() { least } else { value.clamp(least, most) };
        Spread {
            median: bounded(self.median),
            low: bounded(self.low),
            high: bounded(self.high),
            count: self.count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_as_far_from_both_ends() {
        let spread = Spread::of(vec![5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!((spread.low, spread.median, spread.high, spread.count), (2.0, 3.0, 4.0, 5));
        assert_eq!(Spread::of(vec![7.0]), Spread { median: 7.0, low: 7.0, high: 7.0, count: 1 });
        assert_eq!(Spread::of(Vec::new()).count, 0);
        assert_eq!(Spread::of(vec![2.0]).times(3.0).median, 6.0);
    }

    #[test]
    fn what_is_computed_of_two_spreads_as_both_do() {
        let one = Spread { median: 10.0, low: 8.0, high: 12.0, count: 5 };
        let other = Spread { median: 4.0, low: 2.0, high: 5.0, count: 3 };
        assert_eq!(one.minus(other), Spread { median: 6.0, low: 3.0, high: 10.0, count: 3 });
        assert_eq!(one.over(other), Spread { median: 2.5, low: 1.6, high: 6.0, count: 3 });
        assert_eq!(one.clamp(9.0, 11.0), Spread { median: 10.0, low: 9.0, high: 11.0, count: 5 });
        let nothing = Spread::of(Vec::new());
        assert_eq!(nothing.over(nothing).clamp(1.0, 2.0).median, 1.0, "zero over zero is bounded too");
    }
}
