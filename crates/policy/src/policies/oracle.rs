//! The best static placement that knows the future: hottest pages first, from a first pass.
//!
//! **Idea.** A first pass counts the accesses of every page that reach memory. In the second, the hottest pages lie in
//! the fast tier until it is full, or with `balance` until it serves its share of all accesses: beyond that the slow
//! tier's bandwidth would go unused. Nothing moves.
//!
//! **Source.** The two-pass oracle of N. Agarwal's thesis (University of Michigan 2017, §3.3, Fig. 3.9).
//!
//! **Left open by the source.** *Ties*: by address. *Reads and writes*: count the same; `write_weight` lets a write
//! count more where the slow tier is slow at writes. *Huge pages*: counts are per base page, and a page the operating
//! system makes huge goes where its first touch falls. *Pages that the first pass did not see*: to the slow tier. *What
//! must stay free for other uses* (`headroom`): nothing, as in the source. *Where latency counts more than bandwidth*: the
//! source's programs run on GPUs and it always balances; here that is off until asked for.
//!
//! **When to use it.** As the bound of static placement: what profile-guided placement could reach for the same input.
//! A policy that beats it gains from moving pages between phases.

use crate::{
    Fault, Heat, MemorySystem, Moment, Needs, NextTick, PageId, Parameters, Placement, Policy, Published,
    Refusal, Report, Setup, Signal, Topology,
};
use std::collections::BTreeSet;
use terrace_model::{Bytes, TierId};

/// Parameters of the oracle.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Stop when the fast tier would serve its share of the accesses, by read bandwidth. Off: fill it, which is
    /// better where latency counts more than bandwidth.
    #[parameter(default = false, source = "ours; §3.3 balances")]
    pub balance: bool,
    /// How many reads a write counts for. The source counts accesses: 1.
    #[parameter(default = 1.0, range = 0.0..=1e6)]
    pub write_weight: f64,
    /// Fast memory to leave free. The source leaves none: 0 B.
    #[parameter(default = "0 B", range = "0 B"..="1024 TiB")]
    pub headroom: Bytes,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Oracle {
    fast: TierId,
    slow: TierId,
    chosen: BTreeSet<PageId>,
    placed_slow: u64,
}

impl Published for Oracle {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Oracle, Refusal> {
        let (fast, slow) = setup.topology.fast_and_slow()?;
        let profile = setup.profile.ok_or(Refusal::NoProfile)?;
        let weight = |heat: &Heat| heat.reads as f64 + parameters.write_weight * heat.writes as f64;
        let mut pages: Vec<(PageId, f64)> =
            profile.pages.iter().map(|(page, heat)| (*page, weight(heat))).collect();
        pages.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let bandwidth = |tier| setup.topology.tier(tier).read_bandwidth.0;
        let share = bandwidth(fast) / (bandwidth(fast) + bandwidth(slow));
        let all: f64 = pages.iter().map(|(_, weight)| weight).sum();
        let target = if parameters.balance && share.is_finite() { share * all } else { f64::INFINITY };
        let room = setup.topology.tier(fast).capacity.0.saturating_sub(parameters.headroom.0) >> 12;
        let mut served = 0.0;
        let chosen = pages.iter().take(room as usize).take_while(|(_, weight)| {
            let below = served < target;
            served += weight;
            below
        });
        Ok(Oracle { fast, slow, chosen: chosen.map(|(page, _)| *page).collect(), placed_slow: 0 })
    }
}

impl Policy for Oracle {
    fn needs(&self) -> Needs {
        Needs { first_pass: true, ..Needs::default() }
    }

    fn place(&mut self, fault: &Fault, _: &Topology) -> Placement {
        if self.chosen.contains(&fault.page) {
            return Placement::tier(self.fast).or(self.slow, None);
        }
        self.placed_slow += 1;
        Placement::tier(self.slow).or(self.fast, None)
    }

    fn on(&mut self, _: Moment, _: &[Signal], _: &mut dyn MemorySystem) -> NextTick {
        NextTick::Never
    }

    fn report(&self, report: &mut Report) {
        report.pages("chosen", self.chosen.len() as u64);
        report.count("placed_slow", self.placed_slow);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Driver, Heat, InMemory, Open, PageId, Profile};
    use terrace_model::{Bytes, BytesPerSec, TierId, Time};

    /// Ten pages; page n has n² reads, page 3 also 100 writes. The fast tier has four pages and 80 % of the bandwidth.
    fn in_fast(parameters: &str) -> Vec<u64> {
        let mut world = InMemory::new(&[("fast", Bytes::kib(16)), ("slow", Bytes::kib(64))]);
        world.set_speed(TierId(0), Time::from_nanos(100), BytesPerSec(80e9));
        world.set_speed(TierId(1), Time::from_nanos(200), BytesPerSec(20e9));
        world.map_anonymous(0, 0, 10);
        let mut profile = Profile::default();
        for n in 0..10 {
            let writes = if n == 3 { 10 } else { 0 };
            profile.pages.insert(PageId::new(0, n), Heat { reads: n * n, writes });
        }
        let mut driver = Driver::open_with("oracle", parameters, world, 1, Some(&profile)).unwrap();
        driver.touch_all(0, 0..10, false);
        (0..10).filter(|n| driver.world.locate(PageId::new(0, *n)).unwrap().0 == TierId(0)).collect()
    }

    #[test]
    fn hottest_first_until_full_or_balanced() {
        // 295 accesses; 80 % are 236. The three hottest have 194, the four hottest 230: all four are wanted.
        assert_eq!(in_fast(""), [6, 7, 8, 9]);
        assert_eq!(in_fast("headroom = \"8 KiB\""), [8, 9]);
        assert_eq!(in_fast("write_weight = 8"), [3, 7, 8, 9]);
    }

    #[test]
    fn balance_leaves_fast_memory_unused() {
        let mut profile = Profile::default();
        profile.pages.insert(PageId::new(0, 5), Heat { reads: 90, writes: 0 });
        profile.pages.insert(PageId::new(0, 6), Heat { reads: 10, writes: 0 });
        for (balance, expected) in [(true, 1), (false, 2)] {
            let mut world = InMemory::new(&[("fast", Bytes::kib(16)), ("slow", Bytes::kib(64))]);
            world.map_anonymous(0, 0, 10);
            let parameters = format!("balance = {balance}");
            let mut driver = Driver::open_with("oracle", &parameters, world, 1, Some(&profile)).unwrap();
            driver.touch_all(0, 0..10, false);
            assert_eq!(driver.world.resident(TierId(0)), expected);
        }
    }

    #[test]
    fn without_a_first_pass_it_does_not_start() {
        assert!(crate::find("oracle").unwrap().needs(&toml::Table::new()).unwrap().first_pass);
        let world = InMemory::new(&[("fast", Bytes::kib(16)), ("slow", Bytes::kib(64))]);
        let error = Driver::open("oracle", "", world).map(|_| ()).unwrap_err().to_string();
        assert_eq!(
            error,
            "oracle does not start: it needs a first pass over the same input, which counts the accesses of every page"
        );
    }
}
