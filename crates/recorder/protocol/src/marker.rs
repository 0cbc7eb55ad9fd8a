//! The reserved system call.
//!
//! Its number lies far above every number Linux has assigned. QEMU shows each system call to its plugins before it
//! looks the number up, and then answers `ENOSYS`, as Linux itself does when the program runs without a recorder.
//! Arguments: operation, then up to four operands. `include/terrace/marker.h` says the same in C.

/// The number of the reserved system call.
pub const SYSCALL: i64 = 29_797;

/// A region of interest begins. Operands: name pointer, name length.
pub const REGION_BEGIN: u64 = 1;
/// A region of interest ends. Operands: name pointer, name length.
pub const REGION_END: u64 = 2;
/// A phase begins. Operands: name pointer, name length.
pub const PHASE: u64 = 3;
/// A request begins. Operands: name pointer, name length, request number.
pub const REQUEST_BEGIN: u64 = 4;
/// A request ends. Operands: name pointer, name length, request number.
pub const REQUEST_END: u64 = 5;
/// An object was allocated. Operands: address, bytes, call site's address, name pointer or 0, name length.
pub const ALLOC: u64 = 16;
/// An object is about to be freed. Operand: address.
pub const FREE: u64 = 17;
/// An object is about to be resized. Operand: address.
pub const REALLOC_BEGIN: u64 = 18;
/// The object of the last [`REALLOC_BEGIN`] was resized. Operands: new address or 0 where that failed, bytes.
pub const REALLOC_END: u64 = 19;
/// The preload library is there. Sent once by each program that loads it; operand: 1 if it reports allocations.
pub const HELLO: u64 = 32;

/// Longest name that a marker carries, in bytes.
pub const MAX_NAME: usize = 1024;
