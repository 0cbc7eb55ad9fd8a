//! The machine: cores, translation, caches, memory and operating system joined by one time-ordered engine.

mod access;
mod build;
mod collect;
mod contiguity_samples;
mod contiguous;
mod engine;
mod intermediate;
mod look_ahead;
mod memory_map;
mod parts;
mod placement_map;
mod profile;
mod regions;
mod requests;
mod run;
mod streams;
mod tiering;
mod tiers;

pub use engine::{Fidelity, Options, Outcome, SimError, simulate};
pub use memory_map::{MemoryMap, TierMap};
pub use parts::{Part, PartCost, PartUse};
pub use placement_map::{PlacementColumn, PlacementMap};
pub use tiering::{MigrationRow, OpenPolicy, migration_benchmark};
