//! The vocabulary of Terrace: addresses, page sizes, tiers, units and the statistics tree.
//!
//! Everything here is plain data without I/O. Every other crate speaks in these words.

// The derives name this crate.
extern crate self as terrace_model;

mod address;
mod agent;
mod contiguity;
mod page;
mod page_name;
pub mod parameters;
mod pool_traffic;
pub mod printable;
mod quantity;
pub mod random;
mod ranges;
pub mod stats;
pub mod text;
pub mod thinned;
mod tier;
mod time;
mod traffic;

/// The derives of [`parameters`] alone, for modules in which `Parameters` is a struct.
pub use terrace_model_derive as derive;

pub use address::{
    AddressRange, CacheLine, CoreId, GuestPhysAddr, LINE_BYTES, Line, NodeId, PageNumber, PhysAddr, VirtAddr,
};
pub use agent::{Agent, AgentKind};
pub use contiguity::ContiguityPoint;
pub use page::{Frame, KERNEL_OF_BASE_PAGES, PageSize, other_base_page};
pub use page_name::{PageId, PageRange, SpaceId};
pub use pool_traffic::{Pool, PoolInterval, PoolLink, PoolTraffic, StructureTraffic};
pub use quantity::{Bytes, BytesPerSec, Cycles, Energy, Frequency, QuantityError};
pub use random::Random;
pub use ranges::Ranges;
pub use stats::{Histogram, Stat, Stats, Unit, Value};
pub use thinned::Thinned;
pub use tier::TierId;
pub use time::Time;
pub use traffic::{Initiator, TierTraffic};
