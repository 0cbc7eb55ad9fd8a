//! What contiguity gained a run, and what producing it cost.

use crate::run::ratio;
use crate::{Comparison, PolicyWork, RunRecord};
use serde::Serialize;

/// Statistics that only hardware has which profits from contiguity, one for each kind.
const OF_CONTIGUITY: [&str; 4] =
    ["tlb.coalesced.fills", "tlb.range.hit", "tlb.segment.hit", "walk.predictions.right"];

/// Both sides of contiguity, against the baseline of the same input.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Contiguity {
    /// Share of the cycles that waited for translations, 0 to 1.
    pub translation_share: f64,
    /// Time in translation less than the baseline's, per thread; negative where it is more.
    pub saved_seconds: f64,
    /// Run time less than the baseline's, whatever the reason.
    pub net_seconds: f64,
    /// Share of the memory in the 128 largest contiguous regions at the end, where it was sampled.
    pub coverage_128: Option<f64>,
    /// What a policy copied and what that took; none for designs without one.
    pub policy: Option<PolicyWork>,
}

impl RunRecord {
    /// Whether its hardware or its policy is about contiguity.
    fn is_about_contiguity(&self) -> bool {
        OF_CONTIGUITY.iter().any(|name| self.stats.get(name).is_some())
            || self.stats.integer("policy.relocated") > 0
    }

    /// Seconds of its time in which a thread waited for translations, in the mean over the cores.
    fn translation_seconds(&self) -> Option<f64> {
        Some(self.cycle_share("translation")? * self.seconds_simulated)
    }
}

impl Comparison {
    /// Both sides of contiguity for a run of this comparison; `None` where no run of its input has hardware or a policy for
    /// it, or where no time was simulated.
    pub fn contiguity_of(&self, run: &RunRecord) -> Option<Contiguity> {
        if !run.is_timed() || !self.runs_of(&run.input).any(RunRecord::is_about_contiguity) {
            return None;
        }
        let baseline = self.baseline_of(&run.input)?;
        let translation = run.translation_seconds()?;
        Some(Contiguity {
            translation_share: ratio(translation, run.seconds_simulated)?,
            saved_seconds: to_femtoseconds(baseline.translation_seconds()? - translation),
            net_seconds: to_femtoseconds(baseline.seconds_simulated - run.seconds_simulated),
            coverage_128: ["policy.own.coverage_128", "os.coverage_128"]
                .iter()
                .find_map(|name| run.stats.get(name))
                .map(|stat| stat.value.as_f64()),
            policy: run.policy_work(),
        })
    }
}

/// Seconds without what lies below a femtosecond: no clock here is finer, and equal times differ by nothing, not by -0.
fn to_femtoseconds(seconds: f64) -> f64 {
    (seconds * 1e15).round() / 1e15 + 0.0
}

#[cfg(test)]
mod tests {
    use super::to_femtoseconds;
    use crate::test_data;

    #[test]
    fn gain_and_cost_by_hand() {
        let comparison = test_data::contiguity();
        let of = |at: usize| comparison.contiguity_of(&comparison.runs[at]).unwrap();
        // 1000 cycles of 1 us, 500 of them translation; 800 cycles, 200 of them.
        let [base, ranger] = [of(0), of(1)];
        assert_eq!((base.saved_seconds, base.net_seconds, base.policy), (0.0, 0.0, None));
        assert!((ranger.translation_share - 0.25).abs() < 1e-12);
        assert!((ranger.saved_seconds - 300e-6).abs() < 1e-12 && (ranger.net_seconds - 200e-6).abs() < 1e-12);
        assert!(to_femtoseconds(0.3 - (0.1 + 0.2)).is_sign_positive());
        assert_eq!(ranger.coverage_128, Some(0.75));
        assert_eq!(ranger.policy.unwrap().copied_bytes, 40_960);
    }

    #[test]
    fn runs_without_hardware_or_policy_for_it_say_nothing() {
        let comparison = test_data::comparison();
        assert!(comparison.runs.iter().all(|run| comparison.contiguity_of(run).is_none()));
    }
}
