//! What only makes the simulator faster on its host. Nothing here is part of the simulated machine.

mod prefetch;
mod regions;

pub use prefetch::HostPrefetch;
pub use regions::{BasePage, RegionCache};
