//! A policy's parameters, searched on an input.
//!
//! The optimiser is a tree-structured Parzen estimator (Bergstra et al., NIPS 2011; crate `tpe`), the method that such
//! searches with few, expensive and noisy trials over mixed parameters mostly use. One estimator per parameter.

mod optimiser;
mod remarks;
mod result;
mod space;
mod text;

pub use result::{CheckResult, Sensitivity, Tuned, TunedParameter, TunedRun};

use crate::bench::{Bench, Trial};
use crate::defaults;
use crate::designs::{self, Changes, Job};
use crate::figures::tenth;
use crate::input::Input;
use crate::run;
use crate::simulation::{Settings, Simulation, Trained};
use crate::tiers::Prices;
use crate::words::shell_join;
use crate::{Error, Progress, first_pass, hypervisor, intervals, record, tiers};
use space::Space;
use terrace_model::Bytes;
use terrace_report::{RunRecord, SpeedUp, Uncertainty};
use terrace_sim::Fidelity;

/// The search of a policy's parameters.
///
/// Tries settings of the policy's numbers, times and switches, guided by an optimiser, beginning with the values in
/// force. Says the gain, how much each parameter matters around the best setting, and how that setting does on inputs
/// it was not tuned on.
#[derive(Clone, Debug)]
pub struct Tune {
    /// The policy's name.
    pub policy: String,
    /// Machine and changed parameters.
    pub changes: Changes,
    /// How closely to simulate; run times need [`Fidelity::Full`].
    pub simulation: Simulation,
    /// Parameters to search; empty: all numbers, times, amounts and switches.
    pub parameters: Vec<String>,
    /// Bounds of parameters: name, low, high. Without, an eighth to eight times the value in force.
    pub ranges: Vec<(String, String, String)>,
    /// Settings to try; those for the sensitivity and the checks come on top.
    pub runs: u32,
    /// Seed of the search; the same seed tries the same settings.
    pub seed: u64,
    /// Minimize the price of the memory in use (without prices: fast memory) among settings within this slowdown,
    /// instead of the run time.
    pub slowdown: Option<f64>,
    /// Size of the fastest tier, as a share of what the input has resident.
    pub fast: f64,
    /// Prices of tiers where the fastest tier's is 1; `slow` stands for every other tier.
    pub prices: Prices,
    /// What another run found out about data structures, for policies that place by it.
    pub hints: Option<Trained>,
}

impl Tune {
    /// The search of `policy` with 40 settings and half of the memory fast.
    pub fn new(policy: impl Into<String>) -> Tune {
        Tune {
            policy: policy.into(),
            changes: Changes::default(),
            simulation: Simulation::default(),
            parameters: Vec::new(),
            ranges: Vec::new(),
            runs: 40,
            seed: 1,
            slowdown: None,
            fast: 0.5,
            prices: Vec::new(),
            hints: None,
        }
    }

    /// Checks all of the search that can be wrong before there is an input.
    ///
    /// # Errors
    /// What does not exist or contradicts itself.
    pub fn check(&self) -> Result<(), Error> {
        self.under_hypervisor()?.checked().map(|_| ())
    }

    /// The search on a machine that is a guest, where the policy can be in one.
    fn under_hypervisor(&self) -> Result<Tune, Error> {
        let words = [self.policy.as_str(), "first-touch", tiers::ALL_FAST];
        let (machine, fidelity) = (Some(defaults::MACHINE), self.simulation.fidelity);
        let without = self.changes_without_policy();
        let known = without.sets.len();
        let entered = hypervisor::under_with_resized_tiers(&without, words, machine, fidelity)?;
        let mut changes = self.changes.clone();
        changes.sets.extend(entered.sets.into_iter().skip(known));
        Ok(Tune { changes, ..self.clone() })
    }

    /// Searches on `input`, then tries the best setting on `others`: names and inputs. Where there are none, a built-in
    /// workload stands in for them under other seeds. A program to record runs once, into a temporary file.
    ///
    /// # Errors
    /// A search that is wrong, an input that fails, a caller who stopped.
    pub fn run(
        &self,
        input: Input,
        others: Vec<(String, Input)>,
        progress: &dyn Progress,
    ) -> Result<Tuned, Error> {
        let asked = &self.under_hypervisor()?;
        let (space, all_fast, prices) = asked.checked()?;
        let folder = tempfile::tempdir().map_err(Error::Folder)?;
        let (input, trouble) = record::once(input, folder.path(), progress)?;
        let settings = Settings { hints: self.hints.clone(), ..Settings::new(self.simulation, progress) };
        let tuning = Tuning { asked, settings: &settings, prices, all_fast, space };
        Ok(Tuned { trouble, ..tuning.search(&input, others)? })
    }

    fn checked(&self) -> Result<(Space, Job, Prices), Error> {
        if self.simulation.fidelity != Fidelity::Full {
            return Err(Error::request("tune weighs run times, which only --fidelity full has"));
        }
        let entry = terrace_policy::find(&self.policy)?;
        // As they are outside a run with a time scale, which divides what it is given.
        let undivided = Changes { time_scale: 1, ..self.changes.clone() };
        let job = undivided.resolve(&self.policy, Some(defaults::MACHINE))?;
        first_pass::check(std::iter::once(&job.design), &[], self.hints.as_ref())?;
        let values = match &job.design.design.os.policy {
            Some(policy) => policy.parameters.clone(),
            None => return Err(Error::request(format!("{} has no parameters to search", entry.name()))),
        };
        let declared = entry.parameters();
        let space = Space::new(entry.name(), &values, &declared, &self.parameters, &self.ranges)?;
        self.changes.check_names([self.policy.as_str(), tiers::ALL_FAST])?;
        let all_fast = tiers::all_fast(&self.changes_without_policy(), Some(defaults::MACHINE))?;
        tiers::check_no_gpu("tune", &all_fast.design.design)?;
        tiers::check_capacity_is_free(&all_fast, &self.changes, |key| {
            format!("--set {key} is what --fast sets; leave it out")
        })?;
        let prices = tiers::prices_of(&self.prices, &all_fast.design.design)?;
        Ok((space, all_fast, prices))
    }

    /// For designs without the policy, which its parameters do not fit.
    fn changes_without_policy(&self) -> Changes {
        let mut changes = self.changes.clone();
        changes.sets.retain(|set| !set.key.starts_with("os.policy."));
        changes
    }
}

/// Settings tried at the same time, whatever the machine: the search is the same on any.
const AT_ONCE: usize = 4;
/// A change of the objective that is none.
const NO_MATTER: f64 = 0.002;
/// Steps of one parameter alone that are taken from the best setting of the search.
const MOST_MOVES: usize = 8;
/// Other seeds of a workload that stand in for inputs to check on.
const CHECK_SEEDS: u64 = 2;

/// A setting: a value per dimension.
type Setting = Vec<f64>;

/// A setting that is better than another one, where there is one, with its run.
type Better = Option<(Setting, Trial)>;

/// The search, checked.
struct Tuning<'a> {
    asked: &'a Tune,
    settings: &'a Settings<'a>,
    prices: Prices,
    all_fast: Job,
    space: Space,
}

/// What an input is measured against.
struct Ground<'a> {
    bench: Bench<'a>,
    resident: Bytes,
    all_fast: RunRecord,
}

impl Tuning<'_> {
    /// The options that set `setting`, as far as it differs from the values in force.
    fn sets(&self, setting: &Setting) -> Vec<designs::Setting> {
        let values = self.space.dimensions.iter().zip(setting);
        let changed = values.filter(|(dimension, value)| dimension.default != **value);
        changed
            .map(|(dimension, value)| {
                designs::Setting::of_all(format!("os.policy.{}", dimension.name), dimension.text(*value))
            })
            .collect()
    }

    fn job(&self, setting: &Setting, resident: Bytes) -> Result<Job, Error> {
        let mut options = self.asked.changes.clone();
        options.sets.extend(self.sets(setting));
        let (policy, scale) = (&self.asked.policy, self.asked.simulation.scale);
        tiers::with_share(policy, self.asked.fast, resident, &options, Some(defaults::MACHINE), scale)
    }

    fn ground<'b>(&'b self, input: &'b Input) -> Result<Ground<'b>, Error> {
        let why = "tune runs its input many times";
        let bench = Bench { input, settings: self.settings, prices: &self.prices, why };
        let resident = tiers::resident(&self.all_fast, input, why, self.settings)?;
        let all_fast = bench.run("all fast", vec![self.all_fast.clone()])?.remove(0);
        let all_fast = all_fast.map_err(|reason| Error::failed(format!("everything fast: {reason}")))?;
        Ok(Ground { bench, resident, all_fast })
    }

    /// Settings side by side; a setting that the policy refuses has no trial.
    fn try_all(
        &self,
        ground: &Ground<'_>,
        doing: &str,
        tried: &[Setting],
    ) -> Result<Vec<Result<Trial, String>>, Error> {
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
        let Some(tolerated) = self.asked.slowdown else { return trial.record.seconds_simulated };
        let over = trial.slowdown() - tolerated;
        // Dearer than any setting within the bound, and the more the further away.
        let dearest = self.prices.iter().map(|(_, price)| *price).fold(1.0, f64::max);
        if over > 0.0 { dearest + over } else { trial.expense() }
    }

    fn search(&self, input: &Input, checks: Vec<(String, Input)>) -> Result<Tuned, Error> {
        let ground = self.ground(input)?;
        let dimensions = &self.space.dimensions;
        let defaults: Setting = dimensions.iter().map(|dimension| dimension.default).collect();
        let default = self.try_all(&ground, "defaults", std::slice::from_ref(&defaults))?.remove(0);
        let default = default.map_err(|reason| Error::failed(format!("{}: {reason}", self.asked.policy)))?;
        let (best_setting, best, refused) = self.optimise(&ground, &defaults, &default)?;
        let (best_setting, best) = self.simplify(&ground, &defaults, best_setting, best)?;
        let (best_setting, best, parameters) = self.settle(&ground, &defaults, best_setting, best)?;
        let checked = self.check(input, checks, &defaults, &best_setting)?;
        let scale = self.asked.simulation.scale;
        let first_touch = tiers::with_share(
            "first-touch",
            self.asked.fast,
            ground.resident,
            &self.asked.changes_without_policy(),
            Some(defaults::MACHINE),
            scale,
        )?;
        let first_touch = ground.bench.run("first touch", vec![first_touch])?.remove(0).ok();
        let first_touch = first_touch.map(|record| ground.bench.judge(record, &ground.all_fast).slowdown());
        let (before, after) = (self.objective(&default), self.objective(&best));
        let gain = 1.0 - after / before;
        let spread = self.spread(&ground, [&defaults, &best_setting], [&default, &best])?;
        let mut remarks = self.remarks(&best_setting, &best, gain, &parameters, &checked, &ground);
        let mut is_recommended = true;
        if spread.is_some_and(|spread| spread.low <= 1.0) {
            is_recommended = false;
            remarks.insert(
                0,
                "No clear gain: assumed constants and seeds move the two settings by more than what parts them."
                    .to_owned(),
            );
        }
        // With a goal other than run time the two are not to be compared by their slowdown.
        let in_time = self.asked.slowdown.is_none();
        if in_time && first_touch.is_some_and(|still| still <= best.slowdown() + NO_MATTER) {
            is_recommended = false;
            remarks.insert(
                0,
                "It does not pay: first-touch, which moves nothing, is as fast or faster here.".to_owned(),
            );
        }
        Ok(Tuned {
            policy: self.asked.policy.clone(),
            input: input.name.clone(),
            machine: self.all_fast.design.design.machine.clone(),
            machine_tiers: run::tiers_of(
                &self
                    .asked
                    .changes_without_policy()
                    .resolve(tiers::ALL_FAST, Some(defaults::MACHINE))?
                    .design
                    .design,
            ),
            fast_share: self.asked.fast,
            resident_bytes: ground.resident.0,
            objective: self.objective_name(),
            runs: self.asked.runs,
            seed: self.asked.seed,
            refused,
            remarks,
            is_recommended,
            default: result(&default, before),
            tuned: result(&best, after),
            gain,
            gain_low: spread.map(|spread| 1.0 - 1.0 / spread.low),
            gain_high: spread.map(|spread| 1.0 - 1.0 / spread.high),
            first_touch_slowdown: first_touch,
            parameters,
            not_searched: self.space.left_out.clone(),
            checks: checked,
            command: shell_join(
                self.sets(&best_setting).iter().flat_map(|setting| ["--set".to_owned(), setting.to_string()]),
            ),
            trouble: None,
        })
    }

    fn objective_name(&self) -> String {
        match self.asked.slowdown {
            None => "run time".to_owned(),
            Some(slowdown) => {
                let what =
                    if self.prices.is_empty() { "fast memory in use" } else { "price of the memory in use" };
                format!("{what}, at most {} slower,", tenth(slowdown))
            }
        }
    }

    /// The best setting with what each parameter does around it. Where one of them alone is better, that is the best
    /// setting from there on.
    fn settle(
        &self,
        ground: &Ground<'_>,
        defaults: &Setting,
        mut best_setting: Setting,
        mut best: Trial,
    ) -> Result<(Setting, Trial, Vec<TunedParameter>), Error> {
        for _ in 0..MOST_MOVES {
            let (parameters, better) = self.sensitivity(ground, defaults, &best_setting, &best)?;
            match better {
                Some(better) => (best_setting, best) = better,
                None => return Ok((best_setting, best, parameters)),
            }
        }
        let (parameters, _) = self.sensitivity(ground, defaults, &best_setting, &best)?;
        Ok((best_setting, best, parameters))
    }

    /// One parameter at a time around the best setting, and the best of these where it is better by what matters.
    fn sensitivity(
        &self,
        ground: &Ground<'_>,
        defaults: &Setting,
        best_setting: &Setting,
        best: &Trial,
    ) -> Result<(Vec<TunedParameter>, Better), Error> {
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
        let mut answers: Vec<TunedParameter> = dimensions
            .iter()
            .enumerate()
            .map(|(at, dimension)| TunedParameter {
                name: dimension.name.clone(),
                low: dimension.text(dimension.low),
                high: dimension.text(dimension.high),
                default: dimension.shown(defaults[at]),
                tuned: dimension.shown(best_setting[at]),
                sensitivity: Vec::new(),
            })
            .collect();
        let mut better: Better = None;
        for (((at, value), trial), setting) in beside.into_iter().zip(trials).zip(tried) {
            let trial = trial.ok();
            let change = trial.as_ref().map(|trial| self.objective(trial) / from - 1.0);
            if let (Some(change), Some(trial)) = (change, trial) {
                let least =
                    better.as_ref().map_or(-NO_MATTER, |(_, least)| self.objective(least) / from - 1.0);
                if change < least {
                    better = Some((setting, trial));
                }
            }
            answers[at].sensitivity.push(Sensitivity { value: dimensions[at].text(value), change });
        }
        // What matters most first.
        let most = |answer: &TunedParameter| {
            answer.sensitivity.iter().filter_map(|one| one.change).map(f64::abs).fold(0.0, f64::max)
        };
        answers.sort_by(|a, b| most(b).total_cmp(&most(a)));
        Ok((answers, better))
    }

    /// The setting on inputs that it was not tuned on.
    fn check(
        &self,
        input: &Input,
        mut checks: Vec<(String, Input)>,
        defaults: &Setting,
        best: &Setting,
    ) -> Result<Vec<CheckResult>, Error> {
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
            let failed = |reason| Error::failed(format!("{name}: {reason}"));
            let (default, tuned) = (default.map_err(failed)?, tuned.map_err(failed)?);
            answers.push(CheckResult {
                default_slowdown: default.slowdown(),
                tuned_slowdown: tuned.slowdown(),
                gain: 1.0 - self.objective(&tuned) / self.objective(&default),
                input: name,
            });
        }
        Ok(answers)
    }

    /// How far the speed-up of the best setting over the defaults could be off; nothing where they are one, or where
    /// something else than time was minimized.
    fn spread(
        &self,
        ground: &Ground<'_>,
        settings: [&Setting; 2],
        plain: [&Trial; 2],
    ) -> Result<Option<SpeedUp>, Error> {
        if self.asked.slowdown.is_some() || settings[0] == settings[1] {
            return Ok(None);
        }
        let jobs = [self.job(settings[0], ground.resident)?, self.job(settings[1], ground.resident)?];
        let plain = plain.map(|trial| &trial.record);
        let Some(speedup) = plain[1].speedup_over(plain[0]) else { return Ok(None) };
        let constants = intervals::of_jobs(&ground.bench, jobs.each_ref(), &self.asked.changes, plain)?;
        let Some(constants) = constants else { return Ok(None) };
        let reseeded = jobs.map(|job| intervals::with_other_seed(&job).unwrap_or(job));
        let runs = ground.bench.run("another seed", reseeded.into())?;
        let [Ok(default), Ok(best)] = &runs[..] else { return Ok(None) };
        let seeds = best.speedup_over(default).map(|other| (other / speedup).ln().abs());
        Ok(Some(SpeedUp::new(speedup, Some(Uncertainty { seeds, ..constants }))))
    }

    fn seed_of(&self, input: &Input) -> Result<u64, Error> {
        let (source, _) = input.again("tune runs its input many times")?.open(self.settings)?;
        Ok(source.header().seed.unwrap_or(1))
    }
}

fn result(trial: &Trial, objective: f64) -> TunedRun {
    TunedRun {
        objective,
        seconds_simulated: trial.record.seconds_simulated,
        slowdown: trial.slowdown(),
        slow_share: trial.slow_share(),
        cost: trial.tiering.cost,
    }
}
