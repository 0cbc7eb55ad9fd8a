//! Data structures are placed by hints, made from their sizes and from how hot a profile found them.
//!
//! **Idea.** A profiler counts the accesses of each data structure on a representative input. Before the program allocates
//! anything, `GetAllocation(size[], hotness[])` makes a hint of sizes and counts: *BO*, in the tier optimised for bandwidth,
//! *CO*, in the one optimised for capacity, or *BW*, pages drawn to both in proportion to their bandwidths. Where the fast
//! tier has room for its share of everything, all hints are BW, whatever is hot; else the hottest structures are BO while
//! there is room, and the others CO. What has no hint is BW. A full tier's pages go to the other. Nothing moves.
//!
//! **Source.** N. Agarwal, Paving the Path for Heterogeneous Memory Adoption in Production Systems (PhD, University of
//! Michigan 2017), section 3.4. Its profiler is a changed compiler, which counts each load and store by the allocation that
//! it falls in; here a first pass over the same input counts.
//!
//! **Left open by the source.** *Hot by the byte or in all* (`rank`): by the byte. *A structure that fits only in part*
//! (`straddling`): its first pages that are touched are BO; or all of it is CO, and smaller ones get the room; or it and all
//! that come after are CO. *Whether BO ends where the fast tier serves its share of the accesses* (`balance`), as the
//! source's oracle does: no, as its text does not say so; a structure of which the rest is CO may then be too much for the
//! slow tier, or too little. *What is counted* (`count`): what is issued, as the source's profiler does; `memory` counts
//! what reaches memory.
//! *Structures of one allocation site*: are one structure, as its profiler aggregates by source location.
//!
//! **Hints of another run.** The profile may come from a file of hints, `--hints FILE`, made by `terrace profile` on
//! another input; then there is no first pass. A hint that somebody has written into the file stands whatever was
//! counted: structures that are BO by hand get their room first. On live Linux, where nobody can be asked at each fault,
//! `terrace run --hints` places by allocation site, and pages without a hint are interleaved by the kernel.
//!
//! **When to use it.** Where fast memory is scarce, the same program runs again and again, and its structures differ in
//! heat.

use crate::support::{Order, Spread, Straddling};
use crate::{
    Capability, Choice, Fault, Heat, Hint, HintedPages, MemorySystem, Moment, Needs, NextTick, Parameters,
    Placement, Policy, Profile, Published, Refusal, Report, Setup, Signal, Topology,
};
use std::collections::BTreeMap;
use terrace_model::{Bytes, TierId};

/// Which accesses make a structure hot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Count {
    /// Every load and store that is issued.
    #[default]
    Issued,
    /// Loads and stores that reach memory.
    Memory,
}

/// The quantity by which structures are ranked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Rank {
    /// Accesses per byte.
    #[default]
    Density,
    /// Accesses.
    Total,
}

/// Parameters of annotated placement.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Which accesses of the profile count.
    #[parameter(source = "Agarwal §3.4.1: loads and stores that are issued")]
    pub count: Count,
    /// The quantity by which the hottest structure is chosen.
    #[parameter(source = "not stated")]
    pub rank: Rank,
    /// What becomes of a structure that fits only in part.
    #[parameter(source = "not stated")]
    pub straddling: Straddling,
    /// Give the hint BO only until the structures that have it make the fast tier's share of all accesses.
    #[parameter(default = false, source = "not stated; its oracle does so")]
    pub balance: bool,
    /// How many times as large the structures are as in the profile: for hints of a smaller or a larger input.
    #[parameter(default = 1.0, range = 0.001..=1e6, source = "ours; the source is given sizes when a program allocates")]
    pub growth: f64,
    /// The fast tier's share of pages with the hint BW. Unset: in proportion to the tiers' read bandwidths.
    #[parameter(range = 0.0..=1.0, source = "Agarwal §3.2: 0.7")]
    pub fast_share: Option<f64>,
}

/// What a program states about a structure before it allocates it.
#[derive(Clone, Copy, Debug)]
struct Structure {
    site: u64,
    bytes: u64,
    hotness: u64,
    by_hand: Option<Hint>,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Annotated {
    fast: TierId,
    slow: TierId,
    /// How pages with the hint BW or none are spread over both tiers.
    both: Spread,
    hints: BTreeMap<u64, HintedPages>,
    names: BTreeMap<u64, String>,
    /// Whether a page of any structure with a hint came.
    met: bool,
    /// Pages by hint: fast, slow, both, and of no structure that has one.
    placed: [u64; 4],
}

/// The hints of structures, in their order. `capacity`: bytes of the fast tier.
fn get_allocation(
    structures: &[Structure],
    capacity: u64,
    fast_share: f64,
    parameters: &Parameters,
) -> Vec<HintedPages> {
    let footprint: u64 = structures.iter().map(|one| one.bytes).sum();
    let all_fit = fast_share * footprint as f64 <= capacity as f64;
    let mut hints = vec![if all_fit { HintedPages::Both } else { HintedPages::Slow }; structures.len()];
    let mut room = capacity >> 12;
    for (hint, one) in hints.iter_mut().zip(structures) {
        *hint = match one.by_hand {
            Some(Hint::Bandwidth) => {
                let granted = one.bytes.div_ceil(4096).min(room);
                room -= granted;
                HintedPages::Fast(granted)
            }
            Some(Hint::Capacity) => HintedPages::Slow,
            Some(Hint::Both) => HintedPages::Both,
            None => continue,
        };
    }
    if all_fit {
        return hints;
    }
    let rank = |one: &Structure| match parameters.rank {
        Rank::Density => one.hotness as f64 / one.bytes.max(1) as f64,
        Rank::Total => one.hotness as f64,
    };
    let mut order: Vec<usize> =
        (0..structures.len()).filter(|at| structures[*at].by_hand.is_none()).collect();
    // The earlier of two that are as hot.
    order.sort_by(|a, b| rank(&structures[*b]).total_cmp(&rank(&structures[*a])).then(a.cmp(b)));
    let all: u64 = structures.iter().map(|one| one.hotness).sum();
    let target = if parameters.balance { fast_share * all as f64 } else { f64::INFINITY };
    let is_fast = |(hint, one): (&HintedPages, &Structure)| match hint {
        HintedPages::Fast(_) => one.hotness,
        HintedPages::Slow | HintedPages::Both => 0,
    };
    let mut served: u64 = hints.iter().zip(structures).map(is_fast).sum();
    for at in order {
        let Structure { bytes, hotness, .. } = structures[at];
        if served as f64 >= target || room == 0 {
            break;
        }
        let pages = bytes.div_ceil(4096);
        let granted = match parameters.straddling {
            _ if pages <= room => pages,
            Straddling::Split => room,
            Straddling::Skip => continue,
            Straddling::Stop => break,
        };
        hints[at] = HintedPages::Fast(granted);
        room -= granted;
        served += hotness;
    }
    hints
}

impl Published for Annotated {
    type Parameters = Parameters;

    fn new(parameters: Parameters, setup: Setup<'_>) -> Result<Annotated, Refusal> {
        let (fast, slow) = setup.topology.fast_and_slow()?;
        let profile: &Profile = setup.profile.ok_or(Refusal::NoProfile)?;
        let bandwidth = |tier| setup.topology.tier(tier).read_bandwidth.0;
        let by_bandwidth = bandwidth(fast) / (bandwidth(fast) + bandwidth(slow));
        let share = parameters.fast_share.unwrap_or(by_bandwidth);
        if !share.is_finite() {
            return Err(Refusal::Machine("its tiers have no bandwidth; set fast_share".to_owned()));
        }
        let heat = |issued: Heat, memory: Heat| match parameters.count {
            Count::Issued => issued.total(),
            Count::Memory => memory.total(),
        };
        let counted = |heat: Heat| heat.total() > 0;
        if parameters.count == Count::Memory
            && profile.objects.values().any(|one| counted(one.issued))
            && !profile.objects.values().any(|one| counted(one.heat))
        {
            return Err(Refusal::Parameter {
                key: "count".to_owned(),
                problem: "the profile has no accesses that reach memory; take issued, or profile again"
                    .to_owned(),
            });
        }
        let structures: Vec<Structure> = profile
            .objects
            .iter()
            .map(|(site, one)| Structure {
                site: *site,
                bytes: (one.bytes as f64 * parameters.growth) as u64,
                hotness: heat(one.issued, one.heat),
                by_hand: one.hint,
            })
            .collect();
        let capacity = setup.topology.tier(fast).capacity.0;
        let hints = get_allocation(&structures, capacity, share, &parameters);
        let mut names = profile.names.clone();
        for (one, hint) in structures.iter().zip(&hints) {
            let (HintedPages::Fast(pages), Some(name)) = (hint, names.get_mut(&one.site)) else { continue };
            if pages << 12 < one.bytes {
                *name += &format!(
                    " in part ({} of {})",
                    Bytes(pages << 12),
                    Bytes(one.bytes.next_multiple_of(4096))
                );
            }
        }
        Ok(Annotated {
            fast,
            slow,
            both: Spread::new(&[share, 1.0 - share], Order::Draw, setup.random()),
            hints: structures.iter().map(|one| one.site).zip(hints).collect(),
            names,
            met: false,
            placed: [0; 4],
        })
    }
}

impl Policy for Annotated {
    fn needs(&self) -> Needs {
        Needs { first_pass: true, ..Needs::of(&[Capability::Objects]) }
    }

    fn place(&mut self, fault: &Fault, _: &Topology) -> Placement {
        let hint = fault.area.object.and_then(|object| self.hints.get_mut(&object.site));
        self.met |= hint.is_some();
        let (to_fast, counted) = match hint {
            Some(HintedPages::Fast(left)) => {
                let some = *left > 0;
                *left = left.saturating_sub(1);
                (some, 0)
            }
            Some(HintedPages::Slow) => (false, 1),
            other => {
                self.placed[if other.is_some() { 2 } else { 3 }] += 1;
                return self.both.place();
            }
        };
        self.placed[counted] += 1;
        let (first, second) = if to_fast { (self.fast, self.slow) } else { (self.slow, self.fast) };
        Placement::tier(first).or(second, None)
    }

    fn shares(&self, topology: &Topology) -> Option<Vec<f64>> {
        let mut shares = vec![0.0; topology.tiers.len()];
        shares[..2].copy_from_slice(self.both.shares());
        Some(shares)
    }

    fn hints(&self) -> BTreeMap<u64, HintedPages> {
        self.hints.clone()
    }

    fn on(&mut self, _: Moment, _: &[Signal], _: &mut dyn MemorySystem) -> NextTick {
        NextTick::Never
    }

    fn report(&self, report: &mut Report) {
        for (name, pages) in
            ["hinted_fast", "hinted_slow", "hinted_both", "unhinted"].into_iter().zip(self.placed)
        {
            report.level_pages(name, pages);
        }
        let of = |wanted: fn(&HintedPages) -> bool| {
            let sites = self.hints.iter().filter(|(_, hint)| wanted(hint)).map(|(site, _)| site);
            let mut names: Vec<&str> =
                sites.filter_map(|site| Some(self.names.get(site)?.as_str())).collect();
            names.sort_unstable();
            (!names.is_empty()).then(|| names.join(", "))
        };
        for (hint, names) in [
            ("BO, in the fast tier", of(|hint| matches!(hint, HintedPages::Fast(_)))),
            ("CO, in the slow tier", of(|hint| *hint == HintedPages::Slow)),
            ("BW, in both by their bandwidths", of(|hint| *hint == HintedPages::Both)),
        ] {
            if let Some(names) = names {
                report.note(format!("hint {hint}: {names}"));
            }
        }
        // Where nobody asks at faults, nothing is known of it.
        let asked = self.placed.iter().any(|pages| *pages > 0);
        if asked && !self.met && !self.hints.is_empty() {
            report.note(format!(
                "none of the {} data structures that the hints name was touched: are the hints of this program?",
                self.hints.len()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Area, AreaKind, Driver, InMemory, Object, ObjectProfile, Open, PageId, PageRange};
    use terrace_model::{BytesPerSec, Time};

    /// 64 pages, 40 pages, 16 pages; by the byte the third is the hottest, in all the first.
    const STRUCTURES: [(u64, u64); 3] = [(64, 640), (40, 80), (16, 320)];

    fn structure(bytes: u64, hotness: u64) -> Structure {
        Structure { site: bytes, bytes, hotness, by_hand: None }
    }

    fn hints(pages: u64, parameters: &Parameters) -> [HintedPages; 3] {
        let structures = STRUCTURES.map(|(pages, hotness)| structure(pages << 12, hotness));
        get_allocation(&structures, pages << 12, 0.5, parameters).try_into().unwrap()
    }

    fn parameters(words: &str) -> Parameters {
        let pairs = words.lines().map(|line| line.split_once(" = ").unwrap());
        terrace_model::parameters::Parameters::read(pairs.map(|(key, text)| (key, text.trim_matches('"'))))
            .unwrap()
    }

    #[test]
    fn hints_follow_from_sizes_and_counts() {
        use HintedPages::{Both, Fast, Slow};
        // Half of 120 pages fits: BW, whatever is hot.
        assert_eq!(hints(60, &parameters("")), [Both; 3]);
        // 20 times per page, ten times, twice.
        assert_eq!(hints(59, &parameters("")), [Fast(43), Slow, Fast(16)]);
        assert_eq!(hints(59, &parameters("straddling = \"skip\"")), [Slow, Fast(40), Fast(16)]);
        assert_eq!(hints(59, &parameters("straddling = \"stop\"")), [Slow, Slow, Fast(16)]);
        assert_eq!(hints(59, &parameters("rank = \"total\"")), [Fast(59), Slow, Slow]);
        assert_eq!(
            hints(59, &parameters("rank = \"total\"\nstraddling = \"skip\"")),
            [Slow, Fast(40), Fast(16)]
        );
        assert_eq!(hints(0, &parameters("")), [Slow; 3]);
        // Half of 1040 accesses: the third has 320, the third and the first 960.
        assert_eq!(
            hints(59, &parameters("balance = true\nstraddling = \"skip\"")),
            [Slow, Fast(40), Fast(16)]
        );
        let third_suffices = get_allocation(
            &[(4, 10), (1, 90)].map(|(pages, hotness)| structure(pages << 12, hotness)),
            2 << 12,
            0.5,
            &parameters("balance = true"),
        );
        assert_eq!(third_suffices, [Slow, Fast(1)]);
    }

    /// The source's example, Figure 3.10: sizes 4n, n² and 1000 bytes and hotness 2, 3 and 1, here with n = 1000.
    #[test]
    fn the_example_of_the_source() {
        use HintedPages::{Both, Fast, Slow};
        let structures =
            [(4000, 2), (1_000_000, 3), (1000, 1)].map(|(bytes, hotness)| structure(bytes, hotness));
        let by =
            |words: &str, capacity| get_allocation(&structures, capacity, 200.0 / 280.0, &parameters(words));
        // 717,858 bytes of 1,005,000 are the fast tier's share.
        assert_eq!(by("", 717_858), [Both; 3]);
        assert_eq!(by("", 400_000), [Fast(1), Fast(95), Fast(1)]);
        assert_eq!(by("rank = \"total\"", 400_000), [Slow, Fast(97), Slow]);
    }

    #[test]
    fn a_hint_by_hand_stands_and_gets_its_room_first() {
        use HintedPages::{Both, Fast, Slow};
        let by_hand = |hints: [Option<Hint>; 3], pages: u64, words: &str| {
            let structures = [0, 1, 2].map(|at| {
                let (pages, hotness) = STRUCTURES[at];
                Structure { by_hand: hints[at], ..structure(pages << 12, hotness) }
            });
            get_allocation(&structures, pages << 12, 0.5, &parameters(words))
        };
        // The second is the coldest: of 59 pages 40 are its own, and 16 the hottest's.
        let second = [None, Some(Hint::Bandwidth), None];
        assert_eq!(by_hand(second, 59, ""), [Fast(3), Fast(40), Fast(16)]);
        let others = [Some(Hint::Both), None, Some(Hint::Capacity)];
        assert_eq!(by_hand(others, 59, ""), [Both, Fast(40), Slow]);
        // All fit, and BW is not for all.
        assert_eq!(by_hand([None, None, Some(Hint::Capacity)], 60, ""), [Both, Both, Slow]);
        // 80 of 1040 accesses are the second's; 320 more are not half.
        assert_eq!(by_hand(second, 59, "balance = true"), [Fast(3), Fast(40), Fast(16)]);
        assert_eq!(by_hand([None, Some(Hint::Bandwidth), None], 30, ""), [Slow, Fast(30), Slow]);
    }

    fn run(words: &str, sites: [u64; 3], fast: u64) -> (Vec<u64>, Vec<String>) {
        let mut world = InMemory::new(&[("gddr", Bytes::kib(4 * fast)), ("ddr", Bytes::kib(4096))]);
        world.set_speed(TierId(0), Time::from_nanos(100), BytesPerSec(100e9));
        world.set_speed(TierId(1), Time::from_nanos(200), BytesPerSec(100e9));
        let mut profile = Profile::default();
        let mut first = 0;
        for (site, (pages, hotness)) in STRUCTURES.into_iter().enumerate() {
            let range = PageRange::new(PageId::new(0, first), pages);
            let object = Some(Object { site: sites[site], range });
            world.map(Area { range, kind: AreaKind::Anonymous, writable: true, huge_advice: None, object });
            let issued = Heat { reads: hotness, writes: 0 };
            let heat = Heat { reads: if site == 1 { 9000 } else { 0 }, writes: 0 };
            profile
                .objects
                .insert(site as u64, ObjectProfile { bytes: pages << 12, heat, issued, hint: None });
            profile.names.insert(site as u64, format!("s{site}"));
            first += pages;
        }
        let mut driver = Driver::open_with("annotated", words, world, 1, Some(&profile)).unwrap();
        driver.touch_all(0, 0..first, true);
        let mut starts = Vec::new();
        let mut first = 0;
        for (pages, _) in STRUCTURES {
            let lies = |vpn: &u64| driver.world.locate(PageId::new(0, *vpn)).unwrap().0 == TierId(0);
            starts.push((first..first + pages).filter(lies).count() as u64);
            first += pages;
        }
        (starts, driver.report().notes)
    }

    /// Structures half as large all fit; of structures twice as large, the hottest keep the room.
    #[test]
    fn sizes_are_those_of_another_input() {
        assert!(run("growth = 0.5", [0, 1, 2], 59).1[0].starts_with("hint BW"));
        assert_eq!(run("growth = 2.0", [0, 1, 2], 59).0, [27, 0, 16]);
    }

    #[test]
    fn pages_go_where_hints_say() {
        let (fast, notes) = run("", [0, 1, 2], 59);
        assert_eq!(fast, [43, 0, 16], "the hottest keeps its room though it comes last");
        let first = "hint BO, in the fast tier: s0 in part (172 KiB of 256 KiB), s2";
        assert_eq!(notes, [first, "hint CO, in the slow tier: s1"]);
        assert_eq!(run("count = \"memory\"", [0, 1, 2], 59).0, [19, 40, 0]);
        assert_eq!(
            run("fast_share = 0.1", [0, 1, 2], 59).1,
            ["hint BW, in both by their bandwidths: s0, s1, s2"]
        );
        let (fast, _) = run("", [0, 1, 2], 70);
        let all: u64 = fast.iter().sum();
        assert!((45..=70).contains(&all) && fast[1] > 0, "half of 120 by a draw: {fast:?}");
    }

    #[test]
    fn hints_of_another_program_are_noticed() {
        let (_, notes) = run("", [7, 8, 9], 59);
        assert!(notes.last().unwrap().starts_with("none of the 3 data structures"), "{notes:?}");
    }

    #[test]
    fn without_a_profile_it_does_not_start() {
        assert!(crate::find("annotated").unwrap().needs(&toml::Table::new()).unwrap().first_pass);
        let world = InMemory::new(&[("fast", Bytes::kib(16)), ("slow", Bytes::kib(64))]);
        assert!(Driver::open("annotated", "", world).is_err());
    }
}
