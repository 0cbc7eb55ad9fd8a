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
    /// Of at least one repetition; none is all zeros.
    pub fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let at = |share: usize| values.get(values.len() * share / 4).copied().unwrap_or(0.0);
        let count = values.len();
        let high = values.get(count.saturating_sub(1 + count / 4)).copied().unwrap_or(0.0);
        Spread { median: at(2), low: at(1), high, count }
    }

    /// The same in another unit.
    pub fn times(self, factor: f64) -> Spread {
        Spread { median: self.median * factor, low: self.low * factor, high: self.high * factor, ..self }
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
}
