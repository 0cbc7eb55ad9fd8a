//! The answers of `tune` and `advise` as rows beside those of runs.

use crate::field::text_of;
use crate::set::RunRow;
use serde_json::Value;

fn rows_of<'a>(document: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    document.get(key).and_then(Value::as_array).into_iter().flatten()
}

/// What all rows of an answer have.
fn common(document: &Value) -> RunRow {
    let [machine, input, fidelity] = ["machine", "input", "fidelity"].map(|key| text_of(document.get(key)));
    let accesses = document.get("accesses").and_then(Value::as_u64);
    RunRow { machine, input, fidelity, accesses, ..RunRow::default() }
}

/// The policy with the values in force and with those that were found.
pub fn tuned(document: &Value) -> Vec<RunRow> {
    let policy = text_of(document.get("policy"));
    let settings = [("default", "as it was"), ("tuned", "tuned")];
    let row = |(key, name): (&str, &str)| {
        let number = |field: &str| document.pointer(&format!("/{key}/{field}")).and_then(Value::as_f64);
        RunRow {
            design: format!("{policy}, {name}"),
            seconds: number("seconds_simulated"),
            slowdown: number("slowdown"),
            ..common(document)
        }
    };
    settings.map(row).to_vec()
}

/// Each policy with the smallest fastest tier that is enough for it.
pub fn advised(document: &Value) -> Vec<RunRow> {
    let row = |policy: &Value| RunRow {
        design: text_of(policy.get("policy")),
        slowdown: policy.pointer("/answer/slowdown").and_then(Value::as_f64),
        ..common(document)
    };
    rows_of(document, "policies").map(row).collect()
}

/// Each way of using large pages.
pub fn ways(document: &Value) -> Vec<RunRow> {
    let row = |way: &Value| RunRow {
        design: text_of(way.get("name")),
        seconds: way.pointer("/figures/seconds_simulated").and_then(Value::as_f64),
        ..common(document)
    };
    rows_of(document, "ways").map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_of_answers() {
        let document = json!({
            "policy": "ambix", "machine": "m", "input": "kv",
            "default": { "seconds_simulated": 2.0, "slowdown": 0.5 },
            "tuned": { "seconds_simulated": 1.5, "slowdown": 0.125 },
        });
        let rows = tuned(&document);
        assert_eq!(rows[0].design, "ambix, as it was");
        assert_eq!((rows[1].design.as_str(), rows[1].seconds), ("ambix, tuned", Some(1.5)));
        assert_eq!((rows[1].slowdown, rows[1].input.as_str()), (Some(0.125), "kv"));

        let document = json!({
            "input": "kv", "machine": "m", "accesses": 7,
            "policies": [{ "policy": "idle", "answer": { "slowdown": 0.02 } }, { "policy": "tpp", "answer": null }],
        });
        let rows = advised(&document);
        assert_eq!((rows[0].slowdown, rows[0].accesses), (Some(0.02), Some(7)));
        assert_eq!((rows[1].design.as_str(), rows[1].slowdown), ("tpp", None));
    }
}
