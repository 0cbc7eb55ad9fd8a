//! Lines of memory that the controller knows to be zero, 64 of them in a word for each base page: it answers reads of them
//! by itself, until they are written.

use std::collections::HashMap;
use terrace_model::Line;

/// The lines, by base frame.
#[derive(Debug, Default)]
pub(super) struct ZeroLines {
    frames: HashMap<u64, u64>,
    /// Reads that were answered.
    pub reads: u64,
}

impl ZeroLines {
    /// Lines of whole frames are zero from now on.
    pub fn insert(&mut self, first: Line, lines: u64) {
        for frame in first.frame().0..(first + lines).frame().0 {
            self.frames.insert(frame, u64::MAX);
        }
    }

    /// Whether a line that is read is zero.
    #[inline(always)]
    pub fn contains(&mut self, line: Line) -> bool {
        !self.frames.is_empty() && self.look_up(line)
    }

    fn look_up(&mut self, line: Line) -> bool {
        let zeros = self.frames.get(&line.frame().0);
        let zero = zeros.is_some_and(|zeros| zeros >> (line.0 % Line::PER_FRAME) & 1 != 0);
        self.reads += u64::from(zero);
        zero
    }

    /// A line is written.
    #[inline(always)]
    pub fn remove(&mut self, line: Line) {
        if !self.frames.is_empty() {
            self.clear(line);
        }
    }

    fn clear(&mut self, line: Line) {
        let frame = line.frame().0;
        if let Some(zeros) = self.frames.get_mut(&frame) {
            *zeros &= !(1 << (line.0 % Line::PER_FRAME));
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
        assert!(!zeros.contains(Line(64)));
        zeros.insert(Line(64), 128);
        assert_eq!([63, 64, 191, 192].map(|line| zeros.contains(Line(line))), [false, true, true, false]);
        zeros.remove(Line(64));
        assert!(!zeros.contains(Line(64)) && zeros.contains(Line(65)));
        (64..128).for_each(|line| zeros.remove(Line(line)));
        assert_eq!((zeros.frames.len(), zeros.reads), (1, 3));
    }
}
