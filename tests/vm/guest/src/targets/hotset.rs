//! Touches a known part of its memory, and another part with each SIGUSR1.

use crate::memory::{Layout, PAGE};
use crate::process::range_text;
use anyhow::{Result, ensure};
use clap::Args;
use std::ops::Range;

#[derive(Args)]
pub struct Hotset {
    #[command(flatten)]
    layout: Layout,
    /// Part of the memory that is hot
    #[arg(long, default_value_t = 20)]
    hot_percent: u64,
    /// Where the hot part of the first phase begins; each later one begins where the one before ended
    #[arg(long, default_value_t = 0)]
    hot_start_percent: u64,
    /// Touch only every so manieth page of the hot part
    #[arg(long, default_value_t = 1)]
    hot_every: u64,
    /// Write instead of read
    #[arg(long)]
    write: bool,
    /// Let the kernel note writes for PAGEMAP_SCAN, through userfaultfd with asynchronous write protection
    #[arg(long)]
    track_writes: bool,
    /// Have a child that shares the memory, and sleeps
    #[arg(long)]
    with_child: bool,
    /// End by itself
    #[arg(long)]
    seconds: Option<u64>,
}

impl Hotset {
    pub fn run(&self) -> Result<()> {
        ensure!(self.hot_percent <= 100, "--hot-percent is at most 100");
        ensure!(self.hot_every > 0, "--hot-every is at least 1");
        super::count_signals(libc::SIGUSR1);
        let start = self.layout.map()?;
        let memory = start..start + self.layout.bytes();
        if self.track_writes {
            track_writes(&memory)?;
        }
        if self.with_child {
            super::sleeping_child()?;
        }
        println!("pid={} memory={} ready=1", std::process::id(), range_text(&memory));
        let deadline = super::deadline(self.seconds);
        let mut phase = None;
        let mut hot = 0..0;
        while !super::passed(deadline) {
            let asked = super::asked();
            if phase != Some(asked) {
                hot = self.hot(&memory, asked);
                super::round_of_every(self.hot_every, &[(&hot, self.write)]);
                println!("phase={asked} hot={}", range_text(&hot));
                phase = Some(asked);
            }
            super::round_of_every(self.hot_every, &[(&hot, self.write)]);
        }
        Ok(())
    }

    /// Phases never wrap around the end: one that does not fit begins at the start.
    fn hot(&self, memory: &Range<u64>, phase: u32) -> Range<u64> {
        let pages = (memory.end - memory.start) / PAGE;
        let hot = pages * self.hot_percent / 100;
        let first = (pages * self.hot_start_percent / 100 + hot * u64::from(phase)) % (pages - hot + 1);
        memory.start + first * PAGE..memory.start + (first + hot) * PAGE
    }
}

/// `struct uffdio_api` of linux/userfaultfd.h.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
struct Register {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

/// Registers the memory; the descriptor stays open until the program ends.
fn track_writes(memory: &Range<u64>) -> Result<()> {
    const UFFDIO_API: libc::Ioctl = 0xc018_aa3f;
    const UFFDIO_REGISTER: libc::Ioctl = 0xc020_aa00;
    const API: u64 = 0xaa;
    const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
    const FEATURE_WP_ASYNC: u64 = 1 << 15;
    const MODE_WP: u64 = 1 << 1;
    let mut api = Api { api: API, features: FEATURE_WP_UNPOPULATED | FEATURE_WP_ASYNC, ioctls: 0 };
    let mut register =
        Register { start: memory.start, len: memory.end - memory.start, mode: MODE_WP, ioctls: 0 };
    // SAFETY: the structures are those that the requests name; the range is this program's own.
    let done = unsafe {
        let descriptor = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as i32;
        descriptor >= 0
            && libc::ioctl(descriptor, UFFDIO_API, &raw mut api) == 0
            && libc::ioctl(descriptor, UFFDIO_REGISTER, &raw mut register) == 0
    };
    ensure!(done, "userfaultfd: {}", std::io::Error::last_os_error());
    Ok(())
}
