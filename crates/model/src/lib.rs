//! The vocabulary of Terrace: addresses, page sizes, tiers, units and the statistics tree.
//!
//! Everything here is plain data without I/O. Every other crate speaks in these words.

mod address;
mod page;
mod quantity;
pub mod stats;
mod tier;
mod time;

pub use address::{AddressRange, LINE_BYTES, PhysAddr, VirtAddr};
pub use page::{Frame, PageSize};
pub use quantity::{Bytes, BytesPerSec, Cycles, Energy, Frequency, QuantityError};
pub use stats::{Histogram, Stat, Stats, Unit, Value};
pub use tier::TierId;
pub use time::Time;
