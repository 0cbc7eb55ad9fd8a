//! Fields of a JSON document.

use serde_json::Value;

/// A text; empty where there is none.
pub fn text_of(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}
