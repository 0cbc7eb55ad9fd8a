//! One document of results in short.

use crate::field::text_of;
use crate::set::{Kind, RunRow};
use crate::{answers, kept};
use serde_json::Value;
use terrace_study::difference::{OF_LIVE_RUN, is_of_live_run};

/// The newest shape of a document of runs that the page knows.
const NEWEST_SCHEMA: u64 = 2;

/// What a document says of itself.
#[derive(Debug, PartialEq)]
pub struct Summary {
    pub kind: Kind,
    pub title: String,
    pub command: String,
    pub tool_version: String,
    pub date: String,
    pub runs: Vec<RunRow>,
}

/// Reads the text of a file, which the user may have named. None where it is JSON of something else.
///
/// # Errors
/// A text that is no JSON, results of a newer version, runs that lack what every run has: in words.
pub fn read(text: &str, is_named: bool) -> Result<Option<Summary>, String> {
    let document =
        kept::read(text).map_err(|error| format!("{error}; the file is damaged, or still being written"))?;
    let Some(kind) = kind(&document) else {
        return if is_named && is_of_live_run(&document) { Err(OF_LIVE_RUN.to_owned()) } else { Ok(None) };
    };
    let schema = document.get("schema").and_then(Value::as_u64).unwrap_or_default();
    if schema > NEWEST_SCHEMA {
        return Err(format!(
            "its schema {schema} is newer than {NEWEST_SCHEMA}, which this version of Terrace reads"
        ));
    }
    let runs = match kind {
        Kind::Results | Kind::Sweep => runs(&document)?,
        Kind::Tune => answers::tuned(&document),
        Kind::Advice => answers::advised(&document),
        Kind::Pages => answers::ways(&document),
    };
    let date = document.pointer("/host/date").or_else(|| document.get("date"));
    Ok(Some(Summary {
        kind,
        title: text_of(document.get("title")),
        command: text_of(document.get("command")),
        tool_version: text_of(document.get("tool_version")),
        date: text_of(date),
        runs,
    }))
}

/// By the keys that no other document has.
fn kind(document: &Value) -> Option<Kind> {
    let has = |keys: &[&str]| keys.iter().all(|key| document.get(key).is_some());
    match () {
        () if document.get("runs").is_some_and(Value::is_array) => Some(Kind::Results),
        () if has(&["policy", "objective", "default", "tuned"]) => Some(Kind::Tune),
        () if has(&["tolerated_slowdown", "policies", "uncertainty"]) => Some(Kind::Advice),
        () if has(&["tolerated_bloat", "ways", "regions"]) => Some(Kind::Pages),
        () => None,
    }
}

fn runs(document: &Value) -> Result<Vec<RunRow>, String> {
    let runs = document.get("runs").and_then(Value::as_array).into_iter().flatten();
    runs.enumerate().map(|(at, run)| row(run).map_err(|lacks| format!("run {} {lacks}", at + 1))).collect()
}

fn row(run: &Value) -> Result<RunRow, String> {
    let name = |key: &str| {
        let text = run.get(key).and_then(Value::as_str).map(str::to_owned);
        text.ok_or_else(|| format!("has no {key}, so these are no results of terrace compare or sim"))
    };
    if !run.get("stats").is_some_and(Value::is_object) {
        return Err("has no statistics, so these are no results of terrace compare or sim".to_owned());
    }
    Ok(RunRow {
        design: name("design")?,
        machine: name("machine")?,
        input: name("input")?,
        fidelity: text_of(run.get("fidelity")),
        // A live run simulates no time.
        seconds: run.get("seconds_simulated").and_then(Value::as_f64).filter(|seconds| *seconds > 0.0),
        slowdown: run.pointer("/tiering/slowdown").and_then(Value::as_f64),
        accesses: run.get("accesses").and_then(Value::as_u64).filter(|count| *count > 0),
        ..RunRow::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run() -> Value {
        json!({
            "design": "native-4k", "machine": "m", "input": "gups", "fidelity": "full", "accesses": 10,
            "seconds_simulated": 0.5, "stats": {}, "tiering": { "slowdown": 0.25 },
        })
    }

    #[test]
    fn a_comparison_in_short() {
        let document = json!({ "schema": 2, "runs": [run()], "title": "t", "command": "c", "tool_version": "0.1.0",
                    "host": { "date": "2026-11-24" } });
        let summary = read(&document.to_string(), false).unwrap().unwrap();
        assert_eq!((summary.kind, summary.title.as_str()), (Kind::Results, "t"));
        assert_eq!((summary.command.as_str(), summary.date.as_str()), ("c", "2026-11-24"));
        let row = &summary.runs[0];
        assert_eq!(
            (row.design.as_str(), row.machine.as_str(), row.input.as_str()),
            ("native-4k", "m", "gups")
        );
        assert_eq!((row.seconds, row.slowdown, row.accesses), (Some(0.5), Some(0.25), Some(10)));
        // A document of schema 1.
        let old = json!({ "schema": 1, "runs": [], "date": "2026-01-01" });
        assert_eq!(read(&old.to_string(), false).unwrap().unwrap().date, "2026-01-01");
    }

    #[test]
    fn a_live_run_has_no_simulated_time() {
        let mut live = run();
        (live["seconds_simulated"], live["accesses"]) = (json!(0.0), json!(0));
        let summary = read(&json!({ "schema": 2, "runs": [live] }).to_string(), false).unwrap().unwrap();
        assert_eq!((summary.runs[0].seconds, summary.runs[0].accesses), (None, None));
    }

    #[test]
    fn other_json_is_no_concern_of_ours_and_damage_is_named() {
        for text in ["{}", "[]", "3", "{\"runs\": 3}", "{\"schema\": 1, \"claims\": []}"] {
            assert_eq!(read(text, false), Ok(None), "{text}");
        }
        let message = |text: &str| read(text, false).unwrap_err();
        assert!(message("{\"schema\": 2, \"runs\": [").contains("damaged, or still being written"));
        assert!(message("").contains("line 1"));
        assert!(message("{\"schema\": 3, \"runs\": []}").contains("newer than 2"));
        assert!(message("{\"schema\": 2, \"runs\": [1]}").starts_with("run 1 has no statistics"));
        let mut nameless = run();
        nameless["input"] = Value::Null;
        let text = json!({ "schema": 2, "runs": [run(), nameless] }).to_string();
        assert!(message(&text).starts_with("run 2 has no input"), "{}", message(&text));
    }
}
