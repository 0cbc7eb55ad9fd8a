//! Memory devices: banks, row buffers, buses and media by next free time.

mod parameters;

pub use parameters::DeviceParameters;
