//! The callbacks that run for every load and store: all speed is won or lost here.
//!
//! A record is two words: the address, with instructions retired in blocks without a record in its upper 16 bits,
//! and the entry's number, with what QEMU says of the access above it.

use crate::qemu::{qemu_plugin_mem_is_store, qemu_plugin_mem_size_shift};
use crate::ring;
use std::ffi::{c_uint, c_void};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use terrace_protocol::control::Operation;
use terrace_protocol::layout::{Lane, RECORD_BYTES};

/// Bit of the record's second word at which QEMU's description of the access begins.
const INFO_SHIFT: u32 = 32;
/// Bits of an address; instruction counts lie above.
const ADDRESS_BITS: u32 = 48;

/// Any access but a block's first.
pub extern "C" fn access(vcpu: c_uint, info: u32, address: u64, entry: *mut c_void) {
    append(ring::lane(vcpu), vcpu, address, entry as u64 | u64::from(info) << INFO_SHIFT);
}

/// A block's first access: takes along the instructions of blocks that made no record.
pub extern "C" fn first_access(vcpu: c_uint, info: u32, address: u64, entry: *mut c_void) {
    let lane = ring::lane(vcpu);
    let pending = lane.pending.load(Relaxed);
    lane.pending.store(0, Relaxed);
    let word = entry as u64 | u64::from(info) << INFO_SHIFT;
    if pending >> (64 - ADDRESS_BITS) != 0 {
        return many_instructions(vcpu, pending, address, word);
    }
    append(lane, vcpu, address | pending << ADDRESS_BITS, word);
}

/// A block without an access that carries its instructions.
pub extern "C" fn count_instructions(vcpu: c_uint, instructions: *mut c_void) {
    let lane = ring::lane(vcpu);
    lane.pending.store(lane.pending.load(Relaxed) + instructions as u64, Relaxed);
}

/// A block without access that moves values between registers.
pub extern "C" fn note_effects(vcpu: c_uint, entry: *mut c_void) {
    append(ring::lane(vcpu), vcpu, 0, entry as u64);
}

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Counts and does nothing else: the floor against which recording is measured.
pub extern "C" fn count_only(_vcpu: c_uint, _info: u32, _address: u64, _entry: *mut c_void) {
    COUNT.store(COUNT.load(Relaxed) + 1, Relaxed);
}

/// What [`count_only`] counted.
pub fn counted() -> u64 {
    COUNT.load(Relaxed)
}

/// Whether QEMU's description of an access has the layout that the recorder reads: log2 of the size in bits 4 to 6,
/// load in bit 16 and store in bit 17.
pub fn layout_is_known() -> bool {
    (0..8u32).all(|shift| {
        [1u32, 2, 3].into_iter().all(|rw| {
            let info = shift << 4 | rw << 16;
            // SAFETY: pure functions of their argument.
            unsafe {
                qemu_plugin_mem_size_shift(info) == shift && qemu_plugin_mem_is_store(info) == (rw & 2 != 0)
            }
        })
    })
}

#[inline(always)]
fn append(lane: &Lane, vcpu: u32, first: u64, second: u64) {
    let cursor = lane.cursor.load(Relaxed);
    if cursor >= lane.limit.load(Relaxed) {
        return append_slowly(vcpu, first, second);
    }
    write(lane, cursor, first, second);
}

#[inline(always)]
fn write(lane: &Lane, cursor: u64, first: u64, second: u64) {
    // SAFETY: cursor < limit, both in the thread's own chunk, whose size is a multiple of a record's.
    unsafe { (cursor as *mut [u64; 2]).write([first, second]) };
    lane.cursor.store(cursor + RECORD_BYTES as u64, Release);
}

#[cold]
#[inline(never)]
fn append_slowly(vcpu: u32, first: u64, second: u64) {
    let lane = ring::reserve(vcpu, 1);
    write(lane, lane.cursor.load(Relaxed), first, second);
    crate::after_slow_path();
}

#[cold]
#[inline(never)]
fn many_instructions(vcpu: u32, pending: u64, address: u64, word: u64) {
    ring::emit(vcpu, Operation::Compute, &[pending], &[]);
    append(ring::lane(vcpu), vcpu, address, word);
}
