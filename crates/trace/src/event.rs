//! The event vocabulary: the only thing a program is.

use serde::{Deserialize, Serialize};
use terrace_model::AddressRange;
pub use terrace_model::AgentKind as Agent;

/// A stream of events: one thread (or GPU agent) of one process, numbered densely from 0 within a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StreamId(pub u32);

impl StreamId {
    /// As an index into per-stream tables.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What an access does to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum AccessKind {
    /// A load.
    #[default]
    Read = 0,
    /// A store.
    Write = 1,
}

/// Page protection: what the mapping allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Protection {
    /// Loads allowed.
    pub read: bool,
    /// Stores allowed.
    pub write: bool,
    /// Instruction fetch allowed.
    pub execute: bool,
}

impl Protection {
    /// Loads and stores.
    pub const READ_WRITE: Protection = Protection { read: true, write: true, execute: false };
    /// Loads only.
    pub const READ: Protection = Protection { read: true, write: false, execute: false };

    /// From the bits of `mmap(2)`: 1 read, 2 write, 4 execute.
    pub const fn from_bits(bits: u8) -> Protection {
        Protection { read: bits & 1 != 0, write: bits & 2 != 0, execute: bits & 4 != 0 }
    }

    /// To the bits of `mmap(2)`.
    pub const fn bits(self) -> u8 {
        self.read as u8 | (self.write as u8) << 1 | (self.execute as u8) << 2
    }
}

/// What backs a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MapKind {
    /// Private anonymous memory.
    #[default]
    Anonymous,
    /// Anonymous memory shared with children, or shared memory.
    SharedAnonymous,
    /// A private file mapping: the binary, its libraries, a mapped file.
    PrivateFile,
    /// A shared file mapping.
    SharedFile,
    /// The heap grown by `brk`.
    Heap,
    /// A thread's or the process's stack.
    Stack,
    /// hugetlbfs-backed memory the program itself asked for (`MAP_HUGETLB`).
    HugeTlb,
}

/// The `madvise(2)` advice that matters to memory management.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Advice {
    /// `MADV_DONTNEED`: the pages are dropped and read as zero (or from the file) next time.
    DontNeed,
    /// `MADV_FREE`: the pages may be dropped.
    Free,
    /// `MADV_HUGEPAGE`.
    HugePage,
    /// `MADV_NOHUGEPAGE`.
    NoHugePage,
    /// `MADV_WILLNEED` or `MADV_POPULATE_*`.
    WillNeed,
    /// `MADV_COLD`.
    Cold,
    /// `MADV_PAGEOUT`.
    PageOut,
    /// `MADV_COLLAPSE`.
    Collapse,
    /// Any other value, as the program passed it.
    Other(i32),
}

impl Advice {
    /// From the value passed to `madvise(2)` on Linux.
    pub const fn from_raw(advice: i32) -> Advice {
        match advice {
            4 => Advice::DontNeed,
            8 => Advice::Free,
            14 => Advice::HugePage,
            15 => Advice::NoHugePage,
            3 | 22 | 23 => Advice::WillNeed,
            20 => Advice::Cold,
            21 => Advice::PageOut,
            25 => Advice::Collapse,
            other => Advice::Other(other),
        }
    }
}

/// Which way the kernel copied the bytes of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KernelAccess {
    /// The kernel read the program's bytes (`write`, `send`).
    Read,
    /// The kernel wrote the program's bytes (`read`, `recv`).
    Write,
}

/// What a mark marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MarkKind {
    /// A region of interest begins.
    RegionBegin,
    /// A region of interest ends.
    RegionEnd,
    /// A named phase begins; the previous one ends.
    Phase,
    /// A request begins or ends (for latency distributions).
    RequestBegin,
    /// See [`MarkKind::RequestBegin`].
    RequestEnd,
    /// A kernel launch on a GPU; `value` is its number of work-groups, which follow on the same stream.
    KernelLaunch,
    /// Accesses were left out here (`--skip`, `--every`); `value` of the mark says how many.
    Gap,
    /// The thread has come to a barrier: what follows it on every thread comes after all of its marks.
    Barrier,
    /// On a GPU's stream: a work-group of `value` work-items begins.
    WorkGroup,
    /// On a GPU's stream: what follows is done by warp `value` of the work-group. An access that brings no instructions
    /// belongs to the same instruction of the warp as the access before it.
    Warp,
    /// On a GPU's stream: all warps of the work-group wait for each other here.
    GroupBarrier,
    /// On a CPU's stream: the thread enqueues a kernel and goes on. The kernel is the first of the process whose
    /// [`KernelLaunch`](MarkKind::KernelLaunch) has yet to come; one that nobody enqueued begins when all CPU threads have
    /// come to it, and they wait until it is over.
    KernelEnqueue,
    /// On a CPU's stream: the thread waits until the process's kernels are over that were enqueued so far, but for the
    /// latest `value` of them. All work of the kernels that it waits for comes before the wait in the order of the input.
    KernelWait,
    /// So many clients as `value` says wait in turn for the thread's answers from here on, each with one request under way.
    Clients,
    /// The thread is about to let others go on that may wait for it: by a futex, a pipe, a socket, a signal, or by its end.
    /// What they do then comes after this mark ([`Batch::after`](crate::Batch::after)).
    Wake,
}

/// Everything a program does to its memory except single loads and stores, which live in a [`Batch`]'s columns.
///
/// [`Batch`]: crate::Batch
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// Addresses become valid, replacing what was mapped there.
    Map {
        /// Whole base pages.
        range: AddressRange,
        /// What backs them.
        kind: MapKind,
        /// What is allowed.
        protection: Protection,
        /// The file's name, `[stack]`, `[heap]`; empty where there is none.
        name: String,
    },
    /// Addresses become invalid.
    Unmap {
        /// Whole base pages; parts that are not mapped are ignored, as `munmap(2)` does.
        range: AddressRange,
    },
    /// `mremap(2)`: the mapping of `from` now lies at `to`. Contents move; a longer `to` grows the mapping.
    Remap {
        /// The old place.
        from: AddressRange,
        /// The new place, possibly the same start.
        to: AddressRange,
    },
    /// `mprotect(2)`.
    Protect {
        /// Whole base pages.
        range: AddressRange,
        /// What is allowed from now on.
        protection: Protection,
    },
    /// `madvise(2)`.
    Advise {
        /// Whole base pages.
        range: AddressRange,
        /// The advice.
        advice: Advice,
    },
    /// A data structure was allocated.
    Alloc {
        /// Identifies the object until its `Free`; unique within the process for the whole trace.
        object: u64,
        /// Number of the call site, named by an earlier [`Event::Site`].
        site: u32,
        /// Where it lies.
        range: AddressRange,
    },
    /// An object was resized, possibly moved.
    Realloc {
        /// The object, which keeps its identity.
        object: u64,
        /// Where it lies now.
        range: AddressRange,
    },
    /// An object was freed.
    Free {
        /// The object.
        object: u64,
    },
    /// Names an allocation site; comes before its first use.
    Site {
        /// The number used by `Alloc`.
        site: u32,
        /// Symbol, or module and offset, of the call site.
        name: String,
    },
    /// Bytes that a system call copied: the kernel touched them on the thread's behalf.
    Kernel {
        /// The program's buffer.
        range: AddressRange,
        /// Direction.
        kind: KernelAccess,
    },
    /// Pages that were already touched before the recorded region began.
    Resident {
        /// First page, base-page aligned.
        start: u64,
        /// Bit `i % 64` of word `i / 64`: the base page `start + 4096 * i` is resident.
        bitmap: Vec<u64>,
    },
    /// This stream begins. First event of every stream.
    Spawn {
        /// Process number within the trace, dense from 0.
        process: u32,
        /// Thread number within the process, dense from 0.
        thread: u32,
        /// The agent that runs the stream.
        agent: Agent,
        /// For the first thread of a forked process: the stream that forked. Its address space is copied on write.
        forked_from: Option<StreamId>,
        /// The operating system's own thread id, for display.
        os_id: u32,
        /// The program that runs in it, for display; empty where the parent's goes on.
        name: String,
    },
    /// This stream ends.
    Exit {
        /// The whole process ends with it: its address space disappears.
        process_ends: bool,
    },
    /// The process replaced its program (`execve`): its old address space is gone.
    Exec {
        /// The new program.
        name: String,
    },
    /// The thread was idle in the kernel (futex, epoll, sleep).
    Wait {
        /// How long it took in the recorded run, in nanoseconds.
        nanos: u64,
    },
    /// Instructions beyond what the next access's column can hold (more than 65,535 since the last event).
    Compute {
        /// Instructions retired.
        instructions: u64,
    },
    /// A region, phase, request or gap.
    Mark {
        /// What is marked.
        kind: MarkKind,
        /// The mark's name, which may be empty.
        name: String,
        /// A number whose meaning depends on `kind` (accesses left out at a `Gap`, request id); 0 otherwise.
        value: u64,
    },
}

impl Event {
    /// Whether the event changes an address space or the set of streams, and so carries a global order.
    pub const fn is_global(&self) -> bool {
        matches!(
            self,
            Event::Map { .. }
                | Event::Unmap { .. }
                | Event::Remap { .. }
                | Event::Protect { .. }
                | Event::Advise { .. }
                | Event::Alloc { .. }
                | Event::Realloc { .. }
                | Event::Free { .. }
                | Event::Resident { .. }
                | Event::Spawn { .. }
                | Event::Exit { .. }
                | Event::Exec { .. }
                | Event::Mark {
                    kind: MarkKind::RegionBegin | MarkKind::RegionEnd | MarkKind::Barrier | MarkKind::Wake,
                    ..
                }
        )
    }
}

/// An event at its place in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequencedEvent {
    /// The event comes before the access with this index in the batch (the batch's length: after all accesses).
    pub before: u32,
    /// Position in the global order of the trace's address-space and lifetime events, counted from 1.
    /// 0 for events without one ([`Event::is_global`]).
    pub sequence: u64,
    /// What happened.
    pub event: Event,
}
