//! The search for the smallest fastest tier.

use crate::bench::Trial;

/// The search for one policy. Shares are counted in steps.
pub(super) struct Search {
    pub policy: String,
    /// Largest number of steps known to be too few.
    pub too_few: usize,
    /// Fewest steps known to be enough, and the run that shows it.
    pub enough: Option<(usize, Trial)>,
    /// The slowdown at `too_few`.
    pub over: Option<f64>,
    /// Why it cannot run.
    pub refused: Option<String>,
}

impl Search {
    /// The next number of steps to try; `steps` is all of the memory.
    pub fn next(&self, steps: usize) -> Option<usize> {
        let enough = self.enough.as_ref().map_or(steps + 1, |(at, _)| *at);
        (self.refused.is_none() && enough > self.too_few + 1).then(|| (self.too_few + enough) / 2)
    }

    pub fn learn(&mut self, at: usize, outcome: Result<Trial, String>, tolerated: f64) {
        match outcome {
            Err(reason) => self.refused = Some(reason),
            Ok(trial) if trial.slowdown() <= tolerated => self.enough = Some((at, trial)),
            Ok(trial) => (self.too_few, self.over) = (at, Some(trial.slowdown())),
        }
    }
}
