//! What is copied where memory gets pages of another size.

use crate::memory::Pages;
use crate::pages::PageTable;
use crate::{BASE, HUGE, system};
use std::ops::Range;

/// Copies from memory to new memory in pages of another size.
pub(super) struct Copier {
    /// The old memory's address.
    pub start: usize,
    pub bytes: usize,
    /// The new one's.
    to: usize,
    /// What is looked at for zeros at a time: a page that is wanted, or 2 MiB where that is larger.
    piece: usize,
    /// 2 MiB.
    buffer: Vec<u64>,
    /// Base pages that hold something by now, a bit each.
    filled: Vec<u64>,
}

impl Copier {
    pub fn new(start: usize, to: usize, bytes: usize, pages: Pages) -> Copier {
        Copier {
            start,
            to,
            bytes,
            piece: pages.bytes().min(HUGE),
            buffer: vec![0u64; HUGE / 8],
            filled: vec![0u64; (bytes / BASE).div_ceil(64)],
        }
    }

    fn is_filled(&self, page: usize) -> bool {
        self.filled[page / 64] >> (page % 64) & 1 != 0
    }

    /// Copies what does not hold zeros alone. The kernel reads: a page that it took away meanwhile (`MADV_FREE`) is zeros,
    /// where a load would wait for this very thread. False where the kernel does not.
    ///
    /// # Safety
    /// As many bytes from `to` on are the caller's.
    pub unsafe fn copy(&mut self, run: Range<usize>) -> bool {
        let piece = self.piece;
        // SAFETY: The caller's word.
        unsafe { self.by_pieces(run, 0, piece, |words, _| words.iter().any(|word| *word != 0)) }
    }

    /// Copies what there is, zeros too.
    ///
    /// # Safety
    /// As for `copy`.
    pub unsafe fn copy_all(&mut self, run: Range<usize>) -> bool {
        // SAFETY: The caller's word.
        unsafe { self.by_pieces(run, 0, BASE, |_, _| true) }
    }

    /// Copies from the old pages at their new place what held zeros when it was copied and has been stored to since: only
    /// such pages lose their protection.
    ///
    /// # Safety
    /// As for `copy`.
    pub unsafe fn copy_late(&mut self, table: &PageTable, place: usize) -> bool {
        let mut fine = true;
        let (away, bytes) = (place.wrapping_sub(self.start), self.bytes);
        let shown = table.data(place..place + bytes, &mut |run| {
            let is_late = |words: &[u64], is_filled: bool| !is_filled && words.iter().any(|word| *word != 0);
            let run = run.start.wrapping_sub(away)..run.end.wrapping_sub(away);
            // SAFETY: The caller's word.
            fine = fine && unsafe { self.by_pieces(run, away, BASE, is_late) };
        });
        shown && fine
    }

    /// Copies the pieces of a run that are wanted: their words, and whether their first page holds something by now. What is
    /// at an address of the run lies `away` from it.
    ///
    /// # Safety
    /// As for `copy`.
    unsafe fn by_pieces(
        &mut self,
        run: Range<usize>,
        away: usize,
        piece: usize,
        is_wanted: impl Fn(&[u64], bool) -> bool,
    ) -> bool {
        let mut at = run.start;
        while at < run.end {
            let part = (HUGE - at % HUGE).min(run.end - at);
            let words = &mut self.buffer[..part / 8];
            // SAFETY: The same bytes, of which each value is a number.
            let into = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), part) };
            if !system::peek_or_zeros(at.wrapping_add(away), into) {
                return false;
            }
            for number in 0..part.div_ceil(piece) {
                let first = (at - self.start) / BASE + number * (piece / BASE);
                let words = number * piece / 8..((number + 1) * piece).min(part) / 8;
                if !is_wanted(&self.buffer[words.clone()], self.is_filled(first)) {
                    continue;
                }
                let to = (self.to + first * BASE) as *mut u64;
                // SAFETY: The caller's word.
                unsafe {
                    std::ptr::copy_nonoverlapping(self.buffer[words.clone()].as_ptr(), to, words.len())
                };
                for (page, words) in (first..).zip(self.buffer[words].chunks(BASE / 8)) {
                    if words.iter().any(|word| *word != 0) {
                        self.filled[page / 64] |= 1 << (page % 64);
                    }
                }
            }
            at += part;
        }
        true
    }
}
