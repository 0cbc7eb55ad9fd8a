//! BW-AWARE: pages over all tiers in proportion to their bandwidths.
//!
//! **Idea.** Memories serve requests in parallel, and a sweep over the data ends when the slowest part does. All end at
//! the same time if each memory holds a share of the pages in proportion to its bandwidth: `f_i = b_i / (b_1 + … + b_k)`.
//! With two memories of 200 and 80 GB/s, 71 % of the pages lie in the faster one. A full tier's pages go to the others.
//!
//! **Source.** N. Agarwal, Paving the Path for Heterogeneous Memory Adoption in Production Systems (PhD, University of
//! Michigan 2017), section 3.1: a random draw per page, rounded to 30:70 in all its runs. Its baselines are settings:
//! LOCAL is `shares = "fastest"`, INTERLEAVE `shares = "equal"`. Yu et al., as described in Ambix (M. Marques, IST Lisboa
//! 2021, section 2.3.2): five pages in the faster tier for one in the slower, `fast_share = 0.8333`. Linux interleaves by
//! weights since 6.9.
//!
//! **Left open by the source.** *Draw, turns or weights*: `order` has all three. Taking turns is the default, as a draw
//! leaves the shares of few pages to chance; the design `gpu-bw-aware` draws. *The bandwidth that counts*: that of reads.
//! *More than two memories*: the source says that its ratio holds for any number; the pages of a full one go to the
//! fastest that has room. *How the ratio becomes known*: the source proposes a table of the firmware, or a measurement.
//! By default a simulated machine reports the bandwidth of its devices and links, and live Linux what its firmware says.
//! With `weights = "probe"` each memory is read by itself before the program starts, and what comes of it counts. The
//! simulator reads with all of its GPU, or with all cores where it has none; live Linux as with `terrace run --measure`.
//!
//! **On live Linux.** A command's pages are placed by the kernel: `order` is always `weights` there, in small whole
//! numbers that come closest to the shares.
//!
//! **When to use it.** Programs limited by bandwidth that sweep over all their memory alike, with the channels of all
//! tiers otherwise idle. Nothing moves, so it costs nothing, and skewed accesses are none of its concern. A program that
//! waits for single accesses is slower than with all pages in the fastest tier.

use crate::support::{Order, Spread};
use crate::{
    Choice, Fault, MemorySystem, Moment, Needs, NextTick, Parameters, Placement, Policy, Published, Refusal,
    Report, Setup, Signal, Topology,
};

/// What the tiers' shares are in proportion to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Shares {
    /// To the bandwidths of their reads.
    #[default]
    Bandwidth,
    /// All alike: INTERLEAVE.
    Equal,
    /// All pages go to the fastest while there is room: LOCAL.
    Fastest,
}

/// Parameters of BW-AWARE placement.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// What decides how large each tier's share of the pages is.
    #[parameter(source = "Agarwal §3.1")]
    pub shares: Shares,
    /// Share of the pages that go to the fastest tier; the others share the rest as `shares` says. Unset: its own share.
    #[parameter(range = 0.0..=1.0, source = "Agarwal's runs: 0.7; Yu et al.: 5/6")]
    pub fast_share: Option<f64>,
    /// A number for each tier, fastest first, that the shares are in proportion to, such as `5,2`; or `probe`, for the
    /// bandwidths that are measured before the program starts. Empty: as the others say.
    #[parameter(source = "ours; Linux's weights of nodes")]
    pub weights: String,
    /// How the tier of each page is chosen.
    #[parameter(source = "Agarwal §3.1 draws; Yu et al. take turns; Linux 6.9 has weights")]
    pub order: Order,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct BwAware {
    spread: Spread,
    /// What a probe measured, in words, where one was asked for.
    probe: Option<String>,
}

impl Parameters {
    /// Whether the bandwidths are to be measured.
    fn probe(&self) -> bool {
        self.weights.trim() == "probe"
    }
}

impl Published for BwAware {
    type Parameters = Parameters;
    const FORMER_NAMES: &'static [&'static str] = &["static-ratio"];

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<BwAware, Refusal> {
        setup.topology.fast_and_slow()?;
        let shares = shares(&parameters, setup.topology)?;
        let spread = Spread::new(&shares, parameters.order, setup.random());
        let probe = parameters.probe().then(|| measured(setup.topology, spread.shares()));
        Ok(BwAware { spread, probe })
    }
}

/// The bandwidths and the shares, in words.
fn measured(topology: &Topology, shares: &[f64]) -> String {
    let tier = |(tier, share): (&crate::Tier, &f64)| {
        let bandwidth = tier.read_bandwidth.0 / 1e9;
        format!("{} has {bandwidth:.1} GB/s and {:.1} % of the pages", tier.name, 100.0 * share)
    };
    let tiers: Vec<String> = topology.tiers.iter().zip(shares).map(tier).collect();
    format!("as the probe measured, {}", tiers.join(", "))
}

/// The share of each tier.
fn shares(parameters: &Parameters, topology: &Topology) -> Result<Vec<f64>, Refusal> {
    let tiers = topology.tiers.len();
    if parameters.probe() && (parameters.fast_share.is_some() || parameters.shares != Shares::Bandwidth) {
        let problem =
            "a probe tells the shares; leave out shares and fast_share (fast_share=none)".to_owned();
        return Err(Refusal::Parameter { key: "weights".to_owned(), problem });
    }
    if !parameters.probe() && !parameters.weights.trim().is_empty() {
        return weights(parameters, tiers);
    }
    let mut shares: Vec<f64> = match parameters.shares {
        Shares::Bandwidth => topology.tiers.iter().map(|tier| tier.read_bandwidth.0).collect(),
        Shares::Equal => vec![1.0; tiers],
        Shares::Fastest => (0..tiers).map(|tier| if tier == 0 { 1.0 } else { 0.0 }).collect(),
    };
    let unknown = |shares: &[f64]| {
        let sum: f64 = shares.iter().sum();
        !(sum.is_finite() && sum > 0.0)
    };
    if let Some(fast) = parameters.fast_share {
        if tiers == 2 || unknown(&shares[1..]) {
            shares[1..].fill(1.0);
        }
        let rest: f64 = shares[1..].iter().sum();
        shares[0] = fast;
        shares[1..].iter_mut().for_each(|share| *share *= (1.0 - fast) / rest);
    } else if unknown(&shares) {
        return Err(Refusal::Machine("its tiers have no bandwidth; set weights".to_owned()));
    }
    Ok(shares)
}

/// The shares that are given as numbers.
fn weights(parameters: &Parameters, tiers: usize) -> Result<Vec<f64>, Refusal> {
    let refused = |problem: String| Refusal::Parameter { key: "weights".to_owned(), problem };
    let text = &parameters.weights;
    let read =
        |part: &str| part.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    let weights: Vec<f64> = text.split(',').map(read).collect::<Option<_>>().ok_or_else(|| {
        refused(format!("\"{text}\" is neither numbers with commas between them, such as 5,2, nor probe"))
    })?;
    if weights.len() != tiers {
        return Err(refused(format!("{} numbers for {tiers} tiers", weights.len())));
    }
    if weights.iter().sum::<f64>() <= 0.0 {
        return Err(refused("one of the numbers has to be above 0".to_owned()));
    }
    match parameters.fast_share {
        Some(_) => {
            Err(refused("give weights or fast_share, not both; fast_share=none leaves it out".to_owned()))
        }
        None => Ok(weights),
    }
}

impl Policy for BwAware {
    fn needs(&self) -> Needs {
        Needs { probe: self.probe.is_some(), ..Needs::default() }
    }

    fn place(&mut self, _: &Fault, _: &Topology) -> Placement {
        self.spread.place()
    }

    fn shares(&self, _: &Topology) -> Option<Vec<f64>> {
        Some(self.spread.shares().to_vec())
    }

    fn on(&mut self, _: Moment, _: &[Signal], _: &mut dyn MemorySystem) -> NextTick {
        NextTick::Never
    }

    fn report(&self, report: &mut Report) {
        self.probe.iter().for_each(|measured| report.note(measured.clone()));
    }
}

#[cfg(test)]
mod tests {
    use crate::{Driver, InMemory, Open};
    use terrace_model::{Bytes, BytesPerSec, TierId, Time};

    fn world(tiers: &[(&str, Bytes, f64)]) -> InMemory {
        let sizes: Vec<_> = tiers.iter().map(|(name, bytes, _)| (*name, *bytes)).collect();
        let mut world = InMemory::new(&sizes);
        for (at, (_, _, bandwidth)) in tiers.iter().enumerate() {
            let latency = Time::from_nanos(100 * (at as u64 + 1));
            world.set_speed(TierId(at as u8), latency, BytesPerSec(bandwidth * 1e9));
        }
        world
    }

    /// The memories of the source's table 3.1, with 1000 pages each.
    fn gddr_and_ddr() -> InMemory {
        world(&[("gddr", Bytes::kib(4000), 200.0), ("ddr", Bytes::kib(4000), 80.0)])
    }

    /// How many of `pages` lie in each tier.
    fn placed(mut world: InMemory, parameters: &str, pages: u64) -> Vec<u64> {
        world.map_anonymous(0, 0, pages);
        let tiers = world.tiers().tiers.len() as u8;
        let mut driver = Driver::open("bw-aware", parameters, world).unwrap();
        driver.touch_all(0, 0..pages, true);
        (0..tiers).map(|tier| driver.world.resident(TierId(tier))).collect()
    }

    fn in_fast(parameters: &str, pages: u64) -> u64 {
        placed(gddr_and_ddr(), parameters, pages)[0]
    }

    #[test]
    fn the_share_is_that_of_the_bandwidths() {
        assert_eq!(in_fast("", 700), 500, "200 / 280 of 700");
        assert_eq!(in_fast("fast_share = 0.7", 700), 490);
        assert_eq!(in_fast("fast_share = 1", 700), 700);
        assert_eq!(in_fast("fast_share = 0", 700), 0);
        assert_eq!(in_fast("order = \"weights\"", 700), 500, "five and two in a row");
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

    #[test]
    fn linuxs_own_policies_are_settings() {
        assert_eq!(in_fast("shares = \"equal\"", 700), 350);
        assert_eq!(in_fast("shares = \"fastest\"", 700), 700);
        assert_eq!(in_fast("shares = \"fastest\"", 1200), 1000, "the rest has no room");
        assert_eq!(in_fast("weights = \"1, 3\"", 700), 175);
    }

    #[test]
    fn three_memories_have_their_shares_and_the_fastest_takes_what_has_no_room() {
        let three = || {
            world(&[
                ("hbm", Bytes::mib(8), 400.0),
                ("ddr", Bytes::kib(400), 200.0),
                ("cxl", Bytes::mib(8), 100.0),
            ])
        };
        assert_eq!(placed(three(), "", 140), [80, 40, 20]);
        assert_eq!(placed(three(), "fast_share = 0.4", 100), [40, 40, 20]);
        assert_eq!(placed(three(), "weights = \"1,0,1\"", 100), [50, 0, 50]);
        assert_eq!(placed(three(), "", 700), [500, 100, 100], "100 pages of the second went to the first");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |parameters: &str| match Driver::open("bw-aware", parameters, gddr_and_ddr()) {
            Ok(_) => panic!("{parameters} is accepted"),
            Err(error) => error.to_string(),
        };
        assert!(refused("weights = \"1,2,3\"").contains("weights: 3 numbers for 2 tiers"));
        assert!(refused("weights = \"a\"").contains("such as 5,2"));
        assert!(refused("weights = \"probe\"\nshares = \"equal\"").contains("leave out shares"));
        assert!(refused("weights = \"0,0\"").contains("above 0"));
        assert!(refused("weights = \"1,1\"\nfast_share = 0.5").contains("not both"));
    }

    /// The program that runs the policy measures, and reports the result as the tiers' bandwidths.
    #[test]
    fn a_probe_is_asked_for() {
        let needs = |text: &str| {
            crate::find("bw-aware").unwrap().needs(&toml::from_str(text).unwrap()).unwrap().probe
        };
        assert_eq!(
            [needs(""), needs("weights = \"5,2\""), needs("weights = \"probe\"")],
            [false, false, true]
        );
        assert_eq!(in_fast("weights = \"probe\"", 700), 500);
    }

    #[test]
    fn the_former_name_means_the_same() {
        let entry = crate::find("static-ratio").unwrap();
        assert_eq!((entry.name(), entry.former_names()), ("bw-aware", &["static-ratio"][..]));
    }
}
