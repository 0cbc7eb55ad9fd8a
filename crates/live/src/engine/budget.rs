//! What Terrace may use: processor time, and bandwidth for moves.

use std::time::Duration;

/// An allowance that grows with time at a fixed rate up to a store, and may be overdrawn once; then it must recover.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// Per second.
    rate: f64,
    /// Most that can be saved up.
    store: f64,
    /// What may be used now; below zero: overdrawn.
    level: f64,
}

impl Allowance {
    /// `rate` per second, with at most `store` saved up, which is there at the start.
    pub fn new(rate: f64, store: f64) -> Allowance {
        Allowance { rate, store, level: store }
    }

    /// Without bounds.
    pub fn unlimited() -> Allowance {
        Allowance::new(f64::INFINITY, f64::INFINITY)
    }

    /// Time has passed.
    pub fn pass(&mut self, time: Duration) {
        let grown = self.level + self.rate * time.as_secs_f64();
        // An allowance of nothing per second for no time is no number.
        self.level = if grown.is_nan() { self.level } else { grown.min(self.store) };
    }

    /// Something was used.
    pub fn spend(&mut self, amount: f64) {
        if self.rate.is_finite() {
            self.level -= amount;
        }
    }

    /// How long until something may be used again.
    pub fn wait(&self) -> Duration {
        if self.level >= 0.0 {
            Duration::ZERO
        } else {
            Duration::try_from_secs_f64(-self.level / self.rate).unwrap_or(Duration::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_overdrawn_recovers_at_the_rate() {
        let mut cpu = Allowance::new(0.03, 0.3);
        cpu.spend(0.6);
        assert_eq!(cpu.wait(), Duration::from_secs(10));
        cpu.pass(Duration::from_secs(4));
        assert!((cpu.wait().as_secs_f64() - 6.0).abs() < 1e-9);
        cpu.pass(Duration::from_secs(1000));
        assert_eq!(cpu.wait(), Duration::ZERO);
        cpu.spend(0.3);
        assert_eq!(cpu.wait(), Duration::ZERO, "what was saved up may be used");
        cpu.spend(0.003);
        assert_eq!(cpu.wait().as_millis(), 100);
    }

    #[test]
    fn without_bounds_nothing_waits() {
        let mut free = Allowance::unlimited();
        free.spend(1e30);
        free.pass(Duration::ZERO);
        assert_eq!(free.wait(), Duration::ZERO);
    }

    #[test]
    fn a_rate_of_nothing_waits_for_ever() {
        let mut none = Allowance::new(0.0, 0.0);
        none.pass(Duration::from_secs(5));
        none.spend(1.0);
        assert_eq!(none.wait(), Duration::MAX);
    }
}
