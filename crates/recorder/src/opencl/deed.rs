//! What the host does between kernels.

use terrace_model::AddressRange;

/// What the host did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Allocate(u64),
    Free(u64),
    Access {
        range: AddressRange,
        write: bool,
    },
    /// The host enqueued a kernel in this queue.
    Enqueue(u64),
    /// The host waited for this launch of those that overlap.
    Wait(u64),
}
