//! Translations that cores have to drop before they run again.

use super::system::System;
use crate::coherence::Bill;
use crate::os::StalePages;
use terrace_model::{CoreId, SpaceId, Time};

/// Translations that cores have to drop before they run again.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The system whose page table changed: for the hypervisor's, the spaces are its own.
    pub(super) system: System,
    pub(super) stale: Vec<StalePages>,
    pub(super) spaces: Vec<SpaceId>,
    pub(super) bill: Bill,
    /// Page-walk caches have to be dropped.
    pub(super) reshaped: bool,
    /// Cores that are interrupted.
    pub(super) targets: Vec<CoreId>,
    /// The core that has dropped them already.
    pub(super) done: Option<CoreId>,
}

impl Pending {
    /// How long a core is held up.
    pub(super) fn holds_up(&self, core: CoreId) -> Time {
        self.bill.interrupt.filter(|_| self.targets.contains(&core)).unwrap_or_default()
    }
}
