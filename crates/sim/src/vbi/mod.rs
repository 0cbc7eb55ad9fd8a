//! The Virtual Block Interface as a model that can be read: blocks, who may use them, and what their instructions do.
//! Nothing here takes time; the scheme `vbi` (`translate/schemes/vbi`) runs on it and adds caches, TLBs and memory.
//!
//! **Source.** Hajinazar, Patel, Patel, Kanellopoulos, Ghose, Ausavarungnirun, de Oliveira Junior, Appavoo, Seshadri,
//! Mutlu, "The Virtual Block Interface: A Flexible Alternative to the Conventional Virtual Memory Framework", ISCA 2020.
//!
//! | file | what |
//! |---|---|
//! | `address.rs` | size classes, block names, addresses, virtual machines (sections 4.1.1, 6.1) |
//! | `properties.rs` | flags and hints of a block (section 4.1.1) |
//! | `client.rs` | clients and their tables of blocks, CVTs (section 4.1.2) |
//! | `info.rs` | the tables of blocks, VITs (section 4.5.1) |
//! | `layer.rs` | what the instructions ask of the memory translation layer, MTL (section 4.5) |
//! | `instructions.rs` | the instructions (sections 4.1.2, 4.2, 4.4) |
//! | `system.rs` | the operating system: blocks for programs, exec, fork, libraries, files, exit (section 4.4) |
//! | `heap.rs` | `malloc` inside a block (section 4.2.1) |
//! | `contents.rs` | a layer that holds bytes and nothing else: what loads and stores mean |

mod address;
mod client;
mod contents;
mod heap;
mod info;
mod instructions;
mod layer;
mod properties;
mod system;
#[cfg(test)]
mod tests;

pub use address::{SizeClass, VbiAddress, Vbuid, VmId};
pub use client::{ClientId, ClientTable, Cvt, Index, Rights};
pub use contents::Contents;
pub use heap::Heap;
pub use info::{Info, InfoTables, MOST_NODES};
pub use instructions::Instructions;
pub use layer::MemoryLayer;
pub use properties::{Properties, Property};
pub use system::{Library, Section, System};

/// Why the interface refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VbiError {
    /// No size class is that large.
    #[error("{0} bytes: the largest virtual block has 128 TiB")]
    TooLarge(u64),
    /// Every block that would fit is in use.
    #[error("no virtual block of {} bytes or more is free in virtual machine {}", .0.bytes(), .1.number())]
    NoFreeBlock(SizeClass, VmId),
    /// A virtual machine's number beyond 31.
    #[error("virtual machine {0}: the address has five bits for it, so 31 is the last")]
    NoSuchVm(u32),
    /// All clients of a virtual machine exist already.
    #[error("virtual machine {} has no free client", .0.number())]
    NoFreeClient(VmId),
    /// The client does not exist.
    #[error("there is no client {}", .0.number())]
    NoSuchClient(ClientId),
    /// An index beyond the client's table, or of an entry that is not valid.
    #[error("index {} of the client's table points to no block", .0.0)]
    NoSuchIndex(Index),
    /// An offset beyond the block's end.
    #[error("offset {offset:#x} lies outside a block of {bytes:#x} bytes")]
    OutOfBounds {
        /// The offset.
        offset: u64,
        /// Size of the block.
        bytes: u64,
    },
    /// The client may not do that to the block.
    #[error("the client has no right to {0} the block")]
    NoRight(&'static str),
    /// The block is enabled already.
    #[error("block {0:?} is enabled already")]
    InUse(Vbuid),
    /// The block is not enabled.
    #[error("block {0:?} is not enabled")]
    NotEnabled(Vbuid),
    /// The block is attached to clients still.
    #[error("block {0:?} has {1} clients still")]
    StillAttached(Vbuid, u32),
    /// The block is not in the client's table.
    #[error("block {0:?} is not attached to the client")]
    NotAttached(Vbuid),
    /// A clone has the size of its source, and a promoted block is larger.
    #[error("block {0:?} has not the size that block {1:?} needs")]
    WrongSize(Vbuid, Vbuid),
    /// No room is left inside a block.
    #[error("no room for {0} bytes inside the block")]
    Full(u64),
    /// Nothing was allocated there.
    #[error("nothing is allocated at offset {0:#x} of the block")]
    NotAllocated(u64),
}
