//! The arrays that caches, TLBs and directories are made of: sets of ways with a recency order.

mod divider;
mod full;
mod order;
mod sets;

pub use divider::Divider;
pub use full::FullyAssociative;
pub use order::{NARROW_MAX_WAYS, ORDER_MAX_WAYS, narrow, wide};
pub use sets::{NO_WAY, TagSets};
