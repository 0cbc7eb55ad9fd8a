//! Which data structures reach which memory.

use super::Objects;
use terrace_model::{AddressRange, SpaceId, StructureTraffic, TierId, VirtAddr};
use terrace_trace::Event;

/// Structures that are reported by name.
const MOST: usize = 24;

/// Counts the accesses of each data structure that reach memory, by tier.
#[derive(Debug)]
pub struct StructureCounter {
    objects: Objects,
    tiers: usize,
    /// Counts by the site's place among the objects, and by tier.
    counts: Vec<u64>,
    /// The structure of the last access.
    recent: Option<(SpaceId, AddressRange, u32)>,
}

impl StructureCounter {
    /// Without counts.
    pub fn new(tiers: usize) -> StructureCounter {
        StructureCounter { objects: Objects::default(), tiers, counts: Vec::new(), recent: None }
    }

    /// An event of a process was applied.
    pub fn apply(&mut self, space: SpaceId, event: &Event) {
        // Events of warps are many, and change no structure.
        if !matches!(event, Event::Mark { .. } | Event::Compute { .. }) {
            self.recent = None;
            self.objects.apply(space, event);
        }
    }

    /// A process was forked from another.
    pub fn forked(&mut self, parent: SpaceId, child: SpaceId) {
        self.objects.forked(parent, child);
    }

    /// An access reached a tier.
    pub fn count(&mut self, space: SpaceId, addr: VirtAddr, tier: TierId) {
        let known = self.recent.filter(|(of, range, _)| *of == space && range.contains(addr));
        let found = known.map(|(_, range, place)| (range, place)).or_else(|| self.objects.find(space, addr));
        let Some((range, place)) = found else { return };
        self.recent = Some((space, range, place));
        let at = place as usize * self.tiers + tier.index();
        if at >= self.counts.len() {
            self.counts.resize((place as usize + 1) * self.tiers, 0);
        }
        self.counts[at] += 1;
    }

    /// The structures that reached memory most.
    pub fn finish(&self) -> Vec<StructureTraffic> {
        let counted = self.objects.sites().zip(self.counts.chunks(self.tiers));
        let mut all: Vec<StructureTraffic> = counted
            .map(|((_, name, bytes), lines)| StructureTraffic {
                name: name.to_owned(),
                code_line: String::new(),
                bytes,
                lines: lines.to_vec(),
            })
            .filter(|one| one.lines.iter().any(|count| *count > 0))
            .collect();
        // Structures with equal counts stay in the order in which they were allocated.
        all.sort_by_key(|one| std::cmp::Reverse(one.lines.iter().sum::<u64>()));
        all.truncate(MOST);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_go_to_the_structure_at_their_address_and_to_its_tier() {
        let mut counter = StructureCounter::new(2);
        let space = SpaceId(0);
        for (site, name) in [(1, "grid"), (2, "index")] {
            counter.apply(space, &Event::Site { site, name: name.to_owned() });
            let range = AddressRange::new(u64::from(site) << 16, 0x1000);
            counter.apply(space, &Event::Alloc { object: u64::from(site), site, range });
        }
        counter.count(space, VirtAddr(0x1_0000), TierId(0));
        counter.count(space, VirtAddr(0x2_0000), TierId(1));
        counter.count(space, VirtAddr(0x2_0fff), TierId(0));
        counter.count(space, VirtAddr(0x3_0000), TierId(0));
        let structure = |name: &str, lines: [u64; 2]| StructureTraffic {
            name: name.to_owned(),
            code_line: String::new(),
            bytes: 4096,
            lines: lines.into(),
        };
        assert_eq!(counter.finish(), [structure("index", [1, 1]), structure("grid", [1, 0])]);
        // What was freed is nobody's.
        counter.apply(space, &Event::Free { object: 2 });
        counter.count(space, VirtAddr(0x2_0000), TierId(0));
        assert_eq!(counter.finish()[0].lines, [1, 1]);
    }
}
