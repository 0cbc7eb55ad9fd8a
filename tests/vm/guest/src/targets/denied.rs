//! Tries what a service in the sandbox of Terrace's unit must not be able to do.

use anyhow::{Result, ensure};
use std::io;

/// Prints which attempts were refused; fails where one was not.
pub fn run() -> Result<()> {
    type Attempt = (&'static str, libc::c_long, [libc::c_long; 5]);
    let attempts: [Attempt; 9] = [
        ("swapoff", libc::SYS_swapoff, [0; 5]),
        ("mount", libc::SYS_mount, [0; 5]),
        ("init_module", libc::SYS_init_module, [0; 5]),
        ("ptrace", libc::SYS_ptrace, [0; 5]),
        ("bpf", libc::SYS_bpf, [-1, 0, 0, 0, 0]),
        ("settimeofday", libc::SYS_settimeofday, [0; 5]),
        ("setuid", libc::SYS_setuid, [0; 5]),
        ("unshare", libc::SYS_unshare, [0x1000_0000, 0, 0, 0, 0]),
        ("sched_setscheduler", libc::SYS_sched_setscheduler, [0, -1, 0, 0, 0]),
    ];
    for (name, number, [a, b, c, d, e]) in attempts {
        // SAFETY: null pointers and plain numbers: where the call is permitted it fails by them, or changes nothing.
        let result = unsafe { libc::syscall(number, a, b, c, d, e) };
        let error = io::Error::last_os_error().raw_os_error();
        ensure!(result < 0 && error == Some(libc::EPERM), "{name} is not filtered: {result}, {error:?}");
    }
    // SAFETY: plain numbers.
    let network = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
    ensure!(network < 0, "a socket for the network is to be had");
    ensure!(std::fs::File::open("/dev/mem").is_err(), "memory of the machine is to be had");
    ensure!(std::fs::write("/etc/terrace-was-here", "").is_err(), "the system can be written");
    eprintln!("denied: {} system calls, the network, devices, files of the system", attempts.len());
    Ok(())
}
