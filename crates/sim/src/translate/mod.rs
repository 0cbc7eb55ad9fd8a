//! Translation hardware: TLBs, the page-walk cache and the walker.

mod contiguity;
mod nested;
mod page_walk_cache;
mod tlb;
mod tlbs;

pub use contiguity::{
    Contiguity, ContiguityKind, PageRun, Prediction, RangeTables, SegmentChoices, base_pages,
};
pub use nested::{Nested, host_table_bytes};
pub use page_walk_cache::PageWalkCache;
pub use tlb::TlbEntry;
pub use tlbs::{TlbCounters, TlbHit, Tlbs};
