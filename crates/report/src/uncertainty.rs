//! How far a speed-up could be off.

/// How far a speed-up moves, to either side, with what is not known: the natural logarithms of the factors, which for small
/// ones are shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Uncertainty {
    /// With assumed costs of the operating system: faults, zeroing.
    pub os_constants: f64,
    /// With assumed latencies of memory and costs of copying.
    pub memory_constants: f64,
    /// With another seed of the input or the policy; `None` where nothing is drawn at random.
    pub seeds: Option<f64>,
}

/// A speed-up with the values between which it lies.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct SpeedUp {
    /// The middle.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// What moves it how far; `None` where no intervals were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncertainty: Option<Uncertainty>,
}

impl Uncertainty {
    /// All of it: causes may add up.
    pub fn total(&self) -> f64 {
        self.os_constants + self.memory_constants + self.seeds.unwrap_or(0.0)
    }
}

impl SpeedUp {
    /// A value, and how far it could be off.
    pub fn new(value: f64, uncertainty: Option<Uncertainty>) -> SpeedUp {
        let factor = uncertainty.map_or(1.0, |one| one.total().exp());
        SpeedUp { value, low: value / factor, high: value * factor, uncertainty }
    }

    /// Half the interval as a share of the value; `None` where none was asked for.
    pub fn share(&self) -> Option<f64> {
        self.uncertainty.map(|_| self.high / self.value - 1.0)
    }

    /// Whether this one is above the other whatever the values are between their ends.
    pub(crate) fn is_clearly_above(&self, other: &SpeedUp) -> bool {
        self.low > other.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_add_up_to_either_side() {
        let causes = Uncertainty { os_constants: 0.02, memory_constants: 0.03, seeds: Some(0.05) };
        let speedup = SpeedUp::new(2.0, Some(causes));
        assert!((speedup.high / 2.0 - 0.1f64.exp()).abs() < 1e-12);
        assert!((speedup.low * speedup.high - 4.0).abs() < 1e-12);
        assert!((speedup.share().unwrap() - (0.1f64.exp() - 1.0)).abs() < 1e-12);
        assert!(speedup.is_clearly_above(&SpeedUp::new(1.7, None)));
        assert!(!speedup.is_clearly_above(&SpeedUp::new(1.7, Some(causes))));
        assert_eq!(SpeedUp::new(2.0, None).share(), None);
    }
}
