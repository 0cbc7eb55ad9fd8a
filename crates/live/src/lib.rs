//! Policies at work on real processes, with the Linux kernel's own mechanisms.
//!
//! The same [`terrace_policy::Policy`] that runs in the simulator runs here: this crate implements
//! [`terrace_policy::MemorySystem`] for live Linux. Nothing here ever harms a target: what cannot be done is reported,
//! and what was changed is put back.

pub mod access;
pub mod bounds;
pub mod contiguity;
pub mod control;
pub mod doctor;
pub mod engine;
pub mod facts;
mod fault_cost;
pub mod folder;
pub mod help;
pub mod journal;
pub mod kernel;
pub mod launch;
pub mod map;
pub mod measure;
pub mod metrics;
pub mod placement;
pub mod server;
pub mod session;
pub mod space;
pub mod status;
pub mod structures;
pub mod systemd;
pub mod targets;
pub mod world;

/// Entry functions of the fuzz targets: each takes any bytes and panics where a promise about bad input is broken.
#[doc(hidden)]
pub mod fuzz {
    pub use crate::journal::fuzz as journal;
    pub use crate::server::fuzz::request;
}
