//! How much of a program's memory can be slow, under which policy, and what that saves.

mod remarks;
mod result;
mod search;
mod text;

pub use result::{MemoryAdvice, Placement, PolicyAdvice, Price, Seed, Uncertainty};

use self::search::Search;
use crate::bench::{Bench, Trial};
use crate::defaults;
use crate::designs::{Changes, Job, Setting};
use crate::figures::{percent, tenth};
use crate::input::Input;
use crate::periods::{self, FEW_PERIODS};
use crate::run;
use crate::simulation::{Settings, Simulation, Trained};
use crate::tiers::Prices;
use crate::words::shell_join;
use crate::{Error, Progress, first_pass, hypervisor, intervals, record, tiers};
use terrace_model::Bytes;
use terrace_report::{RunRecord, SpeedUp};
use terrace_sim::Fidelity;

/// The question how much of a program's memory can be slow.
///
/// Runs the input with everything in the fastest tier; then, for each policy, finds the smallest fastest tier with which
/// the run is no slower than tolerated. The share is searched by halving the interval: more fast memory is taken never
/// to be slower.
#[derive(Clone, Debug)]
pub struct Advise {
    /// Machine and changed parameters.
    pub changes: Changes,
    /// How closely to simulate; run times need [`Fidelity::Full`].
    pub simulation: Simulation,
    /// Policies to choose from.
    pub policies: Vec<String>,
    /// Tolerated slowdown against everything in the fastest tier, as a share.
    pub slowdown: f64,
    /// Step of the search, as a share of what the input has resident; 0.001 to 0.5.
    pub resolution: f64,
    /// Runs of the recommended policy with different seeds, of the policy and of a built-in workload.
    pub seeds: u64,
    /// Prices of tiers where the fastest tier's is 1; `slow` stands for every other tier.
    pub prices: Prices,
    /// What another run found out about data structures, for policies that place by it.
    pub hints: Option<Trained>,
    /// Whether the recommended slowdown gets an interval, from two more runs with constants at the ends of their spread.
    pub intervals: bool,
}

/// The policies to choose from where none are named.
pub const POLICIES: [&str; 8] =
    ["first-touch", "ambix", "nimble", "tpp", "hemem", "memtis", "colloid", "thermostat"];

impl Default for Advise {
    fn default() -> Advise {
        Advise {
            changes: Changes::default(),
            simulation: Simulation::default(),
            policies: POLICIES.map(str::to_owned).into(),
            slowdown: 0.03,
            resolution: 0.05,
            seeds: 3,
            prices: Vec::new(),
            hints: None,
            intervals: true,
        }
    }
}

impl Advise {
    /// Checks all of the question that can be wrong before there is an input.
    ///
    /// # Errors
    /// What does not exist or contradicts itself.
    pub fn check(&self) -> Result<(), Error> {
        self.under_hypervisor()?.checked().map(|_| ())
    }

    /// The question on a machine that is a guest, where all policies can be in one.
    fn under_hypervisor(&self) -> Result<Advise, Error> {
        let words = self.policies.iter().map(String::as_str).chain([tiers::ALL_FAST]);
        let (machine, fidelity) = (Some(defaults::MACHINE), self.simulation.fidelity);
        let changes = hypervisor::under_with_resized_tiers(&self.changes, words, machine, fidelity)?;
        Ok(Advise { changes, ..self.clone() })
    }

    /// Carries out the search on `input`. A program to record runs once, into a temporary file.
    ///
    /// # Errors
    /// A question that is wrong, an input that fails, a caller who stopped.
    pub fn run(&self, input: Input, progress: &dyn Progress) -> Result<MemoryAdvice, Error> {
        let asked = &self.under_hypervisor()?;
        let (all_fast, prices) = asked.checked()?;
        let folder = tempfile::tempdir().map_err(Error::Folder)?;
        let live = input.is_live();
        let (input, trouble) = record::once(input, folder.path(), progress)?;
        let settings = Settings { hints: self.hints.clone(), ..Settings::new(self.simulation, progress) };
        let fastest = all_fast.design.design.tiers[0].name.clone();
        let question = Question { asked, settings: &settings, prices, all_fast, fastest };
        Ok(MemoryAdvice { trouble, ..question.answer(&input, live)? })
    }

    /// The run with everything fast, and the prices of the other tiers.
    fn checked(&self) -> Result<(Job, Prices), Error> {
        if self.simulation.fidelity != Fidelity::Full {
            return Err(Error::request(
                "advise weighs run times, which only --fidelity full has; without them, terrace compare --policies … --fast 25%,50% \
                 --fidelity pages counts the accesses of each tier (tier.<name>.unfiltered_reads in results.csv)",
            ));
        }
        let all_fast = tiers::all_fast(&self.changes, Some(defaults::MACHINE))?;
        tiers::check_no_gpu("advise", &all_fast.design.design)?;
        tiers::check_capacity_is_free(&all_fast, &self.changes, |key| {
            format!("--set {key} is what advise searches; leave it out")
        })?;
        let policies = self.policies.iter().map(String::as_str);
        self.changes.check_names(policies.chain([tiers::ALL_FAST]))?;
        let prices = tiers::prices_of(&self.prices, &all_fast.design.design)?;
        let job = |policy: &String| self.job(policy, 1.0, Bytes::gib(1), 1);
        let jobs = self.policies.iter().map(job).collect::<Result<Vec<_>, _>>()?;
        first_pass::check(jobs.iter().map(|job| &job.design), &[], self.hints.as_ref())?;
        Ok((all_fast, prices))
    }

    /// `policy` with a share of fast memory; a policy that takes a tolerated slowdown gets the question's.
    fn job(&self, policy: &str, share: f64, resident: Bytes, seed: u64) -> Result<Job, Error> {
        let mut changes = self.changes.clone();
        if let Ok(entry) = terrace_policy::find(policy) {
            let key = "os.policy.slowdown".to_owned();
            let takes_one = entry.parameters().iter().any(|parameter| parameter.name == "slowdown");
            if takes_one && !changes.sets_of(policy).iter().any(|set| set.key == key) {
                changes.sets.push(Setting::of_all(key, format!("{:?}", self.slowdown)));
            }
            let runs_as_policy =
                changes.resolve(policy, Some(defaults::MACHINE))?.design.design.os.policy.is_some();
            if seed != 1 && runs_as_policy {
                changes.sets.push(Setting::of_all("os.policy.seed", seed.to_string()));
            }
        }
        tiers::with_share(policy, share, resident, &changes, Some(defaults::MACHINE), self.simulation.scale)
    }
}

/// The question, checked.
struct Question<'a> {
    asked: &'a Advise,
    settings: &'a Settings<'a>,
    prices: Prices,
    all_fast: Job,
    fastest: String,
}

impl Question<'_> {
    fn answer(&self, input: &Input, live: bool) -> Result<MemoryAdvice, Error> {
        let (asked, settings) = (self.asked, self.settings);
        let why = "advise runs its input many times";
        let bench = Bench { input, settings, prices: &self.prices, why };
        let resident = tiers::resident(&self.all_fast, input, why, settings)?;
        let (all_fast, searches) = self.search(&bench, resident)?;

        let policies: Vec<PolicyAdvice> =
            searches.iter().map(|search| self.policy_answer(search, resident, &all_fast)).collect();
        let best = best(&searches, &policies);
        let seeds = match &best {
            Some((search, at, trial)) => {
                self.seeds(&bench, &search.policy, self.share(*at), resident, trial)?
            }
            None => Vec::new(),
        };
        let interval = match &best {
            Some((search, at, trial)) => self.interval(
                &bench,
                &self.asked.job(&search.policy, self.share(*at), resident, 1)?,
                trial,
                &all_fast,
                &seeds,
            )?,
            None => None,
        };
        let advice = best.map(|(search, at, trial)| Placement {
            slowdown_interval: interval,
            ..self.advice(&search.policy, at, trial, resident)
        });
        let command = advice.as_ref().filter(|_| !live).map(|advice| self.command(advice, input));
        let mut remarks = self.remarks(&policies, advice.as_ref(), &seeds, &all_fast, input, live);
        let runs = searches.iter().filter_map(|search| Some(&search.enough.as_ref()?.1.record));
        let few = runs.flat_map(|run| run.notes.iter().filter(|note| periods::is_of_samples(note)));
        remarks.extend(searches.iter().filter_map(|search| self.slower_with_more(search)));
        remarks.splice(0..0, few.map(|note| format!("Few samples: {note}.")));
        Ok(MemoryAdvice {
            input: input.name.clone(),
            machine: self.all_fast.design.design.machine.clone(),
            machine_tiers: run::tiers_of(
                &self.asked.changes.resolve(tiers::ALL_FAST, Some(defaults::MACHINE))?.design.design,
            ),
            accesses: all_fast.accesses,
            resident_bytes: resident.0,
            scale: asked.simulation.scale,
            tolerated_slowdown: asked.slowdown,
            prices: self
                .prices
                .iter()
                .map(|(tier, price)| Price { tier: tier.clone(), price: *price })
                .collect(),
            seconds_simulated: all_fast.seconds_simulated,
            advice,
            policies,
            uncertainty: Uncertainty { resolution: asked.resolution, seeds, remarks },
            command,
            trouble: None,
        })
    }

    /// A remark where more fast memory was slower.
    fn slower_with_more(&self, search: &Search) -> Option<String> {
        let [(less, slowdown), (more, higher)] = search.slower_with_more()?;
        let rest = match search.enough {
            Some(_) => "a smaller fast tier than the one found may be enough",
            None => "so all sizes were tried",
        };
        Some(format!(
            "More is slower: under {} the run is {} slower with {} of the memory fast, and {} with {}; {rest}.",
            search.policy,
            tenth(slowdown),
            percent(self.share(less)),
            tenth(higher),
            percent(self.share(more)),
        ))
    }

    fn steps(&self) -> usize {
        (1.0 / self.asked.resolution).ceil() as usize
    }

    fn share(&self, steps: usize) -> f64 {
        // Six steps of 5 % are 30 %, and not a little more, which would be a page more.
        ((steps as f64 * self.asked.resolution * 1e12).round() / 1e12).min(1.0)
    }

    /// The all-fast run, and for each policy the fewest steps of fast memory that are enough. All policies take a step
    /// at the same time, so that the input is read once per step.
    fn search(&self, bench: &Bench<'_>, resident: Bytes) -> Result<(RunRecord, Vec<Search>), Error> {
        let tolerated = self.asked.slowdown;
        let mut searches: Vec<Search> = Vec::new();
        for policy in &self.asked.policies {
            if !searches.iter().any(|search| search.policy == *policy) {
                searches.push(Search::of(policy));
            }
        }
        let first = bench.run("all fast", vec![self.all_fast.clone()])?.remove(0);
        let all_fast =
            first.map_err(|reason| Error::failed(format!("everything in {}: {reason}", self.fastest)))?;
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
                .map(|(at, steps)| self.asked.job(&searches[*at].policy, self.share(*steps), resident, 1))
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
    ) -> Result<Vec<Seed>, Error> {
        let base = found.record.seed.unwrap_or(1);
        let mut seeds = vec![Seed { seed: base, slowdown: found.slowdown() }];
        let job = self.asked.job(policy, share, resident, 2)?;
        let seeded_policy = job.design.design.os.policy.is_some();
        for number in 1..self.asked.seeds {
            let seed = base.wrapping_add(number);
            let reseeded = bench.input.reseeded(seed);
            if reseeded.is_none() && !seeded_policy {
                break;
            }
            let input = reseeded.as_ref().unwrap_or(bench.input);
            let jobs = vec![self.all_fast.clone(), self.asked.job(policy, share, resident, number + 1)?];
            let mut runs = Bench { input, ..*bench }.run(&format!("seed {seed}"), jobs)?.into_iter();
            if let (Some(Ok(all_fast)), Some(Ok(record))) = (runs.next(), runs.next()) {
                seeds.push(Seed { seed, slowdown: bench.judge(record, &all_fast).slowdown() });
            }
        }
        Ok(seeds)
    }

    /// The slowdowns between which that of the recommended run lies, where they are asked for.
    fn interval(
        &self,
        bench: &Bench<'_>,
        job: &Job,
        found: &Trial,
        all_fast: &RunRecord,
        seeds: &[Seed],
    ) -> Result<Option<[f64; 2]>, Error> {
        if !self.asked.intervals {
            return Ok(None);
        }
        let jobs = [&self.all_fast, job];
        let plain = [all_fast, &found.record];
        let Some(constants) = intervals::of_jobs(bench, jobs, &self.asked.changes, plain)? else {
            return Ok(None);
        };
        let times = 1.0 + found.slowdown();
        let by_chance =
            seeds.iter().map(|seed| ((1.0 + seed.slowdown) / times).ln().abs()).fold(0.0, f64::max);
        let slower =
            SpeedUp::new(times, Some(terrace_report::Uncertainty { seeds: Some(by_chance), ..constants }));
        Ok(Some([slower.low - 1.0, slower.high - 1.0]))
    }

    fn advice(&self, policy: &str, steps: usize, trial: &Trial, resident: Bytes) -> Placement {
        let share = self.share(steps);
        let (fast, slow_share) = ((resident.0 as f64 * share) as u64, trial.slow_share());
        Placement {
            policy: policy.to_owned(),
            fast_capacity_share: share,
            fast_capacity_bytes: fast,
            slow_capacity_bytes: resident.0 - fast,
            slow_share,
            slow_bytes: trial.tiering.tiers[1..].iter().map(|tier| tier.mean_bytes).sum(),
            slowdown: trial.slowdown(),
            slowdown_interval: None,
            cost: trial.tiering.cost,
            saving: trial.tiering.cost.map(|cost| 1.0 - cost),
            capacity_saving: trial.tiering.cost.map(|cost| {
                // What a byte of slow memory costs, as the slower tiers were used.
                let saved_of_a_byte = if slow_share > 0.0 { (1.0 - cost) / slow_share } else { 0.0 };
                (1.0 - share) * saved_of_a_byte
            }),
        }
    }

    fn policy_answer(&self, search: &Search, resident: Bytes, all_fast: &RunRecord) -> PolicyAdvice {
        let job = self.asked.job(&search.policy, 1.0, resident, 1).ok();
        let period = job.and_then(|job| periods::longest_period(&job.design.design, self.settings));
        let enough = search.enough.as_ref();
        // The all-fast run's time is taken: a policy that is slow must not look better tested.
        let seconds = all_fast.seconds_simulated;
        PolicyAdvice {
            policy: search.policy.clone(),
            answer: enough.map(|(at, trial)| self.advice(&search.policy, *at, trial, resident)),
            too_small_share: self.share(search.too_few().map_or(0, |(at, _)| at)),
            too_small_slowdown: search.too_few().map(|(_, slowdown)| slowdown),
            copied_bytes: enough.and_then(|(_, trial)| Some(trial.tiering.policy?.copied_bytes)),
            period_seconds: period,
            periods: period.map(|period| seconds / period),
            refused: search.refused.clone(),
        }
    }

    fn command(&self, advice: &Placement, input: &Input) -> String {
        let mut words: Vec<String> =
            ["terrace", "compare", "--policies", &advice.policy, "--fast"].map(str::to_owned).into();
        words.push(percent(advice.fast_capacity_share));
        let mut options = self.asked.changes.clone();
        options.sets.retain(|set| set.is_for(&advice.policy) || set.is_for(tiers::ALL_FAST));
        options.machine.get_or_insert_with(|| defaults::MACHINE.to_owned());
        words.extend(options.to_words());
        for (tier, price) in &self.prices {
            words.extend(["--price".to_owned(), format!("{tier}={price}")]);
        }
        words.extend(self.asked.simulation.to_words());
        if let Some(hints) = self.hints_of(&advice.policy) {
            words.extend(["--hints".to_owned(), hints.file.clone()]);
        }
        words.extend(input.words());
        shell_join(words)
    }

    /// The hints, where the policy takes them.
    fn hints_of(&self, policy: &str) -> Option<&Trained> {
        let job = self.asked.job(policy, 1.0, Bytes::gib(1), 1).ok()?;
        self.asked.hints.as_ref().filter(|_| first_pass::takes_hints(&job.design.design))
    }
}

/// Expenses closer than this are no reason to prefer one policy.
const SAME_EXPENSE: f64 = 0.01;

/// The policy that needs least; among those that need about as little, one that the run is long enough to judge, and
/// then the one that was named first.
fn best<'s>(searches: &'s [Search], answers: &[PolicyAdvice]) -> Option<(&'s Search, usize, &'s Trial)> {
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
mod tests;
