//! What must hold for every policy, whatever the program does and whatever fails: no page is lost or doubled, no tier
//! overflows, and nothing goes on for ever. The worlds check themselves after calls of the policy.

#[path = "support/open.rs"]
mod support;

use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use support::Open;
use terrace_in_memory::{Driver, InMemory};
use terrace_model::{Bytes, PageSize, TierId, Time};
use terrace_policy::{
    AccessOrder, Capability, Entry, Exchange, Heat, MemorySystem, Move, MoveOptions, Outcome, PageId,
    Placement, Profile, Resize, all,
};

/// Base pages that the program uses, in two spaces.
const PAGES: u64 = 1024;

#[derive(Clone, Debug)]
enum Step {
    Touch { space: u32, vpn: u64, count: u64, write: bool },
    Unmap { space: u32, vpn: u64, count: u64 },
    Pass { millis: u64 },
    Fail { one_in: u64, outcome: Outcome },
    Pin { space: u32, vpn: u64 },
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop::sample::select(vec![
        Outcome::NoSpace,
        Outcome::Busy,
        Outcome::Unmovable,
        Outcome::Gone,
        Outcome::Unsupported,
    ])
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..2u32, 0..PAGES);
    prop_oneof![
        8 => (place(), 1..200u64, any::<bool>())
            .prop_map(|((space, vpn), count, write)| Step::Touch { space, vpn, count, write }),
        1 => (place(), 1..600u64).prop_map(|((space, vpn), count)| Step::Unmap { space, vpn, count }),
        6 => (1..1500u64).prop_map(|millis| Step::Pass { millis }),
        1 => (0..4u64, outcome()).prop_map(|(one_in, outcome)| Step::Fail { one_in, outcome }),
        1 => place().prop_map(|(space, vpn)| Step::Pin { space, vpn }),
    ]
}

/// Parameters that make slow policies act within the few seconds of a case.
fn hurried(entry: &Entry) -> String {
    let spans = entry.parameters().into_iter().filter(|p| p.default.ends_with(" s"));
    spans.filter(|p| p.default != "0 s").map(|p| format!("{} = \"1 s\"\n", p.name)).collect()
}

fn profile() -> Profile {
    let pages = || (0..2).flat_map(|space| (0..PAGES).map(move |vpn| PageId::new(space, vpn)));
    let heat = |page: PageId| Heat { reads: page.vpn % 97, writes: page.vpn % 31 };
    let order = AccessOrder::of(pages().chain(pages().filter(|page| page.vpn % 7 == 0)));
    Profile {
        pages: pages().map(|page| (page, heat(page))).collect(),
        order: Arc::new(order),
        ..Profile::default()
    }
}

fn open(entry: &Entry, huge: bool, seed: u64) -> Driver {
    open_as(entry, world(huge), "", seed)
}

fn world(huge: bool) -> InMemory {
    let world = InMemory::new(&[("fast", Bytes::mib(3)), ("slow", Bytes::mib(10))]).with_tlb(16);
    let mut world = if huge { world.with_huge_pages() } else { world };
    for space in 0..2 {
        world.map_anonymous(space, 0, PAGES);
    }
    world
}

fn open_as(entry: &Entry, world: InMemory, more: &str, seed: u64) -> Driver {
    let parameters = hurried(entry) + more;
    Driver::open_with(entry.name(), &parameters, world, seed, Some(&profile()))
        .unwrap_or_else(|error| panic!("{}: {error}", entry.name()))
}

fn play(driver: &mut Driver, steps: &[Step]) -> BTreeSet<PageId> {
    let mut expected = BTreeSet::new();
    let mut mapped: BTreeSet<PageId> =
        (0..2).flat_map(|space| (0..PAGES).map(move |vpn| PageId::new(space, vpn))).collect();
    for step in steps {
        match *step {
            Step::Touch { space, vpn, count, write } => {
                for vpn in vpn..(vpn + count).min(PAGES) {
                    let page = PageId::new(space, vpn);
                    if mapped.contains(&page) {
                        driver.touch(page, write);
                        expected.insert(page);
                    }
                }
            }
            Step::Unmap { space, vpn, count } => {
                let count = count.min(PAGES - vpn);
                driver.unmap(space, vpn, count);
                for vpn in vpn..vpn + count {
                    expected.remove(&PageId::new(space, vpn));
                    mapped.remove(&PageId::new(space, vpn));
                }
            }
            Step::Pass { millis } => driver.advance(Time::from_nanos(millis * 1_000_000)),
            Step::Fail { one_in, outcome } => driver.world.fail_often(one_in, outcome, 1),
            Step::Pin { space, vpn } => driver.world.pin(PageId::new(space, vpn)),
        }
    }
    expected
}

/// A policy that says less than it needs is blind where the rest is missing, and would be started there.
#[test]
fn what_a_policy_declares_is_enough_for_its_work() {
    let touch = |space, vpn, count, write| Step::Touch { space, vpn, count, write };
    let first = (0..2).map(|space| touch(space, 0, PAGES, true));
    let round = |at| [touch(1, 600, 120, at % 2 == 0), touch(0, 900, 40, true), Step::Pass { millis: 400 }];
    let steps: Vec<Step> = first.chain((0..20).flat_map(round)).collect();
    let mut idle = Vec::new();
    for entry in all() {
        let orders = |world: InMemory| {
            let mut driver = open_as(entry, world, "", 1);
            play(&mut driver, &steps);
            (driver.world.ordered_pages(), driver.needs().capabilities)
        };
        let (with_all, needs) = orders(world(false));
        let undeclared = Capability::ALL.iter().filter(|capability| !needs.contains(**capability));
        let (with_those, _) = orders(undeclared.fold(world(false), |world, one| world.without(*one)));
        idle.extend((with_all > 0 && with_those == 0).then_some(entry.name()));
    }
    assert!(idle.is_empty(), "these order nothing where they have what they declare alone: {idle:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn no_policy_loses_a_page(
        steps in prop::collection::vec(step(), 1..40),
        huge in any::<bool>(),
        seed in any::<u64>(),
    ) {
        for entry in all() {
            let mut driver = open(entry, huge, seed);
            let expected = play(&mut driver, &steps);
            driver.advance(Time::from_nanos(3_000_000_000));
            prop_assert_eq!(driver.world.check(), Ok(()), "{}", entry.name());
            for page in expected {
                let there = driver.world.locate(page).is_some() || driver.world.reads_as_zeros(page);
                prop_assert!(there, "{} lost {:?}", entry.name(), page);
            }
            prop_assert_eq!(driver.world.isolated_blocks(), 0, "{}", entry.name());
            for tier in driver.world.tiers().tiers.iter() {
                prop_assert!(tier.used <= tier.capacity);
            }
        }
    }

    #[test]
    fn no_replacement_algorithm_loses_a_page(
        steps in prop::collection::vec(step(), 1..40),
        huge in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let entry = terrace_policy::find("replacement").unwrap();
        for algorithm in entry.algorithms().iter().map(|algorithm| algorithm.name) {
            let run = || {
                let mut driver = open_as(entry, world(huge), &format!("algorithm = \"{algorithm}\""), seed);
                let expected = play(&mut driver, &steps);
                driver.advance(Time::from_nanos(3_000_000_000));
                (driver, expected)
            };
            let (driver, expected) = run();
            prop_assert_eq!(driver.world.check(), Ok(()), "{}", algorithm);
            for page in &expected {
                prop_assert!(driver.world.locate(*page).is_some(), "{} lost {:?}", algorithm, page);
            }
            prop_assert_eq!(driver.report(), run().0.report(), "{}", algorithm);
        }
    }

    #[test]
    fn equal_runs_make_equal_decisions(steps in prop::collection::vec(step(), 1..25), seed in any::<u64>()) {
        for entry in all() {
            let run = || {
                let mut driver = open(entry, false, seed);
                let pages = play(&mut driver, &steps);
                let places: Vec<_> = pages.iter().map(|page| driver.world.frame(*page)).collect();
                (places, driver.report(), driver.calls())
            };
            prop_assert_eq!(run(), run(), "{}", entry.name());
        }
    }

    #[test]
    fn exchange_is_symmetric(pairs in prop::collection::vec((0..64u64, 0..64u64), 1..40)) {
        let mut world = InMemory::new(&[("fast", Bytes::kib(128)), ("slow", Bytes::kib(256))]);
        world.map_anonymous(0, 0, 64);
        for vpn in 0..64 {
            let fault = world.touch(PageId::new(0, vpn), true).unwrap();
            world.fault_in(&fault, &Placement::ANYWHERE);
        }
        let places = |world: &InMemory| -> Vec<_> { (0..64).map(|vpn| world.frame(PageId::new(0, vpn))).collect() };
        let before = places(&world);
        let orders: Vec<Exchange> = pairs
            .iter()
            .map(|(a, b)| Exchange { one: PageId::new(0, *a), other: PageId::new(0, *b) })
            .collect();
        let back: Vec<Exchange> =
            orders.iter().rev().map(|pair| Exchange { one: pair.other, other: pair.one }).collect();
        for list in [orders, back] {
            world.exchange(&list, MoveOptions::default());
            world.advance_to(world.now().plus(Time::from_nanos(1_000_000_000)));
            prop_assert_eq!(world.check(), Ok(()));
        }
        prop_assert_eq!(places(&world), before);
    }

    #[test]
    fn the_world_keeps_every_page_under_any_orders(
        orders in prop::collection::vec((0..5u8, 0..4u64, 0..2u8, 0..6000u64), 1..60),
        seed in any::<u64>(),
    ) {
        let mut world = InMemory::new(&[("fast", Bytes::mib(4)), ("slow", Bytes::mib(6))]).with_huge_pages();
        world.map_anonymous(0, 0, 2048);
        for vpn in (0..2048).step_by(512) {
            let fault = world.touch(PageId::new(0, vpn), true).unwrap();
            world.fault_in(&fault, &Placement::ANYWHERE);
        }
        world.fail_often(5, Outcome::Busy, seed);
        for (kind, block, tier, nanos) in orders {
            let page = PageId::new(0, block * 512);
            let part = page.plus(nanos % 512);
            let how = MoveOptions { in_flight: None, ..MoveOptions::default() };
            match kind {
                0 => world.migrate(&[Move { page, to: TierId(tier) }, Move { page: part, to: TierId(tier) }], how),
                1 => world.exchange(&[Exchange { one: page, other: PageId::new(0, nanos % 4 * 512) }], how),
                2 => world.resize(&[Resize { page, to: PageSize::Base }]),
                3 => world.resize(&[Resize { page, to: PageSize::Huge }]),
                _ => {
                    assert!(world.touch(part, tier == 0).is_none());
                    world.resize(&[])
                }
            };
            world.advance_to(world.now().plus(Time::from_nanos(3 * nanos)));
            prop_assert_eq!(world.check(), Ok(()));
        }
        world.advance_to(world.now().plus(Time::from_nanos(1_000_000)));
        for vpn in 0..2048 {
            prop_assert!(world.locate(PageId::new(0, vpn)).is_some());
        }
    }
}

/// A policy whose every order fails retries or gives up, but comes to rest between its ticks.
#[test]
fn failures_do_not_make_a_policy_loop() {
    for entry in all() {
        for outcome in [Outcome::Busy, Outcome::NoSpace, Outcome::Gone, Outcome::Unmovable] {
            let mut driver = open(entry, false, 1);
            driver.world.fail_often(1, outcome, 1);
            driver.touch_all(0, 0..PAGES, true);
            for _ in 0..10 {
                // Some of the fast tier's pages, more of the slow tier's.
                driver.touch_all(0, 700..900, true);
                driver.touch_all(1, 0..50, false);
                driver.advance(Time::from_nanos(1_000_000_000));
            }
            let (calls, ordered) = (driver.calls(), driver.world.ordered_pages());
            // Ticks of 10 ms, and answers in a few batches each; everything that is resident once per tick.
            assert!(calls < 40_000, "{}: {calls} calls in 10 s", entry.name());
            assert!(ordered < 1000 * 2 * PAGES, "{}: {ordered} pages ordered in 10 s", entry.name());
        }
    }
}
