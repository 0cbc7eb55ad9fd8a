//! The operating system: address spaces, demand paging, page sizes, placement over tiers.

mod address_space;
mod buddy;
mod page_table;
mod paging;
#[cfg(test)]
mod tests;

pub use address_space::Area;
use buddy::MAX_ORDER;
pub use page_table::{Leaf, PageTable, Pte};
pub use paging::{Fault, Os, OsError};
