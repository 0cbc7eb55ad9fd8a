//! What changed between two sets of results: of two versions of a program, a design or Terrace itself.
//!
//! Read from `results.json` or the runs of a sweep, so that results of long ago can be compared with those of now.

mod set;
mod text;

use crate::Error;
use serde::Serialize;
pub use set::{OF_LIVE_RUN, is_of_live_run};
use set::{Run, Set, tell_apart};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use terrace_model::text::grouped;
use terrace_report::{MachineTier, RunRecord, has_times};

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

/// The same of both sets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sides<T> {
    /// Before.
    pub before: T,
    /// After.
    pub after: T,
}

/// A run that is in both sets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunDifference {
    /// Which one.
    #[serde(flatten)]
    pub name: RunName,
    /// Fidelity.
    pub fidelity: Sides<String>,
    /// What everything was divided by.
    pub scale: Sides<u32>,
    /// Simulated seconds; no times where one side's fidelity has none.
    pub seconds: Pair,
    /// Statistics that are not equal, those that changed by the largest factor first.
    pub statistics: Vec<(String, Pair)>,
    /// Parameters that are not equal; a key that one side does not have is absent there.
    pub parameters: BTreeMap<String, (Option<String>, Option<String>)>,
}

impl RunDifference {
    /// What to say where the two did not make the same accesses: the program or what it was given is another.
    pub fn other_input(&self) -> Option<String> {
        let (_, accesses) = self.statistics.iter().find(|(name, _)| name == "accesses")?;
        let [before, after] = [accesses.before, accesses.after].map(|count| grouped(count as u64));
        Some(format!(
            "not the same accesses: {before} before and {after} after, so the program, what it was given, or how often programs of a mix began again has changed"
        ))
    }
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
    /// What keeps the numbers of each run of both sets from being the whole truth.
    #[serde(skip)]
    caveats: Vec<RunRecord>,
}

impl RunDifference {
    /// Whether both sides have times.
    pub fn is_timed(&self) -> bool {
        has_times(&self.fidelity.before) && has_times(&self.fidelity.after)
    }
}

impl Difference {
    /// Runs that take longer by more than a share of their time before.
    pub fn slower_by(&self, share: f64) -> impl Iterator<Item = &RunDifference> {
        self.runs.iter().filter(move |run| run.is_timed() && run.seconds.change() > share)
    }

    /// Refuses to judge by times where a run has none.
    ///
    /// # Errors
    /// Runs of a fidelity without times.
    pub fn check_times(&self) -> Result<(), Error> {
        match self.runs.iter().find(|run| !run.is_timed()) {
            None => Ok(()),
            Some(run) => Err(Error::request(format!(
                "--fail-on weighs run times, which only --fidelity full has, and {} has none",
                run.name
            ))),
        }
    }
}

/// Compares two sets of results, each a `results.json`, or the folder of a comparison or of a sweep.
///
/// # Errors
/// Files that cannot be read or hold no results, one with two runs of the same name, and sets that have no run in common.
pub fn difference(before: &Path, after: &Path) -> Result<Difference, Error> {
    let (mut first, mut second) = (Set::read(before)?, Set::read(after)?);
    tell_apart(&mut first, &mut second);
    first.check(before)?;
    second.check(after)?;
    let mut rest: BTreeMap<&RunName, &Run> = second.runs.iter().map(|run| (&run.name, run)).collect();
    let mut result = Difference {
        machines: Vec::new(),
        runs: Vec::new(),
        only_before: Vec::new(),
        only_after: Vec::new(),
        caveats: first.runs.iter().chain(&second.runs).map(|run| run.caveats.clone()).collect(),
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

#[cfg(test)]
mod tests {
    use super::set::FILE;
    use super::*;
    use serde_json::Value;
    use std::path::PathBuf;

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
    fn runs_of_one_name_differ_by_their_parameters() {
        let folder = tempfile::tempdir().unwrap();
        let runs = |seconds: f64| [run("a", seconds, 5, "1"), run("a", 2.0 * seconds, 5, "2")];
        let before = write(folder.path(), "before.json", &runs(1.0));
        let after = write(folder.path(), "after.json", &runs(1.5));
        let result = difference(&before, &after).unwrap();
        let found: Vec<(&str, f64)> =
            result.runs.iter().map(|run| (run.name.design.as_str(), run.seconds.before)).collect();
        assert_eq!(found, [("a, core.count=1", 1.0), ("a, core.count=2", 2.0)]);
        // A set in which the name is one run only.
        let one = write(folder.path(), "one.json", &runs(1.5)[1..]);
        let result = difference(&one, &before).unwrap();
        assert_eq!((result.runs.len(), result.only_after[0].design.as_str()), (1, "a, core.count=1"));
    }

    #[test]
    fn fidelity_and_scale_are_said_and_what_has_no_time_shows_none() {
        let folder = tempfile::tempdir().unwrap();
        let of = |fidelity: &str, scale: u32, seconds: f64| {
            let mut one = run("a", seconds, 5, "1");
            one["fidelity"] = fidelity.into();
            one["scale"] = scale.into();
            one["left_out"] = serde_json::json!(["time"]);
            one["notes"] = serde_json::json!(["by hand"]);
            one
        };
        let before = write(folder.path(), "before.json", &[of("pages", 8, 1.0)]);
        let after = write(folder.path(), "after.json", &[of("pages", 8, 2.0)]);
        let result = difference(&before, &after).unwrap();
        let text = result.to_text(5);
        let expected = "Scaled down by 8: capacities, TLB reach and periods are divided by it; the input\n  is as it came, so its footprint has to be 1/8 of the real one.\n\
                        Fidelity pages leaves out: time.\nNote: by hand\n\n";
        assert!(text.contains(expected), "{text}");
        let time = text.lines().find(|line| line.starts_with("  time")).unwrap();
        assert_eq!(time.split_whitespace().collect::<Vec<_>>(), ["time", "-", "-", "-"]);
        assert_eq!(result.slower_by(0.0).count(), 0);
        assert!(result.check_times().unwrap_err().to_string().contains("only --fidelity full has"));
        let full = write(folder.path(), "full.json", &[of("full", 1, 1.0)]);
        let text = difference(&full, &after).unwrap().to_text(5);
        assert!(text.contains("  fidelity: full -> pages\n  scale: 1 -> 8\n"), "{text}");
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
        assert!(
            message(folder.path(), &one).contains("neither results.json, which compare writes, nor runs/")
        );
        for text in ["", "[]", "{\"runs\": [1]}", "{\"runs\": [{\"design\": \"a\"}]}"] {
            std::fs::write(folder.path().join("bad.json"), text).unwrap();
            assert!(message(&folder.path().join("bad.json"), &one).contains("bad.json: "));
        }
    }
}
