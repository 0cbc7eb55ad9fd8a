//! The simulated machine as a whole, one file per subject.
//!
//! They are one program, since each program is compiled and linked for itself.

mod address_spaces;
mod caches;
mod coherence;
mod conservation;
mod contiguity;
mod cores;
mod determinism;
mod events;
mod fault_compaction;
mod faults;
mod fidelity;
mod frames;
mod kernel_threads;
mod mix;
mod page_sizes;
mod placement;
mod requests;
mod schemes;
mod sharing_and_order;
mod slowdown;
mod tiering;
mod timing;
mod translation;
mod vbi;
mod vbi_nodes;
mod vbi_swap;
mod vbi_tiers;
mod watched_access;

#[path = "../memory_support/devices.rs"]
mod devices;
#[path = "../machine_support/mod.rs"]
mod support;
