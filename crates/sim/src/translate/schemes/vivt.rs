//! VIVT: virtually indexed, virtually tagged caches down to the L2, translation beside the last level.
//!
//! **What it does.** Lines carry virtual names in all caches. Only what misses the L2 is translated, while the last level is
//! looked up; its answer waits for the translation, since permissions are in the TLB.
//!
//! **Source.** The baseline VIVT of Hajinazar et al., "The Virtual Block Interface", ISCA 2020, section 7.
//!
//! **Left open, and chosen here.** *Names*: tags hold 32 bits, virtual addresses of many processes do not fit. Each
//! touched 1 GiB of an address space gets the next number, and a line's cache address is that number followed by its
//! offset: set indices are those of the virtual address, and no two lines share a name. Page-table frames, which only
//! have physical addresses, live apart. *Synonyms* after a fork: the right to write is looked up as if it travelled with
//! the line, and so is every right that the kernel takes from a page. *Unmapped memory*: its lines are dropped, dirty ones
//! without a write-back. *Moves*: the kernel writes a page's lines back before it copies the page, at the pace of the copy's
//! own lines; Linux does that by `flush_cache_page`. *Accessed bits* see what misses the L2.

use super::plain::translate_plain;
use crate::os::Os;
use crate::translate::{
    Backing, KernelState, NoKeys, PHYSICAL_NAMES, Request, Setup, Stop, TlbHit, Tlbs, Translation, Walker,
};
use std::collections::HashMap;
use std::ops::Range;
use terrace_model::{AddressRange, CacheLine, LINE_BYTES, Line, SpaceId, Time, VirtAddr};

const REGION_SHIFT: u32 = 30;
const REGION_LINES: u64 = (1 << REGION_SHIFT) / LINE_BYTES;

/// The names given so far.
#[derive(Clone, Debug, Default)]
pub struct LineNames {
    numbers: HashMap<(SpaceId, u64), u64>,
    regions: Vec<(SpaceId, u64)>,
    last: Option<((SpaceId, u64), u64)>,
}

impl LineNames {
    /// The cache line of a virtual address.
    #[inline]
    pub fn line(&mut self, space: SpaceId, addr: VirtAddr) -> CacheLine {
        let region = (space, addr.0 >> REGION_SHIFT);
        let offset = addr.0 % (1 << REGION_SHIFT) / LINE_BYTES;
        if let Some((known, number)) = self.last
            && known == region
        {
            return CacheLine(number * REGION_LINES + offset);
        }
        let regions = &mut self.regions;
        let number = *self.numbers.entry(region).or_insert_with(|| {
            regions.push(region);
            regions.len() as u64 - 1
        });
        self.last = Some((region, number));
        CacheLine(number * REGION_LINES + offset)
    }

    /// The cache line of a physical line that has no virtual name.
    #[inline]
    pub fn physical(line: Line) -> CacheLine {
        CacheLine(line.0 | PHYSICAL_NAMES)
    }

    /// What a cache line stands for.
    pub fn resolve(&self, line: CacheLine) -> Name {
        if line.0 & PHYSICAL_NAMES != 0 {
            return Name::Physical(Line(line.0 & !PHYSICAL_NAMES));
        }
        let (space, region) = self.regions[(line.0 / REGION_LINES) as usize];
        Name::Virtual { space, addr: VirtAddr(region << REGION_SHIFT | (line.0 % REGION_LINES * LINE_BYTES)) }
    }
}

/// The meaning of a cache line's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// A physical line.
    Physical(Line),
    /// The line at a virtual address.
    Virtual {
        /// Process.
        space: SpaceId,
        /// First byte.
        addr: VirtAddr,
    },
}

impl KernelState for LineNames {
    #[inline(always)]
    fn virtual_line(&mut self, space: SpaceId, addr: VirtAddr, _os: &Os) -> Option<CacheLine> {
        Some(self.line(space, addr))
    }

    #[inline(always)]
    fn physical_line(&self, line: Line) -> CacheLine {
        LineNames::physical(line)
    }

    fn names(&mut self, space: SpaceId, range: AddressRange) -> Option<Vec<Range<CacheLine>>> {
        let part = |(number, (owner, region)): (usize, &(SpaceId, u64))| {
            let first = region << REGION_SHIFT;
            let begin = range.start.0.max(first) - first;
            let end = range.end().0.min(first + (1 << REGION_SHIFT)).saturating_sub(first);
            let name = |offset: u64| CacheLine(number as u64 * REGION_LINES + offset);
            (*owner == space && begin < end).then(|| name(begin / LINE_BYTES)..name(end.div_ceil(LINE_BYTES)))
        };
        Some(self.regions.iter().enumerate().filter_map(part).collect())
    }

    fn backing(&self, line: CacheLine, os: &Os) -> Backing {
        match self.resolve(line) {
            Name::Physical(line) => Backing::Memory(line),
            Name::Virtual { space, addr } => match os.table(space).find(addr) {
                Some(leaf) => Backing::Memory(leaf.place_of(addr).line()),
                None => Backing::Fault,
            },
        }
    }
}

/// The TLBs of one core, which stand below its L2.
#[derive(Debug)]
pub struct Vivt {
    tlbs: Tlbs,
}

impl Translation for Vivt {
    const NAME: &'static str = "vivt";
    const STATISTICS: &'static [(&'static str, &'static str)] = &[];
    const WALKS: bool = false;
    const VIRTUAL_CACHES: bool = true;
    type Keys = NoKeys;
    type Kernel = LineNames;
    type Tlbs = Tlbs;

    fn new(setup: &Setup<'_, NoKeys>) -> Result<Vivt, String> {
        Ok(Vivt { tlbs: Tlbs::new(setup.translation)? })
    }

    fn kernel(_setup: &Setup<'_, NoKeys>) -> Result<LineNames, String> {
        Ok(LineNames::default())
    }

    #[inline(always)]
    fn tlbs(&self) -> &Tlbs {
        &self.tlbs
    }

    #[inline(always)]
    fn tlbs_mut(&mut self) -> &mut Tlbs {
        &mut self.tlbs
    }

    #[inline(always)]
    fn translate<W: Walker>(
        &mut self,
        kernel: &mut LineNames,
        walker: &mut W,
        request: &Request,
    ) -> Result<(TlbHit, Time), Stop> {
        translate_plain(self, kernel, walker, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_resolve() {
        let mut names = LineNames::default();
        let places = [(0, 0x7fff_ffff_f000), (1, 0x7fff_ffff_f000), (0, 0x40), (0, 0x4000_0000)];
        let places = places.map(|(space, addr)| (SpaceId(space), VirtAddr(addr)));
        let lines: Vec<CacheLine> = places.iter().map(|&(space, addr)| names.line(space, addr)).collect();
        for (line, (space, addr)) in lines.iter().zip(places) {
            assert_eq!(names.resolve(*line), Name::Virtual { space, addr });
        }
        assert_eq!(names.resolve(LineNames::physical(Line(99))), Name::Physical(Line(99)));
    }

    #[test]
    fn a_range_has_the_names_of_its_lines() {
        let mut names = LineNames::default();
        let (one, other) = (SpaceId(0), SpaceId(1));
        let end_of_first = VirtAddr((1 << REGION_SHIFT) - 64);
        let lines = [end_of_first, VirtAddr(1 << REGION_SHIFT)].map(|addr| names.line(one, addr));
        names.line(other, end_of_first);
        let range = AddressRange::new(end_of_first.0, 65);
        assert_eq!(names.names(one, range), Some(lines.map(|line| line..CacheLine(line.0 + 1)).to_vec()));
        let whole = names.names(other, AddressRange::ALL).unwrap();
        assert_eq!(whole, [CacheLine(2 * REGION_LINES)..CacheLine(3 * REGION_LINES)]);
    }
}
