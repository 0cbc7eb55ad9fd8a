//! What names a mix: a bundle's name, or its programs one by one.

use super::bundles::{self, Bundle, bundles};
use crate::Error;
use crate::input::Input;
use crate::suite::{State, Suite, entries};
use std::path::Path;
use terrace_model::parameters::{did_you_mean, nearest};

/// More programs than any published mix has.
const MOST_PROGRAMS: usize = 64;
/// More names than these are not strung together.
const NAMED_PROGRAMS: usize = 4;

/// The mix that `word` names: a [bundle](super::bundles()), or programs separated by commas, each a program of the suite, a
/// workload or a trace. What has an equals sign is a parameter of the workload before it. `suite:`, `workload:` and
/// `trace:` before a name say which is meant. Of damaged traces, `salvage` reads what is whole.
///
/// # Errors
/// What does not exist, and inputs that no mix can have.
pub fn parse(word: &str, salvage: bool) -> Result<Input, Error> {
    if let Some(bundle) = bundles::find(word)? {
        // Programs with parameters are workloads.
        if bundle.programs.iter().any(|program| !program.contains(',')) {
            check_recordings(&bundle, &Suite::of_user()?)?;
        }
        return Input::mix(&bundle.name, word, inputs(bundle.programs.iter().map(String::as_str), salvage)?);
    }
    let mut programs: Vec<String> = Vec::new();
    for one in word.split(',').map(str::trim) {
        match programs.last_mut() {
            Some(last) if is_parameter(one) => {
                last.push(',');
                last.push_str(one);
            }
            None if is_parameter(one) => {
                return Err(Error::request(format!("--mix {word}: it begins with a parameter, \"{one}\"")));
            }
            _ if one.is_empty() => {
                return Err(Error::request(format!("--mix {word}: a name is missing beside a comma")));
            }
            _ => programs.push(one.to_owned()),
        }
    }
    if programs.len() > MOST_PROGRAMS {
        return Err(Error::request(format!(
            "--mix: {} programs; a mix has at most {MOST_PROGRAMS}",
            programs.len()
        )));
    }
    let inputs = inputs(programs.iter().map(String::as_str), salvage)?;
    let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    let name = match names.len() <= NAMED_PROGRAMS {
        true => names.join("+"),
        false => format!("mix of {}", names.len()),
    };
    Input::mix(&name, word, inputs)
}

/// Refuses a bundle whose programs are not all recorded, and names all that are not.
pub(super) fn check_recordings(bundle: &Bundle, suite: &Suite) -> Result<(), Error> {
    let mut lacking = entries();
    lacking.retain(|entry| {
        bundle.programs.contains(&entry.name)
            && !matches!(suite.state(entry), State::Recorded(_) | State::BuiltIn)
    });
    if lacking.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = lacking.iter().map(|entry| entry.name.as_str()).collect();
    Err(Error::request(format!(
        "--mix {}: these programs of the suite are not recorded: {}; record them first: terrace suite record {}",
        bundle.name,
        names.join(", "),
        names.join(" ")
    )))
}

/// Whether it belongs to the workload before it; paths may have equals signs, too.
fn is_parameter(text: &str) -> bool {
    text.split_once('=').is_some_and(|(key, _)| !key.contains('/') && !key.contains(':'))
}

fn inputs<'a>(programs: impl Iterator<Item = &'a str>, salvage: bool) -> Result<Vec<Input>, Error> {
    programs.map(|word| input(word, salvage)).collect()
}

/// One program.
fn input(word: &str, salvage: bool) -> Result<Input, Error> {
    let workloads = terrace_workload::all();
    let (name, has_parameters) = word.split_once(',').map_or((word, false), |(name, _)| (name, true));
    if let Some(name) = word.strip_prefix("suite:") {
        return Suite::of_user()?.input(name);
    }
    if let Some(spec) = word.strip_prefix("workload:") {
        return Input::workload(spec);
    }
    if let Some(path) = word.strip_prefix("trace:") {
        return Input::trace(Path::new(path), salvage);
    }
    let suite = entries();
    if !has_parameters && suite.iter().any(|entry| entry.name == name) {
        return Suite::of_user()?.input(name);
    }
    if workloads.iter().any(|workload| workload.name == name) {
        return Input::workload(word);
    }
    if Path::new(word).exists() {
        return Input::trace(Path::new(word), salvage);
    }
    let bundles = bundles();
    let known = suite.iter().map(|entry| entry.name.as_str());
    let known = known.chain(workloads.iter().map(|workload| workload.name));
    let known = known.chain(bundles.iter().map(|bundle| bundle.name.as_str()));
    let near = did_you_mean(nearest(name, known));
    Err(Error::request(format!(
        "--mix: there is no program of the suite, workload, trace or bundle \"{name}\"{near}"
    )))
}
