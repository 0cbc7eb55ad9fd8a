//! The simulated machine.

pub mod design;
pub mod memory;
