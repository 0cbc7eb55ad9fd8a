//! Published results beside ours.

mod alone;
mod around;
mod counted;
mod kept;
mod recorded;
mod scoreboard;
mod text;

pub use around::Around;
pub use kept::Kept;
pub use recorded::Recordings;
pub use scoreboard::{Entry, Scoreboard, check_names, definition};

use crate::designs::Changes;
use crate::run::tiers_of;
use crate::{Error, Input, Progress, Settings, Silent, Simulation, Stop, first_pass, threads};
use alone::Alone;
use around::{Departed, Departure};
use counted::Counted;
use recorded::{input_of, may_lack_recordings, recordings};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use terrace_model::parameters::{did_you_mean, nearest};
use terrace_report::MachineTier;
use terrace_sim::design::claims::{self, Claim, ClaimKind, MIGRATION, Row, RunKey, RunNumbers, Verdict};
use terrace_sim::design::{Aging, Design, Ledger, Library, Resolved};
use terrace_sim::{Fidelity, MigrationRow, Options, migration_benchmark};

/// Claims and what came of them.
#[derive(Clone, Debug, Serialize)]
pub struct Reproduction {
    /// Claims that hold.
    pub reproduced: usize,
    /// Claims that do not.
    pub not_reproduced: usize,
    /// Claims some of whose runs are missing.
    pub not_evaluated: usize,
    /// Claims that constants were fitted to: shown, and not judged.
    pub fitted: usize,
    /// The machines of their runs with their tiers, by name, as they are before a run's settings and scale.
    pub machines: BTreeMap<String, Vec<MachineTier>>,
    /// In the order in which they were given.
    pub claims: Vec<ClaimResult>,
    /// Runs that failed, a sentence each.
    #[serde(skip)]
    pub failures: Vec<String>,
    /// Runs that the claims need.
    #[serde(skip)]
    pub runs: usize,
    /// How many of them had been made before.
    #[serde(skip)]
    pub reused: usize,
}

/// A claim with the published number, ours, and whether it holds.
#[derive(Clone, Debug, Serialize)]
pub struct ClaimResult {
    /// The claim's name.
    pub id: String,
    /// What it states: a value, an order or a shape.
    pub kind: ClaimKind,
    /// The paper.
    pub source: String,
    /// Section, figure or table of the paper.
    pub section: String,
    /// What the paper states.
    pub statement: String,
    /// Unit of the numbers.
    pub unit: String,
    /// What is computed from the runs.
    pub expression: String,
    /// The published number.
    pub published: String,
    /// Our number.
    pub ours: String,
    /// Whether it holds.
    pub verdict: Outcome,
    /// Why it does not hold, where it does not.
    pub reason: String,
    /// The rows of a claim about several rows.
    pub rows: Vec<Row>,
    /// The runs that it needs.
    pub runs: Vec<RunKey>,
    /// The recordings of programs that they were made with, if any.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub recordings: Recordings,
    /// How far our numbers could be off, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub around: Option<Around>,
}

/// Whether a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The claim holds.
    #[serde(rename = "reproduced")]
    Reproduced,
    /// The claim does not hold.
    #[serde(rename = "not reproduced")]
    NotReproduced,
    /// Some of its runs are missing.
    #[serde(rename = "not evaluated")]
    NotEvaluated,
}

impl Outcome {
    /// As documents and tables have it.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Reproduced => "reproduced",
            Outcome::NotReproduced => "not reproduced",
            Outcome::NotEvaluated => "not evaluated",
        }
    }
}

/// Runs all that `claims` need, each run once, and judges every claim. Results of before are taken from `kept`, and new ones
/// put there. With `intervals` each claim says how far its numbers could be off, which takes up to two more runs of each.
///
/// # Errors
/// Workloads that do not exist. A run that fails leaves its claims not evaluated, and so does a program of the suite that is
/// not recorded.
pub fn reproduce(
    claims: &[Claim],
    intervals: bool,
    kept: Option<&Kept>,
    progress: &dyn Progress,
) -> Result<Reproduction, Error> {
    let alone = Alone::of(claims)?;
    let keys: BTreeSet<RunKey> = claims.iter().flat_map(Claim::runs).chain(alone.keys()).collect();
    let (mut runs, mut reused) = (0, 0);
    let (mut failures, mut recordings) = (Vec::new(), BTreeMap::new());
    let mut make = |departure: Option<Departure>, same: &Results| -> Result<Results, Error> {
        let sorted = sort_out(&keys, departure, same, kept)?;
        runs += sorted.open.len() + sorted.reused;
        reused += sorted.reused;
        failures.extend(sorted.failures);
        recordings.extend(sorted.recordings);
        let (results, failed) = run_all(sorted.open, sorted.known, kept, progress)?;
        failures.extend(failed);
        Ok(results)
    };
    let plain = make(None, &Results::new())?;
    let departures = if intervals { &Departure::ALL[..] } else { &[] };
    let mut departed = Vec::new();
    for departure in departures {
        departed.push(make(Some(*departure), &plain)?);
    }
    failures.sort();
    failures.dedup();
    let mut results: Vec<Results> = std::iter::once(plain).chain(departed).collect();
    results.iter_mut().for_each(|results| alone.settle(results));
    let verdict = |claim: &Claim| {
        let under = |results: &Results| claims::evaluate(claim, &|key| results.get(key).cloned());
        let mut verdicts: Vec<Verdict> = results.iter().map(under).collect();
        let verdict = verdicts.remove(0);
        let around = if intervals { Around::of(&verdict, &verdicts) } else { None };
        let of_runs = claim.runs().into_iter().filter_map(|key| recordings.get(&key).cloned()).flatten();
        ClaimResult { around, ..ClaimResult::of(claim, verdict, of_runs.collect()) }
    };
    let claims: Vec<ClaimResult> = claims.iter().map(verdict).collect();
    let count = |outcome| claims.iter().filter(|claim| claim.verdict == outcome).count();
    let fitted = claims.iter().filter(|claim| claim.verdict.is_of_calibrated(&claim.ours)).count();
    Ok(Reproduction {
        reproduced: count(Outcome::Reproduced),
        not_reproduced: count(Outcome::NotReproduced),
        not_evaluated: count(Outcome::NotEvaluated) - fitted,
        fitted,
        machines: machines(&claims),
        claims,
        failures,
        runs,
        reused,
    })
}

/// The machines of the claims' runs. One that cannot be resolved by itself has no tiers here.
fn machines(claims: &[ClaimResult]) -> BTreeMap<String, Vec<MachineTier>> {
    let names: BTreeSet<&String> =
        claims.iter().flat_map(|claim| claim.runs.iter().map(|run| &run.machine)).collect();
    let tiers = |name: &String| {
        let changes = Changes { machine: Some(name.clone()), ..Changes::default() };
        changes.resolve("native-4k", None).map(|job| tiers_of(&job.design.design)).unwrap_or_default()
    };
    names.into_iter().map(|name| (name.clone(), tiers(name))).collect()
}

impl ClaimResult {
    fn of(claim: &Claim, verdict: Verdict, recordings: Recordings) -> ClaimResult {
        ClaimResult {
            id: claim.id.clone(),
            kind: claim.kind,
            source: claim.source.clone(),
            section: claim.section.clone(),
            statement: claim.statement.clone(),
            unit: claim.unit.clone(),
            expression: claim.expression_text.clone(),
            published: verdict.published,
            ours: verdict.ours,
            verdict: match (verdict.evaluated, verdict.holds) {
                (true, true) => Outcome::Reproduced,
                (true, false) => Outcome::NotReproduced,
                (false, _) => Outcome::NotEvaluated,
            },
            reason: verdict.reason,
            rows: verdict.rows,
            runs: claim.runs(),
            recordings,
            around: None,
        }
    }
}

/// The claims that the words name: names or beginnings of names of claims, or files with claims; all embedded claims
/// where there are no words.
///
/// # Errors
/// A word that names no claim, a file that cannot be read.
pub fn select(words: &[String]) -> Result<Vec<Claim>, Error> {
    let embedded = claims::embedded()?;
    if words.is_empty() {
        return Ok(embedded);
    }
    let mut selected: Vec<Claim> = Vec::new();
    for word in words {
        let found: Vec<Claim> = if word.ends_with(".toml") || word.contains('/') {
            claims::load(Path::new(word))?
        } else {
            embedded.iter().filter(|claim| claim.id.starts_with(word.as_str())).cloned().collect()
        };
        if found.is_empty() {
            // Beginnings of names are names too.
            let length = word.chars().count();
            let beginning = |claim: &Claim| claim.id.chars().take(length).collect::<String>();
            let beginnings: Vec<String> = embedded.iter().map(beginning).collect();
            let hint = did_you_mean(nearest(word, beginnings.iter().map(String::as_str)));
            return Err(Error::request(format!(
                "no claim is called \"{word}\"{hint} (see: terrace reproduce list)"
            )));
        }
        for claim in found {
            if !selected.iter().any(|known| known.id == claim.id) {
                selected.push(claim);
            }
        }
    }
    Ok(selected)
}

type Results = BTreeMap<RunKey, RunNumbers>;

/// A run that is to be made.
struct Open {
    key: RunKey,
    design: Resolved,
    /// Seed of the workload, in place of its own.
    seed: Option<u64>,
    /// What its result is kept under.
    name: String,
}

/// The runs that claims need.
#[derive(Default)]
struct Sorted {
    /// Runs whose results are kept, or that depart from nothing.
    known: Results,
    /// How many were made before.
    reused: usize,
    /// Runs that are to be made.
    open: Vec<Open>,
    /// Recordings that the runs of both kinds are made with.
    recordings: BTreeMap<RunKey, Recordings>,
    /// Runs that cannot be made for want of a recording, a sentence each.
    failures: Vec<String>,
}

/// Sorts runs out, those of the claims or what departs from them; a run that departs from nothing has the result in `same`.
/// A design that does not resolve fails with its message.
fn sort_out(
    keys: &BTreeSet<RunKey>,
    departure: Option<Departure>,
    same: &Results,
    kept: Option<&Kept>,
) -> Result<Sorted, Error> {
    let mut sorted = Sorted::default();
    let mut lacking = BTreeSet::new();
    for key in keys {
        let mut recordings_of = Recordings::new();
        if may_lack_recordings(&key.workload) {
            match input_of(&key.workload).and_then(|input| recordings(&input)) {
                Ok(found) => recordings_of = found,
                Err(error) => {
                    if lacking.insert(key.workload.clone()) {
                        sorted.failures.push(format!("{}: {}", key.workload, error.with_causes()));
                    }
                    continue;
                }
            }
        }
        let mut design = Library::embedded().design(&key.design, Some(&key.machine), &key.sets)?;
        let mut seed = None;
        if let Some(departure) = departure {
            let Some(Departed { design: other, seed: another }) = departure.of(key, &design)? else {
                sorted.known.extend(same.get(key).map(|numbers| (key.clone(), numbers.clone())));
                continue;
            };
            design = other.unwrap_or(design);
            seed = another;
        }
        let rest = (&key.workload, key.scale, &key.fidelity, key.whole, key.fast_forward);
        // What is said of a design decides no result.
        let said_nothing =
            Design { summary: String::new(), ledger: Ledger::default(), ..design.design.clone() };
        let mut name = format!("{rest:?}\n{said_nothing:?}");
        if let Some(seed) = seed {
            name.push_str(&format!("\nseed {seed}"));
        }
        if !key.train.is_empty() {
            name.push_str(&format!("\ntrained on {}", key.train));
        }
        // A recording can change under its name.
        recordings_of.iter().for_each(|(program, what)| name.push_str(&format!("\n{program} {what}")));
        if !recordings_of.is_empty() {
            sorted.recordings.insert(key.clone(), recordings_of);
        }
        // So can the file of a saved memory, whose contents nobody has summed up.
        let from_file = matches!(design.design.os.memory.aging, Aging::Snapshot { .. });
        match kept.filter(|_| !from_file).and_then(|kept| kept.get(&name)) {
            Some(numbers) => {
                sorted.known.insert(key.clone(), numbers);
                sorted.reused += 1;
            }
            None => sorted.open.push(Open { key: key.clone(), design, seed, name }),
        }
    }
    Ok(sorted)
}

/// Makes every run once, as many at a time as there are cores. Returns the results beside those that are known, and what
/// failed.
fn run_all(
    open: Vec<Open>,
    known: Results,
    kept: Option<&Kept>,
    progress: &dyn Progress,
) -> Result<(Results, Vec<String>), Error> {
    let mut expected = 0;
    for Open { key, .. } in &open {
        if key.workload == MIGRATION {
            continue;
        }
        expected += input_of(&key.workload)?.known_accesses();
    }
    let stop = progress.stop();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, accesses) = (AtomicUsize::new(0), Arc::new(AtomicU64::new(0)));
    let results = Mutex::new(known);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let work = || {
            while let Some(run) = open.get(next.fetch_add(1, Ordering::Relaxed))
                && !stop.requested()
            {
                match run_one(run, &stop, &accesses) {
                    Ok(Some(numbers)) => {
                        if let Some(Err(error)) = kept.map(|kept| kept.put(&run.name, &numbers)) {
                            tracing::warn!(%error, "the result of a run is not kept");
                        }
                        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                        results.insert(run.key.clone(), numbers);
                    }
                    Ok(None) => (),
                    Err(error) => {
                        let RunKey { design, machine, workload, .. } = &run.key;
                        let text = format!("{design} on {machine} with {workload}: {}", error.with_causes());
                        failures.lock().unwrap_or_else(PoisonError::into_inner).push(text);
                    }
                }
            }
        };
        let (mut workers, mut refused) = (Vec::new(), None);
        while workers.len() < cores.min(open.len()) && refused.is_none() {
            match threads::start(scope, work) {
                Ok(worker) => workers.push(worker),
                Err(why) => refused = Some(why),
            }
        }
        // The workers that have started do all of it.
        let refused = refused.filter(|_| workers.is_empty());
        failures.lock().unwrap_or_else(PoisonError::into_inner).extend(refused);
        let mut task = progress.begin(&format!("{} runs", open.len()));
        let mut shown = 0;
        // Also a worker that panicked is finished; leaving the scope passes its panic on.
        while workers.iter().any(|worker| !worker.is_finished()) {
            let total = accesses.load(Ordering::Relaxed);
            task.advance(total - shown, &|| (expected > 0).then(|| total as f64 / expected as f64));
            shown = total;
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let mut failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    failures.sort();
    Ok((results.into_inner().unwrap_or_else(PoisonError::into_inner), failures))
}

/// One run; `None` when the caller stopped it.
fn run_one(run: &Open, stop: &Stop, accesses: &Arc<AtomicU64>) -> Result<Option<RunNumbers>, Error> {
    let Open { key, design: resolved, seed, .. } = run;
    let design = resolved.design.scaled(key.scale).map_err(Error::failed)?;
    if key.workload == MIGRATION {
        let rows = migration_benchmark(&design, Some(&stop.flag())).map_err(Error::failed)?;
        let Some(rows) = rows else { return Ok(None) };
        return Ok(Some(RunNumbers { stats: MigrationRow::stats(&rows), ..RunNumbers::default() }));
    }
    let fidelity = match key.fidelity.as_str() {
        "pages" => Fidelity::Pages,
        "translation" => Fidelity::Translation,
        _ => Fidelity::Full,
    };
    let simulation =
        Simulation { fidelity, scale: key.scale, whole: key.whole, fast_forward: key.fast_forward };
    let settings = Settings::new(simulation, &Silent).until(stop.clone());
    let input = input_of(&key.workload)?;
    let input = seed.and_then(|seed| input.reseeded(seed)).unwrap_or(input);
    let trained = match key.train.as_str() {
        "" => None,
        other => Some(Input::workload(other)?),
    };
    let looked_at = trained.as_ref().unwrap_or(&input);
    let profile = first_pass::profiles(std::iter::once(resolved), looked_at, &settings)?.pop().flatten();
    let (source, _) = input.open(&settings)?;
    let mut counted = Counted { source, accesses: Arc::clone(accesses) };
    let options = Options {
        fidelity,
        whole: key.whole,
        fast_forward: key.fast_forward,
        stop: Some(stop.flag()),
        profile,
        ..Options::default()
    };
    tracing::info!(?key, "run begins");
    let outcome = terrace_sim::simulate(&design, &mut counted, options)?;
    tracing::info!(?key, seconds = outcome.seconds_simulated, "run ends");
    if outcome.stopped {
        return Ok(None);
    }
    Ok(Some(RunNumbers {
        accesses: outcome.accesses,
        instructions: outcome.instructions,
        cycles: outcome.cycles,
        seconds: outcome.seconds_simulated,
        stats: outcome.stats,
        contiguity: outcome.contiguity,
    }))
}

#[cfg(test)]
mod tests;
