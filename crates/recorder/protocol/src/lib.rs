//! What the recorder, its QEMU plugin and its preload library agree on.
//!
//! [`layout`] is the shared memory through which the plugin hands records to the recorder; [`control`] the records
//! in it that are no accesses; [`entry`] what is known of an instruction before it runs; [`marker`] the reserved
//! system call by which a program speaks to the plugin; [`program`] which files QEMU can run; [`sanitizer`] which it
//! should not; [`session`] where the recorder of a running program is found.

pub mod control;
pub mod entry;
pub mod layout;
pub mod marker;
pub mod program;
pub mod sanitizer;
pub mod session;

/// Changes whenever any of the formats in this crate does; recorder and plugin of different versions do not mix.
pub const VERSION: u64 = 7;
