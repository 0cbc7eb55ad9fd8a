//! Measures the machine it runs on: page faults, zeroing, latencies and bandwidths of caches and of each node's memory,
//! misses and page walks in flight, TLBs, prefetching, TLB shootdowns, moves between nodes, compression. The result is a
//! machine preset ([`preset`]) in which each value states its spread.
//!
//! Everything is measured from inside a process, without performance counters and without privileges. Memory is bounded
//! ([`Budget`]), no setting of the system changes, and nothing is left behind. What cannot be measured this way is taken
//! from the nearest preset, and the preset says so. [`native`] runs a program on base and on huge pages and measures it.

mod analysis;
mod bandwidth;
mod budget;
mod calls;
mod chase;
mod clock;
mod compression;
mod date;
mod faults;
mod frequency;
mod measure;
mod moves;
pub mod native;
mod nodes;
mod prefetch;
pub mod preset;
mod processor;
mod region;
mod shootdown;
mod spread;
mod translation;

pub use analysis::{FaultCosts, Step, Tlbs, split_faults, steps, tlbs};
pub use budget::Budget;
pub use calls::{Call, Calls, Effort, Point, measure_calls};
pub use date::today;
pub use measure::{Error, Measured, measure};
pub use processor::Processor;
pub use spread::Spread;
