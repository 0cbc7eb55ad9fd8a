//! Memory whose page size is asked for, and hints about memory.

use crate::pages::PageTable;
use crate::{BASE, HUGE, system};
use std::ffi::c_int;

/// Bytes of a page of 1 GiB.
const GIANT: usize = 1 << 30;
/// `MAP_HUGE_1GB`.
const OF_1_GIB: c_int = 30 << 26;
/// `MPOL_PREFERRED`, `MPOL_INTERLEAVE` and `MPOL_PREFERRED_MANY` of `mbind`, and `MPOL_MF_MOVE`.
const PREFERRED: c_int = 1;
const INTERLEAVE: c_int = 3;
const PREFERRED_MANY: c_int = 5;
const MOVE: c_int = 1 << 1;
/// `MADV_COLD`, `MADV_PAGEOUT`, `MADV_POPULATE_WRITE`, `MADV_COLLAPSE`.
const COLD: c_int = 20;
const PAGE_OUT: c_int = 21;
const POPULATE: c_int = 23;
const COLLAPSE: c_int = 25;

/// The page size that is asked for. Where there is none of it, the next smaller one is had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pages {
    /// 4 KiB, and no transparent huge pages.
    Base,
    /// 2 MiB, transparent.
    Huge,
    /// 1 GiB, of the kernel's pool (hugetlb). Such memory is given back only whole. After a fork, a store by the child ends
    /// it where the pool is empty.
    Giant,
}

impl Pages {
    /// Bytes of such a page.
    pub fn bytes(self) -> usize {
        match self {
            Pages::Base => BASE,
            Pages::Huge => HUGE,
            Pages::Giant => GIANT,
        }
    }
}

/// Memory that is given back when this ends.
#[derive(Debug)]
pub struct Memory {
    start: *mut u8,
    bytes: usize,
    pages: Pages,
}

// SAFETY: It owns its memory and gives out addresses alone.
unsafe impl Send for Memory {}
// SAFETY: The same.
unsafe impl Sync for Memory {}

impl Memory {
    /// At least so many bytes of zeros, in pages of this size where they can be had, else of the next smaller size. Memory
    /// that is smaller than one such page has pages of the next smaller size.
    ///
    /// # Errors
    /// The kernel's error number.
    pub fn new(bytes: usize, wish: Pages) -> Result<Memory, c_int> {
        if bytes == 0 {
            return Err(libc::EINVAL);
        }
        let fits = |pages: Pages| wish >= pages && bytes >= pages.bytes();
        if fits(Pages::Giant)
            && let Some(memory) = Memory::giant(bytes)
        {
            return Ok(memory);
        }
        if !fits(Pages::Huge) {
            let bytes = bytes.checked_next_multiple_of(BASE).ok_or(libc::ENOMEM)?;
            let start = system::map(bytes)?;
            // SAFETY: New memory. Where the kernel knows no such advice, it has no huge pages either.
            unsafe { libc::madvise(start.cast(), bytes, libc::MADV_NOHUGEPAGE) };
            return Ok(Memory { start, bytes, pages: Pages::Base });
        }
        let bytes = bytes.checked_next_multiple_of(HUGE).ok_or(libc::ENOMEM)?;
        // So that it can have 1 GiB pages later.
        let align = if bytes.is_multiple_of(GIANT) { GIANT } else { HUGE };
        let room = bytes.checked_add(align).ok_or(libc::ENOMEM)?;
        let place = system::map(room)?;
        let start = (place as usize).next_multiple_of(align);
        let (before, after) = (start - place as usize, place as usize + room - start - bytes);
        // SAFETY: Parts of what was just mapped.
        unsafe {
            if before > 0 {
                system::unmap(place, before);
            }
            if after > 0 {
                system::unmap((start + bytes) as *mut u8, after);
            }
        }
        let pages = if system::advise_huge(start, bytes) { Pages::Huge } else { Pages::Base };
        Ok(Memory { start: start as *mut u8, bytes, pages })
    }

    /// Memory from the pool of 1 GiB pages, which is grown where a setting asks for it and it is allowed ([`crate::giant`]).
    fn giant(bytes: usize) -> Option<Memory> {
        let bytes = bytes.checked_next_multiple_of(GIANT)?;
        Memory::of_pool(bytes).or_else(|| {
            let grown = crate::giant::grow((bytes / GIANT) as u64).ok()?;
            let memory = Memory::of_pool(bytes);
            if memory.is_none() {
                grown.undo();
            }
            memory
        })
    }

    fn of_pool(bytes: usize) -> Option<Memory> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | OF_1_GIB;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: No address is asked for, so nothing that is mapped changes. The pool's pages are reserved, or the call
        // fails.
        let start = unsafe { libc::syscall(libc::SYS_mmap, 0usize, bytes, protection, flags, -1, 0usize) };
        (start != -1).then_some(Memory { start: start as *mut u8, bytes, pages: Pages::Giant })
    }

    /// Memory that [`Memory::into_parts`] returned.
    ///
    /// # Safety
    /// The parts came from there, and nobody else makes memory of them.
    pub unsafe fn from_parts(start: *mut u8, bytes: usize, pages: Pages) -> Memory {
        Memory { start, bytes, pages }
    }

    /// Where it is, how much, and in which pages; it is no longer given back by itself.
    pub fn into_parts(self) -> (*mut u8, usize, Pages) {
        let parts = (self.start, self.bytes, self.pages);
        std::mem::forget(self);
        parts
    }

    /// Notes that the memory has other pages by now.
    pub(crate) fn set_pages(&mut self, pages: Pages) {
        self.pages = pages;
    }

    /// Notes that the memory lies at another place by now, and has these pages. What was at the old place is not given back.
    ///
    /// # Safety
    /// As many bytes from there on are this value's own.
    pub(crate) unsafe fn move_to(&mut self, start: *mut u8, pages: Pages) {
        (self.start, self.pages) = (start, pages);
    }

    /// Where it begins: at a multiple of its page size.
    pub fn start(&self) -> *mut u8 {
        self.start
    }

    /// The length of the memory: a multiple of its page size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The pages that it has, or, for those of 2 MiB, that the kernel was asked for.
    pub fn pages(&self) -> Pages {
        self.pages
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: It is this value's own.
        unsafe { system::unmap(self.start, self.bytes) };
    }
}

/// What is known about memory, for the kernel to act upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The memory is used often: join its pages into huge pages now.
    Collapse,
    /// The memory is about to be used: bring all of it in, zeroed, now.
    Populate,
    /// The memory is not used for a while: take it first when memory is short.
    Cold,
    /// The memory is not used for long: write it to swap now.
    PageOut,
    /// Single places of the memory are used: take huge pages apart, and give back those that hold zeros (Linux 6.12).
    Split,
    /// The memory should lie in this node where there is room.
    Node(u32),
    /// The memory should lie in nodes of this set where there is room (Linux 5.15).
    Nodes(u64),
    /// The memory should lie in all nodes of this set in turn, for bandwidth.
    Interleave(u64),
}

/// Gives a hint about a range. The bytes of the range stay as they are.
///
/// # Errors
/// The kernel's error number: it has no such advice, no such node, or there is nothing mapped.
///
/// # Safety
/// The range is the caller's.
pub unsafe fn hint(start: *mut u8, bytes: usize, hint: Hint) -> Result<(), c_int> {
    let advice = match hint {
        Hint::Collapse => COLLAPSE,
        Hint::Populate => POPULATE,
        Hint::Cold => COLD,
        Hint::PageOut => PAGE_OUT,
        Hint::Split => return split(start as usize, bytes),
        Hint::Node(node @ 0..64) => return bind(start, bytes, PREFERRED, 1 << node),
        Hint::Node(_) => return Err(libc::EINVAL),
        Hint::Nodes(nodes) => return bind(start, bytes, PREFERRED_MANY, nodes),
        Hint::Interleave(nodes) => return bind(start, bytes, INTERLEAVE, nodes),
    };
    // SAFETY: None of these changes a byte.
    let result = unsafe { libc::syscall(libc::SYS_madvise, start, bytes, advice) };
    system::checked(result).map(|_| ())
}

/// Takes apart all huge pages that lie in a range as a whole.
fn split(start: usize, bytes: usize) -> Result<(), c_int> {
    let end = start.checked_add(bytes).ok_or(libc::EINVAL)?;
    if !start.is_multiple_of(BASE) {
        return Err(libc::EINVAL);
    }
    let table = PageTable::open();
    let mut at = start.next_multiple_of(HUGE);
    while at + HUGE <= end {
        // Without a look at the page table: a hint for a base page is without effect.
        if table.as_ref().is_none_or(|table| table.is_huge(at)) {
            system::split(at)?;
        }
        at += HUGE;
    }
    Ok(())
}

fn bind(start: *mut u8, bytes: usize, mode: c_int, nodes: u64) -> Result<(), c_int> {
    let nodes = [nodes, 0];
    // SAFETY: The set has more bits than the call states (`mbind` reads one less); pages move and no byte changes.
    let result = unsafe { libc::syscall(libc::SYS_mbind, start, bytes, mode, nodes.as_ptr(), 65usize, MOVE) };
    system::checked(result).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(memory: &Memory) {
        for at in (0..memory.bytes()).step_by(BASE) {
            // SAFETY: Within the memory.
            unsafe { memory.start().add(at).write(1) };
        }
    }

    fn huge(memory: &Memory) -> Option<usize> {
        let start = memory.start() as usize;
        let mut huge = 0;
        PageTable::open()?.runs(start..start + memory.bytes(), &mut |run, is_huge| {
            huge += if is_huge { run.len() } else { 0 };
        });
        Some(huge)
    }

    #[test]
    fn memory_has_the_pages_that_were_asked_for() {
        let base = Memory::new(4 * HUGE, Pages::Base).unwrap();
        touch(&base);
        assert_eq!((base.bytes(), base.pages(), huge(&base).unwrap_or(0)), (4 * HUGE, Pages::Base, 0));
        let small = Memory::new(5000, Pages::Giant).unwrap();
        assert_eq!((small.bytes(), small.pages()), (2 * BASE, Pages::Base));
        let memory = Memory::new(4 * HUGE - 100, Pages::Huge).unwrap();
        touch(&memory);
        assert_eq!(memory.bytes(), 4 * HUGE);
        assert!((memory.start() as usize).is_multiple_of(HUGE));
        let setting =
            std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        if memory.pages() == Pages::Huge && !setting.contains("[never]") {
            assert!(huge(&memory).is_none_or(|bytes| bytes >= 3 * HUGE));
        }
        assert_eq!(Memory::new(0, Pages::Base).unwrap_err(), libc::EINVAL);
        assert_eq!(Memory::new(usize::MAX, Pages::Huge).unwrap_err(), libc::ENOMEM);
        assert_eq!(Memory::new(usize::MAX - 5, Pages::Base).unwrap_err(), libc::ENOMEM);
    }

    /// 1 GiB pages where the pool has some, and 2 MiB where it has none. Nothing is touched.
    #[test]
    fn a_gibibyte_comes_from_the_pool_or_in_smaller_pages() {
        let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages");
        let free: u64 = free.map_or(0, |text| text.trim().parse().unwrap());
        let memory = Memory::new(1 << 30, Pages::Giant).unwrap();
        assert_eq!(memory.pages() == Pages::Giant, free > 0);
        assert_eq!(memory.bytes(), 1 << 30);
    }

    #[test]
    fn what_is_used_here_and_there_is_taken_apart() {
        let memory = Memory::new(4 * HUGE, Pages::Huge).unwrap();
        let stored = |at: usize| at * HUGE + at * 7 * BASE;
        for at in 0..4 {
            // SAFETY: Within the memory.
            unsafe { memory.start().add(stored(at)).write(5) };
        }
        let Some(4) = huge(&memory).map(|bytes| bytes / HUGE) else { return };
        // SAFETY: The test's own memory.
        assert_eq!(unsafe { super::hint(memory.start(), 4 * HUGE - BASE, Hint::Split) }, Ok(()));
        assert_eq!(huge(&memory), Some(HUGE), "the last is not in the range as a whole");
        let bytes = (0..memory.bytes()).step_by(BASE).map(|at| {
            // SAFETY: Within the memory.
            unsafe { memory.start().add(at).read() }
        });
        assert_eq!(bytes.filter(|byte| *byte == 5).count(), 4);
        // SAFETY: As above.
        assert_eq!(unsafe { super::hint(memory.start().add(1), HUGE, Hint::Split) }, Err(libc::EINVAL));
    }

    #[test]
    fn hints_are_taken_and_change_no_byte() {
        let memory = Memory::new(2 * HUGE, Pages::Base).unwrap();
        touch(&memory);
        let give = |hint| {
            // SAFETY: The test's own memory.
            unsafe { super::hint(memory.start(), memory.bytes(), hint) }
        };
        assert_eq!(give(Hint::Cold), Ok(()));
        assert_eq!(give(Hint::Node(0)), Ok(()));
        assert_eq!(give(Hint::Interleave(1)), Ok(()));
        assert_eq!(give(Hint::Nodes(1)), Ok(()));
        assert_eq!(give(Hint::Node(63)), Err(libc::EINVAL), "there is no such node");
        assert_eq!(give(Hint::Node(64)), Err(libc::EINVAL));
        assert_eq!(give(Hint::Interleave(0)), Err(libc::EINVAL));
        // What asked for base pages is not joined.
        assert!(give(Hint::Collapse).is_err() && huge(&memory).unwrap_or(0) == 0);
        let all = (0..memory.bytes()).step_by(BASE);
        // SAFETY: Within the memory.
        assert!(all.into_iter().all(|at| unsafe { memory.start().add(at).read() } == 1));
        let later = Memory::new(2 * HUGE, Pages::Huge).unwrap();
        // SAFETY: The test's own memory.
        assert_eq!(unsafe { super::hint(later.start(), later.bytes(), Hint::Populate) }, Ok(()));
        let mut present = 0;
        let start = later.start() as usize;
        if let Some(table) = PageTable::open() {
            table.runs(start..start + 2 * HUGE, &mut |run, _| present += run.len());
            assert_eq!(present, 2 * HUGE);
        }
    }
}
