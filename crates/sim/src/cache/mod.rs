//! Caches: one level, and the hierarchy of private levels under a shared last level with its directory.

mod directory;
mod hierarchy;
mod level;
mod outstanding;
mod parameters;
mod prefetcher;
mod registers;
mod seen;
mod sharers;

pub use hierarchy::{Below, CacheCounters, Hierarchy, Message, Reason, Served};
pub use outstanding::Outstanding;
pub use parameters::*;
pub use registers::MissRegisters;
#[cfg(test)]
pub use sharers::MAX_CORES;
