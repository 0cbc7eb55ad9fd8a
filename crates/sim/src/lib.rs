//! The simulated machine: what would happen to a program if its memory were managed differently.
//!
//! [`simulate`] runs a [`design::Design`] on an event source and returns a statistics tree.

mod array;
mod cache;
mod coherence;
mod core;
pub mod design;
mod engine;
#[doc(hidden)]
pub mod fuzz;
mod gpu;
mod host;
mod machine;
pub mod memory;
mod observe;
mod os;
mod outcome;
mod probe;
mod tiering;
mod translate;
mod typed;
pub mod vbi;

pub use engine::simulate;
pub use machine::{ShootdownCall, shootdown_benchmark};
pub use os::{FaultBench, FrameRun, Holder, MemoryFigures, OrderFigures, RegionFigures, Snapshot};
pub use outcome::{
    AccessPath, AccessStep, Fidelity, MemoryMap, OpenPolicy, Options, Outcome, Part, PartCost, PartUse,
    PlacementColumn, PlacementMap, SimError, Stage, TierMap,
};
pub use probe::probe;
pub use tiering::{MigrationRow, migration_benchmark};
