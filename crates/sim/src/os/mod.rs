//! The operating system: address spaces, demand paging, page sizes, placement over tiers.

mod address_space;
mod audit;
mod bench;
mod changes;
mod counters;
mod entry;
mod events;
mod faults;
mod full;
mod memory;
mod page_table;
mod pages;
mod paging;
mod parameters;
mod stores;
#[cfg(test)]
mod tests;

pub use address_space::{AddressSpace, Area};
pub use bench::FaultBench;
pub use changes::{Changes, StalePages};
pub use entry::{Leaf, Pte};
pub use full::MemoryOf;
pub use memory::{
    Aging, FrameRun, FreeLists, Holder, LARGEST_ORDER, MemoryFigures, MemoryParameters, OrderFigures, Owner,
    RegionFigures, Snapshot,
};
pub use page_table::PageTable;
pub use pages::Mappers;
pub use paging::{Fault, Os, OsError};
pub use parameters::{
    KernelCosts, KernelData, KernelThreads, OsParameters, PagePolicy, Placement, PolicyParameters, ZeroStores,
};
