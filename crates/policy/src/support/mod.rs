//! What several policies share: state per page, orders under way, traffic per period, compaction.

mod bloat;
mod clock_pro;
mod collapse;
mod compaction;
mod contiguity_sampler;
mod fault_compaction;
mod khugepaged;
mod large_pages;
mod lru;
mod marker;
mod page_map;
mod pending;
mod promoter;
mod rates;
mod reclaim;
mod spread;
mod straddling;
mod two_list;
mod zeroing;

pub use bloat::{BloatRecovery, Marks};
pub use clock_pro::ClockPro;
pub use collapse::{Candidate, Collapsed, Collapser};
pub use compaction::{Compaction, Compactor, Progress, SmartLimits, Unmovable, Work};
pub use contiguity_sampler::ContiguitySampler;
pub use fault_compaction::{Defrag, FaultCompaction};
pub use khugepaged::{Khugepaged, Pace};
pub use large_pages::{
    FaultSizes, LargePages, Tries, fragmentation, is_private, largest_first, takes_large_pages,
};
pub use lru::Lru;
pub use marker::Marker;
pub use page_map::PageMap;
pub use pending::Pending;
pub use promoter::Promoter;
pub use rates::Rates;
pub use reclaim::Cascade;
pub use spread::{Order, Spread, whole_weights};
pub use straddling::Straddling;
pub use two_list::{List, TwoLists};
pub use zeroing::Zeroing;
