//! Inputs named on the command line.

use crate::error::Failure;
use crate::options::{InputOptions, MixOption, RecordingOptions};
use terrace_study::Input;
use terrace_study::input::{name_apart, recording_words};
use terrace_study::suite::Suite;

/// Checks all inputs of a command line, in the order: traces, workloads, programs of the suite, the command.
pub fn prepare(options: &InputOptions, recording: &RecordingOptions) -> Result<Vec<Input>, Failure> {
    prepare_with(&MixOption::default(), options, recording)
}

/// As [`prepare`], and checks the mixes, which come first.
pub fn prepare_with(
    mixes: &MixOption,
    options: &InputOptions,
    recording: &RecordingOptions,
) -> Result<Vec<Input>, Failure> {
    if options.salvage && options.trace.is_empty() && mixes.mix.is_empty() {
        return Err(Failure::usage("--salvage reads damaged traces; give one with --trace FILE"));
    }
    let mut inputs = Vec::new();
    for word in &mixes.mix {
        inputs.push(terrace_study::mix::parse(word, options.salvage)?);
    }
    let files = options.trace.len() + options.workload.len() + options.suite.len();
    let several = files + usize::from(!options.command.is_empty());
    for path in &options.trace {
        inputs.push(Input::trace_among(path, options.salvage, several)?);
    }
    for spec in &options.workload {
        inputs.push(Input::workload(spec)?);
    }
    if !options.suite.is_empty() {
        let suite = Suite::of_user()?;
        for name in &options.suite {
            inputs.push(suite.input(name)?);
        }
    }
    let recording = recording.to_record_options();
    if options.command.is_empty() {
        // An input that was forgotten, and not none: a shell's variable was empty.
        if std::env::args_os().next_back().is_some_and(|last| last == "--") {
            return Err(Failure::usage(
                "no command stands after --; give the program to record there, or leave -- out",
            ));
        }
        if let Some(word) = recording_words(&recording).first() {
            return Err(Failure::usage(format!("{word} applies to a recorded command; add one after --")));
        }
    } else {
        inputs.push(Input::command(&options.command, recording));
    }
    name_apart(&mut inputs);
    Ok(inputs)
}

/// The one input of `command`; `others` says what takes more than one.
pub fn prepare_one(
    options: &InputOptions,
    recording: &RecordingOptions,
    command: &str,
    others: &str,
) -> Result<Input, Failure> {
    one_of(prepare(options, recording)?, command, others)
}

/// The one of `inputs`.
pub fn one_of(mut inputs: Vec<Input>, command: &str, others: &str) -> Result<Input, Failure> {
    match inputs.len() {
        1 => Ok(inputs.remove(0)),
        0 => Err(Failure::usage(
            "no input; give --trace FILE, --workload NAME, --suite NAME or a command after --",
        )),
        n => Err(Failure::usage(format!("{command} takes one input, not {n}; {others}"))),
    }
}
