//! Errors of studies as Python's exceptions. Options that they name are called as Python calls them.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use std::error::Error as _;

create_exception!(terrace, TerraceError, PyException, "A study that has no result.");
create_exception!(
    terrace,
    RequestError,
    TerraceError,
    "What was asked for does not exist or contradicts itself."
);
create_exception!(terrace, RunError, TerraceError, "The request was fine, and carrying it out failed.");

/// A text with options as keyword arguments: `time_scale` for `--time-scale`. Commands to be typed stay as they are.
pub fn in_python(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for clause in text.split_inclusive([';', ':', '\n']) {
        let is_command = ["terrace ", "valgrind "].iter().any(|command| clause.contains(command));
        let words = clause.split_inclusive(' ').map(|word| {
            let begin = word.find(|character: char| !"(\"'".contains(character)).unwrap_or_default();
            match word[begin..].strip_prefix("--") {
                Some(name) if !is_command && name.starts_with(|first: char| first.is_ascii_lowercase()) => {
                    let end = name.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(name.len());
                    format!("{}{}{}", &word[..begin], name[..end].replace('-', "_"), &name[end..])
                }
                _ => word.to_owned(),
            }
        });
        out.extend(words);
    }
    out
}

/// The exception for `error`, with the text that the command line prints, but for options.
pub fn exception(error: &terrace_study::Error) -> PyErr {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let part = inner.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        cause = inner.source();
    }
    let text = in_python(&text);
    if error.is_request() { RequestError::new_err(text) } else { RunError::new_err(text) }
}

/// A request that cannot be met, in words.
pub fn request(text: impl std::fmt::Display) -> PyErr {
    RequestError::new_err(in_python(&text.to_string()))
}
