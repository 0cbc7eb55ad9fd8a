//! A way of using large pages, before it runs.

use crate::designs::Job;

/// A way, ready to run.
pub(super) struct Way {
    /// As the table calls it; the design of its run has this name.
    pub name: String,
    /// How an operator would say it.
    pub meaning: &'static str,
    /// The design by its own name.
    pub design: String,
    /// The way without the other TLB.
    pub plain: String,
    /// The TLB, where it is not the machine's.
    pub tlb: Option<String>,
    pub job: Job,
}
