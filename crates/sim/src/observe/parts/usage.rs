//! What each part has resident when most is.

use super::Parts;
use crate::os::Os;
use crate::outcome::PartUse;
use std::ops::Range;
use terrace_model::{AddressRange, PageSize, SpaceId, VirtAddr};

/// Memory is looked at again when it has grown by one part in so many.
const GROWTH: u64 = 64;

/// Resident bytes of each part at the moment at which most was resident, within a [`GROWTH`]th.
#[derive(Clone, Debug, Default)]
pub struct Usages {
    most: u64,
    parts: Vec<PartUse>,
}

impl Usages {
    pub fn of(&self, number: usize) -> PartUse {
        self.parts.get(number).cloned().unwrap_or_default()
    }

    pub fn look(&mut self, parts: &mut Parts, os: &Os, over: bool) {
        let resident: u64 = os.resident().iter().sum();
        if resident <= self.most + if over { 0 } else { self.most / GROWTH } {
            return;
        }
        self.most = resident;
        self.parts.clear();
        for space in os.live_spaces() {
            let pages = os.table(space).pages_in(AddressRange::ALL);
            for &(page, size, _) in &pages {
                self.each(parts, space, page..page + size.bytes(), |part, bytes| {
                    part.resident[size.index()] += bytes;
                });
            }
            let resident: Vec<Range<VirtAddr>> =
                pages.iter().map(|&(page, size, _)| page..page + size.bytes()).collect();
            for size in [PageSize::Huge, PageSize::Giant] {
                self.weigh(parts, os, space, &resident, size);
            }
        }
    }

    /// What pages of `size` would hold where one fits into a mapping: what is resident, and what is not.
    fn weigh(
        &mut self,
        parts: &mut Parts,
        os: &Os,
        space: SpaceId,
        resident: &[Range<VirtAddr>],
        size: PageSize,
    ) {
        let count = |usages: &mut Usages, parts: &mut Parts, range: Range<VirtAddr>, is_resident: bool| {
            usages.each(parts, space, range, |part, bytes| {
                *match (size, is_resident) {
                    (PageSize::Giant, true) => &mut part.mappable_1g,
                    (PageSize::Giant, false) => &mut part.bloat_1g,
                    (_, true) => &mut part.mappable_2m,
                    (_, false) => &mut part.bloat_2m,
                } += bytes;
            });
        };
        let block_of = |addr: VirtAddr| addr.align_down(size);
        let mut at = 0;
        while at < resident.len() {
            // All that is resident in one aligned block; a page that is larger counts as its own block.
            let first = block_of(resident[at].start);
            let end = resident[at].end.max(first + size.bytes());
            let inside = resident[at..].iter().take_while(|page| page.start < end).count();
            let pages = &resident[at..at + inside];
            at += inside;
            let fits = os
                .areas(space)
                .find(pages[0].start)
                .is_some_and(|(start, area)| start <= first && end <= area.end);
            if !fits {
                continue;
            }
            let mut covered = first;
            for page in pages {
                count(self, parts, covered..page.start, false);
                count(self, parts, page.clone(), true);
                covered = page.end;
            }
            count(self, parts, covered..end, false);
        }
    }

    /// A range piece by piece, as parts share it.
    fn each(
        &mut self,
        parts: &mut Parts,
        space: SpaceId,
        range: Range<VirtAddr>,
        mut count: impl FnMut(&mut PartUse, u64),
    ) {
        parts.pieces(space, range, |_, number, bytes| {
            if self.parts.len() <= number {
                self.parts.resize_with(number + 1, PartUse::default);
            }
            count(&mut self.parts[number], bytes);
        });
    }
}
