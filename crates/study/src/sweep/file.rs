//! The file of a sweep.

use super::Sweep;
use super::point::{Parts, Point};
use super::word::InputWord;
use crate::designs::{self, Setting};
use crate::simulation::{Simulation, Trained};
use crate::suite::Suite;
use crate::words::apart;
use crate::{Error, first_pass, hypervisor};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use terrace_model::parameters::{did_you_mean, nearest};
use terrace_sim::Fidelity;
use terrace_sim::design::LARGEST_SCALE;

/// More runs than anybody waits for; a product of lists passes it by mistake.
const MOST_POINTS: usize = 100_000;

/// A sweep as its file spells it. Where a list stands, every value of it is tried with every value of the others.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct SweepFile {
    /// Names of designs and policies, or TOML files.
    pub designs: Vec<String>,
    /// Machines below the designs; none: the designs' own.
    pub machines: Vec<String>,
    /// Workloads with their parameters, as on the command line.
    pub workloads: Vec<String>,
    /// Paths of traces.
    pub traces: Vec<String>,
    /// Programs of the [suite](crate::suite).
    pub suite: Vec<String>,
    /// Programs side by side, as [`crate::mix::parse`] reads them; each also runs alone.
    pub mixes: Vec<String>,
    /// A file of hints, which `terrace profile` wrote, for designs that place data structures by them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hints: Option<PathBuf>,
    /// How much is simulated.
    pub fidelity: Fidelity,
    /// The machine is divided by this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<u32>,
    /// Count the whole input rather than its region of interest.
    pub whole: bool,
    /// Simulate only the operating system until the region of interest begins.
    pub fast_forward: bool,
    /// Periods of policies are divided by this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_scale: Option<u32>,
    /// Parameters of designs: a value, or a list of values to try.
    pub set: BTreeMap<String, toml::Value>,
    /// Workloads whose parameters are tried.
    pub workload: Vec<WorkloadTable>,
}

/// A workload whose parameters are tried.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadTable {
    /// The workload's name.
    pub name: String,
    /// The workload's parameters: a value, or a list of values to try.
    #[serde(default)]
    pub set: BTreeMap<String, toml::Value>,
}

/// A value for each of some names.
type Choice = Vec<(String, toml::Value)>;

/// An input of a sweep.
struct SweepInput {
    word: InputWord,
    /// What results call it.
    name: String,
    /// The values that distinguish it from others of the name.
    values: Choice,
}

impl SweepFile {
    /// Reads a file's text.
    ///
    /// # Errors
    /// Syntax, unknown keys and wrong types, with the line.
    pub fn parse(text: &str, shown: &str) -> Result<SweepFile, Error> {
        toml::from_str(text).map_err(|error| {
            let before = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = 1 + text.as_bytes()[..before].iter().filter(|&&byte| byte == b'\n').count();
            Error::request(format!("{shown}:{line}: {}", in_words(error.message())))
        })
    }

    /// Reads a JSON document with the keys of a file.
    ///
    /// # Errors
    /// As [`SweepFile::parse`], without a line.
    pub fn of_json(text: &str) -> Result<SweepFile, Error> {
        serde_json::from_str(text).map_err(|error| {
            let message = error.to_string();
            // A program wrote it, in one line.
            let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
            Error::request(format!("the sweep: {}", in_words(message)))
        })
    }

    /// The runs that it asks for, each checked.
    ///
    /// # Errors
    /// A sweep without designs or inputs; designs, parameters, workloads and traces that do not exist or cannot be.
    pub fn sweep(&self) -> Result<Sweep, Error> {
        let simulation = self.simulation()?;
        if self.designs.is_empty() {
            return Err(Error::request("a sweep needs designs = [\"native-4k\", …]"));
        }
        for key in self.set.keys() {
            // As in `--set DESIGN:KEY=VALUE`; one for a design that is not there would have no effect.
            let setting = Setting::parse(&format!("{key}=")).map_err(Error::request)?;
            if !self.designs.iter().any(|word| setting.is_for(word)) {
                let design = setting.design.unwrap_or_default();
                return Err(Error::request(format!(
                    "set.\"{key}\": no design of this sweep is called \"{design}\""
                )));
            }
        }
        let inputs = self.inputs()?;
        if inputs.is_empty() {
            return Err(Error::request(
                "a sweep needs workloads = [\"gups\", …], traces = [\"app.trace\", …], suite = [\"mcf\", …] or mixes = [\"mcf,gups\", …]",
            ));
        }
        let named = self.machines.iter().map(|word| designs::machine_word(word));
        let named = named.collect::<Result<Vec<_>, _>>()?;
        let machines: Vec<Option<&str>> = match self.machines.is_empty() {
            true => vec![None],
            false => named.iter().map(|name| Some(name.as_str())).collect(),
        };
        let choices = product(&self.set)?;
        if inputs.len() * self.designs.len() * machines.len() * choices.len() > MOST_POINTS {
            return Err(Error::request(format!("a sweep has at most {MOST_POINTS} runs")));
        }
        let hints = self.hints.as_deref().map(Trained::read).transpose()?;
        let mut points = Vec::new();
        let mut seen = HashSet::new();
        for input in &inputs {
            for design in &self.designs {
                for &machine in &machines {
                    for choice in &choices {
                        let point = self.point(design, machine, choice, input, simulation, hints.as_ref())?;
                        // What is for another design makes no other run of this one.
                        if seen.insert(point.identity().to_owned()) {
                            points.push(point);
                        }
                    }
                }
            }
        }
        check_names(&points)?;
        let points = under_hypervisor(points, simulation, hints.as_ref())?;
        if let Some(hints) = hints.as_ref().filter(|_| !points.iter().any(Point::takes_hints)) {
            return Err(first_pass::untaken(&format!("hints = \"{}\"", hints.file)));
        }
        Ok(Sweep { points, simulation, hints })
    }

    fn point(
        &self,
        design: &str,
        machine: Option<&str>,
        choice: &Choice,
        input: &SweepInput,
        simulation: Simulation,
        hints: Option<&Trained>,
    ) -> Result<Point, Error> {
        let (mut sets, mut named) = (Vec::new(), input.values.clone());
        for (key, value) in choice {
            let setting = Setting::parse(&format!("{key}={}", terrace_policy::text_of(value)))
                .map_err(Error::request)?;
            if setting.is_for(design) {
                named.push((format!("set.{}", setting.key), value.clone()));
                sets.push(setting);
            }
        }
        Point::new(Parts {
            word: design,
            machine,
            sets,
            time_scale: self.time_scale.unwrap_or(1),
            input: input.word.clone(),
            input_name: &input.name,
            simulation,
            values: named,
            hints,
        })
    }

    fn simulation(&self) -> Result<Simulation, Error> {
        let scale = self.scale.unwrap_or(1);
        if !(1..=LARGEST_SCALE).contains(&scale) {
            return Err(Error::request(format!("scale: {scale} is not in 1..={LARGEST_SCALE}")));
        }
        if self.time_scale == Some(0) {
            return Err(Error::request("time_scale: 0 is not at least 1"));
        }
        if self.whole && self.fast_forward {
            return Err(Error::request("whole and fast_forward exclude each other"));
        }
        Ok(Simulation { fidelity: self.fidelity, scale, whole: self.whole, fast_forward: self.fast_forward })
    }

    /// The inputs, each of which could be opened. Those of one table have one name, and values that distinguish them; other
    /// names are told apart by numbers.
    fn inputs(&self) -> Result<Vec<SweepInput>, Error> {
        let mut entries: Vec<Vec<(InputWord, Choice)>> = Vec::new();
        let mut add = |word| entries.push(vec![(word, Choice::new())]);
        self.traces.iter().for_each(|path| add(InputWord::Trace(path.into())));
        if !self.suite.is_empty() {
            let suite = Suite::of_user()?;
            for name in &self.suite {
                add(suite.word(name)?);
            }
        }
        self.mixes.iter().for_each(|word| add(InputWord::Mix(word.clone())));
        self.workloads.iter().for_each(|spec| add(InputWord::Workload(spec.clone())));
        for table in &self.workload {
            let input = |choice: Choice| {
                let parameters =
                    choice.iter().map(|(key, value)| format!(",{key}={}", terrace_policy::text_of(value)));
                let spec = std::iter::once(table.name.clone()).chain(parameters).collect::<String>();
                let named = choice.into_iter().map(|(key, value)| (format!("workload.{key}"), value));
                (InputWord::Workload(spec), named.collect())
            };
            entries.push(product(&table.set)?.into_iter().map(input).collect());
        }
        let mut inputs: Vec<SweepInput> = Vec::new();
        for entry in entries {
            let mut own = String::new();
            for (word, _) in &entry {
                own = word.open()?.name;
            }
            // An input that is named twice is no other one.
            let is_same = |other: &SweepInput| matches!(entry.as_slice(), [(word, _)] if *word == other.word);
            let name = apart(&own, |name| inputs.iter().any(|other| other.name == name && !is_same(other)));
            let input = |(word, values)| SweepInput { word, name: name.clone(), values };
            inputs.extend(entry.into_iter().map(input));
        }
        Ok(inputs)
    }
}

/// The points under the hypervisors of their machines, all of them or none.
fn under_hypervisor(
    points: Vec<Point>,
    simulation: Simulation,
    hints: Option<&Trained>,
) -> Result<Vec<Point>, Error> {
    let runs = points.iter().map(Point::guest_run).collect::<Result<Vec<_>, _>>()?;
    let additions = hypervisor::additions(&runs, simulation.fidelity);
    if additions.iter().all(Vec::is_empty) {
        return Ok(points);
    }
    let entered = points.iter().zip(&additions).map(|(point, sets)| point.with_sets(sets, simulation, hints));
    // Where one cannot be in a guest none is.
    Ok(entered.collect::<Result<Vec<_>, _>>().unwrap_or(points))
}

/// Refuses two designs of one name: nothing in the results would tell their runs apart.
fn check_names(points: &[Point]) -> Result<(), Error> {
    let mut words: BTreeMap<&str, &str> = BTreeMap::new();
    for point in points {
        let earlier = *words.entry(&point.design).or_insert(point.word());
        if earlier != point.word() {
            return Err(Error::request(format!(
                "{earlier} and {} are both named \"{}\"; a sweep needs distinct names: rename one of the files",
                point.word(),
                point.design
            )));
        }
    }
    Ok(())
}

/// The reader's complaint on one line; of an unknown key with the nearest one.
fn in_words(message: &str) -> String {
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    if !message.starts_with("unknown field") {
        return message;
    }
    let mut quoted = message.split('`').skip(1).step_by(2);
    let wrong = quoted.next().unwrap_or_default();
    format!("unknown key \"{wrong}\"{}", did_you_mean(nearest(wrong, quoted)))
}

/// Every value of each list with every value of the others, the last list fastest.
fn product(lists: &BTreeMap<String, toml::Value>) -> Result<Vec<Choice>, Error> {
    let mut choices = vec![Choice::new()];
    for (key, value) in lists {
        let values = match value {
            toml::Value::Array(values) => values.as_slice(),
            single => std::slice::from_ref(single),
        };
        if values.is_empty() {
            return Err(Error::request(format!("{key}: an empty list leaves no run; name a value")));
        }
        if choices.len() * values.len() > MOST_POINTS {
            return Err(Error::request(format!("a sweep has at most {MOST_POINTS} runs")));
        }
        let with = |choice: &Choice| {
            let choice = choice.clone();
            values.iter().map(move |value| {
                let mut longer = choice.clone();
                longer.push((key.clone(), value.clone()));
                longer
            })
        };
        choices = choices.iter().flat_map(with).collect();
    }
    Ok(choices)
}
