//! Trident by hand, with 1 GiB regions.

use crate::spans::{millis, seconds};
use crate::{Capability, Driver, InMemory, MemorySystem, Open, PageId, PhysicalMemory};
use terrace_model::{Bytes, Frame, PageSize, TierId};

const TIER: TierId = TierId(0);
const HUGE: u64 = 512;
const GIANT: u64 = 512 * 512;

/// A machine of so many GiB with one area of so many base pages.
fn world(gib: u64, pages: u64) -> InMemory {
    let mut world = InMemory::new(&[("dram", Bytes::gib(gib))]);
    world.map_anonymous(0, 0, pages);
    world
}

fn open(parameters: &str, world: InMemory) -> Driver {
    Driver::open("trident", parameters, world).unwrap()
}

fn size(driver: &Driver, vpn: u64) -> PageSize {
    driver.world.locate(PageId::new(0, vpn)).unwrap().1
}

/// Sizes got by a fault in the first GiB, in the 2 MiB after it, and behind that.
fn sizes(parameters: &str) -> [PageSize; 3] {
    let mut driver = open(parameters, world(3, GIANT + HUGE + 1));
    [5, GIANT + 5, GIANT + HUGE].map(|vpn| {
        driver.touch(PageId::new(0, vpn), true);
        size(&driver, vpn)
    })
}

#[test]
fn a_fault_gets_the_largest_page_that_fits() {
    use PageSize::{Base, Giant, Huge};
    assert_eq!(sizes(""), [Giant, Huge, Base]);
    assert_eq!(sizes("sizes = \"1g\""), [Giant, Base, Base], "Trident-1Gonly");
    assert_eq!(sizes("sizes = \"2m\""), [Huge, Huge, Base]);
}

#[test]
fn a_fault_falls_back_and_counts_what_failed() {
    let mut world = world(1, GIANT);
    world.take_frame(Frame(3), true);
    let mut driver = open("promote = false", world);
    driver.touch(PageId::new(0, 0), true);
    assert_eq!(size(&driver, 0), PageSize::Huge);
    driver.touch(PageId::new(0, HUGE), true);
    driver.advance(millis(1));
    let stats = driver.report().stats;
    assert_eq!((stats.integer("fault_1g_tried"), stats.integer("fault_1g_failed")), (1, 1));
    assert_eq!((stats.integer("fault_2m_tried"), stats.integer("fault_2m_failed")), (2, 0));
    assert_eq!((stats.integer("mapped_1g"), stats.integer("mapped_2m")), (0, 4 << 20));
}

#[test]
fn free_regions_are_zeroed_ahead_up_to_the_high_water_mark() {
    let zeroed = |parameters: &str, time: u64| {
        let mut driver = open(parameters, world(3, 2 * GIANT));
        driver.advance(millis(time));
        driver.world.free_blocks(TIER, PageSize::Giant).1
    };
    assert_eq!((zeroed("", 500), zeroed("", 1500), zeroed("", 3500)), (1, 2, 3));
    assert_eq!(zeroed("zero_regions = 2", 500), 2);
    assert_eq!(zeroed("zero_period = \"100 ms\"", 500), 3);
    assert_eq!(zeroed("zero_high_water = 2", 9000), 2);
    assert_eq!(zeroed("zero = false", 9000), 0);
    let mut driver = open("zero_high_water = 1", world(3, 2 * GIANT));
    driver.advance(millis(500));
    for vpn in [0, GIANT] {
        driver.touch(PageId::new(0, vpn), true);
    }
    driver.advance(millis(1));
    let stats = driver.report().stats;
    assert_eq!((stats.integer("zeroed_hits"), stats.integer("zeroed_misses")), (1, 1));
    assert_eq!(stats.integer("zeroed_ahead"), 1 << 30);
}

/// Three GiB with frames of the page cache: fewest in the first, but one of the kernel's among them, and most in the last.
fn fragmented(parameters: &str) -> Driver {
    let mut world = world(3, GIANT);
    world.take_frame(Frame(40), true);
    world.take_frame(Frame(50), false);
    for at in [0, 512, 5000] {
        world.take_frame(Frame(GIANT + at), true);
    }
    for at in 0..10 {
        world.take_frame(Frame(2 * GIANT + 700 * at), true);
    }
    let mut driver = open(&format!("zero = false\n{parameters}"), world);
    driver.touch(PageId::new(0, 3), true);
    driver.touch(PageId::new(0, HUGE), true);
    driver
}

#[test]
fn promotion_compacts_the_region_that_can_be_emptied() {
    for (parameters, expected, copied) in [
        ("", PageSize::Giant, 3),
        // The frame below the kernel's is put back: it is less than a cluster.
        ("compaction = \"normal\"", PageSize::Giant, 3),
        ("compaction = \"none\"", PageSize::Huge, 0),
        ("promote = false", PageSize::Huge, 0),
    ] {
        let mut driver = fragmented(parameters);
        assert_eq!(size(&driver, 3), PageSize::Huge, "no 1 GiB block is free at the fault");
        driver.advance(seconds(11));
        assert_eq!(size(&driver, 3), expected, "{parameters}");
        assert_eq!(driver.report().stats.integer("compaction_bytes"), copied * 4096, "{parameters}");
        let giant = expected == PageSize::Giant;
        assert_eq!(driver.report().stats.integer("mapped_1g"), u64::from(giant) << 30);
        assert_eq!(driver.world.frame(PageId::new(0, 0)).map(|frame| frame.0 == GIANT), Some(giant));
        assert_eq!(driver.world.isolated_blocks(), 0);
    }
}

#[test]
fn promotion_falls_back_to_2_mib() {
    // No region can be emptied: both have frames of the kernel's.
    let run = |parameters: &str| {
        let mut world = world(2, GIANT);
        // All 2 MiB blocks but two are broken up at the time of the faults.
        world.take_frame(Frame(9), false);
        world.take_frame(Frame(GIANT + 9), false);
        let mut driver = open(parameters, world);
        for block in 0..2 * HUGE {
            driver.world.isolate(Frame(block * HUGE), PageSize::Huge, block != 5);
        }
        // The block that is open is broken up by the first fault for another area.
        driver.world.map_anonymous(1, 0, 1);
        driver.touch(PageId::new(1, 0), true);
        for vpn in [0, 1, HUGE] {
            driver.touch(PageId::new(0, vpn), true);
            assert_eq!(size(&driver, vpn), PageSize::Base);
        }
        for block in 0..2 * HUGE {
            driver.world.isolate(Frame(block * HUGE), PageSize::Huge, false);
        }
        driver.advance(seconds(25));
        let stats = driver.report().stats;
        assert!(stats.integer("promotion_1g_failed") > 0, "{parameters}");
        assert_eq!(stats.integer("promotion_1g_tried"), stats.integer("promotion_1g_failed"));
        (size(&driver, 0), size(&driver, HUGE))
    };
    assert_eq!(run(""), (PageSize::Huge, PageSize::Huge));
    assert_eq!(run("max_ptes_none = 510"), (PageSize::Huge, PageSize::Base));
    assert_eq!(run("sizes = \"1g\""), (PageSize::Base, PageSize::Base));
}

#[test]
fn the_daemon_keeps_its_pace_and_its_thresholds() {
    // Two GiB in 2 MiB pages, which 1 GiB could hold: at the faults no block was free.
    let promoted = |parameters: &str, time: u64| {
        let mut driver = open(&format!("zero = false\n{parameters}"), world(5, 2 * GIANT));
        for region in 0..5 {
            driver.world.isolate(Frame(region * GIANT), PageSize::Huge, true);
        }
        for vpn in [0, HUGE, GIANT] {
            driver.touch(PageId::new(0, vpn), true);
        }
        for region in 0..5 {
            driver.world.isolate(Frame(region * GIANT), PageSize::Huge, false);
        }
        driver.advance(seconds(time));
        [0, GIANT].into_iter().filter(|vpn| size(&driver, *vpn) == PageSize::Giant).count()
    };
    assert_eq!((promoted("", 9), promoted("", 11)), (0, 2));
    assert_eq!(promoted("scan_sleep = \"1 s\"", 2), 2);
    assert_eq!(promoted("pages_to_scan = 262144", 11), 1);
    assert_eq!(promoted("max_ptes_none_1g = 261120", 11), 1, "the second GiB has one 2 MiB page only");
}

/// How many of two GiB in 2 MiB pages are 1 GiB pages after a time, where an order takes a second and the daemon looks at
/// one GiB per wake, and what was copied for it.
fn joined(parameters: &str, world: InMemory, time: u64) -> (usize, u64) {
    let parameters = format!("zero = false\nscan_sleep = \"1 s\"\npages_to_scan = 262144\n{parameters}");
    let mut driver = open(&parameters, world.with_delay(seconds(1)));
    for region in 0..5 {
        driver.world.isolate(Frame(region * GIANT), PageSize::Huge, true);
    }
    [0, HUGE, GIANT].into_iter().for_each(|vpn| driver.touch(PageId::new(0, vpn), true));
    for region in 0..5 {
        driver.world.isolate(Frame(region * GIANT), PageSize::Huge, false);
    }
    driver.advance(seconds(time));
    driver.world.check().unwrap();
    let joined = [0, GIANT].into_iter().filter(|vpn| size(&driver, *vpn) == PageSize::Giant).count();
    (joined, driver.world.spent().copied)
}

#[test]
fn the_daemon_takes_no_more_than_its_share_of_a_processor() {
    let joined = |parameters: &str, time| joined(parameters, world(5, 2 * GIANT), time).0;
    assert_eq!((joined("", 3), joined("", 5)), (1, 2), "it wakes after 1 s and after 3 s");
    assert_eq!(
        (joined("max_cpu = 0.1", 11), joined("max_cpu = 0.1", 14)),
        (1, 2),
        "one second of work, ten of sleep"
    );
}

#[test]
fn hypercalls_replace_copies_where_there_is_a_hypervisor() {
    let guest = || world(5, 2 * GIANT);
    assert_eq!(joined("", guest(), 5), (2, 3 << 21), "three pages of 2 MiB are copied");
    assert_eq!(joined("copy = \"hypercall\"", guest(), 5), (2, 0));
    let native = guest().without(Capability::CopylessExchange);
    assert_eq!(joined("copy = \"hypercall\"", native, 5), (2, 3 << 21), "as on a machine without one");
}

#[test]
fn a_hypercall_exchanges_so_many_pairs() {
    let requests = |parameters: &str| {
        let parameters = format!(
            "zero = false\nscan_sleep = \"1 s\"\npages_to_scan = 262144\ncopy = \"hypercall\"\n{parameters}"
        );
        let mut driver = open(&parameters, world(5, GIANT));
        for region in 0..5 {
            driver.world.isolate(Frame(region * GIANT), PageSize::Huge, true);
        }
        [0, HUGE, 2 * HUGE].into_iter().for_each(|vpn| driver.touch(PageId::new(0, vpn), true));
        for region in 0..5 {
            driver.world.isolate(Frame(region * GIANT), PageSize::Huge, false);
        }
        driver.advance(seconds(5));
        assert_eq!(size(&driver, 0), PageSize::Giant);
        driver.world.exchange_requests()
    };
    assert_eq!(requests(""), 1);
    assert_eq!(requests("hypercall_pairs = 2"), 2);
    assert_eq!(requests("hypercall_pairs = 1"), 3, "unbatched");
}

#[test]
fn an_allocation_that_fails_ends_the_wake() {
    let tried = |parameters: &str| {
        let mut driver = fragmented(&format!("sizes = \"1g\"\ncompaction = \"none\"\n{parameters}"));
        driver.advance(seconds(100));
        driver.report().stats.integer("promotion_1g_tried")
    };
    assert_eq!((tried(""), tried("alloc_sleep = \"60 s\"")), (5, 2));
}

/// Four GiB with a page in each that does not move, which no counter shows: every region is a source, and none can be
/// emptied.
fn never_emptied(parameters: &str) -> Driver {
    let mut driver = open(&format!("zero = false\n{parameters}"), world(4, GIANT));
    let regions = 0..4;
    let only = |driver: &mut Driver, open: Option<u64>| {
        for region in regions.clone() {
            driver.world.isolate(
                Frame(region * GIANT),
                PageSize::Giant,
                open.is_some_and(|open| open != region),
            );
        }
    };
    for region in regions.clone() {
        let page = PageId::new(1, region * HUGE);
        driver.world.map_anonymous(1, page.vpn, 1);
        only(&mut driver, Some(region));
        driver.touch(page, true);
        driver.world.pin(page);
        assert_eq!(driver.world.frame(page).map(|frame| frame.0 / GIANT), Some(region));
    }
    only(&mut driver, None);
    driver.touch(PageId::new(0, 3), true);
    assert_eq!(size(&driver, 3), PageSize::Huge);
    driver
}

#[test]
fn compaction_tries_so_many_sources_and_none_again_before_its_timeout() {
    // The daemon compacts once per wake, every ten seconds.
    let sources = |parameters: &str, time: u64| {
        let mut driver = never_emptied(parameters);
        driver.advance(seconds(time));
        driver.report().stats.integer("compaction_sources")
    };
    assert_eq!((sources("", 15), sources("", 100)), (4, 4), "each once, whatever the retries");
    let two = "compaction_retries = 2";
    assert_eq!((sources(two, 15), sources(two, 25), sources(two, 35)), (2, 4, 4));
    assert_eq!(sources("compaction_retries = 0", 35), 0);
    assert_eq!(sources("", 155), 8, "once more after 120 s");
    let at_once = "compaction_timeout = \"0 s\"";
    assert_eq!((sources(at_once, 15), sources(at_once, 25)), (5, 10));
}

#[test]
fn a_source_is_chosen_by_its_counter_or_by_the_mobility_of_its_pageblocks() {
    // The region with fewest frames in use has one of the kernel's behind them, in a pageblock for what can move.
    let run = |parameters: &str| {
        let mut driver = fragmented(parameters);
        driver.world.take_frame(Frame(GIANT + 5001), false);
        driver.advance(seconds(11));
        let stats = driver.report().stats;
        assert_eq!(size(&driver, 3), PageSize::Giant, "{parameters}");
        ["compaction_sources", "compaction_bytes", "compaction_bytes_wasted"].map(|name| stats.integer(name))
    };
    assert_eq!(run(""), [1, 10 * 4096, 0]);
    assert_eq!(run("compaction_unmovable = \"mobility\""), [2, 13 * 4096, 3 * 4096]);
}

/// One GiB of which two pages were stored to, on a machine that it fills by half.
fn bloated(parameters: &str) -> Driver {
    let below = if parameters.contains("recover_below") { "" } else { "recover_below = 0.6\n" };
    let until = if parameters.contains("recover_until") { "" } else { "recover_until = 1.0\n" };
    let others = "zero = false\npromote = false\n";
    let mut driver = open(&format!("{below}{until}{others}{parameters}"), world(2, GIANT));
    driver.touch(PageId::new(0, 7), true);
    driver.touch(PageId::new(0, HUGE + 7), true);
    driver.touch(PageId::new(0, HUGE + 8), false);
    assert_eq!(driver.world.resident(TIER), GIANT);
    driver
}

#[test]
fn zeros_are_taken_back_when_memory_is_short() {
    let mut driver = bloated("");
    driver.advance(seconds(10));
    assert_eq!(driver.world.resident(TIER), 2);
    assert!(driver.world.reads_as_zeros(PageId::new(0, HUGE + 8)));
    let stats = driver.report().stats;
    assert_eq!((stats.integer("recovered"), stats.integer("recovery_splits")), (GIANT - 2, 1 + HUGE));
    assert_eq!((stats.integer("mapped_1g"), stats.integer("mapped_2m")), (0, 0));
    driver.touch(PageId::new(0, HUGE + 8), true);
    assert_eq!(size(&driver, HUGE + 8), PageSize::Base, "a store brings the page back");
    let resident = |parameters: &str| {
        let mut driver = bloated(parameters);
        driver.advance(seconds(10));
        driver.world.resident(TIER)
    };
    assert_eq!(resident("recover = false"), GIANT);
    assert_eq!(resident("recover_below = 0.4"), GIANT);
    assert!(resident("recover_until = 0.6") > 2, "it ends in the middle");
    assert_eq!(resident("recover_zeros = 1.0"), 2 * HUGE, "only pages that hold nothing else");
}

#[test]
fn a_pass_over_all_pages_is_followed_by_a_pause() {
    let zeros = |parameters: &str| {
        let mut driver = bloated(parameters);
        driver.advance(seconds(10));
        // More of the same: recovery looks at it after the pause.
        driver.world.map_anonymous(1, 0, GIANT);
        driver.touch(PageId::new(1, 0), true);
        driver.advance(seconds(20));
        driver.world.resident(TIER)
    };
    assert_eq!((zeros(""), zeros("recover_sleep = \"5 s\"")), (2 + GIANT, 3));
}

#[test]
fn promotion_and_recovery_leave_every_byte() {
    let mut driver = fragmented("recover_below = 0.9\nrecover_until = 0.95\nscan_sleep = \"1 s\"");
    for vpn in (0..GIANT).step_by(7919) {
        driver.touch(PageId::new(0, vpn), true);
    }
    for _ in 0..20 {
        driver.advance(seconds(2));
        driver.world.check().unwrap();
    }
    for vpn in (0..GIANT).step_by(7919) {
        assert!(driver.world.locate(PageId::new(0, vpn)).is_some());
    }
}

#[test]
fn it_needs_frames_and_1_gib_pages() {
    let world = || InMemory::new(&[("dram", Bytes::mib(16))]);
    let error = Driver::open("trident", "", world().without(Capability::Frames)).err().unwrap().to_string();
    assert!(error.contains("frames"), "{error}");
    let without_frames =
        |parameters| Driver::open("trident", parameters, world().without(Capability::Frames));
    assert!(without_frames("zero = false").is_err() && without_frames("compaction = \"none\"").is_err());
    assert!(without_frames("compaction = \"none\"\nzero = false").is_ok(), "promotion alone sees no frames");
    assert!(Driver::open("trident", "recover = false", world().without(Capability::Split)).is_ok());
    assert!(Driver::open("trident", "", world().without(Capability::ZeroPages)).is_ok());
    let error = |parameters: &str| Driver::open("trident", parameters, world()).err().unwrap().to_string();
    assert!(error("recover_until = 0.1").contains("recover_below"));
    let mut driver = Driver::open("trident", "", world()).unwrap();
    assert_eq!(driver.world.zero_pages(PageId::new(0, 0)), None);
    driver.advance(seconds(1));
}
