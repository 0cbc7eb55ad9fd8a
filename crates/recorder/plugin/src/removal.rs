//! Taking the callbacks away when recording is over, so that the program runs at QEMU's full speed again.
//!
//! QEMU 7.2 and 8.0 keep, in each vCPU, a pointer to the callbacks of the instruction that it executes last, and do not
//! always clear it when a block ends (the vCPU's `plugin_mem_cbs`). Removal frees what it points to, and the next
//! instruction that reads memory by a helper function then follows it: the program crashes. A system call ends a block in
//! the one way that clears the pointer. So callbacks are removed when the only thread makes a system call. A program with
//! more threads keeps them, and what they record is thrown away.

use crate::qemu::{self, Info, PluginId};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use terrace_protocol::layout::LANES;

/// The first version of QEMU's plugin interface whose vCPUs clear the pointer after each block.
const CLEARS_POINTER: i32 = 2;

static PLUGIN: AtomicU64 = AtomicU64::new(0);
static CLEARS: AtomicBool = AtomicBool::new(false);
static REMOVED: AtomicBool = AtomicBool::new(false);
/// Which vCPUs run a thread.
static RUNS: [AtomicBool; LANES] = [const { AtomicBool::new(false) }; LANES];
/// Highest vCPU seen, plus 1.
static SEEN: AtomicUsize = AtomicUsize::new(0);

/// Remembers what QEMU said at installation.
pub fn prepare(id: PluginId, info: &Info) {
    PLUGIN.store(id, Relaxed);
    CLEARS.store(info.version_current >= CLEARS_POINTER, Relaxed);
}

/// The thread of this vCPU begins.
pub fn thread_begins(vcpu: u32) {
    RUNS[vcpu as usize].store(true, SeqCst);
    SEEN.fetch_max(vcpu as usize + 1, SeqCst);
}

/// The thread of this vCPU has ended.
pub fn thread_ends(vcpu: u32) {
    RUNS[vcpu as usize].store(false, SeqCst);
}

/// This vCPU's thread is the only one of a new process.
pub fn after_fork(vcpu: u32) {
    RUNS[..SEEN.load(SeqCst)].iter().for_each(|runs| runs.store(false, SeqCst));
    thread_begins(vcpu);
}

/// Removes the callbacks, once. Called by a thread that makes a system call, when records are thrown away.
pub fn remove_if_safe(vcpu: u32) {
    let is_alone = || {
        let others =
            RUNS[..SEEN.load(SeqCst)].iter().enumerate().filter(|&(other, _)| other != vcpu as usize);
        others.into_iter().all(|(_, runs)| !runs.load(SeqCst))
    };
    if (CLEARS.load(Relaxed) || is_alone()) && !REMOVED.swap(true, SeqCst) {
        // SAFETY: asynchronous; callbacks that still come are discarded.
        unsafe { qemu::qemu_plugin_reset(PLUGIN.load(Relaxed), removed) };
    }
}

extern "C" fn removed(_id: PluginId) {}
