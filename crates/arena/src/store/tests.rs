use super::*;
use crate::pages::PageTable;
use std::collections::HashMap;
use terrace_policy::Random;

const MIB: usize = 1 << 20;

fn store(mib: usize) -> Store {
    Store::new(mib * MIB, Pages::Huge).unwrap()
}

/// Fills a page with words that tell whose it is.
fn fill(store: &Store, handle: u32, salt: u64) {
    let (start, size) = store.resolve(handle).unwrap();
    for at in (0..size.bytes() as usize).step_by(512) {
        // SAFETY: Within the page.
        unsafe { start.add(at).cast::<u64>().write(salt ^ at as u64) };
    }
}

fn holds(store: &Store, handle: u32, salt: u64) -> bool {
    let (start, size) = store.resolve(handle).unwrap();
    // SAFETY: Within the page.
    (0..size.bytes() as usize)
        .step_by(512)
        .all(|at| unsafe { start.add(at).cast::<u64>().read() } == salt ^ at as u64)
}

fn compact(store: &mut Store, kind: Compaction, size: PageSize) -> Compacted {
    // SAFETY: The tests keep no address of what is not pinned.
    unsafe { store.compact(kind, size) }
}

/// 16 MiB of base pages, of which every fourth stays, and in the first 2 MiB every second.
fn sparse() -> (Store, Vec<u32>) {
    let mut store = store(16);
    let all: Vec<u32> = (0..4096).map(|_| store.allocate(PageSize::Base).unwrap()).collect();
    assert_eq!(store.allocate(PageSize::Base), Err(Problem::Full));
    let mut kept = Vec::new();
    for (at, handle) in all.into_iter().enumerate() {
        if at.is_multiple_of(if at < 512 { 2 } else { 4 }) {
            fill(&store, handle, u64::from(handle) << 32);
            kept.push(handle);
        } else {
            store.release(handle).unwrap();
        }
    }
    (store, kept)
}

#[test]
fn both_ways_of_compaction_free_a_large_block_and_keep_every_byte() {
    for (kind, least, most) in [(Compaction::Smart, 128, 128), (Compaction::Normal, 128, 256)] {
        let (mut store, kept) = sparse();
        assert_eq!((store.free_blocks(PageSize::Huge), store.fragmentation(PageSize::Huge)), (0, 1.0));
        let done = compact(&mut store, kind, PageSize::Huge);
        assert!(done.is_free, "{kind:?}: {done:?}");
        // The emptiest region has 128 pages; the two cursors begin with the first, which has 256.
        let pages = done.moved / 4096;
        assert!((least..=most).contains(&pages), "{kind:?}: {pages}");
        let again = compact(&mut store, kind, PageSize::Huge);
        assert_eq!(again, Compacted { is_free: true, moved: 0, wasted: 0 });
        for handle in &kept {
            assert!(holds(&store, *handle, u64::from(*handle) << 32));
        }
        let huge = store.allocate(PageSize::Huge).unwrap();
        let (start, size) = store.resolve(huge).unwrap();
        assert!((start as usize).is_multiple_of(HUGE) && size == PageSize::Huge);
        fill(&store, huge, 7);
        assert!(kept.iter().all(|handle| holds(&store, *handle, u64::from(*handle) << 32)));
    }
}

#[test]
fn what_is_pinned_stays_where_it_is_and_smart_compaction_passes_over_its_region() {
    let (mut store, kept) = sparse();
    // One page of each region but the first and the last.
    let pinned: Vec<u32> = kept[256..].chunks(128).take(6).map(|region| region[5]).collect();
    let places: Vec<*mut u8> = pinned.iter().map(|handle| store.pin(*handle).unwrap()).collect();
    let region = |pinned| Region { free: HUGE / 4 * 3, pinned };
    assert_eq!(store.regions(PageSize::Huge)[1..], [[region(BASE); 6].as_slice(), &[region(0)]].concat());
    let done = compact(&mut store, Compaction::Smart, PageSize::Huge);
    assert_eq!(done, Compacted { is_free: true, moved: 128 * 4096, wasted: 0 });
    let now: Vec<*mut u8> = pinned.iter().map(|handle| store.resolve(*handle).unwrap().0).collect();
    assert_eq!(now, places);
    assert_eq!(store.release(pinned[0]), Err(Problem::Pinned));
    // Where all regions have one, nothing is moved in vain.
    store.allocate(PageSize::Huge).unwrap();
    let first = kept[0];
    store.pin(first).unwrap();
    store.pin(first).unwrap();
    let done = compact(&mut store, Compaction::Smart, PageSize::Huge);
    assert_eq!(done, Compacted::default());
    store.unpin(first).unwrap();
    assert!(!compact(&mut store, Compaction::Smart, PageSize::Huge).is_free, "pinned twice");
    store.unpin(first).unwrap();
    assert_eq!(store.unpin(first), Err(Problem::Pinned));
    assert!(compact(&mut store, Compaction::Smart, PageSize::Huge).is_free);
    assert!(kept.iter().all(|handle| holds(&store, *handle, u64::from(*handle) << 32)));
}

/// 2 GiB of which a page of 2 MiB in each GiB is used: they come together, and a GiB becomes free.
#[test]
fn a_gibibyte_becomes_free() {
    let mut store = Store::new(2 << 30, Pages::Huge).unwrap();
    let first = store.allocate(PageSize::Huge).unwrap();
    let filler: Vec<u32> = (0..511).map(|_| store.allocate(PageSize::Huge).unwrap()).collect();
    let other = store.allocate(PageSize::Huge).unwrap();
    for (handle, salt) in [(first, 1), (other, 2)] {
        fill(&store, handle, salt << 32);
    }
    filler.into_iter().for_each(|handle| store.release(handle).unwrap());
    assert_eq!(store.free_blocks(PageSize::Giant), 0);
    let done = compact(&mut store, Compaction::Smart, PageSize::Giant);
    assert_eq!((done.is_free, done.moved), (true, HUGE as u64));
    assert!(holds(&store, first, 1 << 32) && holds(&store, other, 2 << 32));
    assert!(store.allocate(PageSize::Giant).is_ok());
}

#[test]
fn free_memory_goes_back_to_the_kernel() {
    let mut store = store(8);
    let pages: Vec<u32> = (0..4).map(|_| store.allocate(PageSize::Huge).unwrap()).collect();
    pages.iter().for_each(|handle| fill(&store, *handle, 5));
    pages[1..].iter().for_each(|handle| store.release(*handle).unwrap());
    assert_eq!(store.trim(), 6 * MIB);
    let Some(table) = PageTable::open() else { return };
    let (start, mut present) = (store.memory.start() as usize, 0);
    table.runs(start..start + 8 * MIB, &mut |run, _| present += run.len());
    assert!(present <= 2 * MIB && holds(&store, pages[0], 5));
}

/// Pages of 1 GiB are not to be had in tests: to the store, ordinary memory is such here.
#[test]
fn other_memory_takes_the_place_of_a_page_of_1_gib_that_is_given_back() {
    const GIB: usize = 1 << 30;
    let (start, bytes, _) = Memory::new(2 * GIB, Pages::Huge).unwrap().into_parts();
    let mut store = store(2);
    // SAFETY: The parts of memory that is given to the store.
    store.memory = unsafe { Memory::from_parts(start, bytes, Pages::Giant) };
    store.buddy = Store::buddy(bytes);
    let small = store.allocate(PageSize::Base).unwrap();
    let large = store.allocate(PageSize::Giant).unwrap();
    fill(&store, small, 3);
    let (inside, _) = store.resolve(large).unwrap();
    // SAFETY: Within the page.
    unsafe { inside.add(5 * HUGE).write(9) };
    assert_eq!(store.trim(), 0, "one is used, of the other a part");
    store.release(large).unwrap();
    assert_eq!((store.trim(), store.replaced.len()), (GIB, 1));
    assert!(holds(&store, small, 3));
    // What was given back is zeros, and is used and given back like any memory.
    let again = store.allocate(PageSize::Giant).unwrap();
    let (inside, _) = store.resolve(again).unwrap();
    // SAFETY: Within the page.
    assert_eq!(unsafe { inside.add(5 * HUGE).read() }, 0);
    store.release(again).unwrap();
    let huge: Vec<u32> = (0..600).map(|_| store.allocate(PageSize::Huge).unwrap()).collect();
    fill(&store, *huge.last().unwrap(), 4);
    assert!(holds(&store, *huge.last().unwrap(), 4) && holds(&store, small, 3));
    huge[300..].iter().for_each(|handle| store.release(*handle).unwrap());
    let free = store.free_blocks(PageSize::Huge) as usize * HUGE;
    let given = store.trim();
    assert!(given > 0 && given < free, "what is free of the page of 1 GiB stays: {given} of {free}");
}

/// A random life, against a list of what was given out.
#[test]
fn no_page_is_lost_or_given_out_twice() {
    for seed in 0..6 {
        let (mut store, mut random) = (store(64), Random::new(seed));
        let mut kept: HashMap<u32, (u64, bool)> = HashMap::new();
        for step in 0..4000u64 {
            let pick = random.next();
            let some = kept.keys().copied().nth(pick as usize % kept.len().max(1));
            match (random.next() % 20, some) {
                (0, _) => {
                    let kind = if pick.is_multiple_of(2) { Compaction::Smart } else { Compaction::Normal };
                    let done = compact(&mut store, kind, PageSize::Huge);
                    assert_eq!(done.is_free, store.free_blocks(PageSize::Huge) > 0);
                }
                (1, _) => {
                    store.trim();
                }
                (2..=4, Some(handle)) => {
                    let pinned = &mut kept.get_mut(&handle).unwrap().1;
                    *pinned = !*pinned;
                    if *pinned {
                        store.pin(handle).map(|_| ()).unwrap()
                    } else {
                        store.unpin(handle).unwrap()
                    }
                }
                (5..=9, Some(handle)) => {
                    let (salt, pinned) = kept[&handle];
                    assert!(holds(&store, handle, salt), "seed {seed}, step {step}");
                    assert_eq!(store.release(handle), if pinned { Err(Problem::Pinned) } else { Ok(()) });
                    if !pinned {
                        kept.remove(&handle);
                    }
                }
                _ => {
                    let size = if pick.is_multiple_of(30) { PageSize::Huge } else { PageSize::Base };
                    if let Ok(handle) = store.allocate(size) {
                        fill(&store, handle, step << 32);
                        assert!(kept.insert(handle, (step << 32, false)).is_none(), "a handle twice");
                    }
                }
            }
        }
        let used: u64 = kept.keys().map(|handle| store.resolve(*handle).unwrap().1.bytes()).sum();
        assert_eq!(used + store.free_blocks(PageSize::Base) * 4096, 64 * MIB as u64);
        assert!(kept.iter().all(|(handle, (salt, _))| holds(&store, *handle, *salt)), "seed {seed}");
    }
}
