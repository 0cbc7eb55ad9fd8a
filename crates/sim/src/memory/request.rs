//! What memory is asked for.

use super::Initiator;
use terrace_model::{Line, NodeId, Time};

/// A line to be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRequest {
    /// The line.
    pub line: Line,
    /// When it was sent.
    pub at: Time,
    /// On whose behalf.
    pub by: Initiator,
    /// The node that it comes from: it crosses the link in front of memory of another one.
    pub from: NodeId,
}

impl MemoryRequest {
    /// A request of the cores, of their caches, or of the kernel that runs on them.
    #[inline(always)]
    pub const fn of_cpu(line: Line, at: Time, by: Initiator) -> MemoryRequest {
        MemoryRequest { line, at, by, from: NodeId::CPU }
    }

    /// A request of the GPU.
    #[inline(always)]
    pub const fn of_gpu(line: Line, at: Time, by: Initiator) -> MemoryRequest {
        MemoryRequest { line, at, by, from: NodeId::GPU }
    }

    /// This request for another line.
    #[inline(always)]
    pub const fn for_line(self, line: Line) -> MemoryRequest {
        MemoryRequest { line, ..self }
    }

    /// This request at another time.
    #[inline(always)]
    pub const fn sent_at(self, at: Time) -> MemoryRequest {
        MemoryRequest { at, ..self }
    }

    /// This request on another's behalf.
    #[inline(always)]
    pub const fn on_behalf_of(self, by: Initiator) -> MemoryRequest {
        MemoryRequest { by, ..self }
    }
}
