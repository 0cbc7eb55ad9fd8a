use super::*;
use crate::{BASE, HUGE};
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
    let mut copier = Copier::new(old.start() as usize, new.start() as usize, old.bytes(), Pages::Base);
    // SAFETY: Both are as long. Whoever loads from a page that is not there waits.
    let copied = unsafe { copier.copy(old.start() as usize..old.start() as usize + old.bytes()) };
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

/// A kernel that takes protection away while all is copied, and somebody who stores there at once: before and after it
/// was looked for that.
struct Unprotecting {
    page: usize,
    after_the_look: bool,
}

impl Unprotecting {
    fn store(&self, by: &Userfault) {
        by.unprotect(self.page, BASE);
        // SAFETY: A page of the test's memory, which is there.
        unsafe { (self.page as *mut u64).write(7) };
    }
}

impl Calls for Unprotecting {
    unsafe fn remap(&self, from: usize, bytes: usize, to: usize) -> Result<(), c_int> {
        // SAFETY: The caller's word.
        unsafe { Linux.remap(from, bytes, to) }
    }

    unsafe fn map_at(&self, start: usize, bytes: usize) -> Result<(), c_int> {
        // SAFETY: The caller's word.
        unsafe { Linux.map_at(start, bytes) }
    }

    fn copied(&self, by: &Userfault) {
        if !self.after_the_look {
            self.store(by);
        }
    }

    fn looked(&self, by: &Userfault) {
        if self.after_the_look {
            self.store(by);
        }
    }
}

fn can_resize() -> bool {
    Userfault::open(Use::HoldBack).is_some() && PageTable::open().is_some()
}

#[test]
fn a_store_to_what_lost_its_protection_is_not_lost() {
    for (after_the_look, (from, to)) in [
        (false, (Pages::Base, Pages::Huge)),
        (false, (Pages::Huge, Pages::Base)),
        (true, (Pages::Base, Pages::Huge)),
        (true, (Pages::Huge, Pages::Base)),
    ] {
        let mut memory = Memory::new(2 * HUGE, from).unwrap();
        word(&memory, 0).store(5, Relaxed);
        // There, and zeros.
        word(&memory, 9 * BASE).store(0, Relaxed);
        if !can_resize() {
            return;
        }
        let page = memory.start() as usize + 9 * BASE;
        let calls = Unprotecting { page, after_the_look };
        // SAFETY: The test's own.
        assert_eq!(unsafe { resize_by(&calls, &mut memory, to) }, Ok(()));
        let found = [0, 9 * BASE].map(|at| word(&memory, at).load(Relaxed));
        assert_eq!((found, memory.pages()), ([5, 7], to), "{from:?} {after_the_look}");
    }
}

/// A kernel that has no memory for so many calls. Its `mremap` unmaps the target first, as Linux's does.
struct Failing {
    unmaps: bool,
    remaps: std::cell::Cell<u32>,
    maps: std::cell::Cell<u32>,
}

fn fails(left: &std::cell::Cell<u32>) -> bool {
    let count = left.get();
    left.set(count.saturating_sub(1));
    count > 0
}

impl Calls for Failing {
    unsafe fn remap(&self, from: usize, bytes: usize, to: usize) -> Result<(), c_int> {
        if fails(&self.remaps) {
            if self.unmaps {
                // SAFETY: The caller's word.
                unsafe { system::unmap(to as *mut u8, bytes) };
            }
            return Err(libc::ENOMEM);
        }
        // SAFETY: The caller's word.
        unsafe { Linux.remap(from, bytes, to) }
    }

    unsafe fn map_at(&self, start: usize, bytes: usize) -> Result<(), c_int> {
        if fails(&self.maps) {
            return Err(libc::ENOMEM);
        }
        // SAFETY: The caller's word.
        unsafe { Linux.map_at(start, bytes) }
    }
}

/// In a process of its own, where no other test can map anything at an address that is unmapped for a moment.
#[test]
fn a_last_step_that_fails_leaves_things_whole() {
    if !can_resize() {
        return;
    }
    let _forks = crate::forks();
    // SAFETY: The child does what is tried here and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(60);
            let tried = std::panic::catch_unwind(try_failures);
            libc::_exit(i32::from(tried.is_err()));
        }
        let mut status = -1;
        libc::waitpid(child, &raw mut status, 0);
        assert_eq!(status, 0, "what failed is said above");
    }
}

fn try_failures() {
    const KEPT: Result<(), Refused> = Err(Refused::System(libc::ENOMEM));
    const MOVED: Result<(), Refused> = Err(Refused::Moved);
    // Whether a remapping that fails has unmapped its target, times that the calls fail, whether the old pages are one
    // mapping, and what comes of it.
    for (unmaps, remaps, maps, is_one, expected) in [
        (false, 1, 0, true, KEPT),
        (true, 1, 0, true, KEPT),
        (true, 2, 1, true, KEPT),
        (true, u32::MAX, 3, true, KEPT),
        (false, 3, 0, true, KEPT),
        (false, u32::MAX, 0, true, MOVED),
        (true, u32::MAX, u32::MAX, true, MOVED),
        (false, u32::MAX, 0, false, KEPT),
        (true, 1, 2, false, KEPT),
        (true, 1, u32::MAX, false, MOVED),
    ] {
        let mut memory = Memory::new(4 * HUGE, Pages::Base).unwrap();
        let start = memory.start();
        if !is_one {
            // SAFETY: The test's own; its other half is another mapping from now on.
            unsafe { libc::madvise(start.add(2 * HUGE).cast(), 2 * HUGE, libc::MADV_DONTFORK) };
        }
        let used = [8, HUGE + 5 * BASE, 3 * HUGE];
        for at in used {
            word(&memory, at).store(at as u64 + 3, Relaxed);
        }
        let calls = Failing { unmaps, remaps: remaps.into(), maps: maps.into() };
        // SAFETY: The test's own.
        let resized = unsafe { resize_by(&calls, &mut memory, Pages::Huge) };
        let what = format!("{unmaps} {remaps} {maps} {is_one}");
        assert_eq!(resized, expected, "{what}");
        let moved = expected == MOVED;
        assert_eq!((memory.start() != start, system::is_mapped(start as usize)), (moved, !moved), "{what}");
        for at in used {
            assert_eq!(word(&memory, at).load(Relaxed), at as u64 + 3, "{what}");
        }
        // The memory can be stored to, and changes its size again.
        word(&memory, 2 * HUGE).store(1, Relaxed);
        let to = if memory.pages() == Pages::Base { Pages::Huge } else { Pages::Base };
        let fits = (memory.start() as usize).is_multiple_of(to.bytes());
        let expected = if fits { Ok(()) } else { Err(Refused::Unaligned) };
        // SAFETY: The test's own.
        assert_eq!(unsafe { resize(&mut memory, to) }, expected, "{what}");
        assert_eq!(word(&memory, 3 * HUGE).load(Relaxed), 3 * HUGE as u64 + 3, "{what}");
    }
}
