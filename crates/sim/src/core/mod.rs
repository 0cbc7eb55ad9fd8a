//! Cores: how long a stream of accesses takes, and what it waited for. The models lie behind one seam, `CoreModel` in
//! `model.rs`, and are listed below.

mod clock;
#[macro_use]
mod model;
mod parameters;
mod store_buffer;

use clock::Clock;
use model::CoreModel;
use terrace_model::Time;

pub use clock::{Blame, END_OF_TIME, Timeline};
pub use in_order::Keys as InOrderKeys;
pub use model::{Hit, Hits};
pub use parameters::{CoreGroup, CoreParameters};

core_models! {
    "interval" => interval::Interval,
    "in-order" => in_order::InOrder,
}

impl Default for ModelParameters {
    fn default() -> ModelParameters {
        ModelParameters::Interval(interval::Keys::default())
    }
}
