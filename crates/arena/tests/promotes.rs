//! Trident's own source joins what this process has touched, and no byte changes.

use std::time::{Duration, Instant};
use terrace_arena::pages::PageTable;
use terrace_arena::{BASE, HUGE, Promoter, system};

fn huge_bytes(table: &PageTable, start: usize, bytes: usize) -> usize {
    let mut huge = 0;
    table.runs(start..start + bytes, &mut |run, is_huge| huge += if is_huge { run.len() } else { 0 });
    huge
}

/// What belongs at an address.
fn pattern(address: usize) -> u64 {
    (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn dense_memory_is_joined_and_sparse_memory_is_not() {
    let Some(table) = PageTable::open() else { return };
    let mut promoter = Promoter::open().unwrap();
    let bytes = 9 * HUGE;
    let start = (system::map(bytes).unwrap() as usize).next_multiple_of(HUGE);
    // SAFETY: Part of the mapping. The advice keeps a kernel that gives huge pages to all from doing so, until it is
    // undone.
    unsafe { libc::madvise(start as *mut _, 8 * HUGE, libc::MADV_NOHUGEPAGE) };
    // Four dense ranges of 2 MiB, one with a tenth missing, one with one page more missing, two with a single page.
    let pages_of = |at: usize| match at {
        0..4 => 512,
        4 => 512 - 51,
        5 => 512 - 52,
        _ => 1,
    };
    let touched: Vec<usize> =
        (0..8).flat_map(|at| (0..pages_of(at)).map(move |page| start + at * HUGE + page * BASE)).collect();
    for address in &touched {
        // SAFETY: Within the mapping.
        unsafe { (*address as *mut u64).write(pattern(*address)) };
    }
    assert_eq!(huge_bytes(&table, start, 8 * HUGE), 0);
    // SAFETY: As above.
    unsafe { libc::madvise(start as *mut _, 8 * HUGE, libc::MADV_HUGEPAGE) };
    let begin = Instant::now();
    while promoter.promoted().done < 5 && begin.elapsed() < Duration::from_secs(60) {
        let rest = promoter.step(&mut |_| true);
        std::thread::sleep(Duration::from_nanos(rest));
    }
    let huge: Vec<bool> = (0..8).map(|at| huge_bytes(&table, start + at * HUGE, HUGE) == HUGE).collect();
    assert_eq!(huge, [true, true, true, true, true, false, false, false]);
    for address in touched {
        // SAFETY: Within the mapping.
        assert_eq!(unsafe { (address as *const u64).read() }, pattern(address));
    }
}

#[test]
fn nothing_is_done_before_its_time() {
    let Ok(mut promoter) = Promoter::open() else { return };
    assert!((500_000_000..=1_000_000_000).contains(&promoter.step(&mut |_| true)));
    assert_eq!(promoter.promoted(), Default::default());
}
