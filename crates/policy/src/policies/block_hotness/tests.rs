//! Worked examples: structures of known sizes and counts.

use super::*;
use crate::spans::millis;
use crate::{Area, AreaKind, Driver, InMemory, Object, ObjectProfile, Open};
use proptest::prelude::*;

/// Structures side by side, each of so many pages, over a fast tier of `fast` pages and a slow one with room for all.
fn world(structures: &[u64], fast: u64) -> InMemory {
    let mut world = InMemory::new(&[("dram", Bytes(fast << 12)), ("pcm", Bytes::mib(16))]);
    let mut first = 0;
    for (site, pages) in (0..).zip(structures) {
        let range = PageRange::new(PageId::new(0, first), *pages);
        let object = Some(Object { site, range });
        world.map(Area { range, kind: AreaKind::Anonymous, writable: true, huge_advice: None, object });
        first += pages;
    }
    world
}

/// The policy on them; every structure has all of its pages.
fn open_in(world: InMemory, structures: &[u64], parameters: &str) -> Driver {
    let all = ["least = \"4 KiB\"", "least_density = 0.0", "epoch = \"1 ms\"", "margin = 0.0"];
    let defaults = all.into_iter().filter(|line| !parameters.contains(line.split(' ').next().unwrap_or("")));
    let text = defaults.chain([parameters]).collect::<Vec<_>>().join("\n");
    let mut driver = Driver::open("block-hotness", &text, world).unwrap();
    driver.touch_all(0, 0..structures.iter().sum(), true);
    half_an_epoch(&mut driver);
    driver
}

/// From now on epochs end in the middle of what passes, so that what they move arrives before anybody looks.
fn half_an_epoch(driver: &mut Driver) {
    driver.advance(Time::from_nanos(500_000));
}

fn open(structures: &[u64], fast: u64, parameters: &str) -> Driver {
    open_in(world(structures, fast), structures, parameters)
}

/// Pages of each structure in the fast tier.
fn fast_pages(driver: &Driver, structures: &[u64]) -> Vec<u64> {
    let mut first = 0;
    let mut counts = Vec::new();
    for pages in structures {
        let lies = |vpn: &u64| driver.world.locate(PageId::new(0, *vpn)).unwrap().0 == TierId(0);
        counts.push((first..first + pages).filter(lies).count() as u64);
        first += pages;
    }
    counts
}

/// So many accesses to the first page of each structure, then an epoch.
fn epoch(driver: &mut Driver, structures: &[u64], accesses: &[u64]) -> Vec<u64> {
    let mut first = 0;
    for (pages, count) in structures.iter().zip(accesses) {
        for _ in 0..*count {
            driver.touch(PageId::new(0, first), false);
        }
        first += pages;
    }
    driver.advance(millis(1));
    fast_pages(driver, structures)
}

#[test]
fn the_densest_blocks_come_first() {
    // By the page: 40 of 8 pages are 5, 30 of 4 are 7.5, 12 of 2 are 6.
    let structures = [8, 4, 2];
    let mut driver = open(&structures, 6, "decay = 0.0");
    assert_eq!(fast_pages(&driver, &structures), [6, 0, 0], "first touch");
    epoch(&mut driver, &structures, &[40, 30, 12]);
    assert_eq!(epoch(&mut driver, &structures, &[40, 30, 12]), [0, 4, 2]);
    // With room for more than the two, the third keeps what is left.
    let mut driver = open(&structures, 9, "decay = 0.0");
    epoch(&mut driver, &structures, &[40, 30, 12]);
    assert_eq!(epoch(&mut driver, &structures, &[40, 30, 12]), [3, 4, 2]);
}

#[test]
fn what_is_beyond_a_limit_leaves_the_coldest_first() {
    let structures = [4, 4, 4];
    let mut driver = open(&structures, 12, "decay = 0.0\nleast_density = 193.0");
    driver.advance(millis(1));
    assert_eq!(epoch(&mut driver, &structures, &[0, 40, 0]), [4, 4, 4], "there is room for all");
    driver.world.limit(TierId(0), Bytes(6 << 12));
    epoch(&mut driver, &structures, &[0, 40, 0]);
    let left = epoch(&mut driver, &structures, &[0, 40, 0]);
    assert_eq!((left[1], left[0] + left[2]), (4, 2));
}

#[test]
fn heat_decays_by_its_share_at_each_epoch() {
    let structures = [4, 4];
    // The first had 64 accesses in one epoch, the second has 20 in each: 64, 32, 16 against 20, 30, 35. Without decay both
    // have their first touches beside them: 68 against 24, 44, 64, 84.
    for (decay, turns) in [("0.5", 2), ("0.0", 1), ("1.0", 3)] {
        let mut driver = open(&structures, 4, &format!("decay = {decay}"));
        // What first touches left: without decay it stays the same for both.
        for _ in 0..40 {
            driver.advance(millis(1));
        }
        assert_eq!(epoch(&mut driver, &structures, &[64, 20]), [4, 0]);
        let mut turn = 1;
        while epoch(&mut driver, &structures, &[0, 20]) == [4, 0] {
            turn += 1;
            assert!(turn < 50, "decay {decay}");
        }
        assert_eq!(turn, turns, "decay {decay}: the epochs until the second's heat is above the first's");
    }
}

#[test]
fn a_block_that_fits_in_part() {
    let structures = [2, 8, 4];
    let accesses = [0, 80, 20];
    let result = |straddling: &str| {
        let mut driver = open(&structures, 6, &format!("decay = 0.0\nstraddling = \"{straddling}\""));
        epoch(&mut driver, &structures, &accesses);
        epoch(&mut driver, &structures, &accesses)
    };
    assert_eq!(result("split"), [0, 6, 0]);
    // The first has no accesses, and stays where there is room.
    assert_eq!(result("skip"), [2, 0, 4]);
    assert_eq!(result("stop"), [2, 4, 0], "as first touch left them: nobody needs the room");
}

#[test]
fn blocks_that_are_hardly_used_stay_where_they_are() {
    let structures = [4, 4];
    let result = |words: &str| {
        let mut driver = open(&structures, 4, words);
        for _ in 0..12 {
            driver.advance(millis(1));
        }
        epoch(&mut driver, &structures, &[0, 3])
    };
    // Three accesses to 16 KiB are 192 per megabyte.
    assert_eq!(result("decay = 0.0\nleast_density = 193.0"), [4, 0]);
    assert_eq!(result("decay = 0.0\nleast_density = 192.0"), [0, 4]);
}

#[test]
fn what_lies_in_fast_memory_counts_a_little_more() {
    let structures = [4, 4];
    let result = |words: &str| {
        let mut driver = open(&structures, 4, &format!("decay = 0.0\n{words}"));
        driver.advance(millis(1));
        epoch(&mut driver, &structures, &[20, 21])
    };
    assert_eq!(result("margin = 0.1"), [4, 0]);
    assert_eq!(result("margin = 0.0"), [0, 4]);
}

#[test]
fn so_much_moves_in_an_epoch() {
    let structures = [8, 8];
    let mut driver = open(&structures, 8, "decay = 0.0\nrate_limit = \"16.384 MB/s\"");
    driver.advance(millis(1));
    // 16 KiB per epoch: two pages up and two down.
    let shares = [0, 1, 2, 3].map(|_| epoch(&mut driver, &structures, &[0, 40])[1]);
    assert_eq!(shares, [2, 4, 6, 8]);
}

#[test]
fn room_is_left_free() {
    let structures = [8];
    let mut driver = open(&structures, 8, "headroom = \"12 KiB\"");
    epoch(&mut driver, &structures, &[9]);
    assert_eq!(epoch(&mut driver, &structures, &[9]), [5]);
}

#[test]
fn every_counter_finds_the_hot_block() {
    let structures = [4, 4];
    for counters in ["controller", "accesses", "samples", "bits"] {
        let words = format!("decay = 0.0\ncounters = \"{counters}\"\nsample_period = 2");
        let mut driver = open(&structures, 4, &words);
        driver.advance(millis(1));
        for _ in 0..2 {
            driver.touch_all(0, 4..8, false);
            driver.touch_all(0, 4..8, false);
            driver.advance(millis(1));
        }
        assert_eq!(fast_pages(&driver, &structures), [0, 4], "{counters}");
    }
}

/// A sample of one access in a thousand finds nothing in eight.
#[test]
fn samples_are_as_rare_as_said() {
    let structures = [4, 4];
    let result = |period: u64| {
        let words =
            format!("decay = 0.0\ncounters = \"samples\"\nsample_period = {period}\nleast_density = 1.0");
        let mut driver = open(&structures, 4, &words);
        driver.advance(millis(1));
        epoch(&mut driver, &structures, &[0, 8])
    };
    assert_eq!((result(2), result(1000)), (vec![0, 4], vec![4, 0]));
}

#[test]
fn the_counter_is_what_the_world_has() {
    use Capability::{AccessSamples, AccessedBits, BlockCounts, Migration, Objects};
    let needs = |missing: &[Capability], words: &str| {
        let world = missing.iter().fold(world(&[4], 4), |world, one| world.without(*one));
        let setup = Setup { topology: world.tiers(), capabilities: world.offers(), seed: 1, profile: None };
        let parameters =
            Parameters { unit: if words == "area" { Unit::Area } else { Unit::Block }, ..Default::default() };
        let policy = BlockHotness::new(parameters, setup).unwrap();
        policy.needs().capabilities.iter().collect::<Vec<_>>()
    };
    assert_eq!(needs(&[], ""), [BlockCounts, Migration, Objects]);
    assert_eq!(needs(&[BlockCounts], ""), [AccessSamples, Migration, Objects]);
    assert_eq!(needs(&[BlockCounts, AccessSamples, Objects], ""), [AccessedBits, Migration]);
    assert_eq!(needs(&[BlockCounts], "area"), [AccessSamples, Migration]);
    let bare = world(&[4], 4).without(Capability::BlockCounts);
    let error = Driver::open("block-hotness", "counters = \"controller\"", bare).map(|_| ()).unwrap_err();
    assert!(error.to_string().starts_with("block-hotness does not start: it needs block-counts"), "{error}");
}

/// An area of eight pages with a structure in the first four: two blocks, or one where the structure is too small or areas
/// are asked for.
#[test]
fn small_structures_lie_in_the_block_of_their_area() {
    let blocks = |words: &str| {
        let mut world = InMemory::new(&[("dram", Bytes::kib(16)), ("pcm", Bytes::mib(16))])
            .without(Capability::BlockCounts);
        let [range, part] = [8, 4].map(|pages| PageRange::new(PageId::new(0, 0), pages));
        let object = Some(Object { site: 1, range: part });
        world.map(Area { range, kind: AreaKind::Anonymous, writable: true, huge_advice: None, object });
        let mut driver = open_in(world, &[8], &format!("counters = \"accesses\"\n{words}"));
        driver.advance(millis(1));
        driver.report().stats.integer("blocks")
    };
    assert_eq!(blocks(""), 2);
    assert_eq!(blocks("unit = \"area\""), 1);
    assert_eq!((blocks("least = \"16 KiB\""), blocks("least = \"20 KiB\"")), (2, 1));
}

#[test]
fn hints_come_before_counts() {
    let structures = [4, 4, 4];
    let mut profile = Profile::default();
    for (site, hint) in [(1, Hint::Capacity), (2, Hint::Bandwidth)] {
        profile.objects.insert(site, ObjectProfile { hint: Some(hint), ..ObjectProfile::default() });
    }
    let words = "least = \"4 KiB\"\nepoch = \"1 ms\"\ndecay = 0.0\nleast_density = 0.0\nmargin = 0.0";
    let result = |hints: bool, fast: u64| {
        let words = format!("{words}\nhints = {hints}");
        let world = world(&structures, fast);
        let mut driver = Driver::open_with("block-hotness", &words, world, 1, Some(&profile)).unwrap();
        driver.touch_all(0, 0..12, true);
        half_an_epoch(&mut driver);
        epoch(&mut driver, &structures, &[5, 50, 1]);
        epoch(&mut driver, &structures, &[5, 50, 1])
    };
    assert_eq!(result(false, 4), [0, 4, 0]);
    assert_eq!(result(true, 4), [0, 0, 4], "BO comes first");
    assert_eq!(result(true, 12), [4, 0, 4], "CO never comes");
    let bare = world(&structures, 4);
    assert!(Driver::open("block-hotness", "hints = true", bare).is_err(), "there is no file of hints");
}

/// So many pages are held at a time: with one in flight the last arrives after as many delays as there are pages.
#[test]
fn pages_move_so_many_at_a_time() {
    let structures = [8, 8];
    let arrived = |in_flight: u32| {
        let world = world(&structures, 8).with_delay(millis(1));
        let words = format!("decay = 1.0\nin_flight = {in_flight}");
        let mut driver = open_in(world, &structures, &words);
        driver.advance(millis(1));
        epoch(&mut driver, &structures, &[0, 40]);
        driver.advance(millis(6));
        fast_pages(&driver, &structures)[1]
    };
    assert!(arrived(16) > arrived(1), "{} {}", arrived(16), arrived(1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever is counted, the fast tier is full of the densest pages once nothing changes any more.
    #[test]
    fn in_the_end_no_colder_block_lies_in_fast_memory(
        structures in prop::collection::vec(1u64..24, 2..8),
        accesses in prop::collection::vec(1u64..200, 8),
        fast in 1u64..40,
    ) {
        let mut driver = open(&structures, fast, "decay = 0.0");
        for _ in 0..4 {
            epoch(&mut driver, &structures, &accesses);
        }
        let lie = epoch(&mut driver, &structures, &accesses);
        let density = |at: usize| accesses[at] as f64 / structures[at] as f64;
        let all: u64 = structures.iter().sum();
        prop_assert_eq!(lie.iter().sum::<u64>(), fast.min(all));
        for (one, pages) in lie.iter().enumerate() {
            for (other, others) in lie.iter().enumerate() {
                let colder = density(one) < density(other);
                prop_assert!(!colder || *pages == 0 || *others == structures[other], "{lie:?}");
            }
        }
    }
}
