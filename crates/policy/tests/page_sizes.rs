//! What must hold for the policies of page sizes and contiguity, on memory that is fragmented and short: every byte that
//! was stored stays readable at its address, the kernel's frames stay where they are, and nothing stays isolated.

#[path = "support/open.rs"]
mod support;

use proptest::prelude::*;
use support::Open;
use terrace_in_memory::{Driver, InMemory};
use terrace_model::{Bytes, Frame, PageSize, TierId, Time};
use terrace_policy::{
    Area, AreaKind, FrameState, MemorySystem, Outcome, PageId, PageRange, PhysicalMemory, Placement, Resize,
    find,
};

const TIER: TierId = TierId(0);
/// Base pages of each of two areas.
const PAGES: u64 = 1300;

/// Policies with settings that make them act within seconds on a few MiB.
fn settings() -> Vec<(&'static str, String)> {
    let hurried = |name: &str, more: &str| {
        let spans = find(name).unwrap().parameters().into_iter();
        let spans = spans.filter(|p| p.default.ends_with(" s"));
        let spans: String = spans.map(|p| format!("{} = \"500 ms\"\n", p.name)).collect();
        format!("{spans}{more}")
    };
    let recover = "recover_below = 0.5\nrecover_until = 0.6\nrecover_zeros = 0.1\n";
    vec![
        ("thp", hurried("thp", "")),
        ("thp", hurried("thp", "fault = false\ncompaction = \"smart\"")),
        ("thp", hurried("thp", "defrag = \"always\"")),
        ("thp", hurried("thp", "defrag = \"defer\"")),
        ("hugetlbfs", hurried("hugetlbfs", "")),
        ("trident", hurried("trident", recover)),
        ("trident", hurried("trident", "sizes = \"2m\"\ncompaction = \"normal\"\nrecover = false")),
        ("ingens", hurried("ingens", "utilisation = 0.2")),
        ("hawkeye", hurried("hawkeye", recover)),
        ("ranger", hurried("ranger", "")),
        ("ranger", hurried("ranger", "thp = false\nalign = false\nsmallest_area = \"64 KiB\"")),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Touch { area: u64, vpn: u64, count: u64, write: bool },
    Unmap { area: u64, vpn: u64, count: u64 },
    Pin { area: u64, vpn: u64 },
    Pass { millis: u64 },
    Fail { one_in: u64, outcome: Outcome },
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..2u64, 0..PAGES);
    let outcomes = vec![Outcome::NoSpace, Outcome::Busy, Outcome::Unmovable, Outcome::Gone];
    prop_oneof![
        6 => (place(), 1..700u64, prop::bool::weighted(0.7))
            .prop_map(|((area, vpn), count, write)| Step::Touch { area, vpn, count, write }),
        1 => (place(), 1..900u64).prop_map(|((area, vpn), count)| Step::Unmap { area, vpn, count }),
        1 => place().prop_map(|(area, vpn)| Step::Pin { area, vpn }),
        6 => (1..3000u64).prop_map(|millis| Step::Pass { millis }),
        1 => (0..4u64, prop::sample::select(outcomes))
            .prop_map(|(one_in, outcome)| Step::Fail { one_in, outcome }),
    ]
}

/// `MADV_NOHUGEPAGE`: neither faults nor daemons put a large page where the program wants none.
#[test]
fn a_program_that_wants_no_huge_pages_gets_none_and_no_stack_has_some() {
    for (name, parameters) in settings().into_iter().filter(|(name, _)| *name != "hugetlbfs") {
        let mut world = InMemory::new(&[("dram", Bytes::mib(32))]);
        world.map_anonymous(0, 0, 1024);
        world.map_advised(0, 1024, 1024, false);
        let range = PageRange { first: PageId::new(0, 2048), pages: 1024 };
        world.map(Area { range, kind: AreaKind::Stack, writable: true, huge_advice: None, object: None });
        let mut driver = Driver::open(name, &parameters, world).unwrap();
        for vpn in 0..3072 {
            driver.touch(PageId::new(0, vpn), true);
        }
        driver.advance(Time::from_nanos(20_000_000_000));
        let sizes = |pages: std::ops::Range<u64>| -> Vec<PageSize> {
            pages.map(|vpn| driver.world.locate(PageId::new(0, vpn)).unwrap().1).collect()
        };
        let (free, advised) = (sizes(0..1024), sizes(1024..3072));
        assert!(advised.iter().all(|size| *size == PageSize::Base), "{name}\n{parameters}");
        assert!(free.contains(&PageSize::Huge), "{name}\n{parameters}");
    }
}

fn page(area: u64, vpn: u64) -> PageId {
    PageId::new(area as u32, area * 77 + vpn)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn no_byte_is_lost_on_fragmented_memory(
        taken in prop::collection::vec((0..3072u64, prop::bool::weighted(0.85)), 0..200),
        steps in prop::collection::vec(step(), 1..20),
    ) {
        for (name, parameters) in settings() {
            let mut world = InMemory::new(&[("dram", Bytes::mib(12)), ("slow", Bytes::mib(12))]);
            for area in 0..2 {
                world.map_anonymous(area, u64::from(area) * 77, PAGES);
            }
            for (frame, movable) in &taken {
                world.take_frame(Frame(*frame), *movable);
            }
            let unmovable = |world: &InMemory| -> Vec<u64> {
                (0..3072).filter(|at| world.state(Frame(*at)) == FrameState::Unmovable).collect()
            };
            let kernel = unmovable(&world);
            let mut driver = Driver::open(name, &parameters, world).unwrap();
            let mut mapped = vec![true; 2 * PAGES as usize];
            let mut touched = vec![false; 2 * PAGES as usize];
            let at = |area: u64, vpn: u64| (area * PAGES + vpn) as usize;
            for step in &steps {
                match *step {
                    Step::Touch { area, vpn, count, write } => {
                        for vpn in vpn..(vpn + count).min(PAGES) {
                            if mapped[at(area, vpn)] {
                                driver.touch(page(area, vpn), write);
                                touched[at(area, vpn)] = true;
                            }
                        }
                    }
                    Step::Unmap { area, vpn, count } => {
                        let count = count.min(PAGES - vpn);
                        driver.world.unmap(PageRange::new(page(area, vpn), count));
                        for vpn in vpn..vpn + count {
                            mapped[at(area, vpn)] = false;
                            touched[at(area, vpn)] = false;
                        }
                    }
                    Step::Pin { area, vpn } => driver.world.pin(page(area, vpn)),
                    Step::Pass { millis } => driver.advance(Time::from_nanos(millis * 1_000_000)),
                    Step::Fail { one_in, outcome } => driver.world.fail_often(one_in, outcome, 1),
                }
            }
            driver.advance(Time::from_nanos(5_000_000_000));
            prop_assert_eq!(driver.world.check(), Ok(()), "{}", name);
            prop_assert_eq!(driver.world.isolated_blocks(), 0, "{}", name);
            for area in 0..2 {
                for vpn in (0..PAGES).filter(|vpn| touched[at(area, *vpn)]) {
                    let page = page(area, vpn);
                    let there = driver.world.locate(page).is_some() || driver.world.reads_as_zeros(page);
                    prop_assert!(there, "{} lost {:?}", name, page);
                }
            }
            let after = unmovable(&driver.world);
            prop_assert!(kernel.iter().all(|frame| after.contains(frame)), "{} moved the kernel's", name);
        }
    }

    #[test]
    fn promotion_and_demotion_are_inverse(touched in prop::collection::btree_set(0..512u64, 1..512), drop in any::<bool>()) {
        let mut world = InMemory::new(&[("dram", Bytes::mib(8))]);
        world.map_anonymous(0, 0, 512);
        for vpn in &touched {
            let fault = world.touch(PageId::new(0, *vpn), true).unwrap();
            world.fault_in(&fault, &Placement::ANYWHERE.or(TIER, Some(PageSize::Base)));
            assert!(world.touch(PageId::new(0, *vpn), true).is_none());
        }
        let first = PageId::new(0, *touched.first().unwrap()).aligned(PageSize::Huge);
        let finish = |world: &mut InMemory| {
            world.advance_to(world.now().plus(Time::from_nanos(1_000_000)));
            world.check().unwrap();
        };
        world.resize(&[Resize { page: first, to: PageSize::Huge }]);
        finish(&mut world);
        prop_assert_eq!(world.locate(first), Some((TIER, PageSize::Huge)));
        prop_assert_eq!(world.zero_pages(first), Some(512 - touched.len() as u64));
        if drop {
            world.drop_zeros(&[first]);
        } else {
            world.resize(&[Resize { page: first, to: PageSize::Base }]);
        }
        finish(&mut world);
        for vpn in 0..512 {
            let there = world.locate(PageId::new(0, vpn)).map(|(_, size)| size);
            let expected = (!drop || touched.contains(&vpn)).then_some(PageSize::Base);
            prop_assert_eq!(there, expected);
        }
        prop_assert_eq!(world.resident(TIER), if drop { touched.len() as u64 } else { 512 });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    /// As above with pages of 1 GiB, on a few accesses: each compaction there moves thousands of pages.
    #[test]
    fn no_byte_is_lost_with_1_gib_pages(
        taken in prop::collection::vec((0..786_432u64, prop::bool::weighted(0.95)), 0..40),
        touched in prop::collection::vec((0..524_288u64, any::<bool>()), 1..60),
        normal in any::<bool>(),
    ) {
        let mut world = InMemory::new(&[("dram", Bytes::gib(3))]);
        world.map_anonymous(0, 0, 524_288);
        for (frame, movable) in taken {
            world.take_frame(Frame(frame), movable);
        }
        let kind = if normal { "normal" } else { "smart" };
        let marks = "recover_below = 0.7\nrecover_until = 0.8\nrecover_zeros = 0.1\nrecover_sleep = \"5 s\"";
        let parameters = format!("compaction = \"{kind}\"\nscan_sleep = \"1 s\"\n{marks}");
        let mut driver = Driver::open("trident", &parameters, world).unwrap();
        for (vpn, write) in &touched {
            driver.touch(PageId::new(0, *vpn), *write);
            driver.advance(Time::from_nanos(100_000_000));
        }
        driver.advance(Time::from_nanos(10_000_000_000));
        prop_assert_eq!(driver.world.check(), Ok(()));
        prop_assert_eq!(driver.world.isolated_blocks(), 0);
        for (vpn, _) in touched {
            let page = PageId::new(0, vpn);
            prop_assert!(driver.world.locate(page).is_some() || driver.world.reads_as_zeros(page));
        }
        let stats = driver.report().stats;
        prop_assert!(stats.integer("compaction_bytes_wasted") <= stats.integer("compaction_bytes"));
    }
}
