//! Page sizes within one process.
//!
//! A process may arrange its own memory without any right that its user lacks: advise where huge pages shall be, join what
//! it has into huge pages, and look at its own page table. [`Promoter`] does so by a published policy, Trident, whose
//! source is the one that the simulator runs.
//!
//! What a program asks for itself: memory in pages of a size ([`memory`]), a pool that is zeroed ahead ([`pool`]), two
//! ranges that exchange what they hold without a copy ([`exchange`]), and virtual blocks ([`blocks`]).
//!
//! The preload library `libterrace.so` ([`crates/preload/arena`]) drives it for programs that know nothing of it.
//!
//! [`crates/preload/arena`]: https://github.com/terrace-memory/terrace/tree/main/crates/preload/arena

#![cfg(target_os = "linux")]

pub mod blocks;
pub mod exchange;
mod frames;
pub mod giant;
pub mod maps;
pub mod memory;
pub mod pages;
pub mod pool;
mod promoter;
pub mod resize;
pub mod store;
pub mod system;
pub mod tiers;
mod userfault;
mod world;

pub use promoter::{MISSING, Promoted, Promoter};
pub use world::OwnMemory;

/// Bytes of a base page.
pub const BASE: usize = 4096;
/// Bytes of a huge page.
pub const HUGE: usize = 2 << 20;

/// A lock for tests. A test holds it while it has a forked child, and so does a test that clones blocks, since a child maps
/// their files, too.
#[cfg(test)]
fn forks() -> std::sync::MutexGuard<'static, ()> {
    static FORKS: std::sync::Mutex<()> = std::sync::Mutex::new(());
    FORKS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
