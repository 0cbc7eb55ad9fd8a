//! TLB shootdowns: what it costs to take a right away from a page while other threads run.

use crate::clock::OwnTime;
use crate::nodes::pin;
use crate::region::{BASE, Pages, Region};
use crate::spread::Spread;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Nanoseconds to make a written page read-only and writable again, while a thread of the process runs on each of the
/// processors `others`.
pub fn protect(others: &[usize], rounds: usize) -> std::io::Result<Spread> {
    const CHANGES: usize = 200;
    let region = Region::map(BASE, Pages::Base)?;
    let (stop, running) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        let (stop, running) = (&stop, &running);
        for processor in others {
            scope.spawn(move || {
                // Where it is refused, the threads share processors as the system likes.
                let _ = pin(&[*processor]);
                running.fetch_add(1, Ordering::SeqCst);
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        while running.load(Ordering::SeqCst) < others.len() {
            std::thread::yield_now();
        }
        for _ in 0..rounds {
            let mut spent = 0.0;
            for _ in 0..CHANGES {
                region.touch(BASE);
                let begin = OwnTime::now();
                for rights in [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
                    // SAFETY: A page of the region, which no reference points to.
                    unsafe { libc::mprotect(region.start().cast(), BASE, rights) };
                }
                spent += begin.nanos();
            }
            times.push(spent / CHANGES as f64);
        }
        stop.store(true, Ordering::Relaxed);
    });
    Ok(Spread::of(times))
}
