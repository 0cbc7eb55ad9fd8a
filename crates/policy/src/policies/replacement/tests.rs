//! What each algorithm replaces, by hand, and that none misses less than the optimal one.

use crate::spans::millis;
use crate::{AccessOrder, Capability, Driver, InMemory, Open, PageId, Profile};
use terrace_model::{Bytes, TierId};

/// A fast tier of four pages, touched in the order 0..4; further pages go to the slow one.
fn open(parameters: &str) -> Driver {
    let mut world = InMemory::new(&[("fast", Bytes::kib(16)), ("slow", Bytes::kib(32))]);
    world.map_anonymous(0, 0, 8);
    let mut driver = Driver::open("replacement", parameters, world).unwrap();
    driver.touch_all(0, 0..4, false);
    driver
}

fn in_fast(driver: &Driver) -> Vec<u64> {
    let fast = |vpn: &u64| driver.world.locate(PageId::new(0, *vpn)).is_some_and(|at| at.0 == TierId(0));
    (0..8).filter(fast).collect()
}

/// The slow page touched takes the place of the page that the algorithm names.
fn replaced(algorithm: &str, periods: &[&[(u64, bool)]]) -> Vec<u64> {
    let mut driver = open(&format!("algorithm = \"{algorithm}\""));
    driver.advance(millis(1500));
    for period in periods {
        for (vpn, write) in *period {
            driver.touch(PageId::new(0, *vpn), *write);
            driver.advance(millis(10));
        }
        driver.advance(millis(1000 - 10 * period.len() as u64));
    }
    let left = in_fast(&driver);
    (0..4).filter(|vpn| !left.contains(vpn)).collect()
}

const R: bool = false;
const W: bool = true;

#[test]
fn fifo_takes_who_came_first_however_hot() {
    assert_eq!(replaced("fifo", &[&[(0, R), (0, R), (1, R), (5, R)]]), [0]);
}

#[test]
fn lru_takes_who_was_touched_longest_ago() {
    assert_eq!(replaced("lru", &[&[(0, R), (2, R), (3, R), (5, R)]]), [1]);
    assert_eq!(replaced("lru", &[&[(1, R), (0, R), (3, R), (5, R)]]), [2]);
}

#[test]
fn lru_2_looks_at_the_last_use_but_one() {
    // 0 was used last of all, but its use before that is the oldest.
    let uses = [(1, R), (2, R), (3, R), (1, R), (2, R), (3, R), (0, R), (5, R)];
    assert_eq!(replaced("lru-2", &[&uses]), [0]);
    assert_eq!(replaced("lru", &[&uses]), [1]);
}

#[test]
fn clock_gives_a_second_chance() {
    // The hand clears the bits that first touches have set, in its first turn, and then takes page 0; from there on
    // pages that were touched again are passed.
    assert_eq!(replaced("clock", &[&[(5, R)], &[(1, R), (6, R)]]), [0, 2]);
}

#[test]
fn nru_prefers_untouched_then_unwritten() {
    assert_eq!(replaced("nru", &[&[(0, R), (1, W), (3, R), (5, R)]]), [2]);
    assert_eq!(replaced("nru", &[&[(0, W), (1, W), (2, R), (3, W), (5, R)]]), [2]);
}

#[test]
fn nfu_never_forgets_and_aging_does() {
    // Page 0 was hot for six periods, then not at all for three; 1 to 3 were touched in the last three.
    let old: &[(u64, bool)] = &[(0, R)];
    let new: &[(u64, bool)] = &[(1, R), (2, R), (3, R)];
    let last: &[(u64, bool)] = &[(1, R), (2, R), (3, R), (5, R)];
    let periods = [old, old, old, old, old, old, new, new, last];
    assert_eq!(replaced("aging", &periods), [0]);
    assert_eq!(replaced("nfu", &periods), [1]);
}

/// Every access is a round; the fast tier has `room` pages. Which accesses went to the slow tier.
fn misses(algorithm: &str, room: u64, string: &[u64], writes: bool) -> usize {
    let order = AccessOrder::of(string.iter().map(|vpn| PageId::new(0, *vpn)));
    let profile = Profile { order: std::sync::Arc::new(order), ..Profile::default() };
    let mut world = InMemory::new(&[("fast", Bytes::kib(4 * room)), ("slow", Bytes::kib(128))]);
    world.map_anonymous(0, 0, 32);
    let parameters = format!("algorithm = \"{algorithm}\"");
    let mut driver = Driver::open_with("replacement", &parameters, world, 1, Some(&profile)).unwrap();
    driver.advance(millis(500));
    let mut missed = 0;
    for vpn in string {
        let page = PageId::new(0, *vpn);
        driver.touch(page, writes);
        missed += usize::from(driver.world.locate(page).unwrap().0 != TierId(0));
        driver.advance(millis(1000));
    }
    missed
}

#[test]
fn clock_pro_spares_who_came_back_soon() {
    // 0 leaves for 4 and is wanted again at once: it is hot, and ten pages that are touched once replace each other.
    let string: Vec<u64> = [0, 1, 2, 3, 4, 0].into_iter().chain(10..20).chain([0]).collect();
    assert_eq!(misses("clock-pro", 4, &string, false), 12);
    assert_eq!(misses("lru", 4, &string, false), 13);
}

#[test]
fn optimal_takes_who_is_used_last_and_keeps_out_who_is_used_later_still() {
    // Belady's string with room for three; 0, 1 and 2 find it free and do not miss. 3 and 4, used again at the end, are
    // kept out, for all others are used sooner: two misses each.
    assert_eq!(misses("optimal", 3, &[0, 1, 2, 3, 0, 1, 4, 0, 1, 2, 3, 4], false), 4);
    assert_eq!(misses("lru", 3, &[0, 1, 2, 3, 0, 1, 4, 0, 1, 2, 3, 4], false), 7);
    assert_eq!(misses("fifo", 3, &[0, 1, 2, 3, 0, 1, 4, 0, 1, 2, 3, 4], false), 6);
    // A loop over one page more than fits: one miss in three, where LRU misses always.
    let laps: Vec<u64> = (0..24).map(|at| at % 4).collect();
    assert_eq!((misses("optimal", 3, &laps, false), misses("lru", 3, &laps, false)), (6, 21));
}

#[test]
fn optimal_does_not_start_without_a_first_pass() {
    let world = InMemory::new(&[("fast", Bytes::kib(16)), ("slow", Bytes::kib(32))]);
    let error = Driver::open("replacement", "algorithm = \"optimal\"", world).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("it needs a first pass"), "{error}");
    let entry = crate::find("replacement").unwrap();
    let needs = |text: &str| entry.needs(&toml::from_str(text).unwrap()).unwrap();
    assert!(needs("algorithm = \"optimal\"").first_pass && !needs("").first_pass);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 48, ..Default::default() })]

    /// Under equal conditions: a round after every access, in which the page touched may come or stay out.
    #[test]
    fn nobody_misses_less_than_optimal(
        string in proptest::collection::vec(0..12u64, 1..80),
        room in 1..8u64,
        writes in proptest::bool::ANY,
    ) {
        let least = misses("optimal", room, &string, writes);
        let others = super::algorithms::ALL.iter().map(|entry| entry.name).filter(|name| *name != "optimal");
        for algorithm in others {
            let missed = misses(algorithm, room, &string, writes);
            proptest::prop_assert!(least <= missed, "{algorithm}: {missed} misses, optimal {least}");
        }
    }
}

#[test]
fn random_takes_anyone_and_needs_differ() {
    assert_eq!(replaced("random", &[&[(5, R)]]).len(), 1);
    let world = || InMemory::new(&[("fast", Bytes::kib(16)), ("slow", Bytes::kib(32))]);
    let world = world().without(Capability::ExactAccesses);
    assert!(Driver::open("replacement", "algorithm = \"clock\"", world.clone()).is_ok());
    assert!(Driver::open("replacement", "algorithm = \"lru\"", world).is_err());
}

#[test]
fn a_period_moves_no_more_than_its_limit() {
    let moved = |parameters: &str| {
        let mut driver = open(&format!("algorithm = \"fifo\"\n{parameters}"));
        driver.touch_all(0, 4..8, false);
        driver.advance(millis(1500));
        driver.report().stats.integer("promoted")
    };
    assert_eq!((moved("limit = \"4 KiB\""), moved("")), (1, 4));
    assert_eq!(moved("period = \"10 s\""), 0);
}
