//! Policies that no library names, such as those written in Python: each manages runs in place of the design's own policy.

use crate::designs::Job;
use std::fmt;
use std::sync::Arc;
use terrace_sim::OpenPolicy;
use terrace_sim::design::{Parameter, Resolved};

/// What makes a text that repeats a run of a command's words.
pub type Repeat = dyn Fn(&[String]) -> String + Send + Sync;

/// One such policy, and how it comes to a run.
#[derive(Clone)]
pub struct OwnPolicy {
    /// What results call the design under it; unique within a study.
    pub label: String,
    /// The policy's kind, which is the run's `os.policy.name`.
    pub name: String,
    /// How the policy was made, which is the run's `os.policy.object`.
    pub made_by: String,
    /// Makes a policy for one run.
    pub begin: Arc<dyn Fn() -> Begun + Send + Sync>,
    /// A text that repeats the run, from the words of the command that repeats it under the design's own policy.
    pub repeat: Arc<Repeat>,
}

/// The policy of one run.
pub struct Begun {
    /// Opens it in the run's world.
    pub open: Box<OpenPolicy>,
    /// What the policy failed by, if it did; asked for after the run, which then is no result.
    pub failure: Box<dyn Fn() -> Option<String> + Send>,
}

impl fmt::Debug for OwnPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnPolicy").field("label", &self.label).field("made_by", &self.made_by).finish()
    }
}

impl PartialEq for OwnPolicy {
    fn eq(&self, other: &OwnPolicy) -> bool {
        (&self.label, &self.made_by) == (&other.label, &other.made_by)
    }
}

impl OwnPolicy {
    /// The design without its own policy, with this one among its parameters.
    fn in_place_of(&self, design: &Resolved) -> Resolved {
        let mut design = design.clone();
        if let Some(own) = design.design.os.policy.take() {
            design.design.summary = format!("the policy {} in place of {}", self.name, own.name);
        }
        design.parameters.retain(|parameter| !parameter.key.starts_with("os.policy."));
        for (key, value) in [("os.policy.name", &self.name), ("os.policy.object", &self.made_by)] {
            let at = design.parameters.partition_point(|parameter| parameter.key.as_str() < key);
            let named =
                Parameter { key: key.to_owned(), value: value.clone(), origin: "of the run".to_owned() };
            design.parameters.insert(at, named);
        }
        design
    }
}

impl Job {
    /// The design under this policy in place of its own, and under the policy's label.
    #[must_use]
    pub fn under(&self, own: &OwnPolicy) -> Job {
        let mut design = own.in_place_of(&self.design);
        design.design.name.clone_from(&own.label);
        Job { design, own: Some(own.clone()), ..self.clone() }
    }

    /// `other`, under the policy that this design is under.
    pub(crate) fn as_managed(&self, other: Job) -> Job {
        self.own.as_ref().map_or_else(|| other.clone(), |own| other.under(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::Sweep;
    use crate::{Comparison, Input, Silent};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The policy `bw-aware` as one's own, which counts its runs, and fails in each after `sound` ones.
    fn own(label: &str, sound: usize) -> (OwnPolicy, Arc<AtomicUsize>) {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let begin = move || {
            let fails = counted.fetch_add(1, Ordering::SeqCst) >= sound;
            let open: Box<OpenPolicy> =
                Box::new(|setup| terrace_policy::find("bw-aware")?.open(&toml::Table::new(), setup));
            Begun { open, failure: Box::new(move || fails.then(|| "a mistake of mine".to_owned())) }
        };
        let own = OwnPolicy {
            label: label.to_owned(),
            name: "Ratio".to_owned(),
            made_by: "Ratio()".to_owned(),
            begin: Arc::new(begin),
            repeat: Arc::new(|words| format!("mine: {}", words.join(" "))),
        };
        (own, runs)
    }

    const GUPS: &str = "gups,bytes=32MiB,updates=5000";

    #[test]
    fn a_comparison_has_a_run_of_its_first_design_under_it() {
        let (mine, runs) = own("mine", usize::MAX);
        let study = Comparison::new(["first-touch", "bw-aware"]).machine("zen4-cxl").own_policies([mine]);
        let study = study.fast_shares([0.5]).input(Input::workload(GUPS).unwrap());
        let found = study.run(&Silent).unwrap().comparison.runs;
        let names: Vec<&str> = found.iter().map(|run| run.design.as_str()).collect();
        assert_eq!(names, ["first-touch", "bw-aware", "mine", "all-fast"]);
        assert_eq!(found[2].cycles, found[1].cycles);
        assert_ne!(found[2].cycles, found[0].cycles);
        // One run as it is, one with constants at their ends, one under another seed.
        assert_eq!(runs.load(Ordering::SeqCst), 3);
        assert!(found[2].uncertainty.is_some());
        assert!(
            found[2].command.starts_with("mine: terrace sim --design first-touch --machine zen4-cxl --set ")
                && found[2].command.ends_with(&format!("--workload {GUPS}")),
            "{}",
            found[2].command
        );
        let named = |key: &str| found[2].parameters.iter().find(|(own, _)| own == key).unwrap().1.clone();
        assert_eq!((named("os.policy.name"), named("os.policy.object")), ("Ratio".into(), "Ratio()".into()));
    }

    #[test]
    fn its_failure_is_that_of_its_run() {
        let (mine, _) = own("mine", 0);
        let study = Comparison::new(["first-touch"]).machine("zen4-cxl").own_policies([mine]);
        let result = study.intervals(false).input(Input::workload(GUPS).unwrap()).run(&Silent).unwrap();
        assert_eq!(result.failures, ["mine on gups: a mistake of mine"]);
        assert_eq!((result.comparison.runs.len(), result.asked), (1, 2));
    }

    #[test]
    fn names_are_distinct() {
        let compare = |label: &str| {
            let study = Comparison::new(["first-touch"]).own_policies([own("mine", 9).0, own(label, 9).0]);
            study.check().map_err(|error| error.to_string())
        };
        assert_eq!(compare("other"), Ok(()));
        for label in ["mine", "first-touch", "all-fast"] {
            assert!(compare(label).unwrap_err().contains(&format!("both named \"{label}\"")), "{label}");
        }
    }

    #[test]
    fn a_sweep_runs_its_first_design_under_it_with_every_value() {
        let text = "designs = [\"first-touch\", \"bw-aware\"]\nmachines = [\"zen4-cxl\"]\n\
                    workloads = [\"gups,bytes=1MiB,updates=100\", \"kv,keys=100,requests=100\"]\n\
                    set = { \"translation.l2.latency\" = [\"9 cycles\", \"18 cycles\"] }";
        let plain = Sweep::parse(text, "x.toml").unwrap();
        let sweep = plain.with_policies(&[own("mine", usize::MAX).0]).unwrap();
        assert_eq!((plain.points().len(), sweep.points().len()), (8, 12));
        let cycles = Mutex::new(Vec::new());
        let all: Vec<usize> = (0..12).collect();
        let groups = sweep.groups(&all, 6);
        assert_eq!(groups.len(), 2, "one decoding of each input");
        sweep.run(&groups, &Silent, &|point, outcome| {
            cycles.lock().unwrap().push((point.design.clone(), outcome.unwrap().cycles));
        });
        let cycles = cycles.into_inner().unwrap();
        let of = |design: &str| {
            let mut own: Vec<u64> =
                cycles.iter().filter(|(name, _)| name == design).map(|(_, cycles)| *cycles).collect();
            own.sort_unstable();
            own
        };
        assert_eq!(of("mine").len(), 4);
        assert_eq!(of("mine"), of("bw-aware"));
        assert!(sweep.with_policies(&[own("mine", 1).0]).is_err());
    }
}
