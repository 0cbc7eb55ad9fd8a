//! The interface to the manager of memory while the programs run: what faults, walks and accesses ask and report.

use crate::os::{Fault, Leaf, Os, OsError};
use crate::translate::Placer;
use terrace_model::{PageSize, SpaceId, Time, VirtAddr};

/// What a trapped walk led to.
pub(crate) struct Trap {
    /// Time of the fault.
    pub cost: Time,
    /// The access goes on although the page stays trapped.
    pub goes_on: bool,
}

/// The side of a policy that the program's accesses meet.
pub(crate) trait Manager: Placer {
    /// A page fault: the policy says where the page shall lie. None where it waits for a block.
    ///
    /// # Errors
    /// The kernel failed.
    fn fault(
        &mut self,
        os: &mut Os,
        space: SpaceId,
        addr: VirtAddr,
        write: bool,
        now: Time,
    ) -> Result<Option<Fault>, OsError>;

    /// A walk met a page under watch.
    fn trap(
        &mut self,
        os: &mut Os,
        space: SpaceId,
        addr: VirtAddr,
        leaf: &Leaf,
        write: bool,
        now: Time,
    ) -> Trap;

    /// A walk ended at a page of `size`.
    fn walked(&mut self, space: SpaceId, addr: VirtAddr, size: PageSize);

    /// An access reached memory. Returns the time that a sample of it costs its core.
    fn reached_memory(&mut self, space: SpaceId, addr: VirtAddr, write: bool) -> Time;
}

/// The manager of memory, as far as new pages go.
pub(super) fn placer<'a>(manager: &'a mut Option<&mut dyn Manager>) -> Option<&'a mut dyn Placer> {
    manager.as_mut().map(|manager| &mut **manager as &mut dyn Placer)
}
