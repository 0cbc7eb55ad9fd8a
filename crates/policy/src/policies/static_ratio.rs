//! Pages over two tiers in a fixed ratio, that of their bandwidths unless told otherwise.
//!
//! **Idea.** Two pools serve requests in parallel, and a sweep over the data ends when the slower part does. Both end
//! at the same time if each pool holds a share of the pages in proportion to its bandwidth: `f = b_fast / (b_fast +
//! b_slow)`.
//!
//! **Source.** Yu et al., as described in Ambix (M. Marques, IST Lisboa 2021, §2.3.2): five pages in the faster tier for
//! one in the slower. BW-AWARE of N. Agarwal's thesis (Michigan 2017, §3.2): the same share by a random draw per page,
//! rounded to 30:70 in all its runs.
//!
//! **Left open by the source.** *Round or draw*: `order` has both; drawing is BW-AWARE's, taking turns is Yu et al.'s
//! and the default. *The bandwidth that counts*: that of reads. *A full tier*: its pages go to the other. Yu et al.'s
//! migration between sockets needs several, and is not part of this policy.
//!
//! **When to use it.** Programs limited by bandwidth that sweep over all their memory alike, with both tiers' channels
//! otherwise idle. Nothing moves, so it costs nothing, and skewed accesses are none of its concern.

use crate::{
    Choice, Fault, MemorySystem, Moment, Needs, NextTick, Parameters, Placement, Policy, Published, Random,
    Refusal, Setup, Signal, Topology,
};
use terrace_model::TierId;

/// How the tier of a page is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Order {
    /// In turns, spread as evenly as the ratio allows.
    #[default]
    Turns,
    /// By a draw per page.
    Draw,
}

/// Parameters of the static ratio.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Share of the pages that go to the fast tier. Unset: in proportion to the tiers' read bandwidths.
    #[parameter(range = 0.0..=1.0, source = "Yu et al.: 5/6; BW-AWARE's runs: 0.7")]
    pub fast_share: Option<f64>,
    /// How the tier of each page is chosen.
    #[parameter(source = "Yu et al.; BW-AWARE §3.2 draws")]
    pub order: Order,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct StaticRatio {
    fast: TierId,
    slow: TierId,
    share: f64,
    order: Order,
    random: Random,
    pages: u64,
    in_fast: u64,
}

impl Published for StaticRatio {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<StaticRatio, Refusal> {
        let (fast, slow) = setup.topology.fast_and_slow()?;
        let bandwidth = |tier| setup.topology.tier(tier).read_bandwidth.0;
        let by_bandwidth = bandwidth(fast) / (bandwidth(fast) + bandwidth(slow));
        let share = parameters.fast_share.unwrap_or(by_bandwidth);
        if parameters.fast_share.is_none() && !share.is_finite() {
            return Err(Refusal::Machine("its tiers have no bandwidth; set fast_share".to_owned()));
        }
        let (order, random) = (parameters.order, setup.random());
        Ok(StaticRatio { fast, slow, share, order, random, pages: 0, in_fast: 0 })
    }
}

impl Policy for StaticRatio {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn place(&mut self, _: &Fault, _: &Topology) -> Placement {
        self.pages += 1;
        let to_fast = match self.order {
            // The page that keeps the share closest to what it shall be.
            Order::Turns => self.in_fast as f64 + 0.5 <= self.share * self.pages as f64,
            Order::Draw => ((self.random.next() >> 11) as f64) < self.share * (1u64 << 53) as f64,
        };
        self.in_fast += u64::from(to_fast);
        let (first, second) = if to_fast { (self.fast, self.slow) } else { (self.slow, self.fast) };
        Placement::tier(first).or(second, None)
    }

    fn shares(&self, topology: &Topology) -> Option<Vec<f64>> {
        let mut shares = vec![0.0; topology.tiers.len()];
        (shares[self.fast.index()], shares[self.slow.index()]) = (self.share, 1.0 - self.share);
        Some(shares)
    }

    fn on(&mut self, _: Moment, _: &[Signal], _: &mut dyn MemorySystem) -> NextTick {
        NextTick::Never
    }
}

#[cfg(test)]
mod tests {
    use crate::{Driver, InMemory, Open};
    use terrace_model::{Bytes, BytesPerSec, TierId, Time};

    /// How many of `pages` lie in a fast tier of 1000.
    fn in_fast(parameters: &str, pages: u64) -> u64 {
        let mut world = InMemory::new(&[("gddr", Bytes::kib(4000)), ("ddr", Bytes::kib(4000))]);
        world.set_speed(TierId(0), Time::from_nanos(100), BytesPerSec(200e9));
        world.set_speed(TierId(1), Time::from_nanos(200), BytesPerSec(80e9));
        world.map_anonymous(0, 0, pages);
        let mut driver = Driver::open("static-ratio", parameters, world).unwrap();
        driver.touch_all(0, 0..pages, true);
        driver.world.resident(TierId(0))
    }

    #[test]
    fn the_share_is_that_of_the_bandwidths() {
        assert_eq!(in_fast("", 700), 500, "200 / 280 of 700");
        assert_eq!(in_fast("fast_share = 0.7", 700), 490);
        assert_eq!(in_fast("fast_share = 1", 700), 700);
        assert_eq!(in_fast("fast_share = 0", 700), 0);
    }

    /// Five pages for one, in any six.
    #[test]
    fn turns_are_spread_evenly() {
        for pages in 1..60 {
            let found = in_fast("fast_share = 0.8333333333333334", pages) as f64;
            assert!((found - pages as f64 * 5.0 / 6.0).abs() <= 0.51, "{found} of {pages}");
        }
    }

    #[test]
    fn a_draw_comes_close_and_a_full_tier_spills() {
        let drawn = in_fast("order = \"draw\"", 1000);
        assert!((680..750).contains(&drawn) && drawn != in_fast("", 1000), "{drawn}");
        assert_eq!(in_fast("", 1900), 1000);
    }
}
