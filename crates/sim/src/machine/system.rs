//! Which of a machine's operating systems: one, or a guest's and the hypervisor's under it.

use terrace_model::SpaceId;

/// Which of a machine's operating systems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum System {
    /// The one that programs run on: a native machine's only one, in a virtual machine the guest's.
    #[default]
    Programs,
    /// The hypervisor's.
    Hypervisor,
}

/// A page that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoppedAt {
    /// The system whose page table maps the page.
    pub system: System,
    /// The page's space in that system.
    pub space: SpaceId,
    /// The number of the base page.
    pub vpn: u64,
}
