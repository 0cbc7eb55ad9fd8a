use super::super::page_walk_cache::PageWalkCache;
use super::super::parameters::{Associativity, FullKeyword, PageWalkCacheParameters};
use super::super::tlb::{Tlb, TlbEntry, key};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use terrace_model::{Cycles, PageNumber, PageSize, PhysAddr, SpaceId, VirtAddr};

fn array(entries: u32, ways: Associativity) -> (Tlb, CoTags) {
    let tlb = Tlb::new(entries, ways).unwrap();
    let tags = CoTags::beside(&tlb);
    (tlb, tags)
}

fn fill(tlb: &mut Tlb, tags: &mut CoTags, page: u64, address: PhysAddr) -> u64 {
    let key = key(SpaceId(0), PageNumber(page), PageSize::Base);
    tlb.insert(key, TlbEntry(page));
    let place = tlb.place(key).unwrap();
    tags.set(place, address);
    key
}

/// HATRIC, figure 2.4: GVP 0 comes from the entry at 0x1008, GVP 1 from that at 0x1010. Writing 0x1010 kills the second.
#[test]
fn a_store_finds_the_translation_made_from_its_entry() {
    for bytes in [1, 2, 3, 8] {
        let (mut tlb, mut tags) = array(4, Associativity::Full(FullKeyword::Full));
        let first = fill(&mut tlb, &mut tags, 0, PhysAddr(0x1008));
        let second = fill(&mut tlb, &mut tags, 1, PhysAddr(0x1010));
        let exact = Resolution::new(bytes, false);
        let probed = tags.probe(&mut tlb, Structure::L1, &ProbeSets::All, PhysAddr(0x1010), exact);
        assert_eq!((probed.dropped, probed.aliases, probed.compared), (1, 0, 4));
        assert!(tlb.place(first).is_some() && tlb.place(second).is_none());
        // As coherence works, by lines of eight entries, the other goes too.
        fill(&mut tlb, &mut tags, 1, PhysAddr(0x1010));
        let by_line = Resolution::new(bytes, true);
        let probed = tags.probe(&mut tlb, Structure::L1, &ProbeSets::All, PhysAddr(0x1000), by_line);
        assert_eq!((probed.dropped, probed.aliases), (2, 0));
    }
}

#[test]
fn two_bytes_keep_bits_18_to_3() {
    let dropped = |bytes: u32, by_line: bool, tag: PhysAddr, target: PhysAddr| {
        let (mut tlb, mut tags) = array(1, Associativity::Ways(1));
        fill(&mut tlb, &mut tags, 0, tag);
        let resolution = Resolution::new(bytes, by_line);
        let probed = tags.probe(&mut tlb, Structure::L2, &ProbeSets::All, target, resolution);
        (probed.dropped, probed.aliases)
    };
    let (entry, other) = (PhysAddr(0x7654_3210), |bits: u64| PhysAddr(0x7654_3210 ^ bits));
    for (bytes, bits) in [(1, 11), (2, 19), (3, 27)] {
        assert_eq!(dropped(bytes, false, entry, other(1 << bits)), (0, 1), "bit {bits} is not kept");
        assert_eq!(dropped(bytes, false, entry, other(1 << (bits - 1))), (0, 0), "the one below is");
        assert_eq!(dropped(8, false, entry, other(1 << bits)), (0, 0));
    }
    assert_eq!(dropped(2, false, entry, other(8)), (0, 0), "another entry of the line");
    assert_eq!(dropped(2, true, entry, other(8)), (1, 0));
    assert_eq!(dropped(2, true, entry, other(64)), (0, 0), "another line");
}

/// Figure 2.7: the sets of the page-walk cache follow from the address of the entry that is written.
#[test]
fn sets_of_the_page_walk_cache_follow_from_the_address() {
    let parameters =
        PageWalkCacheParameters { entries: 32, ways: Associativity::Ways(2), latency: Cycles(1.0) };
    let resolution = Resolution::new(8, false);
    for searches_all in [false, true] {
        let mut cache = PageWalkCache::new(&parameters).unwrap();
        cache.keep_co_tags();
        let addr = 0x7f00_1234_5000u64;
        cache.fill(SpaceId(0), VirtAddr(addr), 2, 4);
        // Tables at 1, 2 and 3 MiB hold the entries of levels 2, 3 and 4.
        let entry =
            |level: u32| PhysAddr((u64::from(level - 1) << 20) + (addr >> (12 + 9 * (level - 1)) & 511) * 8);
        for level in 2..=4 {
            assert_eq!(cache.tag(SpaceId(0), VirtAddr(addr), level, entry(level)), None);
            assert!(cache.holds(entry(level), resolution).0);
        }
        let probed = cache.probe(entry(3), 1, searches_all, resolution);
        assert_eq!((probed.dropped, probed.aliases), (1, 0));
        assert_eq!(
            probed.sets,
            [0, 0, if searches_all { 16 } else { 4 }, 0],
            "one set for each of four levels"
        );
        assert_eq!(
            cache.start_level(SpaceId(0), VirtAddr(addr), 1, 4),
            1,
            "what leads to the leaf is still there"
        );
        cache.probe(entry(2), 1, searches_all, resolution);
        assert_eq!(cache.start_level(SpaceId(0), VirtAddr(addr), 1, 4), 3, "and now the root's entry alone");
    }
}

proptest! {
    /// A plain map from the key of each entry to the address that it was made from.
    #[test]
    fn co_tags_agree_with_a_map(
        sets in 1u32..5, ways in 1u32..=20, full: bool, bytes in prop_oneof![Just(1u32), Just(2), Just(8)], by_line: bool,
        steps in prop::collection::vec((0u64..60, 0u64..4096, 0u8..10), 0..300),
    ) {
        let associativity = if full { Associativity::Full(FullKeyword::Full) } else { Associativity::Ways(ways) };
        let (mut tlb, mut tags) = array(sets * ways, associativity);
        let mut map = BTreeMap::new();
        for (page, address, action) in steps {
            let key = key(SpaceId(0), PageNumber(page), PageSize::Base);
            let address = address * 8;
            match action {
                0 => { tlb.remove(key); map.remove(&key); }
                1 | 2 => {
                    let resolution = Resolution::new(bytes, by_line);
                    let listed = [page as u16, page as u16 + 1];
                    let where_to = if action == 1 { ProbeSets::All } else { ProbeSets::Listed(listed.to_vec()) };
                    let probed = tags.probe(&mut tlb, Structure::L1, &where_to, PhysAddr(address), resolution);
                    let searched = where_to.of(tlb.sets());
                    let granule = if by_line { 64 } else { 8 };
                    let width = if bytes == 8 { u64::MAX } else { 1 << (8 * bytes + 3) };
                    let doomed: Vec<(u64, u64)> = map.iter().map(|(key, at)| (*key, *at))
                        .filter(|(key, _)| searched.contains(&tlb.set_number(*key)))
                        .filter(|(_, at)| at % width / granule == address % width / granule)
                        .collect();
                    let exact = doomed.iter().filter(|(_, at)| at / granule == address / granule).count() as u64;
                    prop_assert_eq!((probed.dropped, probed.aliases), (exact, doomed.len() as u64 - exact));
                    prop_assert_eq!(probed.compared, (searched.len() * tlb.ways()) as u64);
                    doomed.iter().for_each(|(key, _)| _ = map.remove(key));
                }
                _ => if tlb.touch(key).is_none() {
                    fill(&mut tlb, &mut tags, page, PhysAddr(address));
                    map.insert(key, address);
                    // Whatever had to go for it.
                    map.retain(|key, _| tlb.place(*key).is_some());
                }
            }
            let held: Vec<(u64, u64)> = (0..sets * ways)
                .filter_map(|place| Some((tlb.key_at(place as usize)?, tags.get(place as usize).0)))
                .collect();
            prop_assert_eq!(held.into_iter().collect::<BTreeMap<_, _>>(), map.clone());
        }
    }
}
