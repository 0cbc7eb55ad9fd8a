//! The page that was used in the fewest periods goes first.
//!
//! **Idea.** A counter per page grows by one in each period in which the page was used. It never shrinks.
//!
//! **Source.** A textbook algorithm, "not frequently used"; M. Marques, "Ambix" (IST Lisboa 2021), §2.1.3.
//!
//! **Left open by the source.** *What is counted*: periods in which the accessed bit was set.

use super::super::least_used::{Count, LeastUsed};

/// The algorithm.
pub type Nfu = LeastUsed<Growing>;

/// The counter grows by one with each period of use.
#[derive(Debug)]
pub struct Growing;

impl Count for Growing {
    fn next(counter: u32, accessed: bool) -> u32 {
        counter + u32::from(accessed)
    }
}
