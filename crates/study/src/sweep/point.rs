//! One run of a sweep, and what makes it another run than the next.

use super::word::InputWord;
use crate::designs::{Job, Setting};
use crate::first_pass;
use crate::hypervisor::GuestRun;
use crate::keeping::short_name;
use crate::own_policy::OwnPolicy;
use crate::simulation::{Simulation, Trained};
use crate::{Error, Input};
use std::fmt::Write;

/// One design with its values on one input.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The design, as results call it.
    pub design: String,
    /// The input.
    pub input: InputWord,
    /// The input, as results call it: unique among the inputs of the sweep that differ in no value.
    pub input_name: String,
    word: String,
    machine: Option<String>,
    sets: Vec<Setting>,
    time_scale: u32,
    values: Vec<(String, toml::Value)>,
    takes_hints: bool,
    own: Option<OwnPolicy>,
    id: String,
    identity: String,
}

/// What a point is made of.
pub(super) struct Parts<'a> {
    pub word: &'a str,
    pub machine: Option<&'a str>,
    pub sets: Vec<Setting>,
    pub time_scale: u32,
    pub input: InputWord,
    pub input_name: &'a str,
    pub simulation: Simulation,
    pub values: Vec<(String, toml::Value)>,
    pub hints: Option<&'a Trained>,
}

impl Point {
    /// Checks the design with its values, and gives the point its identity.
    pub(super) fn new(parts: Parts<'_>) -> Result<Point, Error> {
        let Parts { word, machine, sets, time_scale, input, input_name, simulation, values, hints } = parts;
        let mut point = Point {
            design: String::new(),
            input,
            input_name: input_name.to_owned(),
            word: word.to_owned(),
            machine: machine.map(str::to_owned),
            sets,
            time_scale,
            values,
            takes_hints: false,
            own: None,
            id: String::new(),
            identity: String::new(),
        };
        point.identify(simulation, hints)?;
        Ok(point)
    }

    /// What puts it under the hypervisor of its machine depends on this.
    pub(super) fn guest_run(&self) -> Result<GuestRun, Error> {
        let design = self.resolve()?.design.design;
        Ok(GuestRun { design, sets: self.sets.clone(), is_resized: false })
    }

    /// The point with more parameters, which its values do not show.
    pub(super) fn with_sets(
        &self,
        sets: &[(&str, &str)],
        simulation: Simulation,
        hints: Option<&Trained>,
    ) -> Result<Point, Error> {
        let mut point = self.clone();
        point.sets.extend(sets.iter().map(|(key, value)| Setting::of_all(*key, *value)));
        point.identify(simulation, hints)?;
        Ok(point)
    }

    fn identify(&mut self, simulation: Simulation, hints: Option<&Trained>) -> Result<(), Error> {
        let resolved = self.resolve()?.design;
        self.design.clone_from(&resolved.design.name);
        // What is simulated, not how it was asked for: another file with the same parameters is the same run.
        let mut identity = format!("terrace {}\n", env!("CARGO_PKG_VERSION"));
        let _ = writeln!(identity, "{}", self.input.identity()?);
        let _ = writeln!(identity, "{} {}", resolved.design.name, simulation.to_words().join(" "));
        self.takes_hints = first_pass::takes_hints(&resolved.design);
        if let Some(hints) = hints.filter(|_| self.takes_hints) {
            let _ = writeln!(identity, "hints {}", hints.id());
        }
        for parameter in &resolved.parameters {
            let _ = writeln!(identity, "{}={}", parameter.key, parameter.value);
        }
        self.id = short_name(&identity);
        self.identity = identity;
        Ok(())
    }

    /// The same run under this policy in place of the design's.
    pub(super) fn under(&self, own: &OwnPolicy) -> Point {
        let identity = format!("{}policy {} {}\n", self.identity, own.label, own.made_by);
        let id = short_name(&identity);
        let (design, own) = (own.label.clone(), Some(own.clone()));
        Point { design, own, id, identity, takes_hints: false, ..self.clone() }
    }

    /// A short name for files and commands: a hash of what is simulated.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// All that decides the run's result, as text.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The design, as the sweep's file names it.
    pub(super) fn word(&self) -> &str {
        &self.word
    }

    /// Opens the input under the name that results call it.
    pub(super) fn open(&self) -> Result<Input, Error> {
        let mut input = self.input.open()?;
        input.name.clone_from(&self.input_name);
        Ok(input)
    }

    /// Whether the design places data structures by hints.
    pub(super) fn takes_hints(&self) -> bool {
        self.takes_hints
    }

    /// The values that the sweep gave it: `set.KEY` of the design, `workload.KEY` of the input.
    pub fn values(&self) -> &[(String, toml::Value)] {
        &self.values
    }

    /// The design, ready to run under the point's identity.
    pub(super) fn job(&self) -> Result<Job, Error> {
        let job = self.resolve()?;
        let mut job = self.own.as_ref().map_or_else(|| job.clone(), |own| job.under(own));
        job.design.design.name.clone_from(&self.id);
        Ok(job)
    }

    fn resolve(&self) -> Result<Job, Error> {
        let changes = super::changes(self.machine.as_deref(), self.sets.clone(), self.time_scale);
        // A design's own machine counts where the sweep names none.
        changes.resolve(&self.word, None)
    }
}
