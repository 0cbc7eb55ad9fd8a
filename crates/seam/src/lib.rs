//! The seam between a policy and the memory that it manages.
//!
//! A [`Policy`] sees and changes memory through [`MemorySystem`] and nothing else, so one source runs in the simulator, on
//! live Linux, and in tests on a test double. All three depend on this crate, and only on it; policies are in
//! `terrace-policy`.
//!
//! Begin reading at [`Policy`] and [`MemorySystem`].

mod capability;
mod contiguity;
mod lap;
mod memory_system;
mod migration;
mod moment;
mod page;
mod physical;
mod policy;
mod profile;
mod report;
mod schemes;
mod signal;
mod topology;

pub use capability::{Capabilities, Capability, CapabilitySet, Lack, Needs, SignalKind, SignalSet};
pub use contiguity::{Contiguity, ContiguitySamples, Runs};
pub use memory_system::{Clear, HugeSample, MemorySystem, PageCount, ScanHand, Scanned, Scope, Step, Watch};
pub use migration::{CopyBy, Cost, Exchange, HugePages, Move, MoveOptions, Outcome, Resize, Subject, Ticket};
pub use moment::Moment;
pub use page::{Area, AreaKind, Block, Object, PageView};
pub use physical::{FrameRegion, FrameState, PhysicalMemory, Relocate, Watermarks};
pub use policy::{Fault, NextTick, Placement, Policy, Published, Refusal, Setup, Wish};
pub use profile::{AccessOrder, Heat, Hint, HintedPages, ObjectProfile, Profile, site_number};
pub use report::Report;
pub use schemes::Schemes;
pub use signal::Signal;
pub use topology::{Tier, Topology};

// Words of the model that every policy uses.
pub use terrace_model::{Agent, Initiator, PageId, PageRange, Random, SpaceId, TierTraffic};
