//! What is left to be read and written of a structure that was replaced.

use terrace_model::PhysAddr;

/// What the controller reads and writes because a block's structure was replaced, and did not yet.
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    pub reads: Vec<PhysAddr>,
    pub writes: Vec<PhysAddr>,
}
