//! Errors of studies as Python's exceptions, in the words of the command line.

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

/// The exception for `error`, with the text that the command line prints.
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
    if error.is_request() { RequestError::new_err(text) } else { RunError::new_err(text) }
}

/// A request that cannot be met, in words.
pub fn request(text: impl std::fmt::Display) -> PyErr {
    RequestError::new_err(text.to_string())
}
