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

/// Pages of these that belong to the process alone: what was given back is the page of zeros, which all have.
fn own_bytes(start: usize, bytes: usize) -> usize {
    use std::os::unix::fs::FileExt;
    let mut entries = vec![0u8; bytes / BASE * 8];
    let file = std::fs::File::open("/proc/self/pagemap").unwrap();
    file.read_exact_at(&mut entries, (start / BASE * 8) as u64).unwrap();
    entries.chunks_exact(8).filter(|entry| entry[7] & 1 != 0).count() * BASE
}

/// As if all of memory were short. Four huge pages hold a page each, four are full, and one is half full.
#[test]
fn sparse_huge_pages_are_taken_apart_while_memory_is_short() {
    let Some(table) = PageTable::open() else { return };
    let mut promoter = Promoter::with(1.0, 1.0).unwrap();
    let start = (system::map(10 * HUGE).unwrap() as usize).next_multiple_of(HUGE);
    system::advise_huge(start, 9 * HUGE);
    let pages_of = |at: usize| [1, 1, 1, 1, 512, 512, 512, 512, 257][at];
    for at in 0..9 {
        for page in 0..pages_of(at) {
            let address = start + at * HUGE + page * BASE + 8;
            // SAFETY: Within the mapping.
            unsafe { (address as *mut u64).write(pattern(address)) };
        }
    }
    if huge_bytes(&table, start, 9 * HUGE) < 9 * HUGE || !terrace_arena::pages::gives_zeros_back(&table) {
        return;
    }
    let begin = Instant::now();
    let rests = |at: usize| huge_bytes(&table, start + at * HUGE, HUGE) == HUGE;
    while (0..4).any(rests) && begin.elapsed() < Duration::from_secs(60) {
        let rest = promoter.step(&mut |_| true);
        std::thread::sleep(Duration::from_nanos(rest.min(100_000_000)));
    }
    let huge: Vec<bool> = (0..9).map(rests).collect();
    assert_eq!(huge, [false, false, false, false, true, true, true, true, true], "half zeros are enough");
    assert!(promoter.promoted().split >= 4 && promoter.promoted().done == 0, "{:?}", promoter.promoted());
    assert_eq!(own_bytes(start, 4 * HUGE), 4 * BASE);
    for at in 0..9 {
        for page in 0..512 {
            let address = start + at * HUGE + page * BASE + 8;
            let expected = if page < pages_of(at) { pattern(address) } else { 0 };
            // SAFETY: Within the mapping.
            assert_eq!(unsafe { (address as *const u64).read() }, expected);
        }
    }
}
