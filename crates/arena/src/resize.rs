//! Memory gets pages of another size and keeps its address: 1 GiB pages of the kernel's pool, 2 MiB, 4 KiB.
//!
//! What Trident's daemon does in the kernel, within one process: write-protect, copy, remap (Ram et al., MICRO 2021,
//! §5.1.3). New memory in pages of the size is filled and moved over the old by one `mremap`. Threads that store meanwhile
//! wait (`userfaultfd`), those that read go on. On the way down, parts that hold zeros are left out: a 1 GiB page of
//! which little is used becomes little memory.

use crate::memory::{Memory, Pages};
use crate::pages::PageTable;
use crate::userfault::{Use, Userfault};
use crate::{BASE, HUGE, system};
use std::ffi::c_int;
use std::ops::Range;

/// Why memory has the pages that it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is no multiple of such a page, by its address or its length.
    Unaligned,
    /// The kernel cannot hold stores back (Linux 5.19), or does not show what is there (6.7).
    Kernel,
    /// There are no such pages, or another error of this number.
    System(c_int),
}

impl Refused {
    /// As an error number.
    pub fn number(self) -> c_int {
        match self {
            Refused::Unaligned => libc::EINVAL,
            Refused::Kernel => libc::EOPNOTSUPP,
            Refused::System(number) => number,
        }
    }
}

/// Gives memory pages of another size, at the same address and with every byte as it is.
///
/// # Errors
/// The memory is as it was.
///
/// # Safety
/// Threads may read and store. No system call is handed the memory meanwhile: it would fail. No forked child has it.
pub unsafe fn resize(memory: &mut Memory, to: Pages) -> Result<(), Refused> {
    if memory.pages() == to {
        return Ok(());
    }
    let (start, bytes) = (memory.start() as usize, memory.bytes());
    if !(start | bytes).is_multiple_of(to.bytes()) {
        return Err(Refused::Unaligned);
    }
    let table = PageTable::open().ok_or(Refused::Kernel)?;
    let new = Memory::new(bytes, to).map_err(Refused::System)?;
    if new.pages() != to || new.bytes() != bytes {
        return Err(Refused::System(libc::ENOMEM));
    }
    // Before stores are held back: an allocator may store there.
    let mut buffer = vec![0u64; HUGE / 8];
    let userfault = Userfault::open(Use::HoldBack).ok_or(Refused::Kernel)?;
    // Dropped on every way out, and only when the address has its memory.
    let _held = userfault.hold_back(start, bytes).ok_or(Refused::Kernel)?;
    let mut all = true;
    // SAFETY: The new memory is this function's own, and as long as the old.
    let mut take = |run: Range<usize>| unsafe {
        all = all && copy(&mut buffer, run.start, new.start() as usize + (run.start - start), run.len(), to);
    };
    let shown = if memory.pages() == Pages::Giant {
        // Never in swap. Pages that are not there have a mark by now, which looks so.
        table.runs(start..start + bytes, &mut |run, _| take(run))
    } else {
        table.data(start..start + bytes, &mut take)
    };
    if !(shown && all) {
        return Err(Refused::Kernel);
    }
    let (from, _, _) = new.into_parts();
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: From here on the new pages lie at the old address; the old ones are gone. Both ranges are ours.
    let moved = unsafe { libc::syscall(libc::SYS_mremap, from, bytes, bytes, flags, start) };
    if moved == -1 {
        let error = system::last_error();
        // SAFETY: All is in the new memory. The kernel may have unmapped the old before it failed.
        unsafe {
            if !is_mapped(start) {
                let place = system::map_at(start, bytes).map_err(Refused::System)?;
                std::ptr::copy_nonoverlapping(from, place, bytes);
                memory.set_pages(Pages::Base);
            }
            system::unmap(from, bytes);
        }
        return Err(Refused::System(error));
    }
    memory.set_pages(to);
    Ok(())
}

/// Copies what does not hold zeros alone, in pieces of the page size that is wanted, or of 2 MiB where that is larger. The
/// kernel reads: a page that it took away meanwhile (`MADV_FREE`) is zeros, where a load would wait for this very thread.
/// False where the kernel does not.
///
/// # Safety
/// As many bytes from `to` on are the caller's. `buffer` holds 2 MiB.
unsafe fn copy(buffer: &mut [u64], from: usize, to: usize, bytes: usize, pages: Pages) -> bool {
    let size = pages.bytes().min(HUGE);
    let mut done = 0;
    while done < bytes {
        let part = (HUGE - (from + done) % HUGE).min(bytes - done);
        let words = &mut buffer[..part / 8];
        // SAFETY: The same bytes, of which each value is a number.
        let into = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), part) };
        if !system::peek_or_zeros(from + done, into) {
            return false;
        }
        for (number, piece) in words.chunks(size / 8).enumerate() {
            if piece.iter().any(|word| *word != 0) {
                let to = to + done + number * size;
                // SAFETY: The caller's word.
                unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), to as *mut u64, piece.len()) };
            }
        }
        done += part;
    }
    true
}

fn is_mapped(start: usize) -> bool {
    let mut present = 0u8;
    // SAFETY: One byte for one page.
    unsafe { libc::syscall(libc::SYS_mincore, start, BASE, &raw mut present) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

    fn word(memory: &Memory, at: usize) -> &AtomicU64 {
        assert!(at < memory.bytes());
        // SAFETY: Within the memory, aligned, and only used so.
        unsafe { &*memory.start().add(at).cast::<AtomicU64>() }
    }

    /// Down to base pages and up again, while threads store and read.
    #[test]
    fn sizes_change_under_those_who_use_the_memory() {
        let mut memory = Memory::new(16 * HUGE, Pages::Huge).unwrap();
        let (bytes, start) = (memory.bytes(), memory.start() as usize);
        for at in (0..bytes / 2).step_by(BASE) {
            word(&memory, at).store(at as u64 + 1, Relaxed);
        }
        if Userfault::open(Use::HoldBack).is_none() || PageTable::open().is_none() {
            // SAFETY: The test's own.
            assert_eq!(unsafe { resize(&mut memory, Pages::Base) }, Err(Refused::Kernel));
            return;
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Each has a word of every page of its own, and counts in all of them.
            let stop = &stop;
            let counters = [1usize, 2].map(|thread| {
                scope.spawn(move || {
                    let mut rounds = 0u64;
                    while !stop.load(Relaxed) {
                        rounds += 1;
                        for at in (0..bytes / 2).step_by(BASE) {
                            let place = start + at + thread * 8;
                            // SAFETY: The memory lives longer than the scope.
                            let place = unsafe { &*(place as *const AtomicU64) };
                            assert_eq!(place.load(Relaxed), rounds - 1);
                            place.store(rounds, Relaxed);
                        }
                    }
                    rounds
                })
            });
            for to in [Pages::Base, Pages::Huge].into_iter().cycle().take(20) {
                // SAFETY: The threads load and store, and call nothing.
                assert_eq!(unsafe { resize(&mut memory, to) }, Ok(()));
                assert_eq!((memory.pages(), memory.start() as usize), (to, start));
            }
            stop.store(true, Relaxed);
            let rounds = counters.map(|thread| thread.join().unwrap());
            for at in (0..bytes / 2).step_by(BASE) {
                assert_eq!(word(&memory, at).load(Relaxed), at as u64 + 1);
                for (thread, rounds) in (1..).zip(rounds) {
                    assert_eq!(word(&memory, at + thread * 8).load(Relaxed), rounds);
                }
            }
        });
        let mut present = 0;
        PageTable::open().unwrap().runs(start..start + bytes, &mut |run, _| present += run.len());
        assert_eq!(present, bytes / 2, "what was never touched takes no memory");
    }

    #[test]
    fn a_page_that_goes_meanwhile_is_zeros() {
        let old = Memory::new(HUGE + 8 * BASE, Pages::Base).unwrap();
        let new = Memory::new(HUGE + 8 * BASE, Pages::Base).unwrap();
        let used = [0, 2 * BASE, HUGE + 4 * BASE];
        for at in used {
            word(&old, at).store(at as u64 + 7, Relaxed);
        }
        let Some(userfault) = Userfault::open(Use::HoldBack) else { return };
        let held = userfault.hold_back(old.start() as usize, old.bytes()).unwrap();
        let mut buffer = vec![u64::MAX; HUGE / 8];
        // SAFETY: Both are as long. Whoever loads from a page that is not there waits.
        let copied = unsafe {
            copy(&mut buffer, old.start() as usize, new.start() as usize, old.bytes(), Pages::Base)
        };
        drop(held);
        assert!(copied);
        for at in (0..old.bytes()).step_by(BASE) {
            let expected = if used.contains(&at) { at as u64 + 7 } else { 0 };
            assert_eq!(word(&new, at).load(Relaxed), expected, "{at}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_and_nothing_changes() {
        let mut memory = Memory::new(3 * BASE, Pages::Base).unwrap();
        word(&memory, 8).store(5, Relaxed);
        // SAFETY: The test's own.
        unsafe {
            assert_eq!(resize(&mut memory, Pages::Huge), Err(Refused::Unaligned));
            assert_eq!(resize(&mut memory, Pages::Base), Ok(()));
        }
        assert_eq!((memory.pages(), word(&memory, 8).load(Relaxed)), (Pages::Base, 5));
        // Without pages of 1 GiB in the pool.
        let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages");
        if free.map_or(0, |text| text.trim().parse::<u64>().unwrap()) > 0 {
            return;
        }
        let mut large = Memory::new(1 << 30, Pages::Huge).unwrap();
        word(&large, 8).store(5, Relaxed);
        // SAFETY: The test's own.
        let refused = unsafe { resize(&mut large, Pages::Giant) };
        assert_eq!(refused, Err(Refused::System(libc::ENOMEM)), "it lies at a multiple of 1 GiB");
        assert_eq!((large.pages(), word(&large, 8).load(Relaxed)), (Pages::Huge, 5));
    }
}
