//! `terrace tune`: a policy's parameters, searched on an input.
//!
//! The optimiser is a tree-structured Parzen estimator (Bergstra et al., NIPS 2011; crate `tpe`), the method that such
//! searches with few, expensive and noisy trials over mixed parameters mostly use. One estimator per parameter.

mod answer;
mod optimiser;
mod remarks;
mod space;

use self::answer::{Check, Document, Outcome, ParameterAnswer, Sensitivity, text};
use crate::bench::{Bench, Trial};
use crate::commands::record;
use crate::error::{Blame, CommandResult, Failure};
use crate::input::{self, Input};
use crate::interrupt::Interrupt;
use crate::options::{
    self, DesignOptions, InputOptions, Job, JsonOption, Level, RecordingOptions, SimulationOptions,
};
use crate::progress::tenth;
use crate::run::Settings;
use crate::tiers::{self, PriceOption};
use crate::{output, study};
use clap::Args;
use space::Space;
use std::path::Path;
use terrace_model::Bytes;
use terrace_report::RunRecord;

const EXAMPLES: &str = "\
Examples:
  terrace tune ambix --trace app.trace --hasten 100
  terrace tune tpp --fast 25% --runs 100 --workload kv,requests=1e6 \\
      --check kv,requests=1e6,skew=0.8 --check other.trace
  terrace tune hemem --parameter period,hot_reads --workload bfs
  terrace tune ambix --range period=\"1 ms..100 ms\" --workload kv
  terrace tune memtis --slowdown 5% --price slow=0.33 --trace app.trace

Take over the result with the --set options of its last line.";

/// Search a policy's parameters on an input
///
/// Tries settings of the policy's numbers, times and switches, guided by an
/// optimiser (a tree-structured Parzen estimator); beginning with the values in
/// force. Reports the gain, how much each parameter matters around the best
/// setting, and how that setting does on inputs it was not tuned on: those of
/// --check, else a built-in workload under other seeds.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// A name of `terrace policy list`
    #[arg(value_name = "POLICY")]
    policy: String,

    /// Parameters to search, separated by commas. By default all numbers,
    /// times, amounts and switches
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Search")]
    parameter: Vec<String>,

    /// Bounds of a parameter. By default an eighth to eight times the value in
    /// force; shares stay below 1. Repeatable
    #[arg(long, value_name = "NAME=LOW..HIGH", value_parser = parse_range, help_heading = "Search")]
    range: Vec<(String, String, String)>,

    /// Settings to try; those for the sensitivity and the checks come on top
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "Search")]
    runs: u32,

    /// Seed of the search; the same seed tries the same settings
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Search")]
    seed: u64,

    /// Minimize the price of the memory in use (without --price: fast memory)
    /// among settings within this slowdown, instead of the run time
    #[arg(long, value_name = "SHARE", value_parser = tiers::parse_share, help_heading = "Search")]
    slowdown: Option<f64>,

    /// Input that the setting is not tuned on but tried on: a trace, or a
    /// workload with its parameters. Repeatable
    #[arg(long, value_name = "FILE|NAME[,KEY=VALUE…]", help_heading = "Input")]
    check: Vec<String>,

    /// Make the fastest tier this share of what the input has resident
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = tiers::parse_fast_share, help_heading = "Design")]
    fast: f64,

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

/// `period=1 ms..100 ms`.
fn parse_range(text: &str) -> Result<(String, String, String), String> {
    let parts = || {
        let (name, range) = text.split_once('=')?;
        let (low, high) = range.split_once("..")?;
        Some((name.trim().to_owned(), low.trim().to_owned(), high.trim().to_owned()))
    };
    parts().ok_or_else(|| format!("\"{text}\" is not NAME=LOW..HIGH, such as period=\"1 ms..100 ms\""))
}

/// Settings tried at the same time, whatever the machine: the search is the same on any.
const AT_ONCE: usize = 4;
/// A change of the objective that is none.
const NO_MATTER: f64 = 0.002;
/// Other seeds of a workload that stand in for inputs to check on.
const CHECK_SEEDS: u64 = 2;

/// Carries out the search.
pub fn run(arguments: Arguments) -> CommandResult {
    let settings = Settings { simulation: &arguments.simulation, interrupt: Interrupt::install() };
    let tuning = Tuning::new(&arguments, &settings)?;
    let given =
        input::prepare_one(&arguments.input, &arguments.recording, "tune", "--check takes the others")?;
    let mut checks = Vec::new();
    for word in &arguments.check {
        let path = Path::new(word);
        let input = if path.exists() {
            input::prepare_trace(path, arguments.input.salvage)
        } else {
            input::prepare_workload(word)
        };
        checks.push((word.clone(), input?));
    }
    let folder = tempfile::tempdir()?;
    let input =
        if given.is_live() { record::once(given, folder.path(), &settings.interrupt)? } else { given };
    let document = tuning.search(&input, checks)?;
    if let Some(destination) = &arguments.json.json {
        output::write_json(destination, &document)?;
    }
    if !arguments.json.owns_stdout() {
        output::print(&text(&document))?;
    }
    Ok(())
}

/// A setting: a value per dimension.
type Setting = Vec<f64>;

struct Tuning<'a> {
    arguments: &'a Arguments,
    settings: &'a Settings<'a>,
    prices: Vec<(String, f64)>,
    all_fast: Job,
    space: Space,
}

/// What an input is measured against.
struct Ground<'a> {
    bench: Bench<'a>,
    resident: Bytes,
    all_fast: RunRecord,
}

impl<'a> Tuning<'a> {
    fn new(arguments: &'a Arguments, settings: &'a Settings<'a>) -> Result<Tuning<'a>, Failure> {
        if arguments.simulation.fidelity != Level::Full {
            return Err(Failure::usage("tune weighs run times, which only --fidelity full has"));
        }
        let entry = terrace_policy::find(&arguments.policy).or_usage()?;
        // As they are outside a hastened run, which divides what it is given.
        let undivided = DesignOptions { hasten: 1, ..arguments.designs.clone() };
        let job = undivided.resolve(&arguments.policy, Some(study::MACHINE))?;
        let values = match &job.design.design.os.policy {
            Some(policy) => policy.parameters.clone(),
            None => return Err(Failure::usage(format!("{} has no parameters to search", entry.name()))),
        };
        let order: Vec<String> = entry.parameters().into_iter().map(|parameter| parameter.name).collect();
        let space = Space::new(entry.name(), &values, &order, &arguments.parameter, &arguments.range)?;
        arguments.designs.check_names([arguments.policy.as_str(), tiers::ALL_FAST])?;
        let all_fast = tiers::all_fast(&arguments.designs_without_policy(), Some(study::MACHINE))?;
        tiers::check_capacity_is_free(&all_fast, &arguments.designs, |key| {
            format!("--set {key} is what --fast sets; leave it out")
        })?;
        let prices = arguments.price.of(&all_fast.design.design)?;
        Ok(Tuning { arguments, settings, prices, all_fast, space })
    }

    /// The options that set `setting`, as far as it differs from the values in force.
    fn sets(&self, setting: &Setting) -> Vec<options::Setting> {
        let values = self.space.dimensions.iter().zip(setting);
        let changed = values.filter(|(dimension, value)| dimension.default != **value);
        changed
            .map(|(dimension, value)| {
                options::Setting::of_all(format!("os.policy.{}", dimension.name), dimension.text(*value))
            })
            .collect()
    }

    fn job(&self, setting: &Setting, resident: Bytes) -> Result<Job, Failure> {
        let mut options = self.arguments.designs.clone();
        options.sets.extend(self.sets(setting));
        let (policy, scale) = (&self.arguments.policy, self.arguments.simulation.scale);
        tiers::with_share(policy, self.arguments.fast, resident, &options, Some(study::MACHINE), scale)
    }

    fn ground<'b>(&'b self, input: &'b Input) -> Result<Ground<'b>, Failure> {
        let why = "tune runs its input many times";
        let bench = Bench { input, settings: self.settings, prices: &self.prices, why };
        let resident = tiers::resident(&self.all_fast, input, why, self.settings)?;
        let all_fast = bench.run("all fast", vec![self.all_fast.clone()])?.remove(0);
        let all_fast = all_fast.map_err(|reason| Failure::run(format!("everything fast: {reason}")))?;
        Ok(Ground { bench, resident, all_fast })
    }

    /// Settings side by side; a setting that the policy refuses has no trial.
    fn try_all(
        &self,
        ground: &Ground<'_>,
        doing: &str,
        tried: &[Setting],
    ) -> Result<Vec<Result<Trial, String>>, Failure> {
        let mut trials = Vec::new();
        for some in tried.chunks(AT_ONCE) {
            let jobs: Vec<Job> =
                some.iter().map(|setting| self.job(setting, ground.resident)).collect::<Result<_, _>>()?;
            let runs = ground.bench.run(doing, jobs)?;
            trials.extend(
                runs.into_iter().map(|run| run.map(|record| ground.bench.judge(record, &ground.all_fast))),
            );
        }
        Ok(trials)
    }

    /// What is minimized.
    fn objective(&self, trial: &Trial) -> f64 {
        let Some(tolerated) = self.arguments.slowdown else { return trial.record.seconds_simulated };
        let over = trial.slowdown() - tolerated;
        // Dearer than any setting within the bound, and the more the further away.
        let dearest = self.prices.iter().map(|(_, price)| *price).fold(1.0, f64::max);
        if over > 0.0 { dearest + over } else { trial.expense() }
    }

    fn search(&self, input: &Input, checks: Vec<(String, Input)>) -> Result<Document, Failure> {
        let ground = self.ground(input)?;
        let dimensions = &self.space.dimensions;
        let defaults: Setting = dimensions.iter().map(|dimension| dimension.default).collect();
        let default = self.try_all(&ground, "defaults", std::slice::from_ref(&defaults))?.remove(0);
        let default =
            default.map_err(|reason| Failure::run(format!("{}: {reason}", self.arguments.policy)))?;
        let (best_setting, best, refused) = self.optimise(&ground, &defaults, &default)?;
        let (best_setting, best) = self.simplify(&ground, &defaults, best_setting, best)?;
        let parameters = self.sensitivity(&ground, &defaults, &best_setting, &best)?;
        let checked = self.check(input, checks, &defaults, &best_setting)?;
        let scale = self.arguments.simulation.scale;
        let first_touch = tiers::with_share(
            "first-touch",
            self.arguments.fast,
            ground.resident,
            &self.arguments.designs_without_policy(),
            Some(study::MACHINE),
            scale,
        )?;
        let first_touch = ground.bench.run("first touch", vec![first_touch])?.remove(0).ok();
        let first_touch = first_touch.map(|record| ground.bench.judge(record, &ground.all_fast).slowdown());
        let (before, after) = (self.objective(&default), self.objective(&best));
        let gain = 1.0 - after / before;
        let mut remarks = self.remarks(&best_setting, &best, gain, &parameters, &checked, &ground);
        // With a goal other than run time the two are not to be compared by their slowdown.
        let in_time = self.arguments.slowdown.is_none();
        if in_time && first_touch.is_some_and(|still| still <= best.slowdown() + NO_MATTER) {
            remarks.insert(
                0,
                "It does not pay: first-touch, which moves nothing, is as fast or faster here.".to_owned(),
            );
        }
        Ok(Document {
            policy: self.arguments.policy.clone(),
            input: input.name.clone(),
            machine: self.all_fast.design.design.machine.clone(),
            fast_share: self.arguments.fast,
            resident_bytes: ground.resident.0,
            objective: self.objective_name(),
            runs: self.arguments.runs,
            seed: self.arguments.seed,
            refused,
            remarks,
            default: result(&default, before),
            tuned: result(&best, after),
            gain,
            first_touch_slowdown: first_touch,
            parameters,
            not_searched: self.space.left_out.clone(),
            checks: checked,
            command: output::shell_join(
                self.sets(&best_setting).iter().flat_map(|setting| ["--set".to_owned(), setting.to_string()]),
            ),
        })
    }

    fn objective_name(&self) -> String {
        match self.arguments.slowdown {
            None => "run time".to_owned(),
            Some(slowdown) => {
                let what =
                    if self.prices.is_empty() { "fast memory in use" } else { "price of the memory in use" };
                format!("{what}, at most {} slower,", tenth(slowdown))
            }
        }
    }

    /// One parameter at a time around the best setting.
    fn sensitivity(
        &self,
        ground: &Ground<'_>,
        defaults: &Setting,
        best_setting: &Setting,
        best: &Trial,
    ) -> Result<Vec<ParameterAnswer>, Failure> {
        let dimensions = &self.space.dimensions;
        let mut beside: Vec<(usize, f64)> = Vec::new();
        for (at, dimension) in dimensions.iter().enumerate() {
            beside.extend(dimension.neighbours(best_setting[at]).into_iter().map(|value| (at, value)));
        }
        let tried: Vec<Setting> = beside
            .iter()
            .map(|(at, value)| {
                let mut setting = best_setting.clone();
                setting[*at] = *value;
                setting
            })
            .collect();
        let trials = self.try_all(ground, "sensitivity", &tried)?;
        let from = self.objective(best);
        let mut answers: Vec<ParameterAnswer> = dimensions
            .iter()
            .enumerate()
            .map(|(at, dimension)| ParameterAnswer {
                name: dimension.name.clone(),
                low: dimension.text(dimension.low),
                high: dimension.text(dimension.high),
                default: dimension.shown(defaults[at]),
                tuned: dimension.shown(best_setting[at]),
                sensitivity: Vec::new(),
            })
            .collect();
        for ((at, value), trial) in beside.into_iter().zip(trials) {
            let change = trial.ok().map(|trial| self.objective(&trial) / from - 1.0);
            answers[at].sensitivity.push(Sensitivity { value: dimensions[at].text(value), change });
        }
        // What matters most first.
        let most = |answer: &ParameterAnswer| {
            answer.sensitivity.iter().filter_map(|one| one.change).map(f64::abs).fold(0.0, f64::max)
        };
        answers.sort_by(|a, b| most(b).total_cmp(&most(a)));
        Ok(answers)
    }

    /// The setting on inputs that it was not tuned on.
    fn check(
        &self,
        input: &Input,
        mut checks: Vec<(String, Input)>,
        defaults: &Setting,
        best: &Setting,
    ) -> Result<Vec<Check>, Failure> {
        if checks.is_empty() {
            let base = self.seed_of(input)?;
            let seeds = (1..=CHECK_SEEDS).map(|more| base.wrapping_add(more));
            checks = seeds
                .filter_map(|seed| Some((format!("{}, seed {seed}", input.name), input.reseeded(seed)?)))
                .collect();
        }
        let mut answers = Vec::new();
        for (name, input) in checks {
            let ground = self.ground(&input)?;
            let mut trials = self.try_all(&ground, "check", &[defaults.clone(), best.clone()])?.into_iter();
            let (Some(default), Some(tuned)) = (trials.next(), trials.next()) else { continue };
            let failed = |reason| Failure::run(format!("{name}: {reason}"));
            let (default, tuned) = (default.map_err(failed)?, tuned.map_err(failed)?);
            answers.push(Check {
                default_slowdown: default.slowdown(),
                tuned_slowdown: tuned.slowdown(),
                gain: 1.0 - self.objective(&tuned) / self.objective(&default),
                input: name,
            });
        }
        Ok(answers)
    }

    fn seed_of(&self, input: &Input) -> Result<u64, Failure> {
        let (source, _) = input.again("tune runs its input many times")?.open(&self.settings.interrupt)?;
        Ok(source.header().seed.unwrap_or(1))
    }
}

impl Arguments {
    /// For designs without the policy, which its parameters do not fit.
    fn designs_without_policy(&self) -> DesignOptions {
        let mut designs = self.designs.clone();
        designs.sets.retain(|set| !set.key.starts_with("os.policy."));
        designs
    }
}

fn result(trial: &Trial, objective: f64) -> Outcome {
    Outcome {
        objective,
        seconds_simulated: trial.record.seconds_simulated,
        slowdown: trial.slowdown(),
        slow_share: trial.slow_share(),
        cost: trial.tiering.cost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        let (name, low, high) = parse_range("period=1 ms..100 ms").unwrap();
        assert_eq!((name.as_str(), low.as_str(), high.as_str()), ("period", "1 ms", "100 ms"));
        assert!(parse_range("period=1 ms").unwrap_err().contains("LOW..HIGH"));
    }
}
