//! Cores: how long a stream of accesses takes, and what it waited for.

mod interval;

pub use interval::{Blame, Interval, Timeline};
