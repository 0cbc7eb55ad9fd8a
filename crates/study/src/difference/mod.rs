//! What changed between two sets of results: of two versions of a program, a design or Terrace itself.
//!
//! Read from `results.json`, so that results of long ago can be compared with those of now.

mod text;

use crate::Error;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use terrace_report::MachineTier;

/// The file in the folder of a comparison.
const FILE: &str = "results.json";

/// What a run is known by in both sets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RunName {
    /// Design.
    pub design: String,
    /// Machine.
    pub machine: String,
    /// Input.
    pub input: String,
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {} with {}", self.design, self.machine, self.input)
    }
}

/// Two numbers of the same meaning.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// Before.
    pub before: f64,
    /// After.
    pub after: f64,
}

impl Pair {
    /// `after / before - 1`; infinite for what was 0.
    pub fn change(self) -> f64 {
        match self.before == self.after {
            true => 0.0,
            false => self.after / self.before - 1.0,
        }
    }
}

/// A run that is in both sets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunDifference {
    /// Which one.
    #[serde(flatten)]
    pub name: RunName,
    /// Simulated seconds.
    pub seconds: Pair,
    /// Statistics that are not equal, those that changed by the largest factor first.
    pub statistics: Vec<(String, Pair)>,
    /// Parameters that are not equal; a key that one side does not have is absent there.
    pub parameters: BTreeMap<String, (Option<String>, Option<String>)>,
}

/// A machine with its tiers, fastest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// Name.
    pub machine: String,
    /// Tiers; none in results of before these were written.
    pub machine_tiers: Vec<MachineTier>,
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The machines of both sets, each once; one whose tiers changed twice.
    pub machines: Vec<Machine>,
    /// Runs of both sets, in the order of the first.
    pub runs: Vec<RunDifference>,
    /// Runs that the second set does not have.
    pub only_before: Vec<RunName>,
    /// Runs that the first set does not have.
    pub only_after: Vec<RunName>,
}

impl Difference {
    /// Runs that take longer by more than a share of their time before.
    pub fn slower_by(&self, share: f64) -> impl Iterator<Item = &RunDifference> {
        self.runs.iter().filter(move |run| run.seconds.change() > share)
    }
}

/// Compares two sets of results, each a `results.json` or a folder with one.
///
/// # Errors
/// Files that cannot be read or hold no results, one with two runs of the same name, and sets that have no run in common.
pub fn difference(before: &Path, after: &Path) -> Result<Difference, Error> {
    let (first, second) = (Set::read(before)?, Set::read(after)?);
    let mut rest: BTreeMap<&RunName, &Run> = second.runs.iter().map(|run| (&run.name, run)).collect();
    let mut result = Difference {
        machines: Vec::new(),
        runs: Vec::new(),
        only_before: Vec::new(),
        only_after: Vec::new(),
    };
    for run in first.runs.iter().chain(&second.runs) {
        let (machine, machine_tiers) = (run.name.machine.clone(), run.tiers.clone());
        let machine = Machine { machine, machine_tiers };
        if !result.machines.contains(&machine) {
            result.machines.push(machine);
        }
    }
    for run in &first.runs {
        match rest.remove(&run.name) {
            Some(other) => result.runs.push(run.against(other)),
            None => result.only_before.push(run.name.clone()),
        }
    }
    if result.runs.is_empty() {
        return Err(Error::request(format!(
            "no run is in both: {} has {}, {} has {}",
            before.display(),
            first.names(),
            after.display(),
            second.names()
        )));
    }
    result.only_after.extend(rest.into_keys().cloned());
    Ok(result)
}

struct Set {
    runs: Vec<Run>,
}

struct Run {
    name: RunName,
    tiers: Vec<MachineTier>,
    seconds: f64,
    parameters: BTreeMap<String, String>,
    statistics: BTreeMap<String, f64>,
}

impl Set {
    fn read(path: &Path) -> Result<Set, Error> {
        let path = if path.is_dir() { path.join(FILE) } else { PathBuf::from(path) };
        let of = |problem: &dyn fmt::Display| Error::request(format!("{}: {problem}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|error| of(&error))?;
        let document: Value = serde_json::from_str(&text).map_err(|error| of(&error))?;
        let is_none = || of(&"these are no results of terrace compare or sim");
        let runs = document.get("runs").and_then(Value::as_array).ok_or_else(is_none)?;
        let runs: Vec<Run> = runs.iter().map(Run::read).collect::<Option<_>>().ok_or_else(is_none)?;
        for (at, run) in runs.iter().enumerate() {
            if runs[..at].iter().any(|other| other.name == run.name) {
                return Err(of(&format!("two runs are {}, so which belong together is open", run.name)));
            }
        }
        Ok(Set { runs })
    }

    fn names(&self) -> String {
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
        let tiers = value.get("machine_tiers").map_or(Ok(Vec::new()), Vec::deserialize).ok()?;
        Some(Run {
            name,
            tiers,
            seconds: value.get("seconds_simulated")?.as_f64()?,
            parameters: parameters.map(|(key, value)| (key.clone(), words(value))).collect(),
            statistics,
        })
    }

    fn against(&self, after: &Run) -> RunDifference {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn run(design: &str, seconds: f64, walks: u64, cores: &str) -> Value {
        serde_json::json!({
            "design": design, "machine": "m", "input": "gups", "seconds_simulated": seconds, "accesses": 10,
            "parameters": { "core.count": cores },
            "stats": { "walk": { "count": walks, "latency": { "buckets": [0, walks], "count": walks, "sum": 3, "max": 2 } } },
        })
    }

    fn write(folder: &Path, name: &str, runs: &[Value]) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, serde_json::json!({ "schema": 2, "runs": runs }).to_string()).unwrap();
        path
    }

    #[test]
    fn runs_of_the_same_name_are_compared_and_others_listed() {
        let folder = tempfile::tempdir().unwrap();
        let before = write(folder.path(), "before.json", &[run("a", 1.0, 5, "1"), run("old", 1.0, 5, "1")]);
        let after = write(folder.path(), FILE, &[run("new", 1.0, 5, "1"), run("a", 1.1, 10, "2")]);
        // A folder stands for the file in it.
        let result = difference(&before, folder.path()).unwrap();
        assert_eq!(result, difference(&before, &after).unwrap());
        let design = |runs: &[RunName]| runs.iter().map(|run| run.design.clone()).collect::<Vec<_>>();
        assert_eq!(
            (design(&result.only_before), design(&result.only_after)),
            (vec!["old".into()], vec!["new".into()])
        );
        let [a] = result.runs.as_slice() else { panic!("one is in both") };
        assert!((a.seconds.change() - 0.1).abs() < 1e-12);
        let changed: Vec<(&str, f64)> =
            a.statistics.iter().map(|(name, pair)| (name.as_str(), pair.change())).collect();
        assert_eq!(changed, [("walk.count", 1.0), ("walk.latency.count", 1.0)], "what is equal is left out");
        assert_eq!(a.parameters["core.count"], (Some("1".to_owned()), Some("2".to_owned())));
        assert_eq!((result.slower_by(0.05).count(), result.slower_by(0.2).count()), (1, 0));
        assert_eq!(difference(&before, &before).unwrap().slower_by(0.0).count(), 0);
    }

    #[test]
    fn machines_are_named_with_their_tiers() {
        let folder = tempfile::tempdir().unwrap();
        let with_latency = |latency: f64| {
            let mut one = run("a", 1.0, 5, "1");
            let tier =
                serde_json::json!({ "name": "dram", "capacity_bytes": 1 << 30, "read_latency_ns": latency });
            one["machine_tiers"] = serde_json::json!([tier]);
            one
        };
        let before = write(folder.path(), "before.json", &[with_latency(90.0)]);
        let after = write(folder.path(), "after.json", &[with_latency(100.0)]);
        let one = difference(&before, &before).unwrap();
        assert!(
            one.to_text(5).starts_with("Machine m: dram 1.00 GiB at 90.0 ns (reads, idle).\n"),
            "{}",
            one.to_text(5)
        );
        let two = difference(&before, &after).unwrap();
        let latencies: Vec<f64> =
            two.machines.iter().map(|one| one.machine_tiers[0].read_latency_ns).collect();
        assert_eq!(latencies, [90.0, 100.0]);
    }

    #[test]
    fn a_statistic_that_was_nothing_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let mut more = run("a", 1.0, 6, "1");
        more["stats"]["os"] = serde_json::json!({ "faults": 1 });
        let before = write(folder.path(), "before.json", &[run("a", 1.0, 5, "1")]);
        let after = write(folder.path(), "after.json", &[more]);
        let result = difference(&before, &after).unwrap();
        assert_eq!(result.runs[0].statistics[0], ("os.faults".to_owned(), Pair { before: 0.0, after: 1.0 }));
        assert!(result.runs[0].statistics[0].1.change().is_infinite());
    }

    #[test]
    fn what_cannot_be_compared_is_one_message() {
        let folder = tempfile::tempdir().unwrap();
        let one = write(folder.path(), "one.json", &[run("a", 1.0, 5, "1")]);
        let other = write(folder.path(), "other.json", &[run("b", 1.0, 5, "1")]);
        let twice = write(folder.path(), "twice.json", &[run("a", 1.0, 5, "1"), run("a", 2.0, 5, "1")]);
        let message = |before: &Path, after: &Path| difference(before, after).unwrap_err().to_string();
        assert!(message(&one, &other).starts_with("no run is in both: "), "{}", message(&one, &other));
        assert!(message(&one, &twice).contains("two runs are a on m with gups"));
        assert!(message(&folder.path().join("none"), &one).contains("No such file"));
        for text in ["", "[]", "{\"runs\": [1]}", "{\"runs\": [{\"design\": \"a\"}]}"] {
            std::fs::write(folder.path().join("bad.json"), text).unwrap();
            assert!(message(&folder.path().join("bad.json"), &one).contains("bad.json: "));
        }
    }
}
