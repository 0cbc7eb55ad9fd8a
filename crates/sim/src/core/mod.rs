//! Cores: how long a stream of accesses takes, and what it waited for.

mod interval;
mod parameters;

pub use interval::{Blame, Interval, Timeline};
pub use parameters::{CoreKind, CoreParameters};
