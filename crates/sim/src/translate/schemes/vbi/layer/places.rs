//! Where the parts of a block lie in a program's addresses. Most blocks have one part, and each miss asks for it.

use std::ops::Range;
use terrace_model::VirtAddr;

/// A part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Offset of its first byte in the block.
    pub first: u64,
    /// Offset of the byte after its last one.
    pub end: u64,
    /// Address of its first byte.
    pub addr: VirtAddr,
}

/// The parts of a block, by offset. No two overlap.
#[derive(Clone, Debug, Default)]
pub struct Places(Vec<Part>);

impl Places {
    /// Whether the block holds nothing of a program.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The parts.
    pub fn iter(&self) -> impl Iterator<Item = &Part> {
        self.0.iter()
    }

    /// The address of the byte at an offset. None where it stands for nothing.
    #[inline]
    pub fn address_of(&self, offset: u64) -> Option<VirtAddr> {
        let part = match &self.0[..] {
            [only] => only,
            parts => &parts[parts.partition_point(|part| part.first <= offset).checked_sub(1)?],
        };
        (part.first <= offset && offset < part.end).then(|| part.addr + (offset - part.first))
    }

    /// Adds a part, in place of the one that begins where it begins.
    pub fn insert(&mut self, part: Part) {
        match self.0.binary_search_by_key(&part.first, |part| part.first) {
            Ok(at) => self.0[at] = part,
            Err(at) => self.0.insert(at, part),
        }
    }

    /// Takes a range of offsets out.
    pub fn remove(&mut self, offsets: &Range<u64>) {
        for cut in [offsets.start, offsets.end] {
            let after = self.0.partition_point(|part| part.first < cut);
            let Some(part) = after.checked_sub(1).map(|at| self.0[at]).filter(|part| part.end > cut) else {
                continue;
            };
            self.0[after - 1].end = cut;
            self.0.insert(after, Part { first: cut, end: part.end, addr: part.addr + (cut - part.first) });
        }
        self.0.retain(|part| !offsets.contains(&part.first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_parts_stays_where_it_was() {
        let mut places = Places::default();
        assert_eq!((places.address_of(0), places.is_empty()), (None, true));
        let part = |first, end, addr| Part { first, end, addr: VirtAddr(addr) };
        places.insert(part(0x1000, 0x5000, 0x10_1000));
        assert_eq!(places.address_of(0xfff), None);
        assert_eq!(places.address_of(0x4fff), Some(VirtAddr(0x10_4fff)));
        assert_eq!(places.address_of(0x5000), None);
        places.insert(part(0x8000, 0x9000, 0x20_0000));
        places.remove(&(0x2000..0x3000));
        for (offset, addr) in [
            (0x1fff, Some(0x10_1fff)),
            (0x2000, None),
            (0x2fff, None),
            (0x3000, Some(0x10_3000)),
            (0x5000, None),
            (0x8010, Some(0x20_0010)),
        ] {
            assert_eq!(places.address_of(offset), addr.map(VirtAddr), "{offset:#x}");
        }
        places.insert(part(0x8000, 0x8800, 0x30_0000));
        assert_eq!(places.iter().copied().last(), Some(part(0x8000, 0x8800, 0x30_0000)));
        places.remove(&(0..u64::MAX));
        assert!(places.is_empty());
    }
}
