//! What a page costs that is in compressed swap when it is accessed, measured on memory of Terrace's own.

use std::time::Instant;
use terrace_model::Time;

/// Pages that are sent out and touched: two milliseconds of work.
const PAGES: usize = 256;
/// Bytes of a page.
const PAGE: usize = 4096;

/// The median time of a fault that brings a page back from swap; none where no page goes there.
pub fn measure() -> Option<Time> {
    // Private memory of its own mapping, so that nothing else lies on its pages.
    // SAFETY: a new mapping wherever the kernel finds room.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGES * PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    let mut times = Vec::with_capacity(PAGES);
    for page in 0..PAGES {
        for word in 0..PAGE / 8 {
            // Half of each word is the same everywhere: compressible, as most data is.
            let value = (page * PAGE + word).wrapping_mul(0x9e37_79b9) as u64;
            // SAFETY: the word lies in the mapping above, which is writable.
            unsafe { start.cast::<u64>().add(page * PAGE / 8 + word).write_volatile(value) };
        }
    }
    // SAFETY: advice changes no contents.
    let gone = unsafe { libc::madvise(start, PAGES * PAGE, libc::MADV_PAGEOUT) } == 0;
    let mut resident = [0u8; PAGES];
    // SAFETY: the vector has a byte for each page of the mapping.
    let known = unsafe { libc::mincore(start, PAGES * PAGE, resident.as_mut_ptr()) } == 0;
    for (page, resident) in resident.iter().enumerate().filter(|_| gone && known) {
        let started = Instant::now();
        // SAFETY: a readable word of the mapping above.
        unsafe { start.cast::<u64>().add(page * PAGE / 8).read_volatile() };
        // Only faults that found nothing in memory count; neighbours are read ahead.
        if resident & 1 == 0 && started.elapsed().as_nanos() > 0 {
            times.push(started.elapsed().as_nanos() as u64);
        }
    }
    // SAFETY: the mapping made above, which nothing refers to any more.
    unsafe { libc::munmap(start, PAGES * PAGE) };
    times.sort_unstable();
    // Fewer than a quarter: swap is full, or pages stay.
    (times.len() >= PAGES / 4).then(|| Time::from_nanos(times[times.len() / 2]))
}
