//! Two ranges exchange what they hold without a copy: `UFFDIO_MOVE` (Linux 6.8).
//!
//! The kernel moves pages from one place of an address space to another, huge pages whole. Three moves exchange two ranges,
//! by way of a third: what Trident^PV has the hypervisor do (Ram et al., MICRO 2021, §6), within one process. What the
//! kernel does not move is copied: pages that are pinned or shared with a forked child, memory that is not anonymous, and
//! everything on an older kernel.

use crate::userfault::{Use, Userfault};
use crate::{BASE, HUGE, system};

/// Bytes of either range, by how they got to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchanged {
    /// Bytes whose pages were moved.
    pub moved: usize,
    /// Bytes that were copied.
    pub copied: usize,
}

/// Why nothing was exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// An address or the length is no multiple of 4 KiB.
    Unaligned,
    /// The ranges overlap, or reach beyond the address space.
    Overlap,
}

/// Exchanges what two ranges of `bytes` hold. Every byte is exchanged when this returns.
///
/// # Errors
/// The ranges are none that can be exchanged; nothing has happened.
///
/// # Safety
/// Both ranges are mapped for reading and writing, and no other thread accesses them meanwhile.
pub unsafe fn exchange(one: *mut u8, other: *mut u8, bytes: usize) -> Result<Exchanged, Refused> {
    let (a, b) = (one as usize, other as usize);
    if !(a | b | bytes).is_multiple_of(BASE) {
        return Err(Refused::Unaligned);
    }
    let ends = a.checked_add(bytes).zip(b.checked_add(bytes)).ok_or(Refused::Overlap)?;
    if bytes > 0 && a < ends.1 && b < ends.0 {
        return Err(Refused::Overlap);
    }
    // SAFETY: The caller's word; so below.
    let moved = unsafe { by_moving(a, b, bytes) };
    // SAFETY: See above. What was not moved is as it was.
    unsafe { std::ptr::swap_nonoverlapping(one.add(moved.0), other.add(moved.0), bytes - moved.0) };
    Ok(Exchanged { moved: moved.1, copied: bytes - moved.1 })
}

/// Exchanges the first part of two ranges, as long as pages move. Returns how much of them is exchanged, and how much of
/// that was moved.
unsafe fn by_moving(a: usize, b: usize, bytes: usize) -> (usize, usize) {
    let Some(mover) = Userfault::open(Use::Move) else { return (0, 0) };
    let Ok(place) = system::map(2 * HUGE) else { return (0, 0) };
    let scratch = (place as usize).next_multiple_of(HUGE);
    let all = [(a, bytes), (b, bytes), (scratch, HUGE)];
    let registered = all.iter().take_while(|(at, bytes)| mover.register(*at, *bytes)).count();
    let mut done = 0;
    let mut stopped = [0; 3];
    if registered == all.len() {
        while done < bytes {
            // Whole huge pages, where both ranges have them at the same places.
            let piece = (HUGE - (a + done) % HUGE).min(bytes - done);
            let (one, other) = (a + done, b + done);
            let order = [(scratch, one), (one, other), (other, scratch)];
            for ((to, from), moved) in order.into_iter().zip(&mut stopped) {
                *moved = mover.shift(to, from, piece);
                if *moved < piece {
                    break;
                }
            }
            if stopped[2] < piece {
                break;
            }
            (done, stopped) = (done + piece, [0; 3]);
        }
    }
    for (at, bytes) in &all[..registered] {
        mover.unregister(*at, *bytes);
    }
    drop(mover);
    let moved = done;
    if done < bytes && stopped[0] > 0 {
        let piece = (HUGE - (a + done) % HUGE).min(bytes - done);
        // SAFETY: The caller's word, and the scratch range is ours.
        unsafe { finish((a + done) as *mut u8, (b + done) as *mut u8, scratch as *mut u8, piece, stopped) };
        // Either all of the piece was brought back, or all of it was exchanged.
        done += if stopped[0] < piece { 0 } else { piece };
    }
    // SAFETY: It was mapped above.
    unsafe { system::unmap(place, 2 * HUGE) };
    (done, moved)
}

/// Brings a piece to an end of which some was moved: `stopped` bytes to the scratch range, from the other range to the one,
/// and from the scratch range to the other.
unsafe fn finish(one: *mut u8, other: *mut u8, scratch: *mut u8, piece: usize, stopped: [usize; 3]) {
    let [away, over, back] = stopped;
    // SAFETY: All three hold a piece, and do not overlap.
    unsafe {
        if away < piece {
            std::ptr::copy_nonoverlapping(scratch, one, away);
            return;
        }
        std::ptr::copy_nonoverlapping(other.add(over), one.add(over), piece - over);
        std::ptr::copy_nonoverlapping(scratch.add(back), other.add(back), piece - back);
    }
}

/// Moves what one range holds to another, of which no page is there. Returns the bytes that were moved; the others are as
/// they were.
///
/// # Safety
/// Both ranges are mapped for reading and writing, and nobody uses them meanwhile.
pub(crate) unsafe fn shift(from: *mut u8, to: *mut u8, bytes: usize) -> usize {
    let Some(mover) = Userfault::open(Use::Move) else { return 0 };
    if !mover.register(to as usize, bytes) {
        return 0;
    }
    let moved = mover.shift(to as usize, from as usize, bytes);
    mover.unregister(to as usize, bytes);
    moved
}

/// Whether this kernel moves pages for this process.
pub fn moves() -> bool {
    Userfault::open(Use::Move).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Memory(*mut u8, usize);

    impl Memory {
        fn new(bytes: usize) -> Memory {
            Memory(system::map(bytes + HUGE).unwrap(), bytes + HUGE)
        }

        fn start(&self) -> *mut u8 {
            (self.0 as usize).next_multiple_of(HUGE) as *mut u8
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: Mapped by `new`; the test is over.
            unsafe { system::unmap(self.0, self.1) };
        }
    }

    fn words(at: *mut u8, bytes: usize) -> &'static mut [u64] {
        // SAFETY: Mapped as long as the test uses it, and aligned to a page.
        unsafe { std::slice::from_raw_parts_mut(at.cast(), bytes / 8) }
    }

    fn fill(at: *mut u8, bytes: usize, salt: u64) {
        for (index, word) in words(at, bytes).iter_mut().enumerate() {
            *word = salt ^ index as u64;
        }
    }

    fn holds(at: *mut u8, bytes: usize, salt: u64) -> bool {
        words(at, bytes).iter().enumerate().all(|(index, word)| *word == salt ^ index as u64)
    }

    #[test]
    fn what_two_ranges_hold_is_exchanged_without_a_copy() {
        for (huge, bytes) in [(true, 8 * HUGE), (false, 3 * HUGE + 5 * BASE), (true, BASE)] {
            let (a, b) = (Memory::new(bytes), Memory::new(bytes));
            if huge {
                system::advise_huge(a.0 as usize, a.1);
            }
            fill(a.start(), bytes, 1 << 60);
            fill(b.start(), bytes, 2 << 60);
            // SAFETY: Both are the test's own.
            let exchanged = unsafe { exchange(a.start(), b.start(), bytes) }.unwrap();
            assert!(holds(a.start(), bytes, 2 << 60) && holds(b.start(), bytes, 1 << 60));
            let expected = if moves() { (bytes, 0) } else { (0, bytes) };
            assert_eq!((exchanged.moved, exchanged.copied), expected);
        }
    }

    #[test]
    fn what_was_never_touched_is_zeros_on_the_other_side() {
        let (a, b) = (Memory::new(HUGE), Memory::new(HUGE));
        words(a.start(), HUGE)[7 * 512] = 9;
        // SAFETY: Both are the test's own.
        unsafe { exchange(a.start(), b.start(), HUGE) }.unwrap();
        assert_eq!(words(b.start(), HUGE)[7 * 512], 9);
        assert_eq!(words(a.start(), HUGE).iter().sum::<u64>(), 0);
        assert_eq!(words(b.start(), HUGE).iter().sum::<u64>(), 9);
    }

    /// Pages of a shared mapping do not move, and those at unequal places within 2 MiB move one by one.
    #[test]
    fn what_does_not_move_is_copied() {
        let bytes = 2 * HUGE;
        let (a, shared) = (Memory::new(bytes), bytes + HUGE);
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: New memory.
        let b = unsafe { libc::mmap(std::ptr::null_mut(), shared, 3, flags, -1, 0) }.cast::<u8>();
        fill(a.start(), bytes, 1 << 60);
        fill(b, bytes, 2 << 60);
        // SAFETY: Both are the test's own.
        let exchanged = unsafe { exchange(a.start(), b, bytes) }.unwrap();
        assert_eq!(exchanged, Exchanged { moved: 0, copied: bytes });
        assert!(holds(a.start(), bytes, 2 << 60) && holds(b, bytes, 1 << 60));
        // SAFETY: Mapped above.
        unsafe { libc::munmap(b.cast(), shared) };
        let c = Memory::new(bytes);
        fill(c.start(), bytes, 3 << 60);
        // SAFETY: Both are the test's own.
        let uneven = unsafe { exchange(a.start(), c.start().add(BASE), HUGE) }.unwrap();
        assert_eq!(uneven.moved + uneven.copied, HUGE);
        assert!(uneven.moved == HUGE || !moves());
        let expected = |index: usize| 3 << 60 ^ (index + 512) as u64;
        assert!(words(a.start(), HUGE).iter().enumerate().all(|(index, word)| *word == expected(index)));
    }

    /// Every place at which the kernel may stop, against the definition of an exchange.
    #[test]
    fn a_piece_that_stopped_half_way_is_brought_to_an_end() {
        let piece = 8usize;
        for away in 1..=piece {
            for over in 0..=piece {
                for back in 0..=piece {
                    if away < piece && over > 0 || over < piece && back > 0 || back == piece {
                        continue;
                    }
                    let (mut one, mut other, mut scratch) = ([1u8; 8], [2u8; 8], [0u8; 8]);
                    // What the moves did.
                    scratch[..away].copy_from_slice(&one[..away]);
                    one[..away].fill(0);
                    one[..over].copy_from_slice(&other[..over]);
                    other[..over].fill(0);
                    other[..back].copy_from_slice(&scratch[..back]);
                    let stopped = [away, over, back];
                    // SAFETY: Three arrays of a piece's length.
                    unsafe {
                        finish(one.as_mut_ptr(), other.as_mut_ptr(), scratch.as_mut_ptr(), piece, stopped)
                    };
                    let expected = if away < piece { ([1; 8], [2; 8]) } else { ([2; 8], [1; 8]) };
                    assert_eq!((one, other), expected, "{stopped:?}");
                }
            }
        }
    }

    #[test]
    fn ranges_that_cannot_be_exchanged_are_refused() {
        let a = Memory::new(HUGE);
        let at = a.start();
        fill(at, HUGE, 5);
        // SAFETY: The test's own; nothing is done.
        unsafe {
            assert_eq!(exchange(at, at.add(BASE), 2 * BASE), Err(Refused::Overlap));
            assert_eq!(exchange(at, at.add(8), BASE), Err(Refused::Unaligned));
            assert_eq!(exchange(at, at.add(BASE), 100), Err(Refused::Unaligned));
            let beyond = (usize::MAX - BASE + 1) as *mut u8;
            assert_eq!(exchange(at, beyond, 2 * BASE), Err(Refused::Overlap));
            assert_eq!(exchange(at, at, 0), Ok(Exchanged::default()));
        }
        assert!(holds(at, HUGE, 5));
    }
}
