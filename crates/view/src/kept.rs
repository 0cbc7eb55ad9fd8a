//! The part of a document that its summary is made of.
//!
//! Everything else is read past. A document has hundreds of statistics per run, and one of somebody else's may hold
//! anything: memory grows with what is kept alone.

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// Members of an object that are kept with what is in them.
const KEPT: [&str; 26] = [
    "accesses",
    "answer",
    "command",
    "date",
    "default",
    "design",
    "fidelity",
    "figures",
    "host",
    "input",
    "machine",
    "name",
    "objective",
    "policies",
    "policy",
    "runs",
    "schema",
    "seconds_simulated",
    "slowdown",
    "tiering",
    "title",
    "tolerated_bloat",
    "tolerated_slowdown",
    "tool_version",
    "tuned",
    "ways",
];

/// Members of which it is known alone that they are there, and whether they are objects.
const NOTICED: [&str; 5] = ["choices", "regions", "statistics", "stats", "uncertainty"];

/// Most values that a document's summary is made of: a hundred thousand runs with all that is said of each.
const MOST_VALUES: usize = 1 << 20;

/// Reads a text.
///
/// # Errors
/// A text that is no JSON, or holds more than a document of results does.
pub fn read(text: &str) -> Result<Value, serde_json::Error> {
    let mut values = 0;
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Kept { values: &mut values, noticed: false }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Keeps one value. Of one that is only noticed, arrays and objects are empty.
struct Kept<'a> {
    values: &'a mut usize,
    noticed: bool,
}

impl<'de> DeserializeSeed<'de> for Kept<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        *self.values += 1;
        if *self.values > MOST_VALUES {
            return Err(D::Error::custom(format_args!(
                "more than {MOST_VALUES} values, which no results have"
            )));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Kept<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut kept = Vec::new();
        if self.noticed {
            while elements.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Array(kept));
        }
        while let Some(value) = elements.next_element_seed(Kept { values: self.values, noticed: false })? {
            kept.push(value);
        }
        Ok(Value::Array(kept))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while let Some(name) = members.next_key::<std::borrow::Cow<'de, str>>()? {
            let noticed = NOTICED.contains(&&*name);
            if self.noticed || !(noticed || KEPT.contains(&&*name)) {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = members.next_value_seed(Kept { values: self.values, noticed })?;
            kept.insert(name.into_owned(), value);
        }
        Ok(Value::Object(kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_summary_needs_is_kept_and_the_rest_read_past() {
        let document = json!({
            "schema": 2, "title": "t\u{e9}\n", "x": [{ "": 0 }, [1, [2]]], "units": { "a": "b" },
            "runs": [{ "design": "d", "seconds_simulated": 0.5, "stats": { "os": { "faults": 3 } }, "notes": ["n"] }],
            "tiering": { "slowdown": null, "tiers": [1, 2] }, "regions": [{ "line": "x" }], "uncertainty": -3,
        });
        let expected = json!({
            "schema": 2, "title": "t\u{e9}\n",
            "runs": [{ "design": "d", "seconds_simulated": 0.5, "stats": {} }],
            "tiering": { "slowdown": null }, "regions": [], "uncertainty": -3,
        });
        assert_eq!(read(&document.to_string()).unwrap(), expected);
        for text in ["[1, true]", "3", "null", "\"a\""] {
            assert_eq!(read(text).unwrap(), serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
        for text in ["", "{", "{} {}", "{\"x\": [1, }", "[1] 2"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_document_takes_more_memory_than_results_do() {
        let many =
            |one: &str| format!("{{\"schema\":2,\"x\":[{}],\"runs\":[]}}", vec![one; 2 << 20].join(","));
        for one in ["0", "[]", "{\"\":0}"] {
            let text = many(one);
            assert_eq!(read(&text).unwrap(), json!({ "schema": 2, "runs": [] }));
            let kept = text.replace("\"x\"", "\"ways\"");
            assert!(read(&kept).unwrap_err().to_string().contains("which no results have"));
        }
    }
}
