//! The shape of cores in a design file.

use serde::{Deserialize, Serialize};
use terrace_model::Frequency;

/// The kind of core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoreKind {
    /// Interval model of an out-of-order core.
    #[default]
    OutOfOrder,
    /// Every access completes before the next instruction issues.
    InOrder,
}

/// One core; all cores of a machine are equal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreParameters {
    /// Out of order or in order.
    pub kind: CoreKind,
    /// Number of hardware threads that run program threads at once.
    pub count: u32,
    /// Clock.
    pub frequency: Frequency,
    /// Instructions dispatched per cycle at most.
    pub dispatch_width: u32,
    /// Instructions in flight.
    pub reorder_buffer: u32,
    /// Stores retired but not yet in the cache.
    pub store_buffer: u32,
    /// Cycles per instruction when nothing misses; at least `1 / dispatch_width`.
    pub base_cpi: f64,
}
