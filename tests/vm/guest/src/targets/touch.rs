//! Memory of the C library's allocator, written once and held for a moment.

use crate::memory::PAGE;
use anyhow::{Result, ensure};
use clap::Args;
use std::time::Duration;

#[derive(Args)]
pub struct Touch {
    /// Memory, in MiB
    #[arg(long, default_value_t = 32)]
    mib: usize,
}

impl Touch {
    pub fn run(&self) -> Result<()> {
        let bytes = self.mib << 20;
        // SAFETY: memory that nobody has yet.
        let start = unsafe { libc::malloc(bytes) }.cast::<u8>();
        ensure!(!start.is_null(), "no memory");
        for at in (0..bytes).step_by(PAGE as usize) {
            // SAFETY: inside the allocation. The store is volatile, so that it is not left out.
            unsafe { start.add(at).write_volatile(1) };
        }
        std::thread::sleep(Duration::from_millis(300));
        // SAFETY: the allocation is this function's own.
        unsafe { libc::free(start.cast()) };
        Ok(())
    }
}
