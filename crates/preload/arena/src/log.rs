//! Lines on standard error, for whoever asked for them.
//!
//! They are put together on the stack and written by one system call.

use crate::quietly;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Bytes of a line; the rest is left out.
const LONGEST: usize = 400;

static WANTED: AtomicBool = AtomicBool::new(false);

/// What was done, for the last line.
pub static ADVISED: AtomicU64 = AtomicU64::new(0);
pub static HEAP: AtomicU64 = AtomicU64::new(0);
pub static JOINED: AtomicU64 = AtomicU64::new(0);
pub static REFUSED: AtomicU64 = AtomicU64::new(0);
pub static SPLIT: AtomicU64 = AtomicU64::new(0);

struct Line {
    bytes: [u8; LONGEST],
    filled: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.filled..LONGEST - 1];
        let count = text.len().min(room.len());
        room[..count].copy_from_slice(&text.as_bytes()[..count]);
        self.filled += count;
        Ok(())
    }
}

/// Whether lines are wanted.
pub fn begin(wanted: bool) {
    WANTED.store(wanted, Relaxed);
}

/// Whether lines are wanted.
pub fn is_wanted() -> bool {
    WANTED.load(Relaxed)
}

/// Writes a line, if lines are wanted.
pub fn line(text: fmt::Arguments<'_>) {
    if is_wanted() {
        always(text);
    }
}

/// Writes a line.
pub fn always(text: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; LONGEST], filled: 0 };
    // These writes cannot fail.
    let _ = line.write_str("terrace: ");
    let _ = line.write_fmt(text);
    line.bytes[line.filled] = b'\n';
    // SAFETY: The buffer holds so many bytes.
    quietly(|| unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.filled + 1) });
}

/// The last line about huge pages.
pub fn summary() {
    let [advised, heap, joined, split, refused] =
        [&ADVISED, &HEAP, &JOINED, &SPLIT, &REFUSED].map(|count| count.load(Relaxed));
    if advised + heap + joined + refused > 0 {
        let (advised, heap) = (advised >> 20, heap >> 20);
        line(format_args!(
            "huge pages: {advised} MiB of mappings advised, {heap} MiB of heap advised, {} MiB joined by trident and {} MiB \
             taken apart; {} MiB of mappings left alone",
            joined * 2,
            split * 2,
            refused >> 20
        ));
    }
}
