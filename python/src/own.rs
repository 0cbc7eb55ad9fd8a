//! Policies in Python as runs of a study take them.

use crate::policy::{Failure, PythonPolicy};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};
use terrace_policy::{PolicyError, Refusal};
use terrace_study::{Begun, OwnPolicy, Stop};

/// A policy as `terrace._policies` describes it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct OwnSpec {
    /// What results call the design under it; none: its class.
    label: Option<String>,
    /// The class.
    name: String,
    /// The object as Python shows it.
    made_by: String,
    /// The object of the first run.
    first: Py<PyAny>,
    /// Makes the objects of others; none where there is one run.
    make: Option<Py<PyAny>>,
}

impl OwnSpec {
    /// The policy, which reports to `failure`. A run that fails stops `stop`, or nothing but itself.
    ///
    /// # Errors
    /// As [`PythonPolicy::new`].
    pub fn to_policy(
        &self,
        py: Python<'_>,
        label: Option<&str>,
        failure: &Failure,
        stop: Option<Stop>,
    ) -> PyResult<OwnPolicy> {
        let of_run = failure.of_run();
        let first = PythonPolicy::new(self.first.bind(py).clone(), of_run.clone(), stop.clone())?;
        let first = Mutex::new(Some((first, of_run)));
        let make = self.make.as_ref().map(|make| make.clone_ref(py));
        let failure = failure.clone();
        let another = move || {
            let of_run = failure.of_run();
            let made = Python::attach(|py| {
                let make = make.as_ref().expect("a study of several runs has what makes policies");
                PythonPolicy::new(make.bind(py).call0()?, of_run.clone(), stop.clone())
            });
            (made.map_err(|error| of_run.put(error)).ok(), of_run)
        };
        let begin = move || {
            let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
            let (policy, of_run) = first.map_or_else(&another, |(policy, of_run)| (Some(policy), of_run));
            let open = move |setup: terrace_policy::Setup<'_>| match policy {
                Some(policy) => policy.open(&setup),
                // The failure says more.
                None => Err(PolicyError::Refused {
                    policy: "the policy",
                    refusal: Refusal::Machine("it was not made".to_owned()),
                }),
            };
            Begun { open: Box::new(open), failure: Box::new(move || of_run.text()) }
        };
        let made_by = self.made_by.clone();
        Ok(OwnPolicy {
            label: label.or(self.label.as_deref()).unwrap_or(&self.name).to_owned(),
            name: self.name.clone(),
            made_by: self.made_by.clone(),
            begin: Arc::new(begin),
            repeat: Arc::new(move |words| call(words, &made_by)),
        })
    }
}

/// The call of `terrace.run` for the words of a command: `terrace sim --design first-touch --workload kv` is
/// `terrace.run("first-touch", workload="kv", policy=…)`.
fn call(words: &[String], policy: &str) -> String {
    let quoted = |word: &str| serde_json::to_string(word).unwrap_or_default();
    let list = |words: &[String]| words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(", ");
    let (options, command) = match words.iter().position(|word| word == "--") {
        Some(at) => (&words[..at], &words[at + 1..]),
        None => (words, &[][..]),
    };
    let (mut design, mut input, mut sets, mut others, mut recording) =
        (String::new(), None, Vec::new(), Vec::new(), Vec::new());
    let mut salvage = "";
    // The first two words are the command's own name.
    let mut rest = options.iter().skip(2).peekable();
    while let Some(option) = rest.next() {
        let name = option.trim_start_matches("--").replace('-', "_");
        let value = rest.next_if(|word| !word.starts_with("--"));
        let number = |text: &String| if text.parse::<u64>().is_ok() { text.clone() } else { quoted(text) };
        match (name.as_str(), value) {
            ("design", Some(value)) => design = quoted(value),
            // What is of built-in policies has no effect on this one, and a call with it is refused.
            ("time_scale", Some(_)) => {}
            ("set", Some(value)) => {
                let (key, value) = value.split_once('=').unwrap_or((value, ""));
                if !key.starts_with("os.policy") {
                    sets.push(format!("{}: {}", quoted(key), quoted(value)));
                }
            }
            ("workload", Some(value)) => input = Some(format!("workload={}", quoted(value))),
            ("trace", Some(value)) => input = Some(quoted(value)),
            ("mix", Some(value)) => input = Some(format!("terrace.Mix({})", quoted(value))),
            ("salvage", None) => salvage = ", salvage=True",
            ("every", Some(value)) => recording.push(format!("every=({})", value.replace(':', ", "))),
            ("skip" | "limit", Some(value)) => recording.push(format!("{name}={value}")),
            ("no_dependences" | "no_follow_exec", None) => {
                recording.push(format!("{}=False", &name["no_".len()..]));
            }
            ("whole" | "fast_forward", None) => others.push(format!("{name}=True")),
            (_, None) => recording.push(format!("{name}=True")),
            (_, Some(value)) => others.push(format!("{name}={}", number(value))),
        }
    }
    let input = match input {
        Some(input) if input.starts_with('"') => format!("trace=terrace.Trace({input}{salvage})"),
        Some(input) => input,
        None => {
            let recording: String = recording.iter().map(|word| format!(", {word}")).collect();
            format!("terrace.Command([{}]{recording})", list(command))
        }
    };
    let sets = (!sets.is_empty()).then(|| format!("set={{{}}}", sets.join(", ")));
    let arguments: Vec<String> =
        [design, input].into_iter().chain(others).chain(sets).chain([format!("policy={policy}")]).collect();
    format!("terrace.run({})", arguments.join(", "))
}
