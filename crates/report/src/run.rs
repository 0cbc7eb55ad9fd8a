//! The record of one run: one design on one input, with everything needed to judge and to repeat it.

use crate::Uncertainty;
use std::collections::BTreeMap;
use terrace_model::{ContiguityPoint, PoolTraffic, Stats};

/// The fidelity of a run on a real machine: nothing was simulated, so there are no cycles and no accesses.
pub const LIVE: &str = "live";

/// Whether runs of this fidelity have times that can be compared; see [`RunRecord::is_timed`].
pub fn has_times(fidelity: &str) -> bool {
    !matches!(fidelity, "translation" | "pages")
}

/// One design on one input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunRecord {
    /// Short name of the design (`native-2m`).
    pub design: String,
    /// One line: what the design is.
    pub design_summary: String,
    /// Name of the machine preset below the design.
    pub machine: String,
    /// The machine's tiers, fastest first; empty for live runs.
    pub tiers: Vec<MachineTier>,
    /// Name of the input, as in [`InputSummary::name`](crate::InputSummary::name).
    pub input: String,
    /// Fidelity level: `full`, `translation` or `pages`; [`LIVE`] for what happened to real processes.
    pub fidelity: String,
    /// Everything was divided by this (`--scale`); 1 for none.
    pub scale: u32,
    /// Seed of the run, where it has one.
    pub seed: Option<u64>,
    /// Loads and stores simulated.
    pub accesses: u64,
    /// Instructions retired.
    pub instructions: u64,
    /// Elapsed core cycles, from the first event to the last; see [`RunRecord::is_timed`].
    pub cycles: u64,
    /// Elapsed simulated time in seconds; see [`RunRecord::is_timed`].
    pub seconds_simulated: f64,
    /// How long the simulation took, in seconds; of a live run, how long that was.
    pub wall_seconds: f64,
    /// All statistics.
    pub stats: Stats,
    /// Every parameter: dotted key, and its value as text with unit; before the division by `scale`.
    pub parameters: Vec<(String, String)>,
    /// The parameters that the division by `scale` changed, as they were simulated.
    pub scaled_parameters: Vec<(String, String)>,
    /// What the fidelity level left out, one sentence each.
    pub left_out: Vec<String>,
    /// The command that repeats the run.
    pub command: String,
    /// What else a reader must know, one sentence each.
    pub notes: Vec<String>,
    /// How a live run went, by time; empty for simulations.
    pub timeline: Vec<TimelinePoint>,
    /// How contiguous memory was, by time; empty where that was not sampled.
    pub contiguity_over_time: Vec<ContiguityPoint>,
    /// What memories and the link beside a GPU carried; `None` without a GPU.
    pub pools: Option<PoolTraffic>,
    /// How far the speed-up over the baseline could be off; `None` where no intervals were asked for.
    pub uncertainty: Option<Uncertainty>,
}

/// A tier of a simulated machine.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, serde::Serialize)]
pub struct MachineTier {
    /// The tier's name.
    pub name: String,
    /// What it holds.
    pub capacity_bytes: u64,
    /// Time of a read below the last-level cache, with nothing else under way.
    pub read_latency_ns: f64,
}

/// `dram 64.0 GiB at 95.0 ns, cxl 256 GiB at 250 ns`, with what stands between two.
pub(crate) fn tiers_in_words(tiers: &[MachineTier], between: &str) -> String {
    let words = tiers.iter().map(|tier| {
        let latency = crate::format::significant(tier.read_latency_ns);
        format!("{} {} at {latency} ns", tier.name, crate::format::bytes(tier.capacity_bytes))
    });
    words.collect::<Vec<_>>().join(between)
}

/// `zen4-cxl: dram 64.0 GiB at 95.0 ns, cxl 256 GiB at 250 ns`: a machine with its tiers.
pub fn machine_in_words(machine: &str, tiers: &[MachineTier]) -> String {
    match tiers {
        [] => machine.to_owned(),
        _ => format!("{machine}: {}", tiers_in_words(tiers, ", ")),
    }
}

/// The machine and its tiers in a sentence that says of what state the latencies are.
pub fn machine_sentence(machine: &str, tiers: &[MachineTier]) -> String {
    format!("Machine {} (reads, idle).", machine_in_words(machine, tiers))
}

/// A live run at one moment.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct TimelinePoint {
    /// Since the start.
    pub seconds: f64,
    /// Bytes that had come to a faster tier by then.
    pub promoted_bytes: u64,
    /// Bytes that had come to a slower tier by then.
    pub demoted_bytes: u64,
    /// Memory in use, by tier.
    pub used_bytes: BTreeMap<String, u64>,
}

/// Cycles blamed on one cause, from the statistics under `core.cycles`.
#[derive(Clone, Debug, PartialEq)]
pub struct CycleComponent {
    /// The statistic's last name: `translation`, `memory`.
    pub name: String,
    /// Cycles, summed over the cores.
    pub cycles: f64,
}

/// The components in the order in which every output shows them; others follow by name.
const COMPONENT_ORDER: [&str; 5] = ["base", "translation", "cache", "memory", "os"];

/// Statistics under `core.cycles` that no program spent: the sum, and cores that had nothing to run.
const NO_COMPONENT: [&str; 2] = ["total", "idle"];

/// Translation schemes of which no core holds translations: the memory controller has them.
const CENTRAL_SCHEMES: [&str; 2] = ["vbi", "enigma"];

impl RunRecord {
    /// Accesses simulated per second of wall-clock time; 0 where that time is not known.
    pub fn accesses_per_second(&self) -> f64 {
        ratio(self.accesses as f64, self.wall_seconds).unwrap_or(0.0)
    }

    /// Whether this is what a policy did to real processes, rather than a simulation.
    pub fn is_live(&self) -> bool {
        self.fidelity == LIVE
    }

    /// Whether the run's time can be compared: it simulated time, and that of its accesses, which only `full` does. The
    /// others' is that of computing, walks, faults and copies alone.
    pub fn is_timed(&self) -> bool {
        has_times(&self.fidelity) && self.seconds_simulated.is_finite() && self.seconds_simulated > 0.0
    }

    /// How many times faster than `baseline` this run is; `None` unless both are timed. Of a mix, by the weighted speed-up.
    pub fn speedup_over(&self, baseline: &RunRecord) -> Option<f64> {
        if let (Some(own), Some(of_baseline)) = (self.mix(), baseline.mix()) {
            return own.speedup_over(&of_baseline).filter(|_| self.is_timed() && baseline.is_timed());
        }
        (self.is_timed() && baseline.is_timed()).then(|| baseline.seconds_simulated / self.seconds_simulated)
    }

    /// Cycles per instruction of an average core: the blamed cycles where they are known (they are summed over the
    /// cores), else the elapsed ones.
    pub fn cycles_per_instruction(&self) -> Option<f64> {
        let blamed: f64 = self.cycle_components().iter().map(|c| c.cycles).sum();
        let cycles = if blamed > 0.0 { blamed } else { self.cycles as f64 };
        ratio(cycles, self.instructions as f64).filter(|_| cycles > 0.0)
    }

    /// `count` per 1000 instructions, for a statistic that exists.
    pub fn per_kilo_instruction(&self, statistic: &str) -> Option<f64> {
        let count = self.stats.get(statistic)?.value.as_f64();
        ratio(1000.0 * count, self.instructions as f64)
    }

    /// Where the busy cycles went: every statistic directly under `core.cycles`, in the order of display, idle cores
    /// left out.
    pub fn cycle_components(&self) -> Vec<CycleComponent> {
        let mut components: Vec<CycleComponent> = self
            .stats
            .under("core.cycles")
            .filter(|(name, _)| !name.contains('.') && !NO_COMPONENT.contains(name))
            .map(|(name, stat)| CycleComponent { name: name.to_owned(), cycles: stat.value.as_f64() })
            .collect();
        components
            .sort_by_key(|c| COMPONENT_ORDER.iter().position(|name| *name == c.name).unwrap_or(usize::MAX));
        components
    }

    /// Share of the blamed cycles that went to `component`, 0 to 1; `None` where no cycle was blamed.
    pub fn cycle_share(&self, component: &str) -> Option<f64> {
        let components = self.cycle_components();
        let total: f64 = components.iter().map(|c| c.cycles).sum();
        let part = components.iter().find(|c| c.name == component)?.cycles;
        ratio(part, total)
    }

    /// Whether the design is a bound rather than a contender: translation or its coherence costs nothing, or all memory is
    /// fast.
    pub fn is_bound(&self) -> bool {
        self.is_all_fast() || self.is_free_of_translation() || self.is_free_of_coherence()
    }

    pub(crate) fn is_free_of_translation(&self) -> bool {
        self.has("translation.scheme", "perfect-tlb")
    }

    /// Whether translations that cores hold vanish for nothing. Where cores hold none, nothing has to vanish there: that is
    /// what such hardware does, and no bound.
    pub(crate) fn is_free_of_coherence(&self) -> bool {
        self.has("translation.coherence", "ideal") && !self.translates_centrally()
    }

    /// Whether no core holds translations.
    pub(crate) fn translates_centrally(&self) -> bool {
        self.translation_scheme().is_some_and(|scheme| CENTRAL_SCHEMES.contains(&scheme))
    }

    /// The translation scheme, which has keys of its own or none.
    pub(crate) fn translation_scheme(&self) -> Option<&str> {
        self.parameter("translation.scheme.kind").or(self.parameter("translation.scheme"))
    }

    fn has(&self, parameter: &str, text: &str) -> bool {
        self.parameters.iter().any(|(key, value)| key == parameter && value.trim_matches('"') == text)
    }
}

/// `numerator / denominator` where that is a finite number.
pub(crate) fn ratio(numerator: f64, denominator: f64) -> Option<f64> {
    let value = numerator / denominator;
    (denominator != 0.0 && value.is_finite()).then_some(value)
}

/// How a component of the cycles is called in a sentence.
pub(crate) fn component_label(name: &str) -> &str {
    match name {
        "base" => "computing",
        "translation" => "address translation",
        "cache" => "cache look-ups",
        "memory" => "waiting for memory",
        "os" => "the operating system",
        "idle" => "idle cores",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::Unit;

    fn run() -> RunRecord {
        let mut run = RunRecord { instructions: 1000, cycles: 500, accesses: 40, ..RunRecord::default() };
        for (name, cycles) in
            [("os", 10), ("base", 250), ("translation", 200), ("wait", 40), ("idle", 70), ("total", 500)]
        {
            run.stats.count(format!("core.cycles.{name}"), cycles, Unit::Cycles);
        }
        run.stats.count("tlb.l2.miss", 30, Unit::Count);
        run
    }

    #[test]
    fn a_machine_is_named_with_its_tiers() {
        let tier = |name: &str, gib: u64, read_latency_ns| MachineTier {
            name: name.to_owned(),
            capacity_bytes: gib << 30,
            read_latency_ns,
        };
        let tiers = [tier("dram", 64, 95.25), tier("cxl", 256, 250.0)];
        assert_eq!(
            machine_in_words("zen4-cxl", &tiers),
            "zen4-cxl: dram 64.0 GiB at 95.2 ns, cxl 256 GiB at 250 ns"
        );
        assert_eq!(machine_in_words("Linux 6.1", &[]), "Linux 6.1");
    }

    #[test]
    fn measures_by_hand() {
        let run = run();
        let names: Vec<_> = run.cycle_components().into_iter().map(|c| c.name).collect();
        assert_eq!(names, ["base", "translation", "os", "wait"]);
        assert_eq!(run.cycle_share("translation"), Some(0.4));
        assert_eq!(run.cycles_per_instruction(), Some(0.5));
        assert_eq!(run.per_kilo_instruction("tlb.l2.miss"), Some(30.0));
        assert_eq!(run.per_kilo_instruction("tlb.l3.miss"), None);
    }

    #[test]
    fn a_run_without_time_or_instructions_divides_nothing_by_zero() {
        let run = RunRecord::default();
        assert_eq!(run.accesses_per_second(), 0.0);
        assert_eq!(run.cycles_per_instruction(), None);
        assert_eq!(run.speedup_over(&run), None);
        assert_eq!(run.cycle_share("base"), None);
    }
}
