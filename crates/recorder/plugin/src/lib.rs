//! The QEMU user-mode plugin: writes every load and store of a program, and what the program does to its address
//! space, into memory shared with the recorder.
//!
//! Started by the recorder as `qemu-x86_64 -plugin libterrace_plugin.so,folder=PATH,…`. Arguments:
//!
//! | argument | meaning |
//! |---|---|
//! | `folder=PATH` | the recording's folder, see `terrace_protocol::session` |
//! | `dependences=on` | follow loaded values into later addresses |
//! | `count=on` | only count accesses (the floor for speed measurements) |
//!
//! No access is copied twice and no lock is taken on the way. When the recorder is gone or recording is over, the
//! plugin removes its callbacks and the program runs on.

// The interface prescribes the names.
#![allow(missing_docs)]

mod access;
mod addresses;
mod maps;
mod memory;
mod order;
mod qemu;
mod recorder;
mod removal;
mod ring;
mod syscalls;
mod translate;

use qemu::{Info, PluginId};
use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use terrace_protocol::VERSION;
use terrace_protocol::layout::{Shared, TOTAL_BYTES};
use terrace_protocol::sanitizer;

/// Called by QEMU after it has loaded the plugin.
///
/// # Safety
/// QEMU passes a valid description and `count` argument strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const Info,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: promised by the caller.
    let (target, arguments) = unsafe {
        let target = CStr::from_ptr((*info).target_name).to_bytes();
        let arguments = (0..count as usize).map(|i| CStr::from_ptr(*arguments.add(i)).to_bytes());
        (target, arguments.collect::<Vec<_>>())
    };
    if target != b"x86_64" {
        eprintln!("terrace: the recorder understands x86_64 programs only");
        return 1;
    }
    refuse_address_sanitizer();
    let value = |key: &[u8]| arguments.iter().find_map(|a| a.strip_prefix(key));
    recorder::set_folder(value(b"folder=").unwrap_or_default());
    let shared = match map() {
        Ok(shared) => shared,
        // The recording has ended since the program was started, which everyone knows.
        Err(error) if recorder::has_ended(&error) => return 0,
        Err(error) => {
            eprintln!(
                "terrace: the recorder's memory cannot be opened ({error}); the program runs unrecorded"
            );
            return 0;
        }
    };
    if shared.header().version.load(Relaxed) != VERSION || !access::layout_is_known() {
        eprintln!("terrace: this QEMU or this plugin does not fit the recorder; the program runs unrecorded");
        shared.header().unrecorded.fetch_add(1, Relaxed);
        return 0;
    }
    if shared.header().stop.load(Relaxed) != 0 {
        return 0;
    }
    // SAFETY: promised by the caller.
    removal::prepare(id, unsafe { &*info });
    ring::attach(shared);
    // SAFETY: the callbacks have the types that the interface prescribes.
    unsafe {
        if value(b"count=") == Some(b"on") {
            qemu::qemu_plugin_register_vcpu_tb_trans_cb(id, translate::count_only);
            qemu::qemu_plugin_register_atexit_cb(id, report_count, std::ptr::null_mut());
            return 0;
        }
        translate::set_dependences(value(b"dependences=") == Some(b"on"));
        translate::set_derives(value(b"derive=") == Some(b"on"));
        qemu::qemu_plugin_register_vcpu_init_cb(id, vcpu_begins);
        qemu::qemu_plugin_register_vcpu_exit_cb(id, vcpu_ends);
        qemu::qemu_plugin_register_vcpu_tb_trans_cb(id, translate::translated);
        qemu::qemu_plugin_register_vcpu_syscall_cb(id, syscalls::begins);
        qemu::qemu_plugin_register_vcpu_syscall_ret_cb(id, syscalls::ends);
    }
    0
}

/// Ends the process before the emulated program begins, where its shadow memory would take the host's: a recorded job
/// may execute such programs in its steps.
fn refuse_address_sanitizer() {
    let command_line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let Some(program) = sanitizer::program_of(&command_line) else { return };
    let program = Path::new(OsStr::from_bytes(program));
    if sanitizer::has_address_sanitizer(program) {
        eprintln!(
            "terrace: {}: built with AddressSanitizer, for whose shadow memory the emulator takes more than 20 GB of this \
             machine's; it is not run. Build it without -fsanitize=address, or record with --no-follow-exec, which runs \
             such steps unrecorded",
            program.display()
        );
        // As a shell does for a program that is there and cannot be executed.
        std::process::exit(126);
    }
}

extern "C" fn vcpu_begins(_id: PluginId, vcpu: c_uint) {
    ring::announce(vcpu);
}

extern "C" fn vcpu_ends(_id: PluginId, vcpu: c_uint) {
    ring::retire(vcpu);
}

extern "C" fn report_count(_id: PluginId, _user_data: *mut c_void) {
    ring::shared().header().counted.fetch_add(access::counted(), SeqCst);
}

/// Maps the shared memory and lets go of the file, which the program could otherwise close.
fn map() -> std::io::Result<Shared> {
    let file = recorder::open_memory()?;
    let base = memory::map_shared(&file, TOTAL_BYTES)?;
    // SAFETY: mapped just now, never unmapped.
    Ok(unsafe { Shared::new(base) })
}
