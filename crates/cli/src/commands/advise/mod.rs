//! `terrace advise`: how much of a program's memory can be slow, under which policy, and what that saves; or, with
//! `--pages`, whether it should have huge pages (`pages/`).

mod answer;
mod pages;
mod search;

use self::answer::{Advice, Document, PolicyAnswer, Price, Seed, Uncertainty, text};
use self::search::Search;
use crate::bench::{Bench, Trial};
use crate::commands::record;
use crate::error::{CommandResult, Failure};
use crate::input::{self, Input};
use crate::interrupt::Interrupt;
use crate::options::{
    DesignOptions, InputOptions, Job, JsonOption, RecordingOptions, Setting, SimulationOptions,
};
use crate::run::{self, FEW_PERIODS, Settings};
use crate::tiers::{self, PriceOption, percent};
use crate::{output, progress, study};
use clap::Args;
use terrace_model::Bytes;
use terrace_report::RunRecord;

const EXAMPLES: &str = "\
Examples:
  terrace advise --slowdown 3% --price slow=0.33 -- ./app --its-options
  terrace advise --slowdown 5% --price slow=0.4 --trace app.trace
  terrace advise --workload kv,requests=2e6 --hasten 100
  terrace advise --pages -- ./app --its-options
  terrace advise --pages --tlb spot --tlb zen5-turin --tlb my-tlb.toml \\
      --trace app.trace
  terrace advise --policies ambix,tpp --resolution 1% --seeds 5 \\
      --machine xeon-5218-dcpmm --trace app.trace

A command after -- runs once, under the recorder, into a temporary file.
The periods of most policies are seconds: where the run holds only a few of
them, the answer says so, and which --hasten makes it long enough.";

/// Say how much memory can be slow, or whether huge pages are right
///
/// Runs the input with everything in the fastest tier; then, for each policy,
/// finds the smallest fastest tier with which the run is no slower than
/// tolerated. The share is searched by halving the interval: more fast memory
/// is taken never to be slower. The answer comes with what is uncertain about
/// it.
///
/// With --pages it answers another question: what 2 MiB and 1 GiB pages would
/// bring this program on one tier, what they would cost in memory, copies and
/// slow faults, and which regions of the program deserve which size.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Ask about huge pages instead: are they right for this program, where, and
    /// of which size
    #[arg(long, help_heading = "Question", conflicts_with_all = ["slowdown", "resolution", "seeds", "price"])]
    pages: bool,

    /// Memory that large pages may hold beyond what the program touches, as a
    /// share of that
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = pages::parse_bloat, requires = "pages", help_heading = "Question")]
    bloat: f64,

    /// With --pages: show what the pages would bring with this TLB too, that of
    /// a design (colt, rmm, direct-segment, spot, or a TOML file: all that it has
    /// under [translation]) or of another machine; default: colt and rmm under 4k
    /// and ranger. Repeatable
    #[arg(long, value_name = "DESIGN|MACHINE", requires = "pages", help_heading = "Question")]
    tlb: Vec<String>,

    /// Tolerated slowdown against everything in the fastest tier
    #[arg(long, value_name = "SHARE", default_value = "3%", value_parser = tiers::parse_share, help_heading = "Question")]
    slowdown: f64,

    /// Policies to choose from, separated by commas (`terrace policy list`);
    /// default: first-touch,ambix,nimble,tpp,hemem,memtis,colloid,thermostat,
    /// with --pages thp,trident,ranger as far as they exist
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Question")]
    policies: Vec<String>,

    /// Step of the search, as a share of what the input has resident
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = parse_resolution, help_heading = "Question")]
    resolution: f64,

    /// Runs of the recommended policy with different seeds, of the policy and
    /// of a built-in workload
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100), help_heading = "Question")]
    seeds: u64,

    #[command(flatten)]
    designs: DesignOptions,

    #[command(flatten)]
    price: PriceOption,

    #[command(flatten)]
    input: InputOptions,

    #[command(flatten)]
    simulation: SimulationOptions,

    #[command(flatten)]
    recording: RecordingOptions,

    #[command(flatten)]
    json: JsonOption,
}

fn parse_resolution(text: &str) -> Result<f64, String> {
    match tiers::parse_share(text)? {
        share if (0.001..=0.5).contains(&share) => Ok(share),
        _ => Err("a step is between 0.1% and 50%".to_owned()),
    }
}

/// The policies to choose from where none are named.
const POLICIES: [&str; 8] =
    ["first-touch", "ambix", "nimble", "tpp", "hemem", "memtis", "colloid", "thermostat"];

/// Carries out the search.
pub fn run(mut arguments: Arguments) -> CommandResult {
    if arguments.pages {
        return pages::run(&arguments);
    }
    if arguments.policies.is_empty() {
        arguments.policies = POLICIES.map(str::to_owned).into();
    }
    let settings = Settings { simulation: &arguments.simulation, interrupt: Interrupt::install() };
    let question = Question::new(&arguments, &settings)?;
    // Everything that can be wrong is found before anything is recorded.
    let given =
        input::prepare_one(&arguments.input, &arguments.recording, "advise", "compare takes several")?;
    let folder = tempfile::tempdir()?;
    let live = given.is_live();
    let input = if live { record::once(given, folder.path(), &settings.interrupt)? } else { given };
    let document = question.answer(&input, live)?;
    if let Some(destination) = &arguments.json.json {
        output::write_json(destination, &document)?;
    }
    if !arguments.json.owns_stdout() {
        output::print(&text(&document))?;
    }
    Ok(())
}

/// The question, checked.
struct Question<'a> {
    arguments: &'a Arguments,
    settings: &'a Settings<'a>,
    prices: Vec<(String, f64)>,
    all_fast: Job,
    fastest: String,
}

impl<'a> Question<'a> {
    fn new(arguments: &'a Arguments, settings: &'a Settings<'a>) -> Result<Question<'a>, Failure> {
        if arguments.simulation.fidelity != crate::options::Level::Full {
            return Err(Failure::usage("advise weighs run times, which only --fidelity full has"));
        }
        let all_fast = tiers::all_fast(&arguments.designs, Some(study::MACHINE))?;
        let fastest = all_fast.design.design.tiers[0].name.clone();
        tiers::check_capacity_is_free(&all_fast, &arguments.designs, |key| {
            format!("--set {key} is what advise searches; leave it out")
        })?;
        let policies = arguments.policies.iter().map(String::as_str);
        arguments.designs.check_names(policies.chain([tiers::ALL_FAST]))?;
        let prices = arguments.price.of(&all_fast.design.design)?;
        let question = Question { arguments, settings, prices, all_fast, fastest };
        for policy in &arguments.policies {
            question.job(policy, 1.0, Bytes::gib(1), 1)?;
        }
        Ok(question)
    }

    /// `policy` with a share of fast memory; a policy that takes a tolerated slowdown gets the user's.
    fn job(&self, policy: &str, share: f64, resident: Bytes, seed: u64) -> Result<Job, Failure> {
        let mut options = self.arguments.designs.clone();
        if let Ok(entry) = terrace_policy::find(policy) {
            let key = "os.policy.slowdown".to_owned();
            let takes_one = entry.parameters().iter().any(|parameter| parameter.name == "slowdown");
            if takes_one && !options.sets_of(policy).iter().any(|set| set.key == key) {
                options.sets.push(Setting::of_all(key, format!("{:?}", self.arguments.slowdown)));
            }
            let runs_as_policy =
                options.resolve(policy, Some(study::MACHINE))?.design.design.os.policy.is_some();
            if seed != 1 && runs_as_policy {
                options.sets.push(Setting::of_all("os.policy.seed", seed.to_string()));
            }
        }
        let scale = self.arguments.simulation.scale;
        tiers::with_share(policy, share, resident, &options, Some(study::MACHINE), scale)
    }

    fn answer(&self, input: &Input, live: bool) -> Result<Document, Failure> {
        let (arguments, settings) = (self.arguments, self.settings);
        let why = "advise runs its input many times";
        let bench = Bench { input, settings, prices: &self.prices, why };
        let resident = tiers::resident(&self.all_fast, input, why, settings)?;
        let (all_fast, searches) = self.search(&bench, resident)?;

        let policies: Vec<PolicyAnswer> =
            searches.iter().map(|search| self.policy_answer(search, resident, &all_fast)).collect();
        let best = best(&searches, &policies);
        let seeds = match &best {
            Some((search, at, trial)) => {
                self.seeds(&bench, &search.policy, self.share(*at), resident, trial)?
            }
            None => Vec::new(),
        };
        let advice = best.map(|(search, at, trial)| self.advice(&search.policy, at, trial, resident));
        let command = advice.as_ref().filter(|_| !live).map(|advice| self.command(advice, input));
        let remarks = self.remarks(&policies, advice.as_ref(), &seeds, &all_fast, input, live);
        Ok(Document {
            input: input.name.clone(),
            machine: self.all_fast.design.design.machine.clone(),
            accesses: all_fast.accesses,
            resident_bytes: resident.0,
            scale: arguments.simulation.scale,
            tolerated_slowdown: arguments.slowdown,
            prices: self
                .prices
                .iter()
                .map(|(tier, price)| Price { tier: tier.clone(), price: *price })
                .collect(),
            seconds_simulated: all_fast.seconds_simulated,
            advice,
            policies,
            uncertainty: Uncertainty { resolution: arguments.resolution, seeds, remarks },
            command,
        })
    }

    fn steps(&self) -> usize {
        (1.0 / self.arguments.resolution).ceil() as usize
    }

    fn share(&self, steps: usize) -> f64 {
        (steps as f64 * self.arguments.resolution).min(1.0)
    }

    /// The all-fast run, and for each policy the fewest steps of fast memory that are enough. All policies take a step
    /// at the same time, so that the input is read once per step.
    fn search(&self, bench: &Bench<'_>, resident: Bytes) -> Result<(RunRecord, Vec<Search>), Failure> {
        let tolerated = self.arguments.slowdown;
        let mut searches: Vec<Search> = Vec::new();
        for policy in &self.arguments.policies {
            if !searches.iter().any(|search| search.policy == *policy) {
                let policy = policy.clone();
                searches.push(Search { policy, too_few: 0, enough: None, over: None, refused: None });
            }
        }
        let first = bench.run("all fast", vec![self.all_fast.clone()])?.remove(0);
        let all_fast =
            first.map_err(|reason| Failure::run(format!("everything in {}: {reason}", self.fastest)))?;
        for step in 1.. {
            let trying: Vec<(usize, usize)> = searches
                .iter()
                .enumerate()
                .filter_map(|(at, search)| Some((at, search.next(self.steps())?)))
                .collect();
            if trying.is_empty() {
                break;
            }
            tracing::info!(policies = trying.len(), "a step of the search");
            let jobs = trying
                .iter()
                .map(|(at, steps)| self.job(&searches[*at].policy, self.share(*steps), resident, 1))
                .collect::<Result<_, _>>()?;
            for ((at, steps), outcome) in trying.into_iter().zip(bench.run(&format!("step {step}"), jobs)?) {
                searches[at].learn(steps, outcome.map(|record| bench.judge(record, &all_fast)), tolerated);
            }
        }
        Ok((all_fast, searches))
    }

    /// The recommended run under other seeds, each against an all-fast run of its own input.
    fn seeds(
        &self,
        bench: &Bench<'_>,
        policy: &str,
        share: f64,
        resident: Bytes,
        found: &Trial,
    ) -> Result<Vec<Seed>, Failure> {
        let base = found.record.seed.unwrap_or(1);
        let mut seeds = vec![Seed { seed: base, slowdown: found.slowdown() }];
        let job = self.job(policy, share, resident, 2)?;
        let seeded_policy = job.design.design.os.policy.is_some();
        for number in 1..self.arguments.seeds {
            let seed = base.wrapping_add(number);
            let reseeded = bench.input.reseeded(seed);
            if reseeded.is_none() && !seeded_policy {
                break;
            }
            let input = reseeded.as_ref().unwrap_or(bench.input);
            let jobs = vec![self.all_fast.clone(), self.job(policy, share, resident, number + 1)?];
            let mut runs = Bench { input, ..*bench }.run(&format!("seed {seed}"), jobs)?.into_iter();
            if let (Some(Ok(all_fast)), Some(Ok(record))) = (runs.next(), runs.next()) {
                seeds.push(Seed { seed, slowdown: bench.judge(record, &all_fast).slowdown() });
            }
        }
        Ok(seeds)
    }

    fn advice(&self, policy: &str, steps: usize, trial: &Trial, resident: Bytes) -> Advice {
        let share = self.share(steps);
        let slow_share = trial.slow_share();
        Advice {
            policy: policy.to_owned(),
            fast_capacity_share: share,
            fast_capacity_bytes: (resident.0 as f64 * share) as u64,
            slow_share,
            slow_bytes: trial.tiering.tiers[1..].iter().map(|tier| tier.mean_bytes).sum(),
            slowdown: trial.slowdown(),
            cost: trial.tiering.cost,
            saving: trial.tiering.cost.map(|cost| 1.0 - cost),
        }
    }

    fn policy_answer(&self, search: &Search, resident: Bytes, all_fast: &RunRecord) -> PolicyAnswer {
        let job = self.job(&search.policy, 1.0, resident, 1).ok();
        let period = job.and_then(|job| run::longest_period(&job.design.design, self.settings));
        let enough = search.enough.as_ref();
        // Of the all-fast run: a policy that is slow must not look better tested.
        let seconds = all_fast.seconds_simulated;
        PolicyAnswer {
            policy: search.policy.clone(),
            answer: enough.map(|(at, trial)| self.advice(&search.policy, *at, trial, resident)),
            too_small_share: self.share(search.too_few),
            too_small_slowdown: search.over,
            copied_bytes: enough.and_then(|(_, trial)| Some(trial.tiering.policy?.copied_bytes)),
            period_seconds: period,
            periods: period.map(|period| seconds / period),
            refused: search.refused.clone(),
        }
    }

    fn command(&self, advice: &Advice, input: &Input) -> String {
        let mut words: Vec<String> =
            ["terrace", "compare", "--policies", &advice.policy, "--fast"].map(str::to_owned).into();
        words.push(percent(advice.fast_capacity_share));
        let mut options = self.arguments.designs.clone();
        options.machine.get_or_insert_with(|| study::MACHINE.to_owned());
        words.extend(options.to_words());
        for (tier, price) in &self.prices {
            words.extend(["--price".to_owned(), format!("{tier}={price}")]);
        }
        words.extend(self.arguments.simulation.to_words());
        words.extend(input.words());
        output::shell_join(words)
    }

    /// What is known to be uncertain, most serious first.
    fn remarks(
        &self,
        policies: &[PolicyAnswer],
        advice: Option<&Advice>,
        seeds: &[Seed],
        all_fast: &RunRecord,
        input: &Input,
        live: bool,
    ) -> Vec<String> {
        let mut remarks = Vec::new();
        let short: Vec<&PolicyAnswer> =
            policies.iter().filter(|policy| policy.periods.is_some_and(|n| n < FEW_PERIODS)).collect();
        if let Some(fewest) = short.iter().filter_map(|policy| policy.periods).min_by(f64::total_cmp) {
            let names: Vec<&str> = short.iter().map(|policy| policy.policy.as_str()).collect();
            let hasten = u64::from(self.arguments.designs.hasten) * run::hasten_by(fewest);
            remarks.push(format!(
                "Too short: {} are simulated, fewer than {FEW_PERIODS} periods of {}. That says nothing of them in the \
                 long run; record more, or try --hasten {hasten}.",
                progress::time(all_fast.seconds_simulated),
                names.join(", "),
            ));
        }
        if let Some(advice) = advice {
            let below = policies.iter().find(|policy| policy.policy == advice.policy);
            remarks.push(match below.and_then(|policy| Some((policy.too_small_share, policy.too_small_slowdown?))) {
                Some((share, slowdown)) => format!(
                    "Search: in steps of {}; {} with {} of the memory fast is {} slower. More fast memory is taken never \
                     to be slower.",
                    percent(self.arguments.resolution),
                    advice.policy,
                    percent(share),
                    progress::tenth(slowdown),
                ),
                None => format!("Search: {} was the least that was tried.", percent(self.arguments.resolution)),
            });
            let worst = seeds.iter().map(|seed| seed.slowdown).fold(f64::NEG_INFINITY, f64::max);
            let least = seeds.iter().map(|seed| seed.slowdown).fold(f64::INFINITY, f64::min);
            let whose = if input.reseeded(1).is_some() { "workload and policy" } else { "the policy" };
            if seeds.len() > 1 {
                let over = seeds.iter().filter(|seed| seed.slowdown > self.arguments.slowdown).count();
                let consequence = match over {
                    0 => String::new(),
                    n => format!(" {n} of them are over what is tolerated: take a step more fast memory."),
                };
                remarks.push(format!(
                    "Seeds: {} to {} slower over {} seeds of {whose}.{consequence}",
                    progress::tenth(least),
                    progress::tenth(worst),
                    seeds.len()
                ));
            }
            if input.reseeded(1).is_none() {
                let recorded = if live { "one recording" } else { "one trace" };
                remarks.push(format!(
                    "Input: {recorded}; another run of the program may differ, and is not in this."
                ));
            }
        }
        if let Some(hasten) = Some(self.arguments.designs.hasten).filter(|hasten| *hasten > 1) {
            remarks.push(format!(
                "Hastened: the policies' periods are divided by {hasten}, so the run stands for one {hasten} times as long, \
                 and what they do per period weighs {hasten} times as much."
            ));
        }
        if all_fast.scale > 1 {
            remarks.push(format!(
                "Scaled: capacities, TLB reach and periods are divided by {}.",
                all_fast.scale
            ));
        }
        remarks
    }
}

/// Expenses closer than this are no reason to prefer one policy.
const SAME_EXPENSE: f64 = 0.01;

/// The policy that needs least; among those that need about as little, one that the run is long enough to judge, and
/// then the one that was named first.
fn best<'s>(searches: &'s [Search], answers: &[PolicyAnswer]) -> Option<(&'s Search, usize, &'s Trial)> {
    let found: Vec<_> = searches
        .iter()
        .zip(answers)
        .filter_map(|(search, answer)| {
            let (at, trial) = search.enough.as_ref()?;
            let is_untried = answer.periods.is_some_and(|periods| periods < FEW_PERIODS);
            Some((is_untried, (search, *at, trial)))
        })
        .collect();
    let least = found.iter().map(|(_, (_, _, trial))| trial.expense()).min_by(f64::total_cmp)?;
    found
        .into_iter()
        .filter(|(_, (_, _, trial))| trial.expense() <= least + SAME_EXPENSE)
        // The first of equals.
        .min_by_key(|(is_untried, _)| *is_untried)
        .map(|(_, best)| best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_report::{TierUse, Tiering};

    fn trial(slowdown: f64) -> Trial {
        let tier = |name: &str, share| TierUse { name: name.to_owned(), mean_bytes: 0.0, share };
        let tiering = Tiering {
            slowdown: Some(slowdown),
            tiers: vec![tier("fast", 0.5), tier("slow", 0.5)],
            cost: None,
            is_pareto: false,
            is_pareto_by_cost: false,
            policy: None,
        };
        Trial { record: RunRecord::default(), tiering }
    }

    fn search(slowdown_at: impl Fn(usize) -> f64, steps: usize) -> (Search, usize) {
        let mut search =
            Search { policy: String::new(), too_few: 0, enough: None, over: None, refused: None };
        let mut tried = 0;
        while let Some(at) = search.next(steps) {
            search.learn(at, Ok(trial(slowdown_at(at))), 0.03);
            tried += 1;
        }
        (search, tried)
    }

    #[test]
    fn the_search_finds_the_first_step_that_is_enough() {
        for enough in 1..=20 {
            let (found, tried) = search(|at| if at >= enough { 0.01 } else { 0.09 }, 20);
            assert_eq!(found.enough.map(|(at, _)| at), Some(enough));
            assert_eq!(found.too_few, enough - 1);
            assert!(tried <= 5, "{tried} runs for {enough}");
        }
        let (never, _) = search(|_| 0.09, 20);
        assert!(never.enough.is_none() && never.too_few == 20);
    }

    #[test]
    fn a_policy_that_refuses_is_asked_once() {
        let mut search =
            Search { policy: String::new(), too_few: 0, enough: None, over: None, refused: None };
        let at = search.next(20).unwrap();
        search.learn(at, Err("no cache".to_owned()), 0.03);
        assert_eq!(search.next(20), None);
    }
}
