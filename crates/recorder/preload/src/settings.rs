//! What the recorder told us, kept in memory that the program does not reach by changing its environment.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char};

/// Longest value kept.
const MAX_BYTES: usize = 4096;

/// A string that is written once, before `main`.
pub struct Setting(UnsafeCell<[u8; MAX_BYTES]>);

// SAFETY: written only by `read`, which the dynamic linker runs before there is a second thread.
unsafe impl Sync for Setting {}

impl Setting {
    const fn new() -> Setting {
        Setting(UnsafeCell::new([0; MAX_BYTES]))
    }

    /// The value; empty where it was not set.
    pub fn get(&self) -> &CStr {
        // SAFETY: ends with a zero byte, because `set` leaves the last byte alone.
        unsafe { CStr::from_ptr(self.0.get().cast()) }
    }

    fn set(&self, name: &CStr) {
        // SAFETY: the name is a valid string.
        let value = unsafe { libc::getenv(name.as_ptr()) };
        if value.is_null() {
            return;
        }
        // SAFETY: `getenv` returned a string; nobody reads the setting yet.
        unsafe {
            let bytes = CStr::from_ptr(value).to_bytes();
            if bytes.len() < MAX_BYTES {
                std::ptr::copy_nonoverlapping(value, self.0.get().cast::<c_char>(), bytes.len());
            }
        }
    }
}

pub static QEMU: Setting = Setting::new();
pub static PLUGIN: Setting = Setting::new();
pub static PRELOAD: Setting = Setting::new();
static FOLLOW_EXEC: Setting = Setting::new();

/// Whether executed programs are to be recorded.
pub fn follows() -> bool {
    FOLLOW_EXEC.get().to_bytes() == b"on" && !QEMU.get().is_empty() && !PLUGIN.get().is_empty()
}

pub extern "C" fn read() {
    QEMU.set(c"TERRACE_QEMU");
    PLUGIN.set(c"TERRACE_PLUGIN");
    PRELOAD.set(c"TERRACE_PRELOAD");
    FOLLOW_EXEC.set(c"TERRACE_FOLLOW_EXEC");
}
