//! Memory devices, and what a probe of them measures.

mod bandwidth;
mod bandwidth_probe;
mod media;
mod presets;
mod timing;

#[path = "../memory_support/devices.rs"]
mod devices;
#[path = "../memory_support/iwb.rs"]
mod iwb;
