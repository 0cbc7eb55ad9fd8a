//! Dense line numbers for virtually tagged caches.
//!
//! Tags hold 32 bits, virtual addresses of many processes do not fit. Each touched 1 GiB of an address space gets the
//! next number, and a line's cache address is that number followed by its offset: set indices are those of the virtual
//! address, and no two lines share a name. Page-table frames, which only have physical addresses, live apart.

use std::collections::HashMap;
use terrace_model::LINE_BYTES;

const REGION_SHIFT: u32 = 30;
const REGION_LINES: u64 = (1 << REGION_SHIFT) / LINE_BYTES;
/// Lines named by physical address.
const PHYSICAL: u64 = 1 << 37;

/// The names given so far.
#[derive(Clone, Debug, Default)]
pub struct Intermediate {
    numbers: HashMap<(u32, u64), u64>,
    regions: Vec<(u32, u64)>,
    last: Option<((u32, u64), u64)>,
}

impl Intermediate {
    /// The cache line of a virtual address.
    #[inline]
    pub fn line(&mut self, space: u32, addr: u64) -> u64 {
        let region = (space, addr >> REGION_SHIFT);
        let offset = addr % (1 << REGION_SHIFT) / LINE_BYTES;
        if let Some((known, number)) = self.last
            && known == region
        {
            return number * REGION_LINES + offset;
        }
        let regions = &mut self.regions;
        let number = *self.numbers.entry(region).or_insert_with(|| {
            regions.push(region);
            regions.len() as u64 - 1
        });
        self.last = Some((region, number));
        number * REGION_LINES + offset
    }

    /// The cache line of a physical line that has no virtual name.
    #[inline]
    pub fn physical(line: u64) -> u64 {
        line | PHYSICAL
    }

    /// What a cache line stands for.
    pub fn resolve(&self, line: u64) -> Name {
        if line & PHYSICAL != 0 {
            return Name::Physical(line & !PHYSICAL);
        }
        let (space, region) = self.regions[(line / REGION_LINES) as usize];
        Name::Virtual { space, addr: region << REGION_SHIFT | ((line % REGION_LINES) * LINE_BYTES) }
    }
}

/// The meaning of a cache line's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// A physical line.
    Physical(u64),
    /// The line at a virtual address.
    Virtual {
        /// Process.
        space: u32,
        /// First byte.
        addr: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_resolve() {
        let mut names = Intermediate::default();
        let places = [(0, 0x7fff_ffff_f000), (1, 0x7fff_ffff_f000), (0, 0x40), (0, 0x4000_0000)];
        let lines: Vec<u64> = places.iter().map(|&(space, addr)| names.line(space, addr)).collect();
        for (line, (space, addr)) in lines.iter().zip(places) {
            assert_eq!(names.resolve(*line), Name::Virtual { space, addr });
        }
        assert_eq!(names.resolve(Intermediate::physical(99)), Name::Physical(99));
    }
}
