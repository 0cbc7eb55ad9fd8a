//! What of a program becomes a block, and the pieces of its address space that follow from it.

use crate::vbi::{Index, Rights};
use serde::{Deserialize, Serialize};
use terrace_model::VirtAddr;
use terrace_model::parameters::Choice;

/// What becomes a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum Gather {
    /// Each large allocation, and each mapped area for what else lies in it.
    #[default]
    Allocation,
    /// The same, with all large allocations of a call site in one block.
    Site,
    /// The same, with all large allocations of a size class in one block.
    Pool,
    /// Each mapped area.
    Area,
}

/// Consecutive addresses that lie in one block in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub end: VirtAddr,
    pub block: u32,
    /// Where its first address lies.
    pub offset: u64,
    pub index: Index,
    pub rights: Rights,
}
