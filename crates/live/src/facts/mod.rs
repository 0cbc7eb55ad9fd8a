//! What this machine and its kernel offer, found out without changing anything.

pub mod nodes;
pub mod swap;
pub mod text;
pub mod tiers;

pub use nodes::{Node, Speed};
pub use swap::{Swap, SwapArea};
pub use tiers::{TierMap, ToldBy};
