//! The vocabulary of Terrace: addresses, page sizes, tiers, units and the statistics tree.
//!
//! Everything here is plain data without I/O. Every other crate speaks in these words.

mod address;
mod contiguity;
mod page;
mod quantity;
pub mod stats;
pub mod thinned;
mod tier;
mod time;

pub use address::{AddressRange, LINE_BYTES, PhysAddr, VirtAddr};
pub use contiguity::ContiguityPoint;
pub use page::{Frame, PageSize};
pub use quantity::{Bytes, BytesPerSec, Cycles, Energy, Frequency, QuantityError};
pub use stats::{Histogram, Stat, Stats, Unit, Value};
pub use thinned::Thinned;
pub use tier::TierId;
pub use time::Time;
