//! Heat of regions from one sampled page each, and schemes that move hot and cold regions.
//!
//! **Idea.** The address space is a list of regions whose pages are assumed to be alike. At every sampling interval one
//! random page per region is looked at: was it accessed since the last look? After an aggregation interval, the number
//! of looks that found an access is the region's heat. Neighbours of like heat are merged, then regions are split at
//! random places, so that borders find their way to where heat changes while their number, and so the cost, is bounded.
//! How long a region's heat has not changed is its age. Schemes promote hot regions of the slow tier and demote regions
//! of the fast tier that were cold for long.
//!
//! **Source.** S. Park, Y. Lee, H. Y. Yeom, "Profiling Dynamic Data Access Patterns with Controlled Overhead and
//! Quality", Middleware 2019; Linux mm/damon/core.c, damon_new_ctx: 5 ms, 100 ms, 10 to 1000 regions; mm/damon/design,
//! "Adaptive Regions Adjustment"; DAMOS actions migrate_hot, migrate_cold, as in samples/damon/mtier.c.
//!
//! **Left open by the source.** *Thresholds of the two schemes* are the user's; the defaults here are ours: hot from a
//! fifth of the looks on (`hot`), cold after 5 s without any (`cold_age`). *Demotion*: only while the fast tier is
//! fuller than `high_usage`, ours, as DAMOS' watermarks allow. *Merging*: neighbours whose heats differ by no more than
//! a tenth of the looks, as Linux does. *Splitting*: in two at a random page while there are fewer than half the
//! regions allowed; Linux cuts at tenths, and in three if splitting has got stuck (core.c, kdamond_split_regions).
//! *Areas*: one region per area to begin with; areas that appear later are added with the next aggregation, where Linux
//! looks every 60 s (ops_update_interval).
//!
//! **When to use it.** Footprints too large to look at every page, with heat in regions larger than a few pages: its
//! cost is bounded whatever the size. Heat scattered page by page blurs in its regions.

use crate::support::Pending;
use crate::{
    Area, Capability, CapabilitySet, Clear, MemorySystem, Moment, Move, MoveOptions, Needs, NextTick, PageId,
    PageRange, Parameters, Policy, Published, Random, Refusal, Report, ScanHand, Schemes, Scope, Setup,
    Signal, Step,
};
use terrace_model::{Bytes, TierId, Time};

/// Parameters of DAMON and its two schemes.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Time between two looks at the sampled pages.
    #[parameter(
        default = "5 ms",
        range = "1 ns"..="5 h",
        source = "mm/damon/core.c, damon_new_ctx, sample_interval",
        scaled,
    )]
    pub sampling: Time,
    /// Time over which looks are added up.
    #[parameter(
        default = "100 ms",
        range = "0 s"..="5 h",
        source = "mm/damon/core.c, damon_new_ctx, aggr_interval",
        scaled,
    )]
    pub aggregation: Time,
    /// Fewest regions, so that a large uniform area is still looked at in several places.
    #[parameter(
        default = 10,
        range = 1..=1_000_000,
        source = "mm/damon/core.c, damon_new_ctx, min_nr_regions",
    )]
    pub min_regions: u32,
    /// Most regions.
    #[parameter(
        default = 1000,
        range = 1..=1_000_000,
        source = "mm/damon/core.c, damon_new_ctx, max_nr_regions",
    )]
    pub max_regions: u32,
    /// Share of the looks that found an access from which on a region is promoted.
    #[parameter(
        default = 0.2,
        range = 0.0..=1.0,
        source = "ours; DAMON_LRU_SORT, hot_thres_access_freq: 0.5; samples/damon/mtier.c: any access",
    )]
    pub hot: f64,
    /// Time without any access after which a region is demoted.
    #[parameter(
        default = "5 s",
        range = "0 s"..="5 h",
        source = "ours; DAMON_RECLAIM, min_age, and DAMON_LRU_SORT, cold_min_age: 120 s",
        scaled,
    )]
    pub cold_age: Time,
    /// Usage of the fast tier, 0 to 1, above which cold regions are demoted.
    #[parameter(
        default = 0.95,
        range = 0.0..=1.0,
        source = "ours; samples/damon/mtier.c, node0_mem_free_bp, aims at 0.995",
    )]
    pub high_usage: f64,
    /// Most memory that either scheme moves per aggregation; DAMOS' quota.
    #[parameter(
        default = "64 MiB",
        range = "0 B"..="1024 TiB",
        source = "ours; samples/damon/mtier.c: 200 MiB per second; DAMON_RECLAIM, quota_sz: 128 MiB per second",
        scaled,
    )]
    pub quota: Bytes,
    /// Drop TLB entries with the accessed bits. DAMON does not: off.
    #[parameter(default = false)]
    pub flush: bool,
}

/// Pages assumed to be alike.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Region {
    range: PageRange,
    /// The page that is looked at next.
    sample: PageId,
    /// Looks of this aggregation that found an access.
    accesses: u32,
    /// Looks of the last aggregation that found an access.
    last: u32,
    /// Aggregations for which the heat has hardly changed.
    age: u32,
}

impl Region {
    fn new(range: PageRange) -> Region {
        Region { range, sample: range.first, accesses: 0, last: 0, age: 0 }
    }

    fn end(&self) -> PageId {
        self.range.first.plus(self.range.pages)
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Damon {
    parameters: Parameters,
    fast: TierId,
    slow: TierId,
    random: Random,
    regions: Vec<Region>,
    samples: Vec<PageId>,
    looks: u32,
    aggregated: Moment,
    pending: Pending,
    promoted: u64,
    demoted: u64,
    most_regions: usize,
}

impl Published for Damon {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Damon, Refusal> {
        let p = &parameters;
        if p.aggregation < p.sampling {
            return Err(Refusal::parameter("aggregation", "it has to be at least one sampling interval"));
        }
        if p.max_regions < p.min_regions {
            return Err(Refusal::parameter("max_regions", "expected min_regions <= max_regions"));
        }
        let (fast, slow) = setup.topology.fast_and_slow()?;
        Ok(Damon {
            parameters,
            fast,
            slow,
            random: setup.random(),
            regions: Vec::new(),
            samples: Vec::new(),
            looks: 0,
            aggregated: Moment::START,
            pending: Pending::default(),
            promoted: 0,
            demoted: 0,
            most_regions: 0,
        })
    }
}

impl Policy for Damon {
    fn needs(&self) -> Needs {
        let capabilities = CapabilitySet::of(&[Capability::AccessedBits, Capability::Migration]);
        let capabilities = capabilities.with_if(self.parameters.flush, Capability::FlushOnClear);
        Needs { capabilities, ..Needs::default() }
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        for signal in signals {
            self.pending.handle(signal);
        }
        if !signals.contains(&Signal::Tick) {
            return NextTick::Unchanged;
        }
        self.look(memory);
        if now.since(self.aggregated) >= self.parameters.aggregation || self.looks == 0 {
            self.aggregated = now;
            self.aggregate(memory);
        }
        self.choose_samples(memory);
        NextTick::At(now.plus(self.parameters.sampling))
    }

    fn schemes(&self) -> Option<Schemes> {
        Some(self.plan())
    }

    fn report(&self, report: &mut Report) {
        report.level("regions", self.regions.len() as u64);
        report.level("most_regions", self.most_regions as u64);
        report.pages("promoted", self.promoted);
        report.pages("demoted", self.demoted);
        report.count("failed", self.pending.failed);
    }
}

impl Damon {
    /// Counts the regions whose sampled page was accessed.
    fn look(&mut self, memory: &mut dyn MemorySystem) {
        for region in &mut self.regions {
            if memory.page(region.sample).is_some_and(|view| view.accessed) {
                region.accesses += 1;
            }
        }
        self.looks += 1;
    }

    /// Takes a random page of each region and clears its accessed bit.
    fn choose_samples(&mut self, memory: &mut dyn MemorySystem) {
        self.samples.clear();
        for region in &mut self.regions {
            region.sample = region.range.first.plus(self.random.below(region.range.pages));
            self.samples.push(region.sample);
        }
        let clear = Clear::ACCESSED.flushed(self.parameters.flush);
        let samples = Scope::Pages(&self.samples);
        memory.scan(samples, &mut ScanHand::default(), clear, &mut |_| Step::Clear);
    }

    fn aggregate(&mut self, memory: &mut dyn MemorySystem) {
        let looks = std::mem::take(&mut self.looks).max(1);
        let tenth = looks.div_ceil(10);
        for region in &mut self.regions {
            let steady = region.accesses.abs_diff(region.last) <= tenth;
            region.age = if steady { region.age + 1 } else { 0 };
            region.last = std::mem::take(&mut region.accesses);
        }
        self.follow_areas(memory);
        self.merge(tenth);
        if self.pending.is_empty() {
            self.apply_schemes(looks, memory);
        }
        self.split();
        self.most_regions = self.most_regions.max(self.regions.len());
    }

    /// Cuts regions to the areas that exist, and adds regions for what is new.
    fn follow_areas(&mut self, memory: &mut dyn MemorySystem) {
        let old = std::mem::take(&mut self.regions);
        let regions = &mut self.regions;
        memory.areas(None, &mut |area: &Area| {
            let mut at = area.range.first;
            let end = area.range.first.plus(area.range.pages);
            let start = at;
            for region in old.iter().filter(|region| region.range.first < end && region.end() > start) {
                let first = region.range.first.max(at);
                let last = region.end().min(end);
                if first.space != at.space || last <= first {
                    continue;
                }
                if first > at {
                    regions.push(Region::new(PageRange::new(at, first.vpn - at.vpn)));
                }
                regions.push(Region { range: PageRange::new(first, last.vpn - first.vpn), ..*region });
                at = last;
            }
            if at < end {
                regions.push(Region::new(PageRange::new(at, end.vpn - at.vpn)));
            }
        });
    }

    /// Joins neighbours of like heat, as long as a region stays below its share of all memory.
    fn merge(&mut self, tenth: u32) {
        let all: u64 = self.regions.iter().map(|region| region.range.pages).sum();
        let largest = (all / u64::from(self.parameters.min_regions)).max(1);
        let mut merged: Vec<Region> = Vec::with_capacity(self.regions.len());
        for region in &self.regions {
            match merged.last_mut() {
                Some(last)
                    if last.end() == region.range.first
                        && last.range.first.space == region.range.first.space
                        && last.last.abs_diff(region.last) <= tenth
                        && last.range.pages + region.range.pages <= largest =>
                {
                    let (a, b) = (last.range.pages, region.range.pages);
                    let mean = |x: u32, y: u32| ((u64::from(x) * a + u64::from(y) * b) / (a + b)) as u32;
                    last.last = mean(last.last, region.last);
                    last.age = mean(last.age, region.age);
                    last.range.pages += b;
                }
                _ => merged.push(*region),
            }
        }
        self.regions = merged;
    }

    /// Splits every region in two at a random page, while there are fewer than half of those allowed.
    fn split(&mut self) {
        if self.regions.len() > self.parameters.max_regions as usize / 2 {
            return;
        }
        let random = &mut self.random;
        self.regions = self
            .regions
            .iter()
            .flat_map(|region| {
                let pages = region.range.pages;
                let below = if pages > 1 { 1 + random.below(pages - 1) } else { pages };
                let lower = Region { range: PageRange::new(region.range.first, below), ..*region };
                let upper = PageRange::new(region.range.first.plus(below), pages - below);
                [lower, Region { range: upper, ..*region }]
            })
            .filter(|region| region.range.pages > 0)
            .collect();
    }

    /// The policy as the kernel would carry it out.
    fn plan(&self) -> Schemes {
        let p = &self.parameters;
        Schemes {
            fast: self.fast,
            slow: self.slow,
            sampling: p.sampling,
            aggregation: p.aggregation,
            min_regions: p.min_regions,
            max_regions: p.max_regions,
            hot: p.hot,
            cold_age: p.cold_age,
            high_usage: p.high_usage,
            quota: p.quota,
        }
    }

    /// migrate_hot from the slow tier, hottest first; migrate_cold from the fast tier, longest idle first.
    fn apply_schemes(&mut self, looks: u32, memory: &mut dyn MemorySystem) {
        let p = &self.parameters;
        let hot_from = (p.hot * f64::from(looks)).ceil().max(1.0) as u32;
        let cold_from = self.plan().cold_aggregations();
        let mut hot: Vec<Region> = self.regions.iter().filter(|r| r.last >= hot_from).copied().collect();
        hot.sort_by_key(|region| (std::cmp::Reverse(region.last), region.range.first));
        let mut cold: Vec<Region> =
            self.regions.iter().filter(|r| r.last == 0 && u64::from(r.age) >= cold_from).copied().collect();
        cold.sort_by_key(|region| (std::cmp::Reverse(region.age), region.range.first));
        let topology = memory.topology();
        let fast = topology.tier(self.fast);
        let above = (fast.used.0 as f64 - fast.capacity.0 as f64 * p.high_usage).max(0.0) as u64;
        let quota = p.quota.0 >> 12;
        let down = quota.min(above.div_ceil(4096)).min(topology.free_pages(self.slow));
        let up = quota.min(topology.free_pages(self.fast));
        self.demoted += self.act(&cold, self.fast, self.slow, down, memory);
        self.promoted += self.act(&hot, self.slow, self.fast, up, memory);
    }

    fn act(
        &mut self,
        regions: &[Region],
        from: TierId,
        to: TierId,
        most: u64,
        memory: &mut dyn MemorySystem,
    ) -> u64 {
        let (mut found, mut moves) = (0, Vec::new());
        for region in regions {
            if found >= most {
                break;
            }
            let scope = Scope::Range(region.range);
            memory.scan(scope, &mut ScanHand::default(), Clear::NOTHING, &mut |view| {
                if view.tier == from && !view.in_flight && found + view.base_pages() <= most {
                    found += view.base_pages();
                    moves.push(Move { page: view.page, to });
                }
                if found >= most { Step::Stop } else { Step::Keep }
            });
        }
        let ticket = memory.migrate(&moves, MoveOptions::default());
        self.pending.ordered(ticket, moves.len());
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spans::millis;
    use crate::{Driver, InMemory, Open};

    /// A fast tier of 100 pages; 200 pages in use, of which the first 100 lie there.
    fn open(parameters: &str) -> Driver {
        let mut world = InMemory::new(&[("fast", Bytes::kib(400)), ("slow", Bytes::kib(800))]);
        world.map_anonymous(0, 0, 200);
        let mut driver = Driver::open("damon", parameters, world).unwrap();
        driver.touch_all(0, 0..200, true);
        driver
    }

    fn run(driver: &mut Driver, intervals: u32, hot: std::ops::Range<u64>) -> usize {
        for _ in 0..intervals {
            driver.touch_all(0, hot.clone(), false);
            driver.advance(millis(5));
        }
        let fast = |vpn: &u64| driver.world.locate(PageId::new(0, *vpn)).unwrap().0 == TierId(0);
        (140..170).filter(fast).count()
    }

    #[test]
    fn hot_regions_move_up_and_idle_ones_make_room() {
        let mut driver = open("cold_age = \"1 s\"\nhigh_usage = 0.6");
        assert!(run(&mut driver, 2000, 140..170) >= 28, "nearly all of the hot region");
        assert!(driver.report().stats.integer("demoted") >= 40);
    }

    #[test]
    fn schemes_act_as_their_thresholds_say() {
        let mut driver = open("cold_age = \"1000 s\"\nhigh_usage = 0.6");
        run(&mut driver, 500, 140..170);
        assert_eq!(driver.world.ordered_pages(), 0, "nothing was cold for long enough");
        let mut driver = open("cold_age = \"1 s\"\nhigh_usage = 1");
        run(&mut driver, 500, 140..170);
        assert_eq!(driver.world.ordered_pages(), 0, "the fast tier may be full");
        let mut driver = open("cold_age = \"1 s\"\nhigh_usage = 0.6\nhot = 1\nsampling = \"10 ms\"");
        // Touched in every second sampling interval only.
        for _ in 0..500 {
            driver.touch_all(0, 140..170, false);
            driver.advance(millis(20));
        }
        assert_eq!(driver.report().stats.integer("promoted"), 0);
        let mut driver =
            open("cold_age = \"500 ms\"\nhigh_usage = 0\nquota = \"8 KiB\"\naggregation = \"500 ms\"");
        run(&mut driver, 600, 0..0);
        let demoted = driver.report().stats.integer("demoted");
        assert!((2..=12).contains(&demoted), "two pages per aggregation, {demoted} in all");
    }

    #[test]
    fn the_number_of_regions_is_bounded() {
        let regions = |parameters: &str| {
            let mut driver = open(parameters);
            run(&mut driver, 1000, 140..170);
            let stats = driver.report().stats;
            (stats.integer("regions"), stats.integer("most_regions"))
        };
        let (_, most) = regions("min_regions = 4\nmax_regions = 16");
        assert!(most <= 16, "{most}");
        let (now, _) = regions("min_regions = 50\nmax_regions = 200");
        assert!(now >= 50, "{now}");
    }

    #[test]
    fn a_cached_translation_hides_accesses_unless_flushed() {
        let promoted = |flush: bool| {
            let mut world = InMemory::new(&[("fast", Bytes::kib(64)), ("slow", Bytes::kib(64))]).with_tlb(8);
            world.map_anonymous(0, 0, 12);
            let parameters = format!("flush = {flush}\nmin_regions = 12");
            let mut driver = Driver::open("damon", &parameters, world).unwrap();
            driver.touch_all(0, 0..12, true);
            // Into the slow tier, then used by translations that stay.
            let moves: Vec<Move> = (0..8).map(|n| Move { page: PageId::new(0, n), to: TierId(1) }).collect();
            driver.world.migrate(&moves, MoveOptions::default());
            driver.advance(millis(1));
            driver.touch_all(0, 0..8, true);
            driver.advance(millis(200));
            for _ in 0..200 {
                driver.touch_all(0, 0..8, false);
                driver.advance(millis(5));
            }
            driver.report().stats.integer("promoted")
        };
        assert_eq!(promoted(true), 8);
        assert!(promoted(false) < 8);
    }

    #[test]
    fn regions_follow_the_areas() {
        let mut driver = open("");
        run(&mut driver, 100, 140..170);
        driver.unmap(0, 50, 100);
        driver.world.map_anonymous(1, 1000, 10);
        driver.touch_all(1, 1000..1010, true);
        driver.advance(millis(500));
        assert!(driver.report().stats.integer("regions") > 3);
        driver.unmap(0, 0, 200);
        driver.unmap(1, 1000, 10);
        driver.advance(millis(500));
        assert_eq!(driver.report().stats.integer("regions"), 0);
    }
}
