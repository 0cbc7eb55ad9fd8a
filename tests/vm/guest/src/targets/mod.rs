//! Programs to be observed and moved. Each prints where its memory is in `key=value` pairs and then works until it is
//! killed.

pub mod beats;
pub mod denied;
pub mod giant;
pub mod hotset;
pub mod starter;
pub mod structures;
pub mod ticker;
pub mod touch;
pub mod verify;
pub mod writers;

use crate::memory::{PAGE, touch};
use anyhow::{Result, ensure};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Every hot page is touched at least this often, unless the processor is busy elsewhere.
const ROUND: Duration = Duration::from_millis(10);

/// How often SIGUSR1 has come, where it is waited for.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// How often SIGTERM has.
static ENDED: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(signal: libc::c_int) {
    let counter = if signal == libc::SIGTERM { &ENDED } else { &ASKED };
    counter.fetch_add(1, Relaxed);
}

fn count_signals(signal: libc::c_int) {
    let handler: extern "C" fn(libc::c_int) = count;
    // SAFETY: the handler only adds to an atomic number, which is allowed in a signal handler.
    unsafe { libc::signal(signal, handler as libc::sighandler_t) };
}

fn asked() -> u32 {
    ASKED.load(Relaxed)
}

fn ended() -> bool {
    ENDED.load(Relaxed) > 0
}

/// Touches pages once and rests for the remainder of the round.
fn round(ranges: &[(&Range<u64>, bool)]) {
    round_of_every(1, ranges);
}

/// As [`round`], of every so manieth page.
fn round_of_every(every: u64, ranges: &[(&Range<u64>, bool)]) {
    let started = Instant::now();
    for (range, write) in ranges {
        for page in (range.start..range.end).step_by((every * PAGE) as usize) {
            touch(page, *write);
        }
    }
    std::thread::sleep(ROUND.saturating_sub(started.elapsed()));
}

/// A copy of this process that does nothing, and ends with it.
fn sleeping_child() -> Result<()> {
    // SAFETY: the child calls what is allowed after fork, and nothing else.
    match unsafe { libc::fork() } {
        0 => loop {
            // SAFETY: it has no memory to keep valid.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::pause();
            }
        },
        child => {
            ensure!(child > 0, "fork: {}", std::io::Error::last_os_error());
            Ok(())
        }
    }
}

/// The moment at which a program ends that was given a time to run.
fn deadline(seconds: Option<u64>) -> Option<Instant> {
    seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds))
}

fn passed(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}
