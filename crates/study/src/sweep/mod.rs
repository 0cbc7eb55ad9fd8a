//! Sweeps: designs × values of their parameters × inputs, run on all cores, kept one by one, and gone on with where an
//! earlier sweep ended.
//!
//! A [`Sweep`] is read from a file and is a list of [`Point`]s, one run each. Points of one input are run in groups, so that
//! the input is decoded once for a group. A [`Store`] keeps every finished run under the [`Point::id`] of what it is a run
//! of: a sweep that is started again, extended or divided over many machines runs only what is not there.

mod file;
mod point;
mod store;
mod table;
#[cfg(test)]
mod tests;
pub(crate) mod word;

pub use file::SweepFile;
pub use point::Point;
pub use store::{KEPT, Store, kept, pack};
pub use table::table;
pub use word::InputWord;

use crate::designs::{Changes, Job};
use crate::own_policy::OwnPolicy;
use crate::run::{self, InputResult};
use crate::simulation::{Settings, Simulation, Trained};
use crate::words::shell_join;
use crate::{Error, Progress, hypervisor, mix};
use std::sync::{Mutex, PoisonError};
use terrace_report::{Column, Columns, RunRecord, caveats};
use terrace_sim::Fidelity;

/// Runs to make: every design with every value on every input.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    points: Vec<Point>,
    simulation: Simulation,
    hints: Option<Trained>,
}

/// What came of one point.
pub type Outcome = Result<RunRecord, String>;

impl Sweep {
    /// Reads the text of a sweep's file, called `shown` in messages, and checks all that it names.
    ///
    /// # Errors
    /// Syntax and unknown keys, with the line; designs, parameters, workloads and traces that do not exist or cannot be.
    pub fn parse(text: &str, shown: &str) -> Result<Sweep, Error> {
        SweepFile::parse(text, shown)?.sweep()
    }

    /// The sweep with the runs of its first design under these policies as well, each in place of the design's, with every
    /// value and on every input. Such runs are not to be kept for a later sweep: nothing says whether a policy of the same
    /// name decides the same then.
    ///
    /// # Errors
    /// Two designs or policies of one name.
    pub fn with_policies(&self, policies: &[OwnPolicy]) -> Result<Sweep, Error> {
        let mut points: Vec<Point> = Vec::new();
        for (at, own) in policies.iter().enumerate() {
            let is_named = |name: &str| name == own.label;
            if self.points.iter().any(|point| is_named(&point.design))
                || policies[..at].iter().any(|other| is_named(&other.label))
            {
                return Err(Error::request(format!(
                    "two designs of the sweep are both named \"{}\"; name the policy otherwise: policy={{\"a name\": …}}",
                    own.label
                )));
            }
        }
        // Runs of one input stand side by side, since they share its decoding.
        for of_input in self.points.chunk_by(|one, other| one.input == other.input) {
            points.extend_from_slice(of_input);
            let of_first = |point: &&Point| point.word() == self.points[0].word();
            for own in policies {
                points.extend(of_input.iter().filter(of_first).map(|point| point.under(own)));
            }
        }
        Ok(Sweep { points, ..self.clone() })
    }

    /// The runs, in the order of inputs, designs and values.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Points that `store` has no run of.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn missing(&self, store: &Store) -> Result<Vec<usize>, Error> {
        let mut missing = Vec::new();
        for (at, point) in self.points.iter().enumerate() {
            if store.get(point)?.is_none() {
                missing.push(at);
            }
        }
        Ok(missing)
    }

    /// The machines of the points with their tiers, each once, for people.
    ///
    /// # Errors
    /// A design that no longer exists.
    pub fn machines(&self) -> Result<Vec<String>, Error> {
        let mut machines = Vec::new();
        for point in &self.points {
            let machine = run::machine_of(&point.job()?.design.design);
            if !machines.contains(&machine) {
                machines.push(machine);
            }
        }
        Ok(machines)
    }

    /// The points of these identities.
    ///
    /// # Errors
    /// An identity that no point has: the file, a trace or the tool is another than when it was listed.
    pub fn named(&self, ids: &[String]) -> Result<Vec<usize>, Error> {
        let find = |id: &String| {
            self.points.iter().position(|point| point.id() == id).ok_or_else(|| {
                Error::request(format!(
                    "no run of this sweep is called \"{id}\"; its file, a trace or the version of Terrace has changed since \
                     the commands were printed"
                ))
            })
        };
        ids.iter().map(find).collect()
    }

    /// `points` in groups of one input each, at most `at_once` in a group.
    pub fn groups(&self, points: &[usize], at_once: usize) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for &at in points {
            match groups.last_mut() {
                Some(group)
                    if group.len() < at_once.max(1)
                        && self.points[group[0]].input == self.points[at].input =>
                {
                    group.push(at);
                }
                _ => groups.push(vec![at]),
            }
        }
        groups
    }

    /// Runs groups of points side by side. `finished` is called with each point and its outcome as soon as there is one; a
    /// point that the caller stopped has none.
    pub fn run(
        &self,
        groups: &[Vec<usize>],
        progress: &dyn Progress,
        finished: &(dyn Fn(&Point, Outcome) + Sync),
    ) {
        let settings = Settings { hints: self.hints.clone(), ..Settings::new(self.simulation, progress) };
        // Groups whose input could be opened: the others' failures are reported at once.
        let begun: Mutex<Vec<&Vec<usize>>> = Mutex::default();
        let pairs = groups.iter().filter_map(|group| {
            let input = match self.points[group[0]].open() {
                Ok(input) => input,
                Err(error) => {
                    group.iter().for_each(|&at| finished(&self.points[at], Err(error.with_causes())));
                    return None;
                }
            };
            let jobs = group.iter().map(|&at| self.points[at].job()).collect::<Result<Vec<_>, _>>();
            match jobs {
                Ok(jobs) => {
                    begun.lock().unwrap_or_else(PoisonError::into_inner).push(group);
                    Some((input, jobs))
                }
                Err(error) => {
                    group.iter().for_each(|&at| finished(&self.points[at], Err(error.with_causes())));
                    None
                }
            }
        });
        run::each_pair(pairs, &settings, &|at, result| {
            let group = begun.lock().unwrap_or_else(PoisonError::into_inner)[at];
            self.tell(group, result, &settings, finished);
        });
    }

    /// Passes on what came of a group.
    fn tell(
        &self,
        group: &[usize],
        result: InputResult,
        settings: &Settings<'_>,
        finished: &(dyn Fn(&Point, Outcome) + Sync),
    ) {
        let InputResult { mut runs, failures, .. } = result;
        for &at in group {
            let point = &self.points[at];
            if let Some(found) = runs.iter().position(|run| run.design == point.id()) {
                let mut record = runs.swap_remove(found);
                let alone = self.compare_with_alone(point, &mut record, settings);
                record.design.clone_from(&point.design);
                let remark = |job: Job| hypervisor::remark(&job.design.design, self.simulation.fidelity);
                record.notes.extend(point.job().ok().and_then(remark));
                finished(point, alone.map(|()| record));
                continue;
            }
            if settings.stop.requested() {
                continue;
            }
            let own = failures.iter().find(|text| text.contains(point.id()));
            let text = own.or(failures.first()).map_or("the run has no result", String::as_str);
            finished(point, Err(text.replace(point.id(), &point.design)));
        }
    }

    /// Adds how much each program of a mix was slowed down: the programs run alone now, under the same design.
    fn compare_with_alone(
        &self,
        point: &Point,
        record: &mut RunRecord,
        settings: &Settings<'_>,
    ) -> Result<(), String> {
        if !matches!(point.input, InputWord::Mix(_)) || self.simulation.fidelity == Fidelity::Pages {
            return Ok(());
        }
        let found = point.open().and_then(|mix| {
            let job = point.job()?;
            mix::compare_with_alone(record, &mix, &job, settings)
        });
        match found {
            Ok(failures) => failures.first().map_or(Ok(()), |first| Err(first.clone())),
            Err(error) => Err(error.with_causes()),
        }
    }

    /// Commands that run `groups`, each with a line of its own, for schedulers and shells. `file` and `folder` are this
    /// sweep's, as the commands name them.
    pub fn commands(&self, groups: &[Vec<usize>], file: &str, folder: &str) -> Vec<String> {
        let command = |group: &Vec<usize>| {
            let ids: Vec<&str> = group.iter().map(|&at| self.points[at].id()).collect();
            shell_join(["terrace", "sweep", file, "-o", folder, "--only", &ids.join(",")])
        };
        groups.iter().map(command).collect()
    }

    /// The sweep's runs that are in `store`.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn done<'a>(&'a self, store: &Store) -> Result<Done<'a>, Error> {
        let mut done = Vec::new();
        for point in &self.points {
            if let Some(record) = store.get(point)? {
                done.push((point, record));
            }
        }
        Ok(Done(done))
    }

    /// The table of [`Sweep::done`].
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn columns(&self, store: &Store) -> Result<Columns, Error> {
        Ok(self.done(store)?.columns())
    }
}

/// Notes that stand below the table.
const SHOWN_NOTES: usize = 4;

/// The finished runs of a sweep.
pub struct Done<'a>(Vec<(&'a Point, RunRecord)>);

impl Done<'_> {
    /// A row for each run: first what distinguishes it, then what every run has.
    pub fn columns(&self) -> Columns {
        join(&self.0)
    }

    /// What keeps the numbers from being the whole truth, in lines of 80 columns. A sweep over footprints has notes for
    /// each, of which the first are shown.
    pub fn caveats(self) -> String {
        let mut runs: Vec<RunRecord> = self.0.into_iter().map(|(_, record)| record).collect();
        let mut notes: Vec<String> = Vec::new();
        for note in runs.iter().flat_map(|run| &run.notes) {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        let more = notes.len().saturating_sub(SHOWN_NOTES);
        notes.truncate(SHOWN_NOTES);
        runs.iter_mut().for_each(|run| run.notes.retain(|note| notes.contains(note)));
        let mut text = caveats(&runs, 80);
        if more > 0 {
            text += &format!("and {more} more notes, in the files of {KEPT}/\n");
        }
        text
    }
}

/// A table of points with their runs.
fn join(done: &[(&Point, RunRecord)]) -> Columns {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in done.iter().flat_map(|(point, _)| point.values()) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let value = |point: &Point, name: &str| {
        point.values().iter().find(|(own, _)| own == name).map(|(_, value)| value.clone())
    };
    let mut columns: Vec<(String, Column)> = names
        .into_iter()
        .map(|name| {
            let values: Vec<Option<toml::Value>> = done.iter().map(|(point, _)| value(point, name)).collect();
            (name.to_owned(), column(&values))
        })
        .collect();
    let runs: Vec<RunRecord> = done.iter().map(|(_, record)| record.clone()).collect();
    columns.extend(Columns::of_runs(&runs).columns);
    Columns { columns }
}

/// Numbers where all values are numbers, else texts as they were written.
fn column(values: &[Option<toml::Value>]) -> Column {
    let all = |is: fn(&toml::Value) -> bool| values.iter().flatten().all(is);
    if all(|value| value.as_integer().is_some_and(|value| value >= 0)) {
        let integer = |value: &Option<toml::Value>| value.as_ref()?.as_integer()?.try_into().ok();
        return Column::Integer(values.iter().map(integer).collect());
    }
    if all(|value| value.is_integer() || value.is_float()) {
        let real = |value: &Option<toml::Value>| {
            let value = value.as_ref()?;
            value.as_float().or_else(|| value.as_integer().map(|value| value as f64))
        };
        return Column::Real(values.iter().map(real).collect());
    }
    Column::Text(values.iter().map(|value| value.as_ref().map(terrace_policy::text_of)).collect())
}

/// The changes of a point.
fn changes(machine: Option<&str>, sets: Vec<crate::Setting>, time_scale: u32) -> Changes {
    Changes { machine: machine.map(str::to_owned), sets, time_scale }
}
