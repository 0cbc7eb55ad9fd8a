//! Pages of all sizes, against a plain list of them.

use super::*;
use proptest::prelude::*;

fn seen(map: &mut PageStates, vpn: u64) {
    let page = map.base_mut(vpn);
    page.set_resident(true);
    page.set_seen(true);
}

fn resident(map: &mut PageStates, range: Range<u64>) -> Vec<(u64, PageSize)> {
    let mut pages = Vec::new();
    map.visit_mut(range, |page, _| {
        pages.push((page.vpn, page.size));
        true
    });
    pages
}

#[test]
fn states_hold_what_was_set() {
    let mut state = PageState::default();
    state.set_tier(TierId(5));
    state.set_dirty(true);
    assert!(state.is_located() && state.is_dirty() && !state.is_accessed() && state.tier() == TierId(5));
    state.set_tier(TierId(2));
    state.set_dirty(false);
    assert!(!state.is_dirty() && state.tier() == TierId(2));
    assert_eq!(size_of::<PageState>(), 2, "two bytes per base page");
}

#[test]
fn a_page_is_hot_for_one_more_look_of_the_policy() {
    let mut state = PageState::default();
    assert!(!state.is_hot());
    state.set_accessed(true);
    state.clear_accessed();
    assert!(state.is_hot() && !state.is_accessed(), "the policy looks just before one asks");
    state.clear_accessed();
    assert!(!state.is_hot());
}

#[test]
fn pages_join_and_fall_apart() {
    let mut map = PageStates::default();
    seen(&mut map, 1024);
    map.base_mut(1024).set_dirty(true);
    map.whole_mut(1024, PageSize::Huge).set_resident(true);
    assert_eq!(resident(&mut map, 1500..1501), [(1024, PageSize::Huge)]);
    assert!(map.get(1030).unwrap().1.is_dirty());
    assert_eq!(map.get(1536), None);
    map.base_mut(1025).set_accessed(true);
    assert_eq!(resident(&mut map, 1024..1030).len(), 6);
    assert!(!map.get(1024).unwrap().1.is_accessed() && map.get(1025).unwrap().1.is_accessed());
}

#[test]
fn a_giant_page_covers_its_whole_range() {
    let mut map = PageStates::default();
    seen(&mut map, 5000);
    map.whole_mut(0, PageSize::Giant).set_resident(true);
    assert_eq!(resident(&mut map, 200_000..200_010), [(0, PageSize::Giant)]);
    assert_eq!(map.get(262_143).unwrap().0.size, PageSize::Giant);
    assert_eq!(map.get(262_144), None);
}

#[test]
fn a_range_below_all_that_is_known_is_empty() {
    let mut map = PageStates::default();
    seen(&mut map, 5000);
    assert!(resident(&mut map, 0..100).is_empty());
    assert_eq!(resident(&mut map, 0..5001).len(), 1);
}

#[test]
fn pieces_of_a_page_that_fell_apart_are_not_on_their_way() {
    let mut map = PageStates::default();
    let state = map.whole_mut(512, PageSize::Huge);
    state.set_resident(true);
    state.set_in_flight(true);
    map.base_mut(600);
    assert!((512..1024).all(|vpn| !map.get(vpn).unwrap().1.is_in_flight()));
}

#[test]
fn huge_pages_are_seen_up_to_the_first_that_changed() {
    let mut map = PageStates::default();
    for chunk in [2, 3, 5] {
        let state = map.whole_mut(chunk * CHUNK, PageSize::Huge);
        state.set_resident(true);
        state.set_tier(TierId(0));
    }
    seen(&mut map, 6 * CHUNK);
    assert_eq!(map.see_known_huge(2 * CHUNK..9 * CHUNK), 4 * CHUNK);
    assert_eq!(map.see_known_huge(5 * CHUNK..9 * CHUNK), 6 * CHUNK);
    assert_eq!(map.see_known_huge(5 * CHUNK + 1..9 * CHUNK), 5 * CHUNK + 1);
    map.whole_mut(2 * CHUNK, PageSize::Huge).set_swapped(true);
    assert_eq!(map.see_known_huge(2 * CHUNK..9 * CHUNK), 2 * CHUNK);
    let mut gone = Vec::new();
    map.sweep(|range| gone.push(range));
    assert!(gone.is_empty(), "{gone:?}");
}

/// The plain way to do what chunks do many pages at a time.
fn see_one_by_one(pages: &mut [PageState]) -> bool {
    let known = pages.iter().all(|page| page.is_resident() && page.is_located() && !page.is_swapped());
    if known {
        pages.iter_mut().for_each(|page| page.set_seen(true));
    }
    known
}

proptest! {
    #[test]
    fn many_at_a_time_do_as_one_by_one(few in proptest::collection::vec(0u16..4096, 1..40), all: bool) {
        let known = |state: &u16| if all { state & !SWAPPED | RESIDENT | LOCATED } else { *state };
        let mut pages: Vec<PageState> = few.iter().map(known).map(PageState).collect();
        let mut plain = pages.clone();
        prop_assert_eq!(see_known(&mut pages), see_one_by_one(&mut plain));
        prop_assert_eq!(&pages, &plain);
        let mut map = PageStates::default();
        for (at, page) in pages.iter().enumerate() {
            *map.base_mut(at as u64) = *page;
        }
        // A chunk of one kind besides.
        map.base_run_mut(1024..1536).fill(pages[0]);
        let ([mut counts, mut hot], [mut plain, mut plain_hot]) = ([[0; 8]; 2], [[0; 8]; 2]);
        let in_memory = map.count(&mut counts, &mut hot);
        let mut plain_in_memory = 0;
        map.visit_mut(0..2000, |_, state| {
            let tier = state.tier().index();
            plain[tier] += u64::from(state.is_located());
            plain_hot[tier] += u64::from(state.is_located() && state.is_hot());
            plain_in_memory += u64::from(state.is_located() && !state.is_swapped());
            true
        });
        prop_assert_eq!((counts, hot, in_memory), (plain, plain_hot, plain_in_memory));
    }

    #[test]
    fn chunks_at_a_time_do_as_page_by_page(
        unknown in proptest::collection::btree_set(0u64..5 * CHUNK, 0..3),
        range in (0u64..6 * CHUNK, 0u64..6 * CHUNK),
        aligned: bool,
        changed in proptest::collection::vec(0u64..5 * CHUNK, 0..4),
    ) {
        let start = if aligned { range.0 / CHUNK * CHUNK } else { range.0 };
        let range = start..start.max(range.1);
        let mut map = PageStates::default();
        for vpn in 0..5 * CHUNK {
            let page = map.base_mut(vpn);
            page.set_resident(true);
            page.set_tier(TierId(u8::from(vpn % CHUNK > 100)));
            page.set_located(!unknown.contains(&vpn));
        }
        let mut plain = map.clone();
        for round in 0..2 {
            let until = map.see_known_base(range.clone());
            let mut plain_until = range.start;
            while range.start % CHUNK == 0
                && plain_until + CHUNK <= range.end
                && plain.index.contains_key(&(plain_until / CHUNK))
                && see_one_by_one(plain.base_run_mut(plain_until..plain_until + CHUNK))
            {
                plain_until += CHUNK;
            }
            prop_assert_eq!(until, plain_until);
            for map in [&mut map, &mut plain] {
                for vpn in &changed {
                    if let Some((_, page)) = map.get_mut(*vpn) {
                        page.set_accessed(round == 0);
                    }
                }
            }
            let [mut gone, mut plain_gone] = [Vec::new(), Vec::new()];
            map.sweep(|range| gone.push(range));
            plain.sweep(|range| plain_gone.push(range));
            prop_assert_eq!(gone, plain_gone);
            let count = |map: &PageStates| {
                let (mut counts, mut hot) = ([0; 2], [0; 2]);
                (map.count(&mut counts, &mut hot), counts, hot)
            };
            prop_assert_eq!(count(&map), count(&plain));
            for vpn in 0..5 * CHUNK {
                prop_assert_eq!(map.get(vpn), plain.get(vpn));
            }
        }
    }

    #[test]
    fn a_sweep_keeps_what_was_seen_and_tells_the_rest(first in proptest::collection::btree_set(0u64..3000, 0..200), second in proptest::collection::btree_set(0u64..3000, 0..200)) {
        let mut map = PageStates::default();
        first.iter().for_each(|vpn| seen(&mut map, *vpn));
        map.sweep(|_| panic!("all was seen"));
        second.iter().for_each(|vpn| seen(&mut map, *vpn));
        let mut gone = Vec::new();
        map.sweep(|range| gone.extend(range));
        prop_assert_eq!(gone, first.difference(&second).copied().collect::<Vec<_>>());
        let left: Vec<u64> = resident(&mut map, 0..4000).into_iter().map(|page| page.0).collect();
        prop_assert_eq!(left, second.into_iter().collect::<Vec<_>>());
    }
}
