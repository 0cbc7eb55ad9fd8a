use super::*;
use crate::{Agent, Area, AreaKind, Driver, InMemory, Object, Open};
use terrace_model::{Bytes, BytesPerSec};

const GPU: Agent = Agent::Gpu(0);

/// Two allocations of 100 pages, all touched by the CPU; a page moves in a microsecond.
fn scene(words: &str) -> Driver {
    let mut world = InMemory::new(&[("gddr", Bytes::mib(4)), ("ddr", Bytes::mib(4))]);
    world.set_speed(TierId(0), Time::from_nanos(100), BytesPerSec(200e9));
    world.set_speed(TierId(1), Time::from_nanos(200), BytesPerSec(80e9));
    for (site, vpn) in [(1, 0), (2, 100)] {
        let range = PageRange::new(PageId::new(0, vpn), 100);
        let object = Some(Object { site, range });
        world.map(Area { range, kind: AreaKind::Anonymous, writable: true, huge_advice: None, object });
    }
    // One page is watched by nobody: the policy that counts misses sees those of the CPU too.
    let world = world.with_tlb(1).with_delay(Time::from_nanos(1000));
    let mut driver = Driver::open("threshold-migration", words, world).unwrap();
    driver.touch_all(0, 0..200, true);
    driver.advance(Time::from_nanos(5_000_000));
    driver
}

fn moved(driver: &Driver) -> Vec<u64> {
    let fast = |vpn: &u64| driver.world.locate(PageId::new(0, *vpn)).unwrap().0 == TierId(0);
    (0..200).filter(fast).collect()
}

fn miss(driver: &mut Driver, vpn: u64) {
    driver.touch_by(GPU, PageId::new(0, vpn), false);
}

#[test]
fn the_miss_that_makes_the_threshold_moves_a_page() {
    // Each page was missed once by whoever filled it.
    let mut driver = scene("threshold = 3");
    assert_eq!(moved(&driver), []);
    for vpn in [5, 6, 5] {
        miss(&mut driver, vpn);
    }
    driver.advance(Time::from_nanos(1_000_000));
    assert_eq!(moved(&driver), [5]);
    assert_eq!(moved(&scene("threshold = 1")).len(), 200);
}

#[test]
fn neighbours_come_furthest_first_and_stay_within_the_allocation() {
    let page = PageId::new(0, 98);
    let range = PageRange::new(PageId::new(0, 0), 100);
    let vpns = |expansion, order| -> Vec<u64> {
        around(page, range, expansion, order).iter().map(|near| near.vpn).collect()
    };
    assert_eq!(vpns(8, Order::FurthestFirst), [94, 95, 96, 97, 99, 98]);
    assert_eq!(vpns(8, Order::NearestFirst), [98, 99, 97, 96, 95, 94]);
    assert_eq!(vpns(0, Order::FurthestFirst), [98]);
    for (order, mid_way) in [("furthest-first", [90, 91, 92]), ("nearest-first", [97, 98, 99])] {
        let words = format!("threshold = 2\nexpansion = 16\nin_flight = 1\norder = \"{order}\"");
        let mut driver = scene(&words);
        miss(&mut driver, 98);
        driver.advance(Time::from_nanos(3500));
        assert_eq!(moved(&driver), mid_way, "{order}");
        driver.advance(Time::from_nanos(1_000_000));
        assert_eq!(moved(&driver), (90..100).collect::<Vec<_>>());
    }
}

#[test]
fn so_many_move_at_a_time() {
    let after = |in_flight: u32| {
        let mut driver =
            scene(&format!("threshold = 2\nexpansion = 64\nin_flight = {in_flight}\npoll = \"500 ns\""));
        miss(&mut driver, 50);
        driver.advance(Time::from_nanos(5600));
        moved(&driver).len()
    };
    let (one, four) = (after(1), after(4));
    assert!((4..=5).contains(&one) && four == 4 * one, "{one} {four}");
}

fn balance(newest_weight: f64, half_rate: HalfRate) -> Balance {
    let (target, margin) = (5.0 / 7.0, 0.05);
    let (share, rate) = (None, Rate::Full);
    Balance { target, margin, newest_weight, half_rate, share, rate, periods: 0, at_rate: [0; 3] }
}

#[test]
fn the_rate_follows_the_share() {
    // 71.4 % is the target: full rate up to 66.4 %, half of it up to there, and none beyond.
    for (fast, most) in [(0, 4), (663, 4), (665, 2), (714, 2), (715, 0), (1000, 0)] {
        let mut balance = balance(1.0, HalfRate::InFlight);
        balance.period(fast, 1000 - fast);
        assert_eq!(balance.most(4), most, "{fast}");
    }
    // A wider margin.
    let mut wide = Balance { margin: 0.1, ..balance(1.0, HalfRate::InFlight) };
    wide.period(620, 380);
    assert_eq!(wide.most(4), 2);
    // Every second period instead; without traffic the rate stays.
    let mut balance = Balance { half_rate: HalfRate::Periods, ..balance(1.0, HalfRate::InFlight) };
    let at: Vec<usize> = (0..4)
        .map(|at| {
            if at == 0 {
                balance.period(700, 300)
            } else {
                balance.period(0, 0)
            }
            balance.most(4)
        })
        .collect();
    assert_eq!(at, [0, 4, 0, 4]);
    assert_eq!(balance.at_rate, [0, 1, 0]);
}

#[test]
fn the_share_is_a_moving_average() {
    let after = |newest_weight| {
        let mut balance = balance(newest_weight, HalfRate::InFlight);
        for fast in [0, 800, 400] {
            balance.period(fast, 1000 - fast);
        }
        balance.share.unwrap()
    };
    assert_eq!([1.0, 0.5, 0.25].map(after), [0.4, 0.4, 0.25]);
}

#[test]
fn copies_count_only_where_asked_for() {
    let mut traffic = TierTraffic::default();
    traffic.read[Initiator::Demand as usize] = 100;
    traffic.written[Initiator::Demand as usize] = 20;
    traffic.read[Initiator::Copy as usize] = 3;
    traffic.written[Initiator::Copy as usize] = 4;
    let of = [false, true].map(|count_copies| carried(&traffic, count_copies));
    assert_eq!(of, [120, 127]);
}

/// How many of a hundred pages have moved after a while in which all traffic went to the fast tier.
fn while_fast(words: &str) -> usize {
    let mut driver = scene(&format!("threshold = 2\n{words}"));
    miss(&mut driver, 0);
    driver.advance(Time::from_nanos(100_000));
    assert_eq!(moved(&driver), [0]);
    for _ in 0..100 {
        miss(&mut driver, 0);
        driver.advance(Time::from_nanos(1000));
    }
    (1..100).for_each(|vpn| miss(&mut driver, vpn));
    driver.advance(Time::from_nanos(6000));
    moved(&driver).len() - 1
}

#[test]
fn migration_stops_when_the_share_is_reached() {
    let (without, with) = (while_fast(""), while_fast("balance = true\nbalance_period = \"20 us\""));
    assert!(without > 10 && with == 0, "{without} {with}");
    assert!(while_fast("balance = true\nbalance_period = \"20 us\"\ntarget = 1") > 0);
    // The misses of the slow tier are in the share once a period is over.
    assert!(while_fast("balance = true\nbalance_period = \"1 us\"\nnewest_weight = 1") > 0);
}

#[test]
fn hint_faults_serve_where_nobody_reports_misses() {
    let mut world =
        InMemory::new(&[("dram", Bytes::mib(4)), ("cxl", Bytes::mib(4))]).without(Capability::TlbMisses);
    world.map_anonymous(0, 0, 64);
    let words = "trigger = \"hint-faults\"\nthreshold = 2\nexpansion = 4\nscan_period = \"1 ms\"";
    let mut driver = Driver::open("threshold-migration", words, world).unwrap();
    driver.touch_all(0, 0..64, true);
    for _ in 0..4 {
        driver.advance(Time::from_nanos(1_500_000));
        driver.touch(PageId::new(0, 9), false);
    }
    driver.advance(Time::from_nanos(1_000_000));
    let fast: Vec<u64> =
        (0..64).filter(|vpn| driver.world.locate(PageId::new(0, *vpn)).unwrap().0 == TierId(0)).collect();
    assert_eq!(fast, [7, 8, 9, 10, 11], "two on either side within the mapping");
    let without =
        InMemory::new(&[("dram", Bytes::mib(4)), ("cxl", Bytes::mib(4))]).without(Capability::TlbMisses);
    assert!(Driver::open("threshold-migration", "", without).is_err());
}

#[test]
fn a_page_is_copied_by_so_many_threads() {
    let threads = |copy_threads| options(&Parameters { copy_threads, ..Parameters::default() }).threads;
    assert_eq!([1, 8, 16].map(threads), [1, 8, 16]);
}
