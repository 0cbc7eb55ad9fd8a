//! Lines of memory that the controller knows to be zero, 64 of them in a word for each base page: it answers reads of them
//! by itself, until they are written.

use std::collections::HashMap;
use terrace_model::{LINE_BYTES, PageSize};

const PAGE_LINES: u64 = PageSize::Base.bytes() / LINE_BYTES;

/// The lines, by base frame.
#[derive(Debug, Default)]
pub(super) struct ZeroLines {
    frames: HashMap<u64, u64>,
    /// Reads that were answered.
    pub reads: u64,
}

impl ZeroLines {
    /// Lines of whole frames are zero from now on.
    pub fn insert(&mut self, first: u64, lines: u64) {
        for frame in first / PAGE_LINES..(first + lines) / PAGE_LINES {
            self.frames.insert(frame, u64::MAX);
        }
    }

    /// Whether a line that is read is zero.
    #[inline(always)]
    pub fn contains(&mut self, line: u64) -> bool {
        !self.frames.is_empty() && self.look_up(line)
    }

    fn look_up(&mut self, line: u64) -> bool {
        let zeros = self.frames.get(&(line / PAGE_LINES));
        let zero = zeros.is_some_and(|zeros| zeros >> (line % PAGE_LINES) & 1 != 0);
        self.reads += u64::from(zero);
        zero
    }

    /// A line is written.
    #[inline(always)]
    pub fn remove(&mut self, line: u64) {
        if !self.frames.is_empty() {
            self.clear(line);
        }
    }

    fn clear(&mut self, line: u64) {
        let frame = line / PAGE_LINES;
        if let Some(zeros) = self.frames.get_mut(&frame) {
            *zeros &= !(1 << (line % PAGE_LINES));
            if *zeros == 0 {
                self.frames.remove(&frame);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_zero_until_it_is_written() {
        let mut zeros = ZeroLines::default();
        assert!(!zeros.contains(64));
        zeros.insert(64, 128);
        assert_eq!([63, 64, 191, 192].map(|line| zeros.contains(line)), [false, true, true, false]);
        zeros.remove(64);
        assert!(!zeros.contains(64) && zeros.contains(65));
        (64..128).for_each(|line| zeros.remove(line));
        assert_eq!((zeros.frames.len(), zeros.reads), (1, 3));
    }
}
