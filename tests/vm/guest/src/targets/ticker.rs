//! One thread per processor that wakes every other millisecond, before all others.
//!
//! QEMU caches translations, and Linux on x86 flushes nothing when it clears an accessed bit: a loop that is never
//! interrupted would look idle. A switch to another address space empties the cache.

use anyhow::{Result, ensure};
use std::time::Duration;

pub fn run() -> Result<()> {
    let processors = std::thread::available_parallelism()?.get();
    let threads: Vec<_> = (0..processors).map(|cpu| std::thread::spawn(move || tick(cpu))).collect();
    println!("processors={processors} ready=1");
    for thread in threads {
        thread.join().expect("a ticker does not panic")?;
    }
    Ok(())
}

fn tick(cpu: usize) -> Result<()> {
    // SAFETY: both structures are plain numbers, passed with their size, for this thread alone.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        let parameters = libc::sched_param { sched_priority: 1 };
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set) == 0
            && libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) == 0
    };
    ensure!(done, "SCHED_FIFO on processor {cpu}: {}", std::io::Error::last_os_error());
    loop {
        std::thread::sleep(Duration::from_millis(2));
    }
}
