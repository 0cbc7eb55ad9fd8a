//! What one does with a whole trace file: describe it, check it, look at its start, cut it, turn it into a Terrace trace.

mod convert;
mod head;
mod info;
mod residency;
mod slice;
mod verify;

pub use convert::{ConvertError, convert};
pub use head::{HeadItem, head};
pub use info::{TraceInfo, info, info_watched};
pub use slice::{Slice, SliceOptions, slice};
pub use verify::{VerifyReport, verify, verify_watched};
