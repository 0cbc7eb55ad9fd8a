//! Settings from the recorder, kept in memory that the program does not reach by changing its environment.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char};
use terrace_protocol::session;

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

/// The variables that are the recorder's own.
pub const VARIABLES: [&[u8]; 4] =
    [b"TERRACE_QEMU=", b"TERRACE_PLUGIN=", b"TERRACE_PRELOAD=", b"TERRACE_FOLLOW_EXEC="];

/// Whether executed programs are to be recorded: that was asked for, the recording goes on, and its files can be seen
/// from here.
pub fn follows() -> bool {
    // SAFETY: a string.
    let sees_qemu = || unsafe { libc::access(QEMU.get().as_ptr(), libc::X_OK) == 0 };
    FOLLOW_EXEC.get().to_bytes() == b"on" && sees_qemu() && recorder_accepts()
}

/// Whether the recorder's socket accepts connections. It lies in one folder with the libraries.
fn recorder_accepts() -> bool {
    let plugin = PLUGIN.get().to_bytes();
    let plugin = plugin.split(|&byte| byte == b',').next().unwrap_or_default();
    let Some(folder) = plugin.strip_suffix(session::PLUGIN.as_bytes()) else { return false };
    // SAFETY: zeroes are a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let path = folder.iter().chain(session::SOCKET.as_bytes());
    if folder.len() + session::SOCKET.len() > session::MAX_SOCKET_PATH {
        return false;
    }
    address.sun_path.iter_mut().zip(path).for_each(|(to, &from)| *to = from as c_char);
    // SAFETY: the address is valid for the call, and the descriptor is ours alone; errno is the thread's own and is as
    // the program left it.
    unsafe {
        let errno = *libc::__errno_location();
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        let connect =
            || libc::connect(socket, (&raw const address).cast(), size_of_val(&address) as libc::socklen_t);
        let mut result = connect();
        while result != 0 && socket >= 0 && *libc::__errno_location() == libc::EINTR {
            result = connect();
        }
        if socket >= 0 {
            libc::close(socket);
        }
        *libc::__errno_location() = errno;
        result == 0
    }
}

pub extern "C" fn read() {
    QEMU.set(c"TERRACE_QEMU");
    PLUGIN.set(c"TERRACE_PLUGIN");
    PRELOAD.set(c"TERRACE_PRELOAD");
    FOLLOW_EXEC.set(c"TERRACE_FOLLOW_EXEC");
}
