//! Memory devices: banks, row buffers, buses and media by "next free time".
//!
//! A [`Device`] answers one question per 64-byte transfer: at what time is it done? It keeps no event queue. Every
//! resource (a channel's bus, a rank's activation budget, a bank, a module's media) remembers when it is next free, so
//! bandwidth limits, bank conflicts and queueing come out of the arithmetic.
//!
//! | file | what |
//! |---|---|
//! | `parameters.rs` | what a device is, as a design file states it |
//! | `presets.rs`, `presets/` | data-sheet parameters by name |
//! | `mapping.rs` | line number to channel, bank, row |
//! | `server.rs` | one resource by next free time, tolerant of arrivals slightly out of order |
//! | `banked.rs`, `bank_timing.rs` | a channel of banks with row buffers: DRAM, PCM, TL-DRAM |
//! | `media.rs` | a channel with a block-addressed medium behind an on-module buffer: DCPMM |
//! | `device.rs` | the channels together, and the bounds that the parameters imply |
//! | `link.rs` | a serial link in front of a device, and its parameters |
//! | `request.rs` | a line to be read or written, and who asks |
//! | `counters.rs` | traffic by initiator, row-buffer and media behaviour, energy |
//!
//! Arrival order. Cores run up to about 100 ns apart, so a request may arrive with an earlier time than its
//! predecessor. Completion never precedes the request's own arrival plus the idle latency; the delay such a request
//! sees is the backlog found, not the distance to the predecessor's clock, so being late costs nothing in itself and
//! nothing accumulates. Work done is never lost: a resource completes no more per unit of time than its rate.

mod bank_timing;
mod banked;
mod calendar;
mod counters;
mod device;
mod link;
mod mapping;
mod media;
mod parameters;
mod presets;
mod request;
mod server;

pub use counters::{DeviceCounters, DeviceEnergy, Initiator};
pub use device::Device;
pub use link::{Link, LinkParameters, Way};
pub use mapping::DeviceLine;
pub use parameters::{
    BankParameters, DeviceEnergyParameters, DeviceParameters, MediaParameters, SegmentParameters, Span,
};
pub use presets::{preset_names, preset_table};
pub use request::MemoryRequest;
pub use server::Server;
