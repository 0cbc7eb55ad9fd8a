//! Systems of the sources, sketched on the seam before it was frozen.
//!
//! Each sketch is the least that shows whether the system can be said through [`terrace_policy::MemorySystem`]. They
//! are no policies to use: those are in `src/policies/`. What each one asked of the seam stands in its first lines and
//! in `docs/decisions/0007-the-policy-seam.md`.

mod ambix;
mod annotated;
mod bw_aware;
mod gpu_migration;
mod hatric;
mod nimble;
mod ranger;
mod selective_caching;
#[path = "../support/open.rs"]
mod support;
mod thermostat;
mod trident;
mod trident_pv;
mod vbi;

use terrace_in_memory::InMemory;
use terrace_model::{Bytes, Time};

/// A fast and a slow tier of so many MiB.
fn two_tiers(fast: u64, slow: u64) -> InMemory {
    InMemory::new(&[("fast", Bytes::mib(fast)), ("slow", Bytes::mib(slow))])
}

fn millis(n: u64) -> Time {
    Time::from_nanos(n * 1_000_000)
}
