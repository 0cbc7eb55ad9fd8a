//! The machine: cores, translation, caches, memory and operating system joined.
//!
//! | file | what |
//! |---|---|
//! | `parts.rs` | the parts: a core, what all cores share, the whole |
//! | `build.rs` | a machine made from a design |
//! | `site.rs` | where an access takes place: one core, what all share, who manages memory |
//! | `run.rs` | runs of accesses on one core |
//! | `columns.rs` | what these loops read of a batch |
//! | `hits.rs` | hits in a row |
//! | `access.rs` | one access |
//! | `steps.rs` | one access that is watched |
//! | `walk.rs` | page walks and the faults that they meet |
//! | `system.rs` | which of a machine's operating systems |
//! | `hypervisor.rs` | the operating system under a guest's |
//! | `virtual_machines.rs` | several virtual machines: what belongs to which |
//! | `exchange.rs` | the hypercall that exchanges pages of a guest's memory |
//! | `nested.rs` | walks in two dimensions, and EPT violations |
//! | `nested_tags.rs` | co-tags of what these walks fill |
//! | `behind.rs` | what lies below the last-level cache |
//! | `changes.rs` | changes of page tables completed: stores, costs, and what cores drop |
//! | `pending.rs` | what cores have to drop before they run again |
//! | `probes.rs` | the same where hardware keeps translations coherent |
//! | `ranges.rs` | stores to page tables that reach range TLBs |
//! | `manager.rs` | what faults and walks ask of a policy and report to it |
//! | `timing.rs` | latencies of a design as times |
//! | `zeroing.rs` | what a page fault costs |
//! | `zero_lines.rs` | lines that the memory controller knows to be zero |
//! | `bench.rs` | what taking a page away costs, by itself |
//! | `tiers.rs` | the tiers in physical memory, their devices, and the links that requests cross |
//! | `transfers.rs` | lines that move between tiers of one device |
//! | `memory_watch.rs` | what tiers and their link carry over time |
//! | `hardware_cache.rs` | one tier as a cache of another |

mod access;
mod behind;
mod bench;
mod build;
mod changes;
mod columns;
mod exchange;
mod hardware_cache;
mod hits;
mod hypervisor;
mod manager;
mod memory_watch;
mod nested;
mod nested_tags;
mod parts;
mod pending;
mod probes;
mod ranges;
mod run;
mod site;
mod steps;
mod system;
mod tiers;
mod timing;
mod transfers;
mod virtual_machines;
mod walk;
mod zero_lines;
mod zeroing;

pub use bench::{ShootdownCall, shootdown_benchmark};
pub(crate) use manager::{Manager, Trap};
pub(crate) use parts::{Machine, Shared};
pub(crate) use site::{FULL, Own, PAGES, Site, TRANSLATION};
pub(crate) use system::{StoppedAt, System};
pub(crate) use tiers::{TierLines, TieredMemory};
