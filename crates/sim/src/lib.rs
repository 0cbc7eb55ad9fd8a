//! The simulated machine: what would happen to a program if its memory were managed differently.
//!
//! [`simulate`] runs a [`design::Design`] on an event source and answers with a statistics tree.

mod array;
mod cache;
mod core;
pub mod design;
mod machine;
pub mod memory;
mod os;
mod translate;

pub use machine::{
    Fidelity, MemoryMap, MigrationRow, OpenPolicy, Options, Outcome, Part, PartCost, PartUse,
    PlacementColumn, PlacementMap, SimError, TierMap, migration_benchmark, simulate,
};
pub use os::{FaultBench, FrameRun, Holder, MemoryFigures, OrderFigures, RegionFigures, Snapshot};
