//! Where each area is to lie: coalesced regions of physical memory that never overlap.

use crate::{Area, PageRange};
use terrace_model::{Frame, PageSize};

/// An area's place: its page `range.first` belongs in `frame`, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The area, as it was when it was last seen.
    pub range: PageRange,
    /// The anchor's frame.
    pub frame: Frame,
}

impl Region {
    fn end(&self) -> u64 {
        self.frame.0 + self.range.pages
    }

    fn overlaps(&self, frame: u64, pages: u64) -> bool {
        self.frame.0 < frame + pages && frame < self.end()
    }

    /// Where a page of the area belongs.
    pub fn target(&self, vpn: u64) -> u64 {
        (self.frame.0 + vpn).wrapping_sub(self.range.first.vpn)
    }
}

/// The list of coalesced regions in one tier.
#[derive(Clone, Debug)]
pub struct Regions {
    /// The regions by their first frames.
    list: Vec<Region>,
    first: u64,
    end: u64,
    align: bool,
    /// Anchors that were given up because an area grew.
    pub moved: u64,
    /// Areas that no hole was big enough for, when they were last looked at.
    pub unplaced: u64,
}

impl Regions {
    /// No regions in the frames of a tier.
    pub fn new(first: Frame, frames: u64, align: bool) -> Regions {
        Regions { list: Vec::new(), first: first.0, end: first.0 + frames, align, moved: 0, unplaced: 0 }
    }

    /// The region of an area.
    pub fn of(&self, area: &Area) -> Option<Region> {
        self.list.iter().find(|region| region.range == area.range).copied()
    }

    /// Anchors areas, in this order. Regions follow their areas as they grow and shrink; where a grown one meets another,
    /// the smaller of the two areas gets a new anchor.
    pub fn update(&mut self, areas: &[Area]) {
        let mut kept: Vec<Region> = Vec::new();
        for area in areas {
            let Some(mut region) = self.known(area) else { continue };
            region.frame = Frame(region.target(area.range.first.vpn));
            region.range = area.range;
            // An anchor so close to an end that the area reaches out of the tier wraps or ends beyond it.
            let fits = region.frame.0 >= self.first && region.frame.0 <= self.end && region.end() <= self.end;
            let in_the_way = |other: &Region| other.overlaps(region.frame.0, area.range.pages);
            let larger = |other: &Region| in_the_way(other) && other.range.pages >= area.range.pages;
            if !fits || kept.iter().any(larger) {
                self.moved += 1;
                continue;
            }
            let before = kept.len();
            kept.retain(|other| !in_the_way(other));
            self.moved += (before - kept.len()) as u64;
            kept.push(region);
        }
        self.list = kept;
        self.list.sort_by_key(|region| region.frame);
        self.unplaced = 0;
        for area in areas {
            if self.of(area).is_none() {
                match self.first_fit(area.range) {
                    Some(frame) => {
                        let at = self.list.partition_point(|region| region.frame < frame);
                        self.list.insert(at, Region { range: area.range, frame });
                    }
                    None => self.unplaced += 1,
                }
            }
        }
    }

    /// The region that an area had: of several, now joined in one area, that of the largest.
    fn known(&self, area: &Area) -> Option<Region> {
        let meets = |region: &&Region| {
            let range = region.range;
            range.first.space == area.range.first.space
                && range.first.vpn < area.range.end()
                && area.range.first.vpn < range.end()
        };
        let overlap = |region: &&Region| {
            let range = region.range;
            range.end().min(area.range.end()) - range.first.vpn.max(area.range.first.vpn)
        };
        self.list.iter().filter(meets).max_by_key(overlap).copied()
    }

    /// The first hole between regions that is big enough.
    fn first_fit(&self, range: PageRange) -> Option<Frame> {
        let giant = range.pages >= PageSize::Giant.base_pages();
        let alignments = match (self.align, giant) {
            (false, _) => vec![1],
            (true, false) => vec![PageSize::Huge.base_pages()],
            // Rather less aligned than nowhere.
            (true, true) => vec![PageSize::Giant.base_pages(), PageSize::Huge.base_pages()],
        };
        let fit = |align: u64| {
            let mut hole = self.first;
            let ends = self.list.iter().map(|region| (region.frame.0, region.end()));
            for (end, next) in ends.chain([(self.end, self.end)]) {
                let rest = range.first.vpn % align;
                let frame = (hole + align - rest).next_multiple_of(align) - align + rest;
                if frame + range.pages <= end {
                    return Some(Frame(frame));
                }
                hole = next;
            }
            None
        };
        alignments.into_iter().find_map(fit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AreaKind, PageId};
    use proptest::prelude::*;

    fn area(vpn: u64, pages: u64) -> Area {
        let range = PageRange::new(PageId::new(0, vpn), pages);
        Area { range, kind: AreaKind::Anonymous, writable: true, huge_advice: None, object: None }
    }

    fn frames(regions: &Regions, areas: &[Area]) -> Vec<Option<u64>> {
        areas.iter().map(|area| regions.of(area).map(|region| region.frame.0)).collect()
    }

    /// Figure 4.7: the first area has the anchor (V0, P4) and four pages; the second one's is (V12, P8), not (V12, P6).
    #[test]
    fn figure_4_7() {
        let mut regions = Regions::new(Frame(4), 12, false);
        let areas = [area(0, 4), area(12, 4)];
        regions.update(&areas[..1]);
        assert_eq!(frames(&regions, &areas), [Some(4), None]);
        regions.update(&areas);
        assert_eq!(frames(&regions, &areas), [Some(4), Some(8)]);
    }

    #[test]
    fn the_first_hole_that_is_big_enough_counts() {
        let mut regions = Regions::new(Frame(0), 100, false);
        let areas = [area(0, 10), area(50, 20), area(100, 30)];
        regions.update(&areas);
        regions.update(&areas[1..]);
        let more = [areas[1], areas[2], area(200, 11), area(300, 8), area(400, 60)];
        regions.update(&more);
        assert_eq!(frames(&regions, &more), [Some(10), Some(30), Some(60), Some(0), None]);
        assert_eq!(regions.unplaced, 1);
    }

    #[test]
    fn what_grows_goes_on_or_the_smaller_one_moves() {
        let mut regions = Regions::new(Frame(0), 100, false);
        regions.update(&[area(0, 10), area(50, 20)]);
        let grown = [area(0, 15), area(50, 20)];
        regions.update(&grown);
        assert_eq!(frames(&regions, &grown), [Some(30), Some(10)], "the smaller one is the one that grew");
        let grown = [area(0, 25), area(50, 45)];
        regions.update(&grown);
        assert_eq!(frames(&regions, &grown), [Some(55), Some(10)], "the smaller one is in the way");
        assert_eq!(regions.moved, 2);
        let shrunk = [area(4, 5), area(50, 45)];
        regions.update(&shrunk);
        assert_eq!(frames(&regions, &shrunk), [Some(59), Some(10)]);
        let apart = [area(4, 5), area(50, 5), area(60, 35)];
        regions.update(&apart);
        assert_eq!(frames(&regions, &apart), [Some(59), Some(10), Some(20)], "parts keep their places");
    }

    #[test]
    fn places_are_aligned_for_ordinary_tlbs() {
        const GIANT: u64 = 512 * 512;
        let areas = [area(100, 600), area(5 * 512 + 7, GIANT - 1), area(3 * GIANT + 512, GIANT)];
        let mut regions = Regions::new(Frame(3), 4 * GIANT, true);
        regions.update(&areas);
        assert_eq!(frames(&regions, &areas), [Some(100), Some(1024 + 7), Some(2 * GIANT + 512)]);
        let mut tight = Regions::new(Frame(0), GIANT + 300, true);
        tight.update(&[area(600, GIANT)]);
        assert_eq!(frames(&tight, &[area(600, GIANT)]), [Some(88)], "to 2 MiB where 1 GiB does not fit");
    }

    proptest! {
        #[test]
        fn anchors_never_overlap(steps in prop::collection::vec(
            prop::collection::vec((0..12u64, 1..90u64), 0..10), 1..12), align in any::<bool>()) {
            let mut regions = Regions::new(Frame(17), 3000, align);
            for step in steps {
                let mut areas: Vec<Area> = Vec::new();
                for (slot, pages) in step {
                    // Areas of one space that lie apart, at most one per slot.
                    if areas.iter().all(|other| other.range.first.vpn / 100 != slot) {
                        areas.push(area(slot * 100 + pages / 9, pages));
                    }
                }
                areas.sort_by_key(|area| area.range.first);
                regions.update(&areas);
                for pair in regions.list.windows(2) {
                    prop_assert!(pair[0].end() <= pair[1].frame.0);
                }
                let placed = areas.iter().filter(|area| regions.of(area).is_some()).count();
                prop_assert_eq!(placed, regions.list.len());
                prop_assert_eq!(placed as u64 + regions.unplaced, areas.len() as u64);
                for region in &regions.list {
                    prop_assert!(region.frame.0 >= 17 && region.end() <= 3017);
                    if align {
                        prop_assert_eq!(region.frame.0 % 512, region.range.first.vpn % 512);
                    }
                }
            }
        }
    }
}
