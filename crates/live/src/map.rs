//! Where the memory of the managed processes lies, by address: what a page about a running engine draws.

use crate::engine::Engine;
use crate::space::{Mapping, Space};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use terrace_model::PageSize;
use terrace_policy::AreaKind;

/// The version of the document.
pub const SCHEMA: u32 = 1;
/// Parts of a process at most, as far as larger parts can make them fewer.
const PARTS: usize = 256;
/// The smallest part that a large mapping is cut into, in base pages.
const SMALLEST: u64 = PageSize::Huge.base_pages();

/// All managed processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryMap {
    /// Version of this document's shape.
    pub schema: u32,
    /// The tiers' names, fastest first.
    pub tiers: Vec<String>,
    /// The processes.
    pub processes: Vec<ProcessMap>,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessMap {
    /// The process's number.
    pub pid: u32,
    /// The process's name.
    pub name: String,
    /// The process's memory, by address. What lies between two parts is not mapped, or not managed.
    pub parts: Vec<MapPart>,
}

/// A range of addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MapPart {
    /// First address.
    pub start: u64,
    /// Length, in bytes.
    pub bytes: u64,
    /// What is mapped there first: `anonymous`, `stack`, `shared`, `hugetlb`, `file`.
    pub kind: String,
    /// Resident bytes by tier, in the order of the map's.
    pub resident: Vec<u64>,
    /// Resident bytes that were accessed since the policy's look before the last. Null where nobody has looked for accesses
    /// yet.
    pub hot: Option<Vec<u64>>,
}

impl MemoryMap {
    /// The memory that an engine manages, as it last saw it.
    pub fn of(engine: &Engine) -> MemoryMap {
        let tiers: Vec<String> = engine.world().tiers().iter().map(|tier| tier.name.clone()).collect();
        let spaces = engine.world().spaces();
        let processes = spaces
            .map(|space| ProcessMap {
                pid: space.process.pid,
                name: space.name.clone(),
                parts: parts(space, tiers.len(), engine.knows_accesses_of(space)),
            })
            .collect();
        MemoryMap { schema: SCHEMA, tiers, processes }
    }
}

fn parts(space: &Space, tiers: usize, knows_accesses: bool) -> Vec<MapPart> {
    let cut = cut_to(&space.mappings, PARTS);
    let part = |(pages, kind): (Range<u64>, AreaKind)| {
        let (mut resident, mut hot) = (vec![0; tiers], vec![0; tiers]);
        space.pages.visit_alike(pages.clone(), |count, state| {
            if state.is_resident() && state.is_located() {
                let tier = state.tier().index();
                resident[tier] += count << 12;
                hot[tier] += if state.is_hot() { count << 12 } else { 0 };
            }
        });
        MapPart {
            start: pages.start << 12,
            bytes: (pages.end - pages.start) << 12,
            kind: name(kind).to_owned(),
            resident,
            hot: knows_accesses.then_some(hot),
        }
    };
    cut.into_iter().map(part).collect()
}

/// Ranges that hold all mappings, at most `most` where larger ranges can make them so few.
fn cut_to(mappings: &[Mapping], most: usize) -> Vec<(Range<u64>, AreaKind)> {
    let mut size = SMALLEST;
    loop {
        let ranges = cut(mappings, size);
        // No range is longer than what all addresses are.
        if ranges.len() <= most || size >= 1 << 52 {
            return ranges;
        }
        size *= 2;
    }
}

/// Ranges of at most `size` pages that hold all mappings. Neighbours share one where they fit into it, gaps included.
fn cut(mappings: &[Mapping], size: u64) -> Vec<(Range<u64>, AreaKind)> {
    let mut ranges: Vec<(Range<u64>, AreaKind)> = Vec::new();
    for mapping in mappings {
        let mut first = mapping.first;
        while first < mapping.end {
            match ranges.last_mut() {
                Some((last, _)) if first - last.start < size => {
                    last.end = mapping.end.min(last.start + size);
                    first = last.end;
                }
                _ => {
                    let end = mapping.end.min(first + size);
                    ranges.push((first..end, mapping.kind));
                    first = end;
                }
            }
        }
    }
    ranges
}

fn name(kind: AreaKind) -> &'static str {
    match kind {
        AreaKind::Anonymous => "anonymous",
        AreaKind::Stack => "stack",
        AreaKind::File => "file",
        AreaKind::Shared => "shared",
        AreaKind::HugeTlb => "hugetlb",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Process;
    use proptest::prelude::*;
    use terrace_model::TierId;
    use terrace_policy::SpaceId;

    fn mapping(first: u64, end: u64) -> Mapping {
        Mapping { first, end, kind: AreaKind::Anonymous, writable: true, fixed_size: None, shows: (0, 0) }
    }

    fn ranges(mappings: &[Mapping], size: u64) -> Vec<Range<u64>> {
        cut(mappings, size).into_iter().map(|(range, _)| range).collect()
    }

    #[test]
    fn small_neighbours_share_a_part_and_large_mappings_are_cut() {
        let mappings = [mapping(100, 110), mapping(112, 120), mapping(5000, 7000)];
        assert_eq!(ranges(&mappings, 512), [100..120, 5000..5512, 5512..6024, 6024..6536, 6536..7000]);
        assert_eq!(ranges(&mappings, 1024), [100..120, 5000..6024, 6024..7000]);
        assert_eq!(cut(&mappings, 8192), [(100..7000, AreaKind::Anonymous)]);
        assert_eq!(cut_to(&mappings, 3).len(), 3);
    }

    #[test]
    fn a_part_says_what_lies_in_which_tier_and_what_of_it_is_hot() {
        let process = Process { pid: 7, pidfd: None, pagemap: None, image: None, tracker: None };
        let mut space = Space::new(SpaceId(0), process, "x".to_owned(), 2);
        space.mappings = vec![mapping(0, 1024)];
        for vpn in 0..700 {
            let state = space.pages.base_mut(vpn);
            state.set_resident(true);
            state.set_tier(TierId(u8::from(vpn >= 600)));
            state.set_accessed(vpn < 10);
        }
        let found = parts(&space, 2, true);
        let of = |part: &MapPart| (part.start, part.bytes, part.resident.clone(), part.hot.clone());
        let kib = |pages: u64| pages << 12;
        assert_eq!(of(&found[0]), (0, kib(512), vec![kib(512), 0], Some(vec![kib(10), 0])));
        assert_eq!(of(&found[1]), (kib(512), kib(512), vec![kib(88), kib(100)], Some(vec![0, 0])));
        assert_eq!(parts(&space, 2, false)[0].hot, None);
    }

    proptest! {
        /// Every mapped page lies in exactly one part, parts are in order, and there are not too many.
        #[test]
        fn parts_hold_all_that_is_mapped(lengths in prop::collection::vec((1u64..5000, 1u64..5000), 0..300), most in 1usize..50) {
            let mut at = 0;
            let mappings: Vec<Mapping> = lengths.iter().map(|(gap, length)| {
                let first = at + gap;
                at = first + length;
                mapping(first, at)
            }).collect();
            let ranges = cut_to(&mappings, most);
            prop_assert!(ranges.len() <= most);
            for pair in ranges.windows(2) {
                prop_assert!(pair[0].0.end <= pair[1].0.start);
            }
            for mapping in &mappings {
                let inside: u64 = ranges.iter().map(|(range, _)| {
                    range.end.min(mapping.end).saturating_sub(range.start.max(mapping.first))
                }).sum();
                prop_assert_eq!(inside, mapping.end - mapping.first);
            }
        }
    }
}
