//! Tiering policies and the seam to the memory they manage.
//!
//! A [`Policy`] sees and changes memory through [`MemorySystem`] and nothing else, so one source runs in the simulator,
//! on live Linux, and in tests on [`InMemory`]. Each published policy is one file in `src/policies/`; a new file there
//! is a new policy, without a line elsewhere.
//!
//! Begin reading at [`Policy`] and [`MemorySystem`], then at the shortest policy, [`policies::first_touch`].

// Policies write `terrace_policy::…` as their tests and authors elsewhere do.
extern crate self as terrace_policy;

mod capability;
mod contiguity;
pub mod in_memory;
mod lap;
mod memory_system;
mod migration;
mod moment;
mod page;
mod physical;
mod policy;
mod profile;
pub mod registry;
mod report;
mod schemes;
mod signal;
pub mod support;
#[cfg(test)]
mod test_support;
mod topology;

pub use capability::{Capabilities, Capability, CapabilitySet, Lack, Needs, SignalKind, SignalSet};
pub use contiguity::{Contiguity, ContiguitySamples, Runs};
pub use in_memory::{Driver, InMemory};
pub use memory_system::{Clear, HugeSample, MemorySystem, PageCount, ScanHand, Scanned, Scope, Step, Watch};
pub use migration::{CopyBy, Cost, Exchange, HugePages, Move, MoveOptions, Outcome, Resize, Subject, Ticket};
pub use moment::Moment;
pub use page::{Area, AreaKind, Object, PageView};
pub use physical::{FrameRegion, FrameState, PhysicalMemory, Relocate, Watermarks};
pub use policy::{Fault, NextTick, Placement, Policy, Published, Refusal, Setup, Wish};
pub use profile::{AccessOrder, Heat, ObjectProfile, Profile};
pub use registry::{Entry, PolicyError, all, find};
pub use report::Report;
pub use schemes::Schemes;
pub use signal::{Agent, Signal};
pub use topology::{Initiator, Tier, TierTraffic, Topology};

// Words of the model that every policy uses.
pub use terrace_model::derive::{Choice, Parameters};
pub use terrace_model::parameters::ParameterInfo;
pub use terrace_model::{PageId, PageRange, Random, SpaceId};

include!(concat!(env!("OUT_DIR"), "/policies.rs"));

/// The example in CONTRIBUTING.md is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../CONTRIBUTING.md")]
pub struct Contributing;
