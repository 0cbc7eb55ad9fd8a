//! The machine: cores, translation, caches, memory and operating system joined.
//!
//! | file | what |
//! |---|---|
//! | `build.rs` | the parts, and a machine made from a design |
//! | `site.rs` | where an access takes place: one core, what all share, who manages memory |
//! | `run.rs` | runs of accesses on one core |
//! | `hits.rs` | hits in a row |
//! | `access.rs` | one access |
//! | `steps.rs` | one access that is watched |
//! | `walk.rs` | page walks and the faults that they meet |
//! | `hypervisor.rs` | the operating system under a guest's |
//! | `virtual_machines.rs` | several virtual machines: what belongs to which |
//! | `exchange.rs` | the hypercall that exchanges pages of a guest's memory |
//! | `nested.rs` | walks in two dimensions, and EPT violations |
//! | `behind.rs` | what lies below the last-level cache |
//! | `changes.rs` | changes of page tables completed: stores, costs, and what cores drop |
//! | `probes.rs` | the same where hardware keeps translations coherent |
//! | `manager.rs` | what faults and walks ask and tell of a policy |
//! | `zeroing.rs` | what a page fault costs |
//! | `zero_lines.rs` | lines that the memory controller knows to be zero |
//! | `bench.rs` | what taking a page away costs, by itself |
//! | `tiers.rs` | the tiers in physical memory, their devices, and the links that requests cross |
//! | `hardware_cache.rs` | one tier as a cache of another |

mod access;
mod behind;
mod bench;
mod build;
mod changes;
mod exchange;
mod hardware_cache;
mod hits;
mod hypervisor;
mod manager;
mod memory_watch;
mod nested;
mod nested_tags;
mod probes;
mod ranges;
mod run;
mod site;
mod steps;
mod tiers;
mod transfers;
mod virtual_machines;
mod walk;
mod zero_lines;
mod zeroing;

pub use bench::{ShootdownCall, shootdown_benchmark};
pub(crate) use build::{Machine, Shared};
pub(crate) use hypervisor::{StoppedAt, System};
pub(crate) use manager::{Manager, Trap};
pub(crate) use site::{FULL, Own, PAGES, Site, TRANSLATION};
pub(crate) use tiers::{TierLines, TieredMemory};
