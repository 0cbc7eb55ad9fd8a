//! What several policies share: state per page, orders under way, traffic per period, compaction.

mod compaction;
mod lru;
mod page_map;
mod pending;
mod promoter;
mod rates;
mod reclaim;
mod two_list;

pub use compaction::{Compaction, Compactor, Progress, Work};
pub use lru::Lru;
pub use page_map::PageMap;
pub use pending::Pending;
pub use promoter::Promoter;
pub use rates::Rates;
pub use reclaim::{Reclaim, Watermarks};
pub use two_list::{List, TwoLists};
