//! Designs: what is being compared. A machine plus the choices of its operating system and translation hardware.
//!
//! Machines and designs are TOML files; [`Library`] joins them into a [`Design`]. `docs/src/reference/designs.md` lists
//! every key.

pub mod claims;
mod contiguity;
mod embedded;
mod error;
mod library;
mod memory;
mod read;
mod scale;
mod schema;
mod tree;
mod validate;
mod weights;

pub use contiguity::{
    CoalescedLevels, CoalescedParameters, ContiguityParameters, RangeParameters, SegmentParameters,
    SpotParameters,
};
pub use error::{DesignError, Origin};
pub use library::{DEFAULT_MACHINE, FileKind, Library, Listed, Parameter, Resolved};
pub use memory::{Aging, FreeLists, LARGEST_ORDER, MemoryParameters};
pub use scale::LARGEST_SCALE;
pub use schema::*;

#[cfg(test)]
mod tests;
