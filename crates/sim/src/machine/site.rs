//! Where an access takes place: one core, what all cores share, and who manages memory.

use super::manager::Manager;
use super::parts::{Core, Shared};
use crate::translate::Translation;
use terrace_model::{CoreId, Time};

/// Everything.
pub(crate) const FULL: u8 = 0;
/// TLBs, page-walk cache and walks; no data caches.
pub(crate) const TRANSLATION: u8 = 1;
/// Residency and unfiltered traffic.
pub(crate) const PAGES: u8 = 2;

/// One core among the others, at a fidelity.
pub(crate) struct Site<'a, const F: u8> {
    /// The core's number.
    pub id: CoreId,
    pub core: &'a mut Core,
    pub shared: &'a mut Shared,
    /// The manager of memory, if there is one.
    pub manager: Option<&'a mut dyn Manager>,
    /// The manager of the hypervisor's memory, if there is one.
    pub host_manager: Option<&'a mut dyn Manager>,
}

/// What one core and the kernel have of a translation scheme.
pub(crate) struct Own<'a, T: Translation> {
    pub scheme: &'a mut T,
    pub kernel: &'a mut T::Kernel,
}

/// What a change came to for whoever made it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Completed {
    /// Translations were dropped.
    pub shootdown: bool,
    /// Whoever made the change waits so long.
    pub waits: Time,
    /// Cores that were interrupted.
    pub targets: u64,
    /// How long each of them was held up; none where no core was interrupted.
    pub interrupt: Option<Time>,
}
