//! What it takes to free large blocks of a store, by smart compaction and by two cursors: `compaction [MIB]`.
//!
//! The store is filled with pages of 4 KiB; then each region of 2 MiB loses a share of them that is drawn for it. A
//! region in eight keeps a pinned page.

use std::time::Instant;
use terrace_arena::memory::Pages;
use terrace_arena::store::{Compaction, Store};
use terrace_model::PageSize;
use terrace_policy::Random;

fn main() {
    let mib: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1024);
    for (name, kind) in [("smart", Compaction::Smart), ("two cursors", Compaction::Normal)] {
        let mut store = Store::new(mib << 20, Pages::Huge).expect("memory");
        let mut random = Random::new(1);
        let pages = mib << 8;
        let handles: Vec<u32> = (0..pages).map(|_| store.allocate(PageSize::Base).expect("room")).collect();
        for region in handles.chunks(512) {
            for handle in region {
                let (start, _) = store.resolve(*handle).expect("a page");
                // SAFETY: Within the page.
                unsafe { start.write(1) };
            }
            let pinned = random.next() as usize % 512;
            let is_pinned = random.next().is_multiple_of(8);
            if is_pinned {
                store.pin(region[pinned]).expect("a page");
            }
            let of_100 = random.next() % 100;
            for (at, handle) in region.iter().enumerate() {
                if random.next() % 100 < of_100 && !(is_pinned && at == pinned) {
                    store.release(*handle).expect("a page");
                }
            }
        }
        let before = store.free_blocks(PageSize::Huge);
        let free: usize = store.regions(PageSize::Huge).iter().map(|region| region.free).sum();
        let (begin, mut freed, mut moved, mut wasted) = (Instant::now(), 0u64, 0, 0);
        // Each block that becomes free is taken, until there are no more.
        let wanted = (free >> 21) / 2;
        while freed < wanted as u64 {
            // SAFETY: No address is kept.
            let done = unsafe { store.compact(kind, PageSize::Huge) };
            (moved, wasted) = (moved + done.moved, wasted + done.wasted);
            if !done.is_free {
                break;
            }
            store.allocate(PageSize::Huge).expect("what was freed");
            freed += 1;
        }
        println!(
            "{name}: {} MiB of {mib} free in {before} blocks of 2 MiB; {freed} of {wanted} blocks freed, {:.2} MiB moved for each \
             ({:.2} MiB in vain), in {:.1?}",
            free >> 20,
            moved as f64 / (1 << 20) as f64 / freed.max(1) as f64,
            wasted as f64 / (1 << 20) as f64 / freed.max(1) as f64,
            begin.elapsed()
        );
    }
}
