//! The arrays that caches, TLBs and directories are made of: sets of ways with a recency order.

mod divider;
mod full;
mod order;
mod sets;

pub use divider::Divider;
pub use full::FullyAssociative;
pub use order::{ORDER_MAX_WAYS, order_find_victim, order_initial, order_move_to_back, order_touch};
pub use sets::{NO_WAY, TagSets};
