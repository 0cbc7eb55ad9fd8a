//! Several programs side by side on one machine, and how much each is slowed down.
//!
//! Each program has its own address space and its own cores ([`terrace_sim`] deals them out). Their regions of interest
//! begin together; a program that ends early begins again, until all have ended once, and its own figures are those of its
//! first region. That is the usual method of multi-program studies.
//!
//! Each program also runs alone, on the same machine under the same design, once for all mixes of a study that it is in.
//! From both come the slow-down of each program, the weighted speed-up (the sum over the programs of IPC in the mix by IPC
//! alone; Snavely and Tullsen, ASPLOS 2000) and the harmonic mean of the same (Luo, Gummaraju and Franklin, ISPASS 2001).

mod bundles;
mod word;

pub use bundles::{Bundle, DRAWN, bundles, drawn, drawn_recorded};
pub use word::parse;

use crate::designs::Job;
use crate::input::Input;
use crate::run::InputResult;
use crate::simulation::Settings;
use crate::{Error, intervals, run};
use terrace_model::{Stats, Unit};
use terrace_report::RunRecord;
use terrace_sim::Fidelity;

/// The runs of each program alone that the mixes of a study need.
#[derive(Default)]
pub struct Alone {
    /// Programs with the designs that they run under.
    groups: Vec<(Input, Vec<Job>)>,
    wants: Vec<Want>,
}

/// A run alone that one program of a mix needs under one design.
struct Want {
    mix: String,
    program: String,
    design: String,
    /// Which group it is, and which of its jobs.
    run: (usize, usize),
}

/// What the name of a program that runs alone goes on with.
const ALONE: &str = ", alone";

impl Alone {
    /// What the mixes among these inputs need; nothing where there is no time to compare.
    ///
    /// # Errors
    /// A program that cannot be opened again.
    pub fn of(inputs: &[(Input, Vec<Job>)], fidelity: Fidelity) -> Result<Alone, Error> {
        let mut alone = Alone::default();
        let mixes = inputs.iter().filter(|_| fidelity != Fidelity::Pages);
        for (mix, jobs) in mixes.filter(|(input, _)| !input.programs().is_empty()) {
            for program in mix.programs() {
                for job in jobs {
                    let run = alone.run(mix, program, job)?;
                    let (mix, program) = (mix.name.clone(), program.name.clone());
                    alone.wants.push(Want { mix, program, design: job.design.design.name.clone(), run });
                }
            }
        }
        Ok(alone)
    }

    /// The place of a run, which is there once for equal programs and designs.
    fn run(&mut self, mix: &Input, program: &Input, job: &Job) -> Result<(usize, usize), Error> {
        let words = program.words();
        let group = match self.groups.iter().position(|(input, _)| input.words() == words) {
            Some(group) => group,
            None => {
                let mut input = program.again("it also runs alone")?;
                input.name = format!("{} of {}{ALONE}", program.name, mix.name);
                self.groups.push((input, Vec::new()));
                self.groups.len() - 1
            }
        };
        let jobs = &mut self.groups[group].1;
        let known = jobs.iter().position(|known| known.design.design == job.design.design);
        Ok((
            group,
            known.unwrap_or_else(|| {
                jobs.push(job.clone());
                jobs.len() - 1
            }),
        ))
    }

    /// Takes the inputs and designs that are to run; their results go to [`Alone::settle`].
    pub fn take(&mut self) -> Vec<(Input, Vec<Job>)> {
        std::mem::take(&mut self.groups)
    }

    /// Takes the runs alone out of the results, and says of each mix how much its programs were slowed down.
    pub fn settle(&self, results: Vec<InputResult>, groups: &[(String, Vec<String>)]) -> Vec<InputResult> {
        let (alone, mut own): (Vec<InputResult>, Vec<InputResult>) =
            results.into_iter().partition(|result| result.name.ends_with(ALONE));
        for result in &mut own {
            let mix = intervals::plain_name(&result.name).to_owned();
            for run in &mut result.runs {
                let design = intervals::plain_name(&run.design).to_owned();
                let mut times = Vec::new();
                for want in self.wants.iter().filter(|want| want.mix == mix && want.design == design) {
                    let (name, designs) = &groups[want.run.0];
                    let of_group = alone.iter().find(|result| result.name == *name);
                    let found = of_group
                        .and_then(|result| result.runs.iter().find(|run| run.design == designs[want.run.1]));
                    times.extend(found.map(|run| (want.program.clone(), run.seconds_simulated)));
                }
                note_slowdowns(&mut run.stats, &times);
            }
        }
        let failures: Vec<String> = alone.into_iter().flat_map(|result| result.failures).collect();
        if let Some(first) = own.first_mut() {
            first.failures.extend(failures);
        }
        own
    }
}

/// Runs the mixes of a study with what else it runs, and each of their programs alone.
pub(crate) fn all_pairs(
    mut inputs: Vec<(Input, Vec<Job>)>,
    mut alone: Alone,
    settings: &Settings<'_>,
) -> Vec<InputResult> {
    let taken = alone.take();
    let groups = names_of(&taken);
    inputs.extend(taken);
    let results = run::all_pairs(inputs, settings);
    if groups.is_empty() { results } else { alone.settle(results, &groups) }
}

/// Runs each program of a mix alone under the design of a run of the mix, and adds to that how much each was slowed down.
/// Returns what failed, which leaves the figures out.
///
/// # Errors
/// A program that cannot be opened again.
pub fn compare_with_alone(
    record: &mut RunRecord,
    mix: &Input,
    job: &Job,
    settings: &Settings<'_>,
) -> Result<Vec<String>, Error> {
    let pair = [(mix.again("its programs also run alone")?, vec![job.clone()])];
    let mut alone = Alone::of(&pair, settings.simulation.fidelity)?;
    let taken = alone.take();
    let groups = names_of(&taken);
    let own = InputResult { name: mix.name.clone(), runs: vec![record.clone()], ..InputResult::default() };
    let results = std::iter::once(own).chain(run::all_pairs(taken, settings)).collect();
    let mut failures = Vec::new();
    for result in alone.settle(results, &groups) {
        failures.extend(result.failures);
        result.runs.into_iter().for_each(|run| *record = run);
    }
    Ok(failures)
}

/// The name of each input with those of its designs.
fn names_of(pairs: &[(Input, Vec<Job>)]) -> Vec<(String, Vec<String>)> {
    let named = |(input, jobs): &(Input, Vec<Job>)| {
        let designs = jobs.iter().map(|job| job.design.design.name.clone());
        (input.name.clone(), designs.collect())
    };
    pairs.iter().map(named).collect()
}

/// Adds to the statistics of a mix the seconds that its programs take alone, where all are known, and what follows from
/// them.
pub(crate) fn note_slowdowns(stats: &mut Stats, alone: &[(String, f64)]) {
    let programs = stats.integer("mix.programs") as usize;
    if programs == 0 || alone.len() != programs {
        return;
    }
    let (mut weighted, mut slowdowns, mut most) = (0.0, 0.0, 0f64);
    for (name, seconds) in alone {
        let name = format!("mix.program.{}", name.replace('.', "_"));
        let nanos = seconds * 1e9;
        let slowdown = stats.number(&format!("{name}.time")) / nanos;
        stats.real(format!("{name}.alone_time"), nanos, Unit::Nanoseconds);
        stats.real(format!("{name}.slowdown"), slowdown, Unit::Ratio);
        weighted += 1.0 / slowdown;
        slowdowns += slowdown;
        most = most.max(slowdown);
    }
    stats.real("mix.weighted_speedup", weighted, Unit::Ratio);
    stats.real("mix.harmonic_speedup", programs as f64 / slowdowns, Unit::Ratio);
    stats.real("mix.largest_slowdown", most, Unit::Ratio);
}

#[cfg(test)]
mod tests;
