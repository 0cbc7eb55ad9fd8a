//! One simulation that a claim needs.

use serde::Serialize;
use std::fmt;

/// One simulation that a claim needs. Equal keys are equal runs, so claims can share them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct RunKey {
    /// Machine's name.
    pub machine: String,
    /// Design's name.
    pub design: String,
    /// Workload with its parameters, sizes already divided by `scale`; or [`super::MIGRATION`].
    pub workload: String,
    /// `--set` options, in order.
    pub sets: Vec<(String, String)>,
    /// Divisor of the machine's capacities.
    pub scale: u32,
    /// `full`, `translation` or `pages`.
    pub fidelity: String,
    /// The whole input counts, and not only its region of interest.
    pub whole: bool,
    /// Before the region of interest only the operating system is simulated.
    pub fast_forward: bool,
    /// Workload that the policy's first pass looks at; empty for `workload`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub train: String,
}

/// A run that is trained on its own input is written as before there was another: verdicts are told apart by this text.
impl fmt::Debug for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("RunKey");
        text.field("machine", &self.machine)
            .field("design", &self.design)
            .field("workload", &self.workload)
            .field("sets", &self.sets)
            .field("scale", &self.scale)
            .field("fidelity", &self.fidelity)
            .field("whole", &self.whole)
            .field("fast_forward", &self.fast_forward);
        if !self.train.is_empty() {
            text.field("train", &self.train);
        }
        text.finish()
    }
}
