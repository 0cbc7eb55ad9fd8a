//! How long two ranges take to exchange what they hold, by moving pages and by copying: `exchange [MIB]`.

use std::time::Instant;
use terrace_arena::exchange::exchange;
use terrace_arena::memory::{Memory, Pages};

fn main() {
    let mib: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1024);
    let bytes = mib << 20;
    for pages in [Pages::Huge, Pages::Base] {
        let [one, other] = [1u8, 2].map(|value| {
            let memory = Memory::new(bytes, pages).expect("memory");
            // SAFETY: Within the memory.
            unsafe { std::ptr::write_bytes(memory.start(), value, bytes) };
            memory
        });
        for _ in 0..5 {
            let begin = Instant::now();
            // SAFETY: Both are this program's own.
            let exchanged = unsafe { exchange(one.start(), other.start(), bytes) }.expect("two ranges");
            let moved = begin.elapsed();
            let begin = Instant::now();
            // SAFETY: The same.
            unsafe { std::ptr::swap_nonoverlapping(one.start(), other.start(), bytes) };
            let copied = begin.elapsed();
            println!(
                "{mib} MiB, pages {pages:?}: exchanged in {moved:.1?} ({exchanged:?}), copied in {copied:.1?}"
            );
        }
    }
}
