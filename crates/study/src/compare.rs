//! Several designs on the same inputs.

use crate::designs::{Changes, Job, Setting};
use crate::input::{self, Ending, Input};
use crate::mix::{self, Alone};
use crate::own_policy::OwnPolicy;
use crate::run::InputResult;
use crate::simulation::{Settings, Simulation, Trained};
use crate::tiers::Prices;
use crate::{Error, Progress, defaults, first_pass, hypervisor, intervals, tiers};
use std::collections::{BTreeMap, HashSet};
use terrace_model::Bytes;
use terrace_report::{MachineLedger, RunRecord};
use terrace_sim::Fidelity;
use terrace_sim::design::Design;

/// Designs that are to be compared on the same inputs.
///
/// Every design runs on every input, on all cores; each input is decoded once. The first design is the baseline.
///
/// ```
/// use terrace_study::{Comparison, Input, Silent};
///
/// let result = Comparison::new(["native-4k", "native-2m"])
///     .machine("zen4-cxl")
///     .input(Input::workload("gups,bytes=16MiB,updates=2e4")?)
///     .run(&Silent)?;
/// assert!(result.failures.is_empty());
/// let [base, huge] = &result.comparison.runs[..] else { panic!("two runs") };
/// assert!(huge.stats.integer("walk.count") < base.stats.integer("walk.count"));
/// println!("{:.2} times as fast", huge.speedup_over(base).unwrap());
/// # Ok::<(), terrace_study::Error>(())
/// ```
pub struct Comparison {
    designs: Vec<String>,
    policies: Vec<String>,
    own_policies: Vec<OwnPolicy>,
    fast_shares: Vec<f64>,
    prices: Prices,
    changes: Changes,
    simulation: Simulation,
    intervals: bool,
    hints: Option<Trained>,
    inputs: Vec<Input>,
}

/// What came of a comparison.
pub struct ComparisonResult {
    /// The runs that are complete, as tables, documents and the report show them.
    pub comparison: terrace_report::Comparison,
    /// What went wrong, a sentence each.
    pub failures: Vec<String>,
    /// Runs that were asked for.
    pub asked: usize,
    endings: Vec<(String, Ending)>,
}

impl ComparisonResult {
    /// Waits for recorded programs, which may run on after their recording ended. Adds those that ended badly to the
    /// failures.
    pub fn wait(&mut self, progress: &dyn Progress) {
        let endings = std::mem::take(&mut self.endings);
        self.failures.extend(endings.into_iter().filter_map(|(name, ending)| ending.wait(&name, progress)));
    }

    /// Whether every run that was asked for is there.
    pub fn is_complete(&self) -> bool {
        self.comparison.runs.len() == self.asked
    }
}

impl Comparison {
    /// Compares these designs: names of the library, or TOML files. None: those of the built-in study.
    pub fn new<S: Into<String>>(designs: impl IntoIterator<Item = S>) -> Comparison {
        Comparison {
            designs: designs.into_iter().map(Into::into).collect(),
            policies: Vec::new(),
            own_policies: Vec::new(),
            fast_shares: Vec::new(),
            prices: Prices::new(),
            changes: Changes::default(),
            simulation: Simulation::default(),
            intervals: true,
            hints: None,
            inputs: Vec::new(),
        }
    }

    /// Compares these policies as well, with `first-touch`, the baseline, and the run with everything in fast memory,
    /// the bound.
    pub fn policies<S: Into<String>>(mut self, policies: impl IntoIterator<Item = S>) -> Comparison {
        self.policies.extend(policies.into_iter().map(Into::into));
        self
    }

    /// Compares the first design under these policies as well, each in place of the design's. Without a design that is
    /// `first-touch`.
    pub fn own_policies(mut self, policies: impl IntoIterator<Item = OwnPolicy>) -> Comparison {
        self.own_policies.extend(policies);
        self
    }

    /// Makes the fastest tier these shares of what the input has resident, one after the other, and reserves nothing of
    /// it. Reads each input once more beforehand.
    pub fn fast_shares(mut self, shares: impl IntoIterator<Item = f64>) -> Comparison {
        self.fast_shares.extend(shares);
        self
    }

    /// The price of a tier's memory, where the fastest tier's is 1; `slow` stands for every other tier.
    pub fn price(mut self, tier: impl Into<String>, price: f64) -> Comparison {
        self.prices.push((tier.into(), price));
        self
    }

    /// Puts the designs on this machine: a name of the library, or a TOML file.
    pub fn machine(mut self, machine: impl Into<String>) -> Comparison {
        self.changes.machine = Some(machine.into());
        self
    }

    /// Changes one parameter of all designs.
    pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Comparison {
        self.changes.sets.push(Setting::of_all(key, value));
        self
    }

    /// All changes at once, in place of [`Comparison::machine`] and [`Comparison::set`].
    pub fn changes(mut self, changes: Changes) -> Comparison {
        self.changes = changes;
        self
    }

    /// How closely to simulate.
    pub fn simulation(mut self, simulation: Simulation) -> Comparison {
        self.simulation = simulation;
        self
    }

    /// Whether every speed-up gets an interval, which takes a second run of each design beside the first, and a third where
    /// the input or the design draws at random; yes where this is not called. Without time there are none.
    pub fn intervals(mut self, wanted: bool) -> Comparison {
        self.intervals = wanted;
        self
    }

    /// Gives designs that place data structures by hints those of another run, instead of a first pass over each input.
    pub fn hints(mut self, hints: Option<Trained>) -> Comparison {
        self.hints = hints;
        self
    }

    /// Adds an input. None: those of the built-in study.
    pub fn input(mut self, input: Input) -> Comparison {
        self.inputs.push(input);
        self
    }

    /// Checks all that can be wrong before anything runs.
    ///
    /// # Errors
    /// What does not exist or contradicts itself, and inputs that cannot be read as often as is needed.
    pub fn check(&self) -> Result<(), Error> {
        let chosen = self.chosen()?;
        first_pass::check(chosen.all(), &self.inputs, self.hints.as_ref())?;
        tiers::prices_of(&self.prices, &chosen.jobs[0].design.design)?;
        Ok(())
    }

    /// Runs every design on every input. A run that fails does not stop the others; one that was stopped early is no
    /// part of the result.
    ///
    /// # Errors
    /// As [`Comparison::check`], a program that cannot be recorded, and inputs whose footprint cannot be measured.
    pub fn run(mut self, progress: &dyn Progress) -> Result<ComparisonResult, Error> {
        self.prepare_inputs()?;
        let chosen = self.chosen()?;
        first_pass::check(chosen.all(), &self.inputs, self.hints.as_ref())?;
        let prices = tiers::prices_of(&self.prices, &chosen.jobs[0].design.design)?;
        let settings = Settings { hints: self.hints.take(), ..Settings::new(self.simulation, progress) };
        let mut inputs = self.pair(&chosen, &settings)?;
        let asked = inputs.iter().map(|(_, jobs)| jobs.len()).sum::<usize>();
        let designs: Vec<String> = inputs[0].1.iter().map(|job| job.design.design.name.clone()).collect();
        let alone = Alone::of(&inputs, self.simulation.fidelity)?;
        let with_intervals =
            self.intervals && self.simulation.fidelity == Fidelity::Full && designs.len() > 1;
        if with_intervals {
            let others = intervals::beside(&mut inputs, &chosen.changes)?;
            inputs.extend(others);
        }
        let mut results = mix::all_pairs(inputs, alone, &settings);
        if with_intervals {
            results = intervals::settle(results, &designs[0]);
        }
        let ending = |result: &mut InputResult| (result.name.clone(), std::mem::take(&mut result.ending));
        let endings = results.iter_mut().map(ending).collect();
        let (mut comparison, failures) = join(&designs, results);
        comparison.prices = prices;
        comparison.machines = ledgers(chosen.all());
        note_other_machines(&mut comparison);
        if !self.simulation.whole {
            note_other_parts(&mut comparison);
        }
        if let (Some(bound), Fidelity::Full) = (chosen.bounds.first(), self.simulation.fidelity) {
            note_small(&mut comparison, bound, &settings);
        }
        let of_hypervisor = match chosen.bounds.is_empty() {
            true => hypervisor::remark,
            false => hypervisor::remark_with_resized_tiers,
        };
        let remark = |design: &Design| of_hypervisor(design, self.simulation.fidelity);
        note_hypervisor(&mut comparison, chosen.all(), &remark);
        comparison.failures.clone_from(&failures);
        Ok(ComparisonResult { comparison, failures, asked, endings })
    }

    fn prepare_inputs(&mut self) -> Result<(), Error> {
        if self.inputs.is_empty() {
            self.inputs =
                defaults::INPUTS.iter().map(|spec| Input::workload(spec)).collect::<Result<_, _>>()?;
        }
        for input in &mut self.inputs {
            input.prepare()?;
        }
        input::name_apart(&mut self.inputs);
        // A program that runs now cannot wait; files and workloads can.
        self.inputs.sort_by_key(|input| !input.is_live());
        Ok(())
    }

    fn chosen(&self) -> Result<Chosen, Error> {
        let is_tiering = !self.policies.is_empty() || !self.fast_shares.is_empty();
        let mut names = self.designs.clone();
        if !self.policies.is_empty() {
            // A bound, or a baseline, is there once.
            names.push("first-touch".to_owned());
            names.extend(self.policies.clone());
            let mut seen = HashSet::new();
            names.retain(|name| name != tiers::ALL_FAST && seen.insert(name.clone()));
        } else if names.is_empty() && !self.own_policies.is_empty() {
            names.push("first-touch".to_owned());
        } else if names.is_empty() && !is_tiering {
            names = defaults::DESIGNS.map(str::to_owned).into();
        }
        let machine = match &self.changes.machine {
            Some(_) => None,
            None if self.designs.is_empty() => Some(defaults::MACHINE.to_owned()),
            // The bound, and policies beside designs, stand where the designs do.
            None if is_tiering => Some(tiers::machine_of(&self.designs, &self.changes)?),
            None => None,
        };
        let machine = machine.as_deref();
        let bound = is_tiering.then_some(tiers::ALL_FAST);
        let words = || names.iter().map(String::as_str).chain(bound);
        self.changes.check_names(words())?;
        if !self.fast_shares.is_empty() {
            // Without what is set: that may contradict the rest.
            let bare = Changes { sets: Vec::new(), ..self.changes.clone() };
            tiers::check_capacity_is_free(&tiers::all_fast(&bare, machine)?, &self.changes, |key| {
                format!("--fast and --set {key} both size the fastest tier; give one")
            })?;
        }
        let fidelity = self.simulation.fidelity;
        let changes = match is_tiering {
            true => hypervisor::under_with_resized_tiers(&self.changes, words(), machine, fidelity),
            false => hypervisor::under(&self.changes, words(), machine, fidelity),
        }?;
        let mut jobs: Vec<Job> = Vec::new();
        for name in names {
            let job = changes.resolve(&name, machine)?;
            let earlier = jobs.iter().find(|other| other.design.design.name == job.design.design.name);
            if let Some(Job { word: earlier, .. }) = earlier {
                return Err(Error::request(format!(
                    "{earlier} and {name} are both named \"{}\"; a comparison needs distinct names",
                    job.design.design.name
                )));
            }
            jobs.push(job);
        }
        jobs.retain(|job| !is_tiering || job.design.design.name != tiers::ALL_FAST);
        if jobs.is_empty() {
            return Err(Error::request(
                "--fast needs policies or designs to compare; add --policies ambix,tpp",
            ));
        }
        for own in &self.own_policies {
            if jobs.iter().any(|job| job.design.design.name == own.label) || own.label == tiers::ALL_FAST {
                return Err(Error::request(format!(
                    "two runs are both named \"{}\"; name the policy otherwise: policy={{\"a name\": …}}",
                    own.label
                )));
            }
            jobs.push(jobs[0].under(own));
        }
        if self.own_policies.is_empty() {
            changes.note_unused(&jobs);
        }
        let bounds = if is_tiering { tiers::bounds(&jobs, &changes, machine)? } else { Vec::new() };
        Ok(Chosen { jobs, bounds, machine: machine.map(str::to_owned), changes })
    }

    /// The inputs, each with its designs and the fast memory that was asked for.
    fn pair(&mut self, chosen: &Chosen, settings: &Settings<'_>) -> Result<Vec<(Input, Vec<Job>)>, Error> {
        let mut paired = Vec::new();
        for input in std::mem::take(&mut self.inputs) {
            let mut jobs = match chosen.bounds.first() {
                Some(bound) if !self.fast_shares.is_empty() && input.is_readable() => {
                    let resident = tiers::resident(bound, &input, "--fast reads its input twice", settings)?;
                    self.at_shares(chosen, resident)?
                }
                _ => chosen.jobs.clone(),
            };
            jobs.extend(chosen.bounds.clone());
            paired.push((input, jobs));
        }
        Ok(paired)
    }

    fn at_shares(&self, chosen: &Chosen, resident: Bytes) -> Result<Vec<Job>, Error> {
        let (changes, scale) = (&chosen.changes, self.simulation.scale);
        let mut jobs = Vec::new();
        for job in &chosen.jobs {
            for &share in &self.fast_shares {
                let machine = chosen.machine.as_deref();
                let sized = tiers::with_share(&job.word, share, resident, changes, machine, scale)?;
                let mut sized = job.as_managed(sized);
                if self.fast_shares.len() > 1 {
                    sized.design.design.name = tiers::name_at(&sized.design.design.name, share);
                }
                jobs.push(sized);
            }
        }
        Ok(jobs)
    }
}

/// What is compared, before it is fitted to an input.
struct Chosen {
    jobs: Vec<Job>,
    /// The runs with everything fast, where tiering is compared: native, virtual or both.
    bounds: Vec<Job>,
    /// Machine of the designs, where the changes name none.
    machine: Option<String>,
    /// What was asked for, and the hypervisor under the machine.
    changes: Changes,
}

impl Chosen {
    fn all(&self) -> impl Iterator<Item = &terrace_sim::design::Resolved> {
        self.jobs.iter().chain(&self.bounds).map(|job| &job.design)
    }
}

fn join(designs: &[String], results: Vec<InputResult>) -> (terrace_report::Comparison, Vec<String>) {
    let mut comparison = terrace_report::Comparison {
        title: title(&results, designs.len()),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        baseline: designs[0].clone(),
        ..terrace_report::Comparison::default()
    };
    let mut failures = Vec::new();
    for result in results {
        failures.extend(result.failures);
        if !result.runs.is_empty() {
            comparison.inputs.extend(result.summary);
            comparison.runs.extend(result.runs);
        }
    }
    (comparison, failures)
}

/// What the constants of each machine rest on, once for each.
fn ledgers<'a>(designs: impl Iterator<Item = &'a terrace_sim::design::Resolved>) -> Vec<MachineLedger> {
    let mut found: Vec<MachineLedger> = Vec::new();
    for resolved in designs {
        let design = &resolved.design;
        if found.iter().all(|one| one.name != design.machine) {
            let ledger = resolved.ledger.clone();
            found.push(MachineLedger {
                name: design.machine.clone(),
                cited: ledger.cited,
                calibrated: ledger.calibrated,
                assumed: ledger.assumed,
                spread: ledger.spread,
            });
        }
    }
    found
}

/// A speed-up over a baseline on another machine is that of the machines too.
fn note_other_machines(comparison: &mut terrace_report::Comparison) {
    let of_baseline = |run: &&RunRecord| run.design == comparison.baseline;
    let Some(base) = comparison.runs.iter().find(of_baseline).map(|run| run.machine.clone()) else { return };
    for run in comparison.runs.iter_mut().filter(|run| run.machine != base) {
        run.notes.push(format!(
            "{} stands on {}, the baseline on {base}: the speed-up is that of the machines too; --machine puts all on one",
            run.design, run.machine
        ));
    }
}

/// A machine with a GPU counts kernels, one without the whole input: speed-ups between them are of different parts.
fn note_other_parts(comparison: &mut terrace_report::Comparison) {
    let counts_kernels = |run: &RunRecord| run.stats.integer("gpu.kernels") > 0;
    let bases: Vec<(String, bool)> = comparison
        .runs
        .iter()
        .filter(|run| run.design == comparison.baseline)
        .map(|run| (run.input.clone(), counts_kernels(run)))
        .collect();
    let baseline = comparison.baseline.clone();
    for run in &mut comparison.runs {
        let Some((_, of_base)) = bases.iter().find(|(input, _)| *input == run.input) else { continue };
        let own = counts_kernels(run);
        if own == *of_base {
            continue;
        }
        let (kernels, all) = if own { (&run.design, &baseline) } else { (&baseline, &run.design) };
        run.notes.push(format!(
            "{kernels} covers the kernels alone, {all} also what the host does before, between and after them: the \
             speed-up is between different parts of the input; --whole has both cover all of it"
        ));
    }
}

/// Where caches hold much of an input, tiering decides little, and which frames they hold decides as much.
fn note_small(comparison: &mut terrace_report::Comparison, bound: &Job, settings: &Settings<'_>) {
    let design = &bound.design.design;
    let small: BTreeMap<String, String> = comparison
        .runs
        .iter()
        .filter(|run| run.design == design.name)
        .filter_map(|run| Some((run.input.clone(), tiers::small_in_caches(design, &run.stats, settings)?)))
        .collect();
    for run in &mut comparison.runs {
        run.notes.extend(small.get(&run.input).cloned());
    }
}

/// What walks go through on a machine that is a guest.
fn note_hypervisor<'a>(
    comparison: &mut terrace_report::Comparison,
    designs: impl Iterator<Item = &'a terrace_sim::design::Resolved>,
    remark: &dyn Fn(&Design) -> Option<String>,
) {
    let remarks: BTreeMap<&str, String> = designs
        .filter_map(|resolved| Some((resolved.design.machine.as_str(), remark(&resolved.design)?)))
        .collect();
    for run in &mut comparison.runs {
        run.notes.extend(remarks.get(run.machine.as_str()).cloned());
    }
}

fn title(results: &[InputResult], designs: usize) -> String {
    // A mix has no summary, since each design reads its programs at a pace of its own.
    let ran = results.iter().filter(|result| result.summary.is_some() || !result.runs.is_empty());
    let inputs: Vec<&str> = ran.map(|result| result.name.as_str()).collect();
    format!("{designs} design{} on {}", if designs == 1 { "" } else { "s" }, inputs.join(", "))
}

#[cfg(test)]
mod tests;
