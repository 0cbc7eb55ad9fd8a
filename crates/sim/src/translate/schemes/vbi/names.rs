//! Names of cache lines. An address of the interface has 64 bits and the tags of the simulated caches 32, so each block gets
//! a range of names as long as the block: set indices are those of the offset, and no two lines share a name.
//!
//! Blocks of up to 128 MiB get their range at once, larger ones for each GiB that is touched. Names of a block that is gone
//! are used again only after their lines have left the caches, which happens in the background, many blocks at a time.

use crate::translate::PHYSICAL_NAMES;
use crate::vbi::SizeClass;
use std::ops::Range;
use terrace_model::{CacheLine, LINE_BYTES, Line};

/// Lines of a part of the larger blocks.
const PART_LINES: u64 = (1 << 30) / LINE_BYTES;
/// Nobody's names.
const NOBODY: u32 = u32::MAX;
/// Names that wait until they are worth a look through the caches.
const WORTH_CLEANING: u64 = 1 << 20;
/// Classes whose blocks have their names in one range.
const SMALL_CLASSES: usize = 4;

/// The names of a block: the first name of each part.
pub type BlockNames = Vec<Option<CacheLine>>;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// A line that has a physical address only.
    Physical(Line),
    /// A line of a block, by its number and offset.
    Block(u32, u64),
    /// A line of a block that is gone.
    Gone,
}

/// A GiB of names: the block of each range, and the first offset of the block's part.
#[derive(Clone, Debug)]
struct Gib {
    lines: u64,
    owners: Vec<(u32, u32)>,
}

/// All names.
#[derive(Clone, Debug, Default)]
pub struct Names {
    gibs: Vec<Gib>,
    /// Names that may be used, by the kind of their range.
    free: [Vec<CacheLine>; SMALL_CLASSES + 1],
    /// Names that may be used once their lines have left the caches.
    stale: Vec<(usize, CacheLine)>,
    stale_lines: u64,
}

fn kind(class: SizeClass) -> usize {
    class.number().min(SMALL_CLASSES)
}

fn lines_of(kind: usize) -> u64 {
    if kind == SMALL_CLASSES { PART_LINES } else { SizeClass::ALL[kind].bytes() / LINE_BYTES }
}

impl Names {
    /// The name of the line at an offset of a block. A part that has none gets names.
    pub fn line(&mut self, names: &mut BlockNames, block: u32, class: SizeClass, offset: u64) -> CacheLine {
        let line = offset / LINE_BYTES;
        let kind = kind(class);
        let part = if kind == SMALL_CLASSES { (line / PART_LINES) as usize } else { 0 };
        if names.len() <= part {
            names.resize(part + 1, None);
        }
        let first = match names[part] {
            Some(first) => first,
            None => {
                let first = self.take(kind, block, part as u32);
                names[part] = Some(first);
                first
            }
        };
        first + (line - part as u64 * PART_LINES)
    }

    fn take(&mut self, kind: usize, block: u32, part: u32) -> CacheLine {
        let lines = lines_of(kind);
        if self.free[kind].is_empty() {
            let begin = self.gibs.len() as u64 * PART_LINES;
            let ranges = PART_LINES / lines;
            self.gibs.push(Gib { lines, owners: vec![(NOBODY, 0); ranges as usize] });
            self.free[kind].extend((0..ranges).rev().map(|at| CacheLine(begin + at * lines)));
        }
        let first = self.free[kind].pop().unwrap_or_default();
        *self.owner(first) = (block, part);
        first
    }

    fn owner(&mut self, first: CacheLine) -> &mut (u32, u32) {
        let gib = &mut self.gibs[(first.0 / PART_LINES) as usize];
        &mut gib.owners[(first.0 % PART_LINES / gib.lines) as usize]
    }

    /// The names that a block has now.
    pub fn ranges(names: &BlockNames, class: SizeClass) -> Vec<Range<CacheLine>> {
        names.iter().flatten().map(|first| *first..*first + lines_of(kind(class))).collect()
    }

    /// The names of a range of offsets, as far as the block has some.
    pub fn within(names: &BlockNames, class: SizeClass, offsets: Range<u64>) -> Vec<Range<CacheLine>> {
        let lines = lines_of(kind(class));
        let (begin, end) = (offsets.start / LINE_BYTES, offsets.end.div_ceil(LINE_BYTES));
        let part = |(at, first): (usize, &Option<CacheLine>)| {
            let (first, base) = ((*first)?, at as u64 * PART_LINES);
            let (from, to) = (begin.max(base), end.min(base + lines));
            (from < to).then(|| first + (from - base)..first + (to - base))
        };
        names.iter().enumerate().filter_map(part).collect()
    }

    /// A block is gone, or gets other names.
    pub fn release(&mut self, names: &mut BlockNames, class: SizeClass) {
        for first in std::mem::take(names).into_iter().flatten() {
            *self.owner(first) = (NOBODY, 0);
            self.stale.push((kind(class), first));
            self.stale_lines += lines_of(kind(class));
        }
    }

    /// Names whose lines must leave the caches now, since the names may be used from now on.
    pub fn clean(&mut self) -> Vec<Range<CacheLine>> {
        if self.stale_lines < WORTH_CLEANING {
            return Vec::new();
        }
        self.stale_lines = 0;
        let stale = std::mem::take(&mut self.stale);
        stale.iter().for_each(|(kind, first)| self.free[*kind].push(*first));
        stale.into_iter().map(|(kind, first)| first..first + lines_of(kind)).collect()
    }

    /// The name of a line that has a physical address only.
    pub fn physical(line: Line) -> CacheLine {
        CacheLine(line.0 | PHYSICAL_NAMES)
    }

    /// What a name stands for.
    pub fn resolve(&self, name: CacheLine) -> Name {
        let name = name.0;
        if name & PHYSICAL_NAMES != 0 {
            return Name::Physical(Line(name & !PHYSICAL_NAMES));
        }
        let Some(gib) = self.gibs.get((name / PART_LINES) as usize) else { return Name::Gone };
        let within = name % PART_LINES;
        match gib.owners[(within / gib.lines) as usize] {
            (NOBODY, _) => Name::Gone,
            (block, part) => {
                Name::Block(block, (u64::from(part) * PART_LINES + within % gib.lines) * LINE_BYTES)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_resolve_and_come_back_clean() {
        let mut names = Names::default();
        let mut of: Vec<BlockNames> = vec![Vec::new(); 4];
        let places = [(0, 0, 0x40), (1, 3, 0x7ff_ffc0), (2, 4, 5 << 30), (2, 4, 0x1000), (3, 0, 0xfc0)];
        let mut all = Vec::new();
        for (block, class, offset) in places {
            let class = SizeClass::ALL[class];
            let line = names.line(&mut of[block], block as u32, class, offset);
            assert_eq!(names.resolve(line), Name::Block(block as u32, offset));
            assert_eq!(line, names.line(&mut of[block], block as u32, class, offset));
            assert!(!all.contains(&line));
            all.push(line);
        }
        assert_eq!(names.resolve(Names::physical(Line(9))), Name::Physical(Line(9)));
        let class = SizeClass::ALL[4];
        let within = Names::within(&of[2], class, (5 << 30)..(5 << 30) + 128);
        assert_eq!((within.len(), &within[0]), (1, &(all[2]..all[2] + 2)));
        names.release(&mut of[1], SizeClass::ALL[3]);
        assert_eq!(names.resolve(all[1]), Name::Gone);
        let clean = names.clean();
        assert!(clean.iter().any(|names| names.contains(&all[1])));
        assert!(names.clean().is_empty());
        let mut other = Vec::new();
        let again = names.line(&mut other, 7, SizeClass::ALL[3], 0x7ff_ffc0);
        assert_eq!((again, names.resolve(again)), (all[1], Name::Block(7, 0x7ff_ffc0)));
    }
}
