//! Co-tags: beside each translation the address of the page-table entry that it was made from (HATRIC, Yan 2019, section
//! 2.4.1).
//!
//! Co-tags stand in arrays of their own, one per translation structure, in the same sets and ways. A core's lookups never
//! read them; messages of the coherence directory do, and drop the entries whose co-tag matches. A co-tag keeps a part of
//! the address only, so entries of other addresses may match too: those are dropped with the right ones, and counted as
//! aliases.

use super::tlb::Tlb;
use crate::coherence::{NOTHING, ProbeSets, Probed, Resolution, Structure};
use terrace_model::PhysAddr;

/// The co-tags of one array.
#[derive(Clone, Debug)]
pub struct CoTags {
    /// Whole addresses: what a real co-tag lacks of them is masked when they are compared.
    tags: Box<[PhysAddr]>,
    ways: usize,
}

impl CoTags {
    /// Beside `array`, all empty.
    pub fn beside(array: &Tlb) -> CoTags {
        let (sets, ways) = (array.sets(), array.ways());
        CoTags { tags: vec![NOTHING; sets * ways].into(), ways }
    }

    /// The entry at `place` was made from the page-table entry at `address`. Returns the co-tag that stood there.
    #[inline]
    pub fn set(&mut self, place: usize, address: PhysAddr) -> Option<PhysAddr> {
        let old = std::mem::replace(&mut self.tags[place], address);
        (old != NOTHING).then_some(old)
    }

    /// The entry at `place` was made from no entry that a message could be about. Returns the co-tag that stood there.
    pub fn clear(&mut self, place: usize) -> Option<PhysAddr> {
        self.set(place, NOTHING)
    }

    /// The co-tag of the entry at `place`.
    #[inline]
    pub fn get(&self, place: usize) -> PhysAddr {
        self.tags[place]
    }

    /// Drops from `array` what matches in these sets.
    pub fn probe(
        &mut self,
        array: &mut Tlb,
        structure: Structure,
        sets: &ProbeSets,
        target: PhysAddr,
        resolution: Resolution,
    ) -> Probed {
        let mut probed = Probed::default();
        for set in sets.of(array.sets()) {
            probed.longest += 1;
            for place in set * self.ways..(set + 1) * self.ways {
                let tag = self.tags[place];
                probed.compared += 1;
                if !resolution.matches(tag, target) || array.key_at(place).is_none() {
                    continue;
                }
                if resolution.is_exact(tag, target) {
                    probed.dropped += 1;
                } else {
                    probed.aliases += 1;
                }
                array.drop_at(place);
                self.tags[place] = NOTHING;
            }
        }
        probed.sets[structure as usize] = probed.longest;
        probed
    }

    /// Whether an entry of `array` matches, in any set, and how many co-tags were compared for that: all.
    pub fn holds(&self, array: &Tlb, target: PhysAddr, resolution: Resolution) -> (bool, u64) {
        let mut tags = self.tags.iter().enumerate();
        let held = tags.any(|(place, tag)| resolution.matches(*tag, target) && array.key_at(place).is_some());
        (held, self.tags.len() as u64)
    }
}

#[cfg(test)]
mod tests;
