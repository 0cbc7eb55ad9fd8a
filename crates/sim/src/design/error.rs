//! What can be wrong with a design: one message that names the place, the thing and what to do next.

use std::fmt;
use std::sync::Arc;
use terrace_model::parameters::{did_you_mean, nearest};

/// Where a value of a design comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A line of a file, counted from 1.
    File {
        /// The file as the user knows it: `designs/vivt.toml` for an embedded one, else the path given.
        file: Arc<str>,
        /// Line of the key.
        line: usize,
    },
    /// A line of a device preset.
    Preset {
        /// The preset's name.
        name: Arc<str>,
        /// Line of the key in the preset's text.
        line: usize,
    },
    /// An option of the command line.
    Set(Arc<str>),
    /// The schema's default for a key that no file gives.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { file, line } => write!(f, "{file}:{line}"),
            Origin::Preset { name, line } => write!(f, "preset {name}:{line}"),
            Origin::Set(text) => write!(f, "--set {text}"),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// A design, machine or claim that cannot be used, and why. Its text is one line: place, key, what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesignError {
    place: Option<String>,
    message: String,
}

impl DesignError {
    /// An error without a place in a file, such as an unknown name on the command line.
    pub fn new(message: impl Into<String>) -> DesignError {
        DesignError { place: None, message: one_line(message.into()) }
    }

    /// An error at a place: a file, a line of a file, an option.
    pub fn at(place: impl fmt::Display, message: impl Into<String>) -> DesignError {
        DesignError { place: Some(one_line(place.to_string())), message: one_line(message.into()) }
    }

    /// File and line (`designs/my.toml:12`) or option (`--set core.count=x`), where there is one.
    pub fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }

    /// Whether its place is a setting of the command line.
    pub(crate) fn is_of_a_setting(&self) -> bool {
        self.place().is_some_and(|place| place.starts_with("--set "))
    }

    /// This error of what settings contradict, in their name.
    pub(crate) fn blamed_on(self, sets: &[(String, String)]) -> DesignError {
        let all: Vec<String> = sets.iter().map(|(key, value)| format!("--set {key}={value}")).collect();
        let contradicts = if sets.len() == 1 { "contradicts" } else { "contradict" };
        let all = all.join(" ");
        let place = match self.place.as_deref() {
            None => all,
            Some("default") => format!("{all} {contradicts} the default"),
            Some(place) => format!("{all} {contradicts} {place}"),
        };
        DesignError::at(place, self.message)
    }

    /// The message without its place.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for DesignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for DesignError {}

/// Values that a message quotes may have line breaks in them; they are shown as `\n`.
fn one_line(text: String) -> String {
    if !text.contains(char::is_control) {
        return text;
    }
    let shown = |letter: char| match letter.is_control() {
        true => letter.escape_debug().to_string(),
        false => letter.to_string(),
    };
    text.chars().map(shown).collect()
}

/// `; did you mean "x"?` for the candidate nearest to `wrong`, or the list of what is valid where none is near.
pub(crate) fn suggestion<S: AsRef<str>>(wrong: &str, candidates: &[S]) -> String {
    let words = || candidates.iter().map(AsRef::as_ref);
    match nearest(wrong, words()) {
        None if candidates.is_empty() => String::new(),
        None => format!("; valid here: {}", words().collect::<Vec<_>>().join(", ")),
        found => did_you_mean(found),
    }
}
