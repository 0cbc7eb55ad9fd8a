//! The callbacks that run for every load and store: all speed is won or lost here.
//!
//! A record is two words: the address, with instructions retired in blocks without a record in its upper 16 bits, and the
//! entry's number, with what QEMU says of the access above it.
//!
//! An access costs some fifteen instructions, of which each is a few percent of a recording. So the first vCPU, which is all
//! of most programs, has no lane to look for; halves of a word are stored as they come; and instructions wait in the bits
//! where the record has them.

use crate::qemu::{qemu_plugin_mem_is_store, qemu_plugin_mem_size_shift};
use crate::ring;
use std::ffi::{c_uint, c_void};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use terrace_protocol::control::Operation;
use terrace_protocol::entry::Expected;
use terrace_protocol::layout::{ADDRESS_BITS, Lane, RECORD_BYTES};

/// A record as it is written.
#[derive(Clone, Copy)]
#[repr(C)]
struct Access {
    address: u64,
    entry: u32,
    /// QEMU's description.
    info: u32,
}

const _: () = assert!(size_of::<Access>() == RECORD_BYTES);

/// Any access but a block's first.
pub extern "C" fn access(vcpu: c_uint, info: u32, address: u64, entry: *mut c_void) {
    if vcpu != 0 {
        return access_elsewhere(vcpu, info, address, entry);
    }
    append(ring::first_lane(), vcpu, Access { address, entry: number(entry), info });
}

#[inline(never)]
extern "C" fn access_elsewhere(vcpu: c_uint, info: u32, address: u64, entry: *mut c_void) {
    append(ring::lane(vcpu), vcpu, Access { address, entry: number(entry), info });
}

/// A block's first access: takes along the instructions of blocks that made no record.
pub extern "C" fn first_access(vcpu: c_uint, info: u32, address: u64, entry: *mut c_void) {
    if vcpu != 0 {
        return first_access_elsewhere(vcpu, info, address, entry);
    }
    append_with_pending(ring::first_lane(), vcpu, Access { address, entry: number(entry), info });
}

#[inline(never)]
extern "C" fn first_access_elsewhere(vcpu: c_uint, info: u32, address: u64, entry: *mut c_void) {
    append_with_pending(ring::lane(vcpu), vcpu, Access { address, entry: number(entry), info });
}

/// An instruction that loads and stores at one address, called back for one of both.
pub extern "C" fn update(vcpu: c_uint, info: u32, address: u64, entry: *mut c_void) {
    access(vcpu, info | Expected::BOTH, address, entry);
}

/// As [`update`], for a block's first access.
pub extern "C" fn first_update(vcpu: c_uint, info: u32, address: u64, entry: *mut c_void) {
    first_access(vcpu, info | Expected::BOTH, address, entry);
}

/// A block without an access that carries its instructions, which stand in the upper bits.
pub extern "C" fn count_instructions(vcpu: c_uint, instructions: *mut c_void) {
    let lane = ring::lane(vcpu);
    let (pending, is_too_many) = lane.pending.load(Relaxed).overflowing_add(instructions as u64);
    if is_too_many {
        return many_instructions(vcpu, lane, instructions as u64);
    }
    lane.pending.store(pending, Relaxed);
}

/// A block without access that moves values between registers.
pub extern "C" fn note_effects(vcpu: c_uint, entry: *mut c_void) {
    append(ring::lane(vcpu), vcpu, Access { address: 0, entry: number(entry), info: 0 });
}

/// The number of an entry, which QEMU keeps as a pointer.
#[inline(always)]
fn number(entry: *mut c_void) -> u32 {
    entry as usize as u32
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
fn append_with_pending(lane: &Lane, vcpu: u32, access: Access) {
    let pending = lane.pending.load(Relaxed);
    lane.pending.store(0, Relaxed);
    append(lane, vcpu, Access { address: access.address | pending, ..access });
}

#[inline(always)]
fn append(lane: &Lane, vcpu: u32, access: Access) {
    let cursor = lane.cursor.load(Relaxed);
    if cursor >= lane.limit.load(Relaxed) {
        return append_slowly(vcpu, access.address, access.entry, access.info);
    }
    write(lane, cursor, access);
}

#[inline(always)]
fn write(lane: &Lane, cursor: u64, access: Access) {
    // SAFETY: cursor < limit, both in the thread's own chunk, whose size is a multiple of a record's.
    unsafe { (cursor as *mut Access).write(access) };
    lane.cursor.store(cursor + RECORD_BYTES as u64, Release);
}

#[cold]
#[inline(never)]
fn append_slowly(vcpu: u32, address: u64, entry: u32, info: u32) {
    let lane = ring::reserve(vcpu, 1);
    write(lane, lane.cursor.load(Relaxed), Access { address, entry, info });
}

/// More instructions than a record has room for.
#[cold]
#[inline(never)]
fn many_instructions(vcpu: u32, lane: &Lane, instructions: u64) {
    let pending = lane.pending.swap(0, Relaxed);
    ring::emit(vcpu, Operation::Compute, &[(pending >> ADDRESS_BITS) + (instructions >> ADDRESS_BITS)], &[]);
}
