//! Claims about programs of the suite: what they run on is recorded by whoever judges them.

use crate::suite::{self, State, Suite};
use crate::{Error, Input, mix};
use std::collections::BTreeMap;

/// Before the programs of a mix, where a claim names them in place of a workload.
const MIX: &str = "mix:";
/// Before a program of the suite, where a claim names it in place of a workload.
const SUITE: &str = "suite:";

/// Recordings by the name of their program: when each was made, and the beginning of its SHA-256.
pub type Recordings = BTreeMap<String, String>;

/// The input that a claim names: a workload, after `suite:` a program of the suite, or after `mix:` several that run side
/// by side.
pub fn input_of(workload: &str) -> Result<Input, Error> {
    if let Some(name) = workload.strip_prefix(SUITE) {
        return Suite::of_user()?.input(name);
    }
    match workload.strip_prefix(MIX) {
        Some(programs) => mix::parse(programs, false),
        None => Input::workload(workload),
    }
}

/// What a claim names a program of a mix by that runs alone.
///
/// # Errors
/// A trace, which no claim names.
pub fn workload_of(program: &Input) -> Result<String, Error> {
    match program.words().as_slice() {
        [option, spec] if option == "--workload" => Ok(spec.clone()),
        [option, name] if option == "--suite" => Ok(format!("{SUITE}{name}")),
        words => {
            Err(Error::request(format!("a claim cannot run {} alone: it is no workload", words.join(" "))))
        }
    }
}

/// Whether a recording may be missing for what a claim names, which is no fault of the claim.
pub fn may_lack_recordings(workload: &str) -> bool {
    workload.starts_with(SUITE) || workload.starts_with(MIX)
}

/// The recordings that an input is read from.
pub fn recordings(input: &Input) -> Result<Recordings, Error> {
    let mut found = Recordings::new();
    let alone = std::slice::from_ref(input);
    for program in if input.programs().is_empty() { alone } else { input.programs() } {
        let words = program.words();
        let [option, name] = words.as_slice() else { continue };
        if option != "--suite" {
            continue;
        }
        if let State::Recorded(manifest) = Suite::of_user()?.state(&suite::find(name)?) {
            let sum: String = manifest.sha256.chars().take(12).collect();
            found.insert(name.clone(), format!("recorded {}, SHA-256 {sum}", manifest.date));
        }
    }
    Ok(found)
}
