//! One set of results: the runs of a file or folder.

use super::{Pair, RunDifference, RunName, Sides};
use crate::Error;
use crate::sweep::{KEPT, kept};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use terrace_report::{MachineTier, RunRecord};

/// The file in the folder of a comparison.
pub(super) const FILE: &str = "results.json";

/// Runs of one file or folder.
pub(super) struct Set {
    pub runs: Vec<Run>,
}

/// One run.
pub(super) struct Run {
    pub name: RunName,
    pub tiers: Vec<MachineTier>,
    /// Fidelity, scale and notes, with the names that they are about.
    pub caveats: RunRecord,
    seconds: f64,
    parameters: BTreeMap<String, String>,
    statistics: BTreeMap<String, f64>,
}

/// Why a document without runs shows nothing.
fn no_runs(document: &Value) -> &'static str {
    match is_of_live_run(document) {
        true => OF_LIVE_RUN,
        false => "these are no results of terrace compare or sim",
    }
}

/// What to say of a document that `terrace run` or `attach` wrote with `--json`.
pub const OF_LIVE_RUN: &str = "these are the statistics of one live run, as run and attach write them with --json; what they \
                               write with --report DIR can be shown here";

/// Whether a document is what `terrace run` and `attach` write with `--json`: one run without a machine and its times.
pub fn is_of_live_run(document: &Value) -> bool {
    ["policy", "choices", "accesses", "statistics"].iter().all(|key| document.get(key).is_some())
}

impl Set {
    /// The runs of a `results.json`, of the folder of a comparison, or of that of a sweep.
    pub fn read(path: &Path) -> Result<Set, Error> {
        let (file, kept) = (path.join(FILE), path.join(KEPT));
        match path.is_dir() {
            true if file.exists() => Set::read_document(&file),
            true if kept.is_dir() => Set::read_sweep(&kept),
            true => Err(Error::request(format!(
                "{}: it has neither {FILE}, which compare writes, nor {KEPT}/, which sweep writes; name the folder that \
                 was given to their -o, or a file that sim wrote with --json",
                path.display()
            ))),
            false => Set::read_document(path),
        }
    }

    fn read_document(path: &Path) -> Result<Set, Error> {
        let of = |problem: &dyn fmt::Display| Error::request(format!("{}: {problem}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| of(&error))?;
        let is_no_json =
            |error| of(&format!("no results of terrace compare or sim, which are JSON: {error}"));
        let document: Value = serde_json::from_str(&text).map_err(is_no_json)?;
        let is_none = || of(&no_runs(&document));
        let runs = document.get("runs").and_then(Value::as_array).ok_or_else(is_none)?;
        Ok(Set { runs: runs.iter().map(Run::read).collect::<Option<_>>().ok_or_else(is_none)? })
    }

    /// The runs that a sweep keeps, a file each.
    fn read_sweep(folder: &Path) -> Result<Set, Error> {
        let of = |path: &Path, problem: &dyn fmt::Display| {
            Error::request(format!("{}: {problem}", path.display()))
        };
        let mut runs = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(|error| of(folder, &error))? {
            let path = entry.map_err(|error| of(folder, &error))?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let text = std::fs::read_to_string(&path).map_err(|error| of(&path, &error))?;
            let record = kept(&text);
            // The same document that a run by itself has.
            let document = record.and_then(|record| serde_json::from_str::<Value>(&record.to_json()).ok());
            let run = document.and_then(|document| Run::read(document.pointer("/runs/0")?));
            runs.push(
                run.ok_or_else(|| of(&path, &"this is no run of a sweep; remove it, and sweep again"))?,
            );
        }
        runs.sort_by(|a: &Run, b: &Run| (&a.name, &a.parameters).cmp(&(&b.name, &b.parameters)));
        Ok(Set { runs })
    }

    /// Refuses two runs of one name.
    pub fn check(&self, path: &Path) -> Result<(), Error> {
        let twice = |at: usize| self.runs[..at].iter().any(|other| other.name == self.runs[at].name);
        match (0..self.runs.len()).find(|at| twice(*at)) {
            None => Ok(()),
            Some(at) => Err(Error::request(format!(
                "{}: two runs are {}, with the same parameters, so which belong together is open; if they are of two \
                 versions of Terrace or of an input, sweep again into an empty folder",
                path.display(),
                self.runs[at].name
            ))),
        }
    }

    /// The runs' names in a sentence.
    pub fn names(&self) -> String {
        match self.runs.as_slice() {
            [] => "no run".to_owned(),
            [run] => run.name.to_string(),
            [run, rest @ ..] => format!("{} and {} more", run.name, rest.len()),
        }
    }
}

impl Run {
    fn read(value: &Value) -> Option<Run> {
        let text = |key: &str| Some(value.get(key)?.as_str()?.to_owned());
        let name = RunName { design: text("design")?, machine: text("machine")?, input: text("input")? };
        let parameters = value.get("parameters").and_then(Value::as_object).into_iter().flatten();
        let mut statistics = BTreeMap::new();
        flatten("", value.get("stats")?, &mut statistics);
        for key in ["accesses", "instructions", "cycles"] {
            statistics.extend(value.get(key).and_then(Value::as_f64).map(|number| (key.to_owned(), number)));
        }
        let word = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let list = |key: &str| {
            let words = value.get(key).and_then(Value::as_array).into_iter().flatten();
            words.filter_map(|word| Some(word.as_str()?.to_owned())).collect()
        };
        let scale = value.get("scale").and_then(Value::as_u64);
        let caveats = RunRecord {
            design: name.design.clone(),
            input: name.input.clone(),
            fidelity: word("fidelity").unwrap_or_else(|| "full".to_owned()),
            scale: scale.and_then(|scale| scale.try_into().ok()).unwrap_or(1),
            left_out: list("left_out"),
            notes: list("notes"),
            ..RunRecord::default()
        };
        let tiers = value.get("machine_tiers").map_or(Ok(Vec::new()), Vec::deserialize).ok()?;
        Some(Run {
            name,
            tiers,
            caveats,
            seconds: value.get("seconds_simulated")?.as_f64()?,
            parameters: parameters.map(|(key, value)| (key.clone(), words(value))).collect(),
            statistics,
        })
    }

    /// The difference of two runs of one name.
    pub fn against(&self, after: &Run) -> RunDifference {
        let mut statistics: Vec<(String, Pair)> = Vec::new();
        for (name, &before) in &self.statistics {
            let pair = Pair { before, after: after.statistics.get(name).copied().unwrap_or(0.0) };
            statistics.push((name.clone(), pair));
        }
        let new = after.statistics.iter().filter(|(name, _)| !self.statistics.contains_key(*name));
        statistics.extend(new.map(|(name, &after)| (name.clone(), Pair { before: 0.0, after })));
        statistics.retain(|(_, pair)| pair.before != pair.after);
        let factor = |pair: Pair| (pair.after.abs().max(1e-300) / pair.before.abs().max(1e-300)).ln().abs();
        // By name where they changed alike: the map is sorted, and sorting keeps that order.
        statistics.sort_by(|a, b| factor(b.1).total_cmp(&factor(a.1)));
        let keys = self.parameters.keys().chain(after.parameters.keys());
        let parameters = keys
            .map(|key| (key.clone(), (self.parameters.get(key).cloned(), after.parameters.get(key).cloned())))
            .filter(|(_, (before, after))| before != after)
            .collect();
        RunDifference {
            name: self.name.clone(),
            fidelity: Sides { before: self.caveats.fidelity.clone(), after: after.caveats.fidelity.clone() },
            scale: Sides { before: self.caveats.scale, after: after.caveats.scale },
            seconds: Pair { before: self.seconds, after: after.seconds },
            statistics,
            parameters,
        }
    }
}

/// Numbers of the tree under their dotted names; of a histogram how many values it has, their sum and the largest.
fn flatten(name: &str, value: &Value, into: &mut BTreeMap<String, f64>) {
    match value {
        Value::Object(children) => {
            for (key, child) in children {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                flatten(&name, child, into);
            }
        }
        _ => into.extend(value.as_f64().map(|number| (name.to_owned(), number))),
    }
}

/// A parameter as its text.
fn words(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Gives runs of one name the parameters in which they differ within a set, as those of a sweep do.
pub(super) fn tell_apart(first: &mut Set, second: &mut Set) {
    let mut differing: BTreeMap<RunName, BTreeSet<String>> = BTreeMap::new();
    for set in [&*first, &*second] {
        let mut seen: BTreeMap<&RunName, &Run> = BTreeMap::new();
        for run in &set.runs {
            let Some(other) = seen.insert(&run.name, run) else { continue };
            let keys = run.parameters.keys().chain(other.parameters.keys());
            let keys = keys.filter(|key| run.parameters.get(*key) != other.parameters.get(*key));
            differing.entry(run.name.clone()).or_default().extend(keys.cloned());
        }
    }
    for run in first.runs.iter_mut().chain(&mut second.runs) {
        for key in differing.get(&run.name).cloned().iter().flatten() {
            if let Some(value) = run.parameters.get(key) {
                run.name.design += &format!(", {key}={value}");
            }
        }
    }
}
