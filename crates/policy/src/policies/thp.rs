//! Transparent huge pages of Linux: 2 MiB at the fault where it can be had, and khugepaged behind it.
//!
//! **Idea.** A fault in private memory asks for a 2 MiB page where one fits, and takes a base page where no block is
//! free. A daemon goes through the address spaces and joins base pages into 2 MiB pages, with compaction where no block
//! is free.
//!
//! **Source.** Linux: `mm/huge_memory.c`, `mm/khugepaged.c`, `mm/compaction.c`,
//! `Documentation/admin-guide/mm/transhuge.rst`. The baseline 2MB-THP of Trident (Ram et al., MICRO 2021), of
//! Translation Ranger (Yan, thesis, §4.5) and of others.
//!
//! **Left open by the source.** *Which area*: private memory without a file, stacks included. *Compaction at the fault*
//! (`defrag`): `never`, which for programs that do not ask for huge pages is what Linux's default, `madvise`, does: the
//! fault asks the allocator and nobody else. With the other settings a fault waits for compaction or wakes a daemon for it;
//! how hard either tries is open: as khugepaged does. *Shared and swapped-out base pages* (`max_ptes_shared`,
//! `max_ptes_swap`): do not occur here. *Several tiers*: the first tier with a block, then its base pages, then the next
//! tier. *Where the world shows no frames* (live Linux), it compacts by itself or not at all.
//!
//! **When to use it.** The default to compare other page-size policies with, and the right choice while memory is not
//! fragmented.

use crate::support::{
    Compaction, Compactor, Defrag, FaultCompaction, FaultSizes, Khugepaged, LargePages, Pace, largest_first,
    takes_large_pages,
};
use crate::{
    Capability, CapabilitySet, Fault, MemorySystem, Moment, Needs, NextTick, Outcome, Parameters, Placement,
    Policy, Published, Refusal, Report, Setup, Signal, SignalKind, Topology,
};
use terrace_model::{PageSize, Time};

/// Parameters of transparent huge pages.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Ask for a 2 MiB page at the fault (Linux: `enabled` = `always`). Off: only the daemon makes them.
    #[parameter(default = true)]
    pub fault: bool,
    /// What a fault does that finds no free block, as Linux's `defrag`.
    #[parameter(default = Defrag::Never, source = "ours; Linux: madvise")]
    pub defrag: Defrag,
    /// Run the daemon.
    #[parameter(default = true, source = "Linux: `khugepaged/defrag` and `enabled`")]
    pub promote: bool,
    /// Base pages that the daemon looks at per wake.
    #[parameter(default = 4096, range = 1..=1_000_000_000_000, source = "Linux")]
    pub pages_to_scan: u64,
    /// Sleep of the daemon between two wakes.
    #[parameter(default = "10 s", range = "1 ns"..="5 h", source = "Linux", scaled)]
    pub scan_sleep: Time,
    /// Sleep of the daemon after a failed allocation.
    #[parameter(default = "60 s", range = "1 ns"..="5 h", source = "Linux", scaled)]
    pub alloc_sleep: Time,
    /// Most of a processor that the daemon may take: after a wake it sleeps at least as long as the wake took, divided by
    /// this. 1: no cap.
    #[parameter(default = 1.0, range = 0.001..=1.0, source = "Trident, Figure 13: 0.1")]
    pub max_cpu: f64,
    /// Most base pages of a 2 MiB range that may be missing when it is joined.
    #[parameter(default = 511, range = 0..=511, source = "Linux")]
    pub max_ptes_none: u64,
    /// How memory is compacted for the daemon.
    #[parameter(default = Compaction::Normal, source = "Linux")]
    pub compaction: Compaction,
}

/// Sizes that are asked for.
const SIZES: [PageSize; 1] = [PageSize::Huge];

/// The policy.
#[derive(Clone, Debug)]
pub struct Thp {
    fault: bool,
    daemon: Option<Khugepaged>,
    pages: LargePages,
    faults: FaultSizes,
    compaction: FaultCompaction,
    /// Something follows when a fault finds no block.
    compacts: bool,
}

impl Published for Thp {
    type Parameters = Parameters;

    fn new(parameters: Parameters, _: Setup<'_>) -> Result<Thp, Refusal> {
        let p = parameters;
        let pace = Pace {
            sizes: SIZES.to_vec(),
            pages_to_scan: p.pages_to_scan,
            scan_sleep: p.scan_sleep,
            alloc_sleep: p.alloc_sleep,
            max_none: p.max_ptes_none,
            max_none_giant: 0,
            max_cpu: p.max_cpu,
        };
        let compactor = Compactor::as_released(p.compaction);
        Ok(Thp {
            fault: p.fault,
            daemon: p.promote.then(|| Khugepaged::new(pace, compactor)),
            pages: LargePages::default(),
            faults: FaultSizes::default(),
            compaction: FaultCompaction::new(p.defrag),
            compacts: p.fault && p.defrag.acts(),
        })
    }
}

impl Policy for Thp {
    fn needs(&self) -> Needs {
        let capabilities = CapabilitySet::NONE
            .with_if(self.daemon.is_some(), Capability::Collapse)
            .with_if(self.fault, Capability::FaultSizes)
            .with_if(self.compacts, Capability::StalledFaults);
        Needs { capabilities, ..Needs::default() }.and_signals(&[SignalKind::Allocated, SignalKind::Unmapped])
    }

    fn place(&mut self, fault: &Fault, topology: &Topology) -> Placement {
        let placement = largest_first(fault, if self.fault { &SIZES } else { &[] }, topology);
        self.compaction.place(fault, placement)
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        for signal in signals {
            match *signal {
                Signal::Allocated { page, size, zeroed, .. } => {
                    let area = memory.area(page).filter(|area| self.fault && takes_large_pages(area));
                    if let Some(area) = area {
                        self.faults.allocated(page, size, zeroed, area.largest_page(page), &SIZES);
                    }
                    self.compaction.allocated(page);
                    self.pages.appeared(page, size);
                }
                Signal::Unmapped { range } => {
                    self.pages.forget(range);
                    self.faults.unmapped(range);
                }
                _ if self.compaction.handle(signal, now, memory) => {}
                _ => {
                    let collapsed =
                        self.daemon.as_mut().and_then(|daemon| daemon.handle(signal, now, memory));
                    if let Some(done) = collapsed.filter(|done| done.outcome == Outcome::Done) {
                        self.pages.joined(done.candidate.page, done.candidate.size, memory);
                    }
                }
            }
        }
        let Some(daemon) = &mut self.daemon else { return NextTick::Never };
        daemon.tick(now, memory);
        daemon.next().map_or(NextTick::Never, NextTick::At)
    }

    fn report(&self, report: &mut Report) {
        self.faults.report(report);
        self.pages.report(report);
        self.compaction.report(report);
        if let Some(daemon) = &self.daemon {
            daemon.report(report);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::spans::seconds;
    use crate::{Capability, Driver, InMemory, Open, PageId};
    use terrace_model::{Bytes, Frame, PageSize, TierId};

    const HUGE: u64 = 512;

    /// An area of `huge` times 2 MiB and one base page, over twice as much memory.
    fn world(huge: u64) -> InMemory {
        let mut world = InMemory::new(&[("dram", Bytes::mib(4 * huge))]);
        world.map_anonymous(0, 0, huge * HUGE + 1);
        world
    }

    fn size(driver: &Driver, vpn: u64) -> PageSize {
        driver.world.locate(PageId::new(0, vpn)).unwrap().1
    }

    #[test]
    fn the_daemon_takes_no_more_than_its_share_of_a_processor() {
        // One range of 2 MiB per wake, a second for each collapse.
        let joined = |parameters: &str, time| {
            let parameters =
                format!("fault = false\nscan_sleep = \"1 s\"\npages_to_scan = 512\n{parameters}");
            let mut driver = Driver::open("thp", &parameters, world(2).with_delay(seconds(1))).unwrap();
            [0, HUGE].into_iter().for_each(|vpn| driver.touch(PageId::new(0, vpn), true));
            driver.advance(seconds(time));
            [0, HUGE].into_iter().filter(|vpn| size(&driver, *vpn) == PageSize::Huge).count()
        };
        assert_eq!((joined("", 3), joined("", 5)), (1, 2));
        assert_eq!((joined("max_cpu = 0.1", 11), joined("max_cpu = 0.1", 14)), (1, 2));
    }

    #[test]
    fn faults_take_2_mib_where_it_fits_and_is_free() {
        let mut world = world(4);
        for block in 1..7 {
            world.take_frame(Frame(block * HUGE), false);
        }
        let mut driver = Driver::open("thp", "promote = false", world).unwrap();
        driver.touch_all(0, 4 * HUGE..4 * HUGE + 1, true);
        assert_eq!(size(&driver, 4 * HUGE), PageSize::Base, "it does not fit");
        for (range, expected) in [(0, PageSize::Huge), (1, PageSize::Base)] {
            driver.touch(PageId::new(0, range * HUGE), true);
            assert_eq!(size(&driver, range * HUGE), expected);
        }
        driver.touch(PageId::new(0, HUGE + 1), true);
        driver.advance(seconds(1));
        let stats = driver.report().stats;
        assert_eq!((stats.integer("fault_2m_tried"), stats.integer("fault_2m_failed")), (2, 1));
        assert_eq!(stats.integer("mapped_2m"), 2 << 20);
        driver.unmap(0, 0, HUGE);
        driver.advance(seconds(1));
        assert_eq!(driver.report().stats.integer("mapped_2m"), 0);
    }

    /// Base pages, `present` in each range of 2 MiB; the daemon runs for `time` seconds.
    fn joined(ranges: u64, present: u64, parameters: &str, time: u64) -> u64 {
        let mut driver = Driver::open("thp", &format!("fault = false\n{parameters}"), world(ranges)).unwrap();
        for range in 0..ranges {
            driver.touch_all(0, range * HUGE..range * HUGE + present, true);
        }
        driver.advance(seconds(time));
        (0..ranges).filter(|range| size(&driver, range * HUGE) == PageSize::Huge).count() as u64
    }

    #[test]
    fn the_daemon_joins_at_its_pace() {
        assert_eq!(joined(4, 1, "promote = false", 11), 0);
        assert_eq!(joined(4, 1, "", 9), 0);
        assert_eq!(joined(4, 1, "", 11), 4);
        assert_eq!(joined(4, 1, "pages_to_scan = 1024", 11), 2);
        assert_eq!(joined(4, 1, "pages_to_scan = 1024", 22), 4);
        assert_eq!(joined(4, 1, "pages_to_scan = 1024\nscan_sleep = \"1 s\"", 4), 4);
        assert_eq!(joined(4, 8, "max_ptes_none = 504", 11), 4);
        assert_eq!(joined(4, 8, "max_ptes_none = 503", 11), 0);
    }

    /// Every block holds a frame of the page cache, one of them an unmovable one instead.
    fn fragmented(parameters: &str) -> Driver {
        let mut world = world(2);
        for block in 0..4 {
            world.take_frame(Frame(block * HUGE + 7), block != 0);
        }
        let mut driver = Driver::open("thp", parameters, world).unwrap();
        driver.touch(PageId::new(0, 0), true);
        assert_eq!(size(&driver, 0), PageSize::Base);
        driver
    }

    #[test]
    fn the_daemon_compacts_and_sleeps_longer_without_a_block() {
        let mut driver = fragmented("");
        driver.advance(seconds(11));
        assert_eq!(size(&driver, 0), PageSize::Huge);
        let stats = driver.report().stats;
        assert!(stats.integer("compaction_bytes") > 0 && stats.integer("promotion_2m_failed") == 0);
        let tried = |parameters: &str| {
            let mut driver = fragmented(&format!("compaction = \"none\"\n{parameters}"));
            driver.advance(seconds(100));
            let stats = driver.report().stats;
            assert_eq!(stats.integer("promotion_2m_tried"), stats.integer("promotion_2m_failed"));
            stats.integer("promotion_2m_tried")
        };
        assert_eq!(
            (tried(""), tried("alloc_sleep = \"10 s\"")),
            (2, 5),
            "a lap without a candidate lies between"
        );
    }

    /// A page of each of three ranges is touched in a fragmented world whose second area has advice, and the daemon has no
    /// time.
    fn faulted(parameters: &str) -> (Driver, Vec<PageSize>) {
        let mut world = InMemory::new(&[("dram", Bytes::mib(16))]);
        world.map_anonymous(0, 0, 2 * HUGE);
        world.map_advised(0, 4 * HUGE, HUGE, true);
        for block in 0..8 {
            world.take_frame(Frame(block * HUGE + 7), true);
        }
        let mut driver = Driver::open("thp", &format!("promote = false\n{parameters}"), world).unwrap();
        for range in [0, 4, 1] {
            driver.touch(PageId::new(0, range * HUGE), true);
            driver.advance(seconds(1));
        }
        let sizes = [0, 4, 1].map(|range| size(&driver, range * HUGE)).to_vec();
        (driver, sizes)
    }

    #[test]
    fn a_fault_waits_for_compaction_or_leaves_it_to_a_daemon() {
        use PageSize::{Base, Huge};
        let expected = [
            ("never", [Base, Base, Base], (0, 0)),
            ("madvise", [Base, Huge, Base], (1, 0)),
            ("always", [Huge, Huge, Huge], (3, 0)),
            // What the daemon frees after a fault, the next one takes.
            ("defer", [Base, Huge, Base], (0, 2)),
            ("defer+madvise", [Base, Huge, Base], (0, 2)),
        ];
        for (defrag, pages, (direct, daemon)) in expected {
            let (driver, sizes) = faulted(&format!("defrag = \"{defrag}\""));
            let stats = driver.report().stats;
            let counts = (stats.integer("compact_success"), stats.integer("compact_daemon"));
            assert_eq!((sizes.as_slice(), counts), (pages.as_slice(), (direct, daemon)), "{defrag}");
            assert_eq!(stats.integer("fault_compaction_bytes") > 0, direct + daemon > 0);
        }
        let world = world(1).without(Capability::StalledFaults);
        let error = Driver::open("thp", "defrag = \"always\"", world).err().unwrap().to_string();
        assert!(error.contains("stalled-faults"), "{error}");
    }

    #[test]
    fn faults_that_find_no_block_wait_ever_less_often() {
        let mut world = world(32);
        for block in 0..64 {
            world.take_frame(Frame(block * HUGE + 7), false);
        }
        let mut driver = Driver::open("thp", "promote = false\ndefrag = \"always\"", world).unwrap();
        for range in 0..16 {
            driver.touch(PageId::new(0, range * HUGE), true);
        }
        let stats = driver.report().stats;
        let counts = ["compact_success", "compact_fail", "compact_deferred"].map(|name| stats.integer(name));
        assert_eq!(counts, [0, 4, 12], "the faults 1, 3, 7 and 15 try");
    }

    #[test]
    fn without_frames_the_world_compacts() {
        let mut driver = Driver::open("thp", "", world(1).without(Capability::Frames)).unwrap();
        driver.touch(PageId::new(0, 0), true);
        assert_eq!(driver.world.locate(PageId::new(0, 0)), Some((TierId(0), PageSize::Huge)));
        let error =
            Driver::open("thp", "", world(1).without(Capability::Collapse)).err().unwrap().to_string();
        assert!(error.contains("collapse"), "{error}");
    }
}
