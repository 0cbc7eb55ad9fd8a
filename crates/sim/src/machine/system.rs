//! Which of a machine's operating systems: one, or a guest's and the hypervisor's under it.

use terrace_model::PageId;

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
    /// The base page, in a space of that system.
    pub page: PageId,
}
