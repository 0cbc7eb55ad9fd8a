//! From a tree to a typed value, with the reader's complaint turned into one line that names file, line and key.

use super::Design;
use super::error::{DesignError, Origin, suggestion};
use super::tree::{Entry, Node, name_of};
use crate::typed::{self, Misfit};
use serde::de::DeserializeOwned;
use terrace_model::parameters::{Declared, did_you_mean, nearest};

/// Reads `tree` as a `T`. Errors: unknown or missing key, wrong type, wrong unit, each with the place of the key.
pub(crate) fn read<T: DeserializeOwned>(tree: &Entry) -> Result<T, DesignError> {
    typed::read(&tree.value()).map_err(|misfit| explain_misfit(tree, "", &misfit))
}

/// The reader's complaint about the part of `tree` at the dotted key `above`; the whole where that is empty.
pub(crate) fn explain_misfit(tree: &Entry, above: &str, misfit: &Misfit) -> DesignError {
    let mut entry = tree;
    let mut path: Vec<String> = Vec::new();
    let above = above.split('.').filter(|segment| !segment.is_empty()).map(str::to_owned);
    // The names of the other elements, where the entry is one of a list.
    let mut others: Vec<&str> = Vec::new();
    for key in above.chain(misfit.path.iter().cloned()) {
        let Some(child) = entry.child(&key) else { break };
        others.clear();
        let mut name = None;
        if let Node::Array(elements) = &entry.node {
            let key = path.join(".");
            if is_table(&key) && !is_list(&key) {
                let message =
                    format!("{key}: found a list of tables ([[{key}]]), expected one table ([{key}])");
                return DesignError::at(&child.origin, message);
            }
            name = name_of(child).map(str::to_owned);
            others =
                elements.iter().filter(|other| !std::ptr::eq(*other, child)).filter_map(name_of).collect();
        }
        entry = child;
        path.push(name.unwrap_or(key));
    }
    explain(&misfit.message, entry, path, &others)
}

/// Whether designs have keys below this one by their names.
fn is_table(key: &str) -> bool {
    has_below(key, |segment| segment != "*")
}

/// Whether designs have a list of tables at this key.
fn is_list(key: &str) -> bool {
    has_below(key, |segment| segment == "*")
}

fn has_below(key: &str, next: impl Fn(&str) -> bool) -> bool {
    let above: Vec<&str> = key.split('.').collect();
    Design::declared().iter().any(|declared| {
        let mut name = declared.name.split('.');
        above.iter().all(|part| name.next().is_some_and(|own| own == "*" || own == *part))
            && name.next().is_some_and(&next)
    })
}

/// Rewrites serde's message about `entry`, which lies at `path`.
fn explain(message: &str, entry: &Entry, mut path: Vec<String>, others: &[&str]) -> DesignError {
    let quoted = backquoted(message);
    let message = message.trim();
    if message.starts_with("unknown field") {
        let (wrong, valid) = quoted.split_first().map_or(("", &[][..]), |(wrong, valid)| (*wrong, valid));
        return unknown_key(wrong, valid, entry, path);
    }
    if message.starts_with("missing field") {
        let key = quoted.first().copied().unwrap_or_default();
        let own = path.last().cloned().unwrap_or_default();
        path.push(key.to_owned());
        let hint = match nearest(&own, others.iter().copied()) {
            _ if path.ends_with(&["policy".to_owned(), "name".to_owned()]) => {
                ": the design has no policy there that this could change".to_owned()
            }
            Some(other) => format!(" in a new element \"{own}\"{}", did_you_mean(Some(other))),
            None => String::new(),
        };
        return DesignError::at(&entry.origin, format!("{} is missing{hint}", path.join(".")));
    }
    if message.starts_with("unknown variant") {
        let (wrong, valid) = quoted.split_first().map_or(("", &[][..]), |(wrong, valid)| (*wrong, valid));
        // A wrong key of a map whose keys are an enumeration (page sizes) reads as a variant too.
        if path.last().is_some_and(|last| last == wrong) {
            path.pop();
            return DesignError::at(
                &entry.origin,
                format!("unknown key \"{wrong}\"{}", suggestion(wrong, valid)),
            );
        }
        if entry.child(wrong).is_some() {
            return unknown_key(wrong, valid, entry, path);
        }
        // Inside a table whose variant is named by its `kind`, the path ends at the table.
        let entry = match entry.child("kind") {
            Some(kind) if kind.as_str() == Some(wrong) => {
                path.push("kind".to_owned());
                kind
            }
            _ => entry,
        };
        let message = format!("{}: \"{wrong}\" is not valid{}", path.join("."), suggestion(wrong, valid));
        return DesignError::at(&entry.origin, message);
    }
    let key = path.join(".");
    if let Some((number, range)) = out_of_range(message, &key) {
        return DesignError::at(&entry.origin, format!("{key}: {number} is not between {range}"));
    }
    if message.starts_with("invalid type: map") && is_list(&key) {
        let message = format!("{key}: found one table ([{key}]), expected a list of tables ([[{key}]])");
        return DesignError::at(&entry.origin, message);
    }
    DesignError::at(&entry.origin, format!("{key}: {}", plain(message)))
}

/// A whole number that does not fit into the type of `key`, and what would do: the range that the key declares, else that of
/// the type.
fn out_of_range(message: &str, key: &str) -> Option<(String, String)> {
    let (found, expected) = message.strip_prefix("invalid value: ")?.split_once(", expected ")?;
    let number = found.strip_prefix("integer `")?.trim_end_matches('`');
    let declared = Design::declared().into_iter().find(|one| one.is_at(key)).and_then(|one| one.range);
    let range = match (declared, expected) {
        (Some(range), _) => format!("{} and {}", range.low, range.high),
        (None, "u8") => format!("0 and {}", u8::MAX),
        (None, "u16") => format!("0 and {}", u16::MAX),
        (None, "u32") => format!("0 and {}", u32::MAX),
        (None, "u64" | "usize") => format!("0 and {}", i64::MAX),
        _ => return None,
    };
    Some((number.to_owned(), range))
}

fn unknown_key(wrong: &str, valid: &[&str], entry: &Entry, mut path: Vec<String>) -> DesignError {
    // The path may or may not include the offending key.
    let entry = match entry.child(wrong) {
        Some(child) => {
            path.push(wrong.to_owned());
            child
        }
        None => entry,
    };
    // On the command line the key stands alone, so it is shown whole.
    let (shown, valid): (String, Vec<String>) = match &entry.origin {
        Origin::Set(_) => {
            let above = path[..path.len().saturating_sub(1)].join(".");
            let prefix = if above.is_empty() { above } else { above + "." };
            (path.join("."), valid.iter().map(|key| format!("{prefix}{key}")).collect())
        }
        _ => (wrong.to_owned(), valid.iter().map(|key| key.to_string()).collect()),
    };
    DesignError::at(&entry.origin, format!("unknown key \"{shown}\"{}", suggestion(&shown, &valid)))
}

/// The words in backquotes: serde names fields and variants that way, the offending one first.
fn backquoted(message: &str) -> Vec<&str> {
    message.split('`').skip(1).step_by(2).collect()
}

/// serde's "invalid type: X, expected Y" in words that need no knowledge of Rust.
fn plain(message: &str) -> String {
    let Some(rest) = message.strip_prefix("invalid type: ").or(message.strip_prefix("invalid value: "))
    else {
        return message.to_owned();
    };
    let Some((found, expected)) = rest.split_once(", expected ") else { return message.to_owned() };
    let is_number = found.starts_with("integer") || found.starts_with("float");
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, not negative",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" if is_number => "text in quotes (a quantity carries its unit, such as \"80 ns\")",
        "a string" | "string or table" => "text in quotes",
        "a sequence" => "a list in brackets",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    let found = match found {
        "map" => "a table".to_owned(),
        "sequence" => "a list".to_owned(),
        other => other.replace('`', ""),
    };
    format!("found {found}, expected {expected}")
}

/// Every leaf of a plain value by its dotted key; elements of a list of tables go by their name, else position.
pub(crate) fn leaves(value: &toml::Value) -> Vec<(String, String)> {
    fn walk(value: &toml::Value, path: &str, out: &mut Vec<(String, String)>) {
        let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        match value {
            toml::Value::Table(table) => {
                for (key, value) in table {
                    walk(value, &below(key), out);
                }
            }
            toml::Value::Array(array) if array.iter().any(toml::Value::is_table) => {
                for (at, value) in array.iter().enumerate() {
                    let name = value.get("name").and_then(toml::Value::as_str);
                    walk(value, &below(name.unwrap_or(&at.to_string())), out);
                }
            }
            leaf => out.push((path.to_owned(), text_of(leaf))),
        }
    }
    let mut out = Vec::new();
    walk(value, "", &mut out);
    out
}

/// A leaf as the user would read it: text without quotes.
pub(crate) fn text_of(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(array) => {
            format!("[{}]", array.iter().map(toml::Value::to_string).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// The text of a leaf of a tree.
pub(crate) fn leaf_text(entry: &Entry) -> Option<String> {
    match &entry.node {
        Node::Table(_) => None,
        _ => Some(text_of(&entry.value())),
    }
}
