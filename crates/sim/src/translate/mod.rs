//! Address translation: the hardware that schemes are made of, and the schemes.
//!
//! `scheme.rs` is the seam, `schemes/` has one file per scheme. The page walker itself stands in the machine
//! (`machine/walk.rs`), since a walk is made of accesses to its caches and memory.

mod co_tags;
mod kernel_state;
mod nested;
mod page_walk_cache;
mod parameters;
mod range_table;
mod scheme;
pub mod schemes;
mod tlb;
mod tlbs;

pub use kernel_state::{Backing, CountedBlock, Given, KernelState, Placer};
pub(crate) use nested::HOST;
pub use nested::{Nested, compose, host_table_bytes};
pub use page_walk_cache::PageWalkCache;
pub use parameters::*;
pub use range_table::{RangeTables, Run};
pub use scheme::*;
pub use tlb::TlbEntry;
pub use tlbs::{TlbCounters, TlbHit, Tlbs};

pub use crate::coherence::{
    ProbeSets, Probed, RangeStore, RangesFound, Resolution, Structure, Target, TlbSets,
};

/// What to say where physics does not let a scheme go together with something: the one sentence for it.
pub(crate) fn cannot_go_with(scheme: &str, with: &str, why: &str) -> String {
    format!("the translation scheme \"{scheme}\" cannot go with {with}: {why}")
}
