//! A thread of the CPU, and what it accesses.

use crate::cache::Outstanding;
use terrace_model::{CoreId, PageId, SpaceId, Time, VirtAddr};
use terrace_trace::{AccessKind, Batch};

/// A thread, or all of them where they take turns with kernels.
#[derive(Debug)]
pub(super) struct HostThread {
    pub core: CoreId,
    /// When it does what comes next.
    pub now: Time,
    /// The thread's loads and stores under way.
    pub loads: Outstanding,
}

impl HostThread {
    /// A thread that has nothing under way.
    pub fn new(core: CoreId, now: Time, outstanding: u32) -> HostThread {
        HostThread { core, now, loads: Outstanding::new(outstanding) }
    }
}

/// A load or a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostAccess {
    pub addr: VirtAddr,
    pub bytes: u8,
    pub write: bool,
    pub instructions: u16,
}

impl HostAccess {
    pub fn of(batch: &Batch, at: usize) -> HostAccess {
        HostAccess {
            addr: VirtAddr(batch.addr[at]),
            bytes: batch.size[at],
            write: batch.kind[at] == AccessKind::Write,
            instructions: batch.instructions[at],
        }
    }

    /// The access's first and its last page.
    pub fn pages(&self, space: SpaceId) -> [PageId; 2] {
        [self.addr, self.addr + u64::from(self.bytes.max(1)) - 1].map(|addr| PageId::of(space, addr))
    }
}
