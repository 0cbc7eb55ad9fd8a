//! What only makes the simulator faster on its host. Nothing here is part of the simulated machine.

mod memory;
mod prefetch;
mod regions;

pub use memory::{can_fill, can_have};
pub use prefetch::HostPrefetch;
pub use regions::{BasePage, RegionCache};
