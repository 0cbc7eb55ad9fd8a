//! Parameters, declared once: name, unit, default, range, source and help of each field of a struct.
//!
//! What `policy show` and `workload show` print, what the book's tables hold, what `tune` searches and what is accepted all
//! come from the struct itself:
//!
//! ```
//! use terrace_model::parameters::{Choice, Parameters};
//! use terrace_model::{Bytes, Time};
//!
//! /// Which pages are looked at.
//! #[derive(Clone, Copy, Debug, Default, PartialEq, Choice)]
//! enum Order {
//!     /// By address.
//!     #[default]
//!     Address,
//!     /// The page that was used last comes first.
//!     #[choice("mru")]
//!     MostRecent,
//! }
//!
//! #[derive(Clone, Debug, PartialEq, Parameters)]
//! struct Daemon {
//!     /// Time between two wakes.
//!     #[parameter(default = "2 s", range = "1 ns"..="5 h", source = "§5.2", scaled)]
//!     period: Time,
//!     /// Share of the tier that stays free.
//!     #[parameter(default = 0.05, range = 0.0..=1.0, unit = "share")]
//!     headroom: f64,
//!     /// The order of the search.
//!     order: Order,
//!     #[parameter(section)]
//!     buffer: Buffer,
//! }
//!
//! #[derive(Clone, Debug, PartialEq, Parameters)]
//! struct Buffer {
//!     /// Its size.
//!     #[parameter(default = "64 KiB", range = "4 KiB"..="1 GiB")]
//!     size: Bytes,
//! }
//!
//! let daemon = Daemon::read([("order", "mru"), ("buffer.size", "1 MiB")])?;
//! assert_eq!((daemon.period, daemon.order), (Time::from_nanos(2_000_000_000), Order::MostRecent));
//! assert_eq!(daemon.buffer, Buffer { size: Bytes::mib(1) });
//!
//! let error = |key, text| Daemon::read([(key, text)]).unwrap_err().to_string();
//! assert_eq!(error("headroom", "2"), "headroom = 2.0 is out of range: 0.0 to 1.0");
//! assert_eq!(error("order", "mruu"), "order = mruu: expected one of address, mru; did you mean \"mru\"?");
//! assert_eq!(error("perod", "1 s"), "unknown parameter \"perod\"; did you mean \"period\"?; \
//!     there are period, headroom, order, buffer.size");
//!
//! let names: Vec<String> = Daemon::parameters().into_iter().map(|parameter| parameter.name).collect();
//! assert_eq!(names, ["period", "headroom", "order", "buffer.size"]);
//! # Ok::<(), terrace_model::parameters::ParameterError>(())
//! ```
//!
//! A text in `default` and `range` is read as a user's text would be; anything else is a Rust expression. A field without
//! `default` takes its type's. `name = "…"` gives a key that differs from the field's name. `section` nests a struct under
//! the field's name and a dot, `flatten` puts its parameters beside the others. `scaled` marks periods and amounts of memory
//! that are divided with the machine; `goal` marks what only a user can choose, so that no search does.
//!
//! A struct that serde reads from a file is marked `#[parameter(table)]`. It implements [`Declared`] alone: a field without
//! `#[serde(default)]` has to be given, so the table has no `Default`. See [`Declared`] for an example.

mod declared;
mod value;

pub use declared::Declared;
pub use terrace_model_derive::{Choice, Parameters};
pub use value::{Bounded, ParameterValue};

use serde::Serialize;
use std::fmt;

/// What a parameter's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// Whole numbers.
    Count,
    /// Numbers without unit.
    Number,
    /// Times.
    Time,
    /// Amounts of memory.
    Bytes,
    /// Bandwidths.
    Rate,
    /// Frequencies.
    Frequency,
    /// Cycles of a clock.
    Cycles,
    /// Energies.
    Energy,
    /// One of a few words.
    Choice,
    /// Any text.
    Text,
}

impl Kind {
    /// Whether values have an order, so that a range says what is accepted.
    pub const fn is_ordered(self) -> bool {
        !matches!(self, Kind::Switch | Kind::Choice | Kind::Text)
    }
}

/// One of the words that a parameter can be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChoiceInfo {
    /// The word.
    pub name: String,
    /// What it means.
    pub help: String,
}

/// The smallest and the largest value of a parameter, as texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Range {
    /// The smallest.
    pub low: String,
    /// The largest.
    pub high: String,
}

/// A parameter as it was declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ParameterInfo {
    /// The key.
    pub name: String,
    /// What its values are.
    pub kind: Kind,
    /// What a number counts; for quantities with units the kind of unit.
    pub unit: String,
    /// The value where none is given; `none` where it is unset, empty where a value has to be given.
    pub default: String,
    /// Smallest and largest value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// What it can be, where that is a few words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<ChoiceInfo>,
    /// Where the default comes from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// What it means.
    pub help: String,
    /// A period or an amount of memory, which is divided with the machine.
    #[serde(skip)]
    pub scaled: bool,
    /// A goal of the user, which no search chooses.
    #[serde(skip)]
    pub goal: bool,
    /// The kind of its table that has this parameter, where the other kinds do not.
    #[serde(skip)]
    pub only_with: String,
}

impl ParameterInfo {
    /// A parameter with values of `T`, without range and source.
    pub fn of<T: ParameterValue>(name: String, help: &str, unit: &str, default: String) -> ParameterInfo {
        ParameterInfo {
            name,
            kind: T::KIND,
            unit: if unit.is_empty() { T::unit().to_owned() } else { unit.to_owned() },
            default,
            range: None,
            choices: T::choices(),
            source: String::new(),
            help: help.to_owned(),
            scaled: false,
            goal: false,
            only_with: String::new(),
        }
    }

    /// A key that names the kind of its table.
    pub fn kinds(name: String, help: &str, default: &str, kinds: &[(&str, &str)]) -> ParameterInfo {
        let choice =
            |(name, help): &(&str, &str)| ChoiceInfo { name: (*name).to_owned(), help: (*help).to_owned() };
        ParameterInfo {
            kind: Kind::Choice,
            choices: kinds.iter().map(choice).collect(),
            ..ParameterInfo::of::<String>(name, help, "", default.to_owned())
        }
    }

    /// Whether this declares the value at a dotted key. `*` in its name stands for the name or the position of an element.
    pub fn is_at(&self, key: &str) -> bool {
        let (name, key) = (self.name.split('.'), key.split('.'));
        name.clone().count() == key.clone().count()
            && name.zip(key).all(|(part, found)| part == "*" || part == found)
    }

    /// The default as a file writes it: what is neither a number nor a truth value in quotes.
    pub fn written_default(&self) -> String {
        let quoted = |text: &str| match text {
            "" | "none" | "true" | "false" => text.to_owned(),
            number if number.parse::<f64>().is_ok() => number.to_owned(),
            text => format!("\"{text}\""),
        };
        match self.default.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(list) => format!("[{}]", list.split(", ").map(quoted).collect::<Vec<_>>().join(", ")),
            None => quoted(&self.default),
        }
    }

    /// The help, followed by what the words mean where there are a few, and by the source.
    pub fn explanation(&self) -> String {
        let mut text = self.help.clone();
        for (at, ChoiceInfo { name, help }) in self.choices.iter().enumerate() {
            let help = help.trim_end_matches('.');
            text += &format!("{} `{name}`: {help}", if at == 0 { "" } else { ";" });
        }
        if !self.choices.is_empty() {
            text.push('.');
        }
        if !self.source.is_empty() {
            text += &format!(" Source: {}.", self.source);
        }
        text
    }

    /// The explanation with the range, where there is one.
    pub fn explanation_with_range(&self) -> String {
        let range = self.range.as_ref().map(|range| format!(" Range: {} to {}.", range.low, range.high));
        self.explanation() + &range.unwrap_or_default()
    }
}

/// A value that a parameter cannot have, or a parameter that there is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterError {
    /// There is no such parameter.
    Unknown {
        /// As given.
        key: String,
        /// The most similar key.
        nearest: Option<String>,
        /// All keys.
        valid: Vec<String>,
    },
    /// A value cannot be read.
    Unreadable {
        /// The parameter.
        key: String,
        /// As given.
        text: String,
        /// What would do.
        expected: String,
    },
    /// A value is not within its range.
    OutOfRange {
        /// The parameter.
        key: String,
        /// As it was understood.
        value: String,
        /// What would do.
        range: Range,
    },
}

impl ParameterError {
    /// This error of a section whose keys begin with `prefix`.
    pub fn within(self, prefix: &str) -> ParameterError {
        let longer = |key: String| format!("{prefix}{key}");
        match self {
            ParameterError::Unknown { key, nearest, valid } => {
                ParameterError::Unknown { key: longer(key), nearest: nearest.map(longer), valid }
            }
            ParameterError::Unreadable { key, text, expected } => {
                ParameterError::Unreadable { key: longer(key), text, expected }
            }
            ParameterError::OutOfRange { key, value, range } => {
                ParameterError::OutOfRange { key: longer(key), value, range }
            }
        }
    }
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParameterError::Unknown { key, nearest, valid } => {
                write!(f, "unknown parameter \"{key}\"{}", did_you_mean(nearest.as_deref()))?;
                if valid.is_empty() { Ok(()) } else { write!(f, "; there are {}", valid.join(", ")) }
            }
            ParameterError::Unreadable { key, text, expected } => {
                write!(f, "{key} = {text}: expected {expected}")
            }
            ParameterError::OutOfRange { key, value, range } => {
                write!(f, "{key} = {value} is out of range: {} to {}", range.low, range.high)
            }
        }
    }
}

impl std::error::Error for ParameterError {}

/// A set of declared parameters, each with a default. Derived; see the module's documentation.
pub trait Parameters: Declared + Default {
    /// Sets one parameter from text, whatever its range; false where there is none of this name.
    ///
    /// # Errors
    /// A text that cannot be read.
    fn set(&mut self, key: &str, text: &str) -> Result<bool, ParameterError>;

    /// The text of one parameter's value; none where there is no such parameter.
    fn get(&self, key: &str) -> Option<String>;

    /// What was declared, in the order of the fields.
    fn parameters() -> Vec<ParameterInfo> {
        Self::default().current()
    }

    /// The defaults with the given values in their place.
    ///
    /// # Errors
    /// A key that there is not, a text that cannot be read, or a value out of its range.
    fn read<'a>(given: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ParameterError> {
        let mut parameters = Self::default();
        for (key, text) in given {
            if !parameters.set(key, text)? {
                return Err(unknown::<Self>(key));
            }
        }
        parameters.check()?;
        Ok(parameters)
    }
}

fn unknown<P: Parameters>(key: &str) -> ParameterError {
    let valid: Vec<String> = P::parameters().into_iter().map(|parameter| parameter.name).collect();
    let nearest = nearest(key, valid.iter().map(String::as_str)).map(str::to_owned);
    ParameterError::Unknown { key: key.to_owned(), nearest, valid }
}

/// The candidate most similar to `word`, where one is similar at all: `ls` is no slip of `all-slow`.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let similarity = |candidate: &str| strsim::jaro_winkler(&word, &candidate.to_lowercase());
    let is_alike = |candidate: &&str| {
        let (one, other) = (word.chars().count(), candidate.chars().count());
        one.max(other) <= 2 * one.min(other)
            || candidate.to_lowercase().starts_with(&word)
            || word.starts_with(&candidate.to_lowercase())
    };
    let similar = candidates.into_iter().filter(is_alike).map(|candidate| (similarity(candidate), candidate));
    let similar = similar.filter(|(similarity, _)| *similarity > 0.7);
    similar.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate)| candidate)
}

/// `; did you mean "…"?`, or nothing.
pub fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|nearest| format!("; did you mean \"{nearest}\"?")).unwrap_or_default()
}

/// What is expected where a text is none of `words`.
pub fn expected_choice(text: &str, words: &[&str]) -> String {
    format!("one of {}{}", words.join(", "), did_you_mean(nearest(text, words.iter().copied())))
}

/// What a field's declaration says, as it was written.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Written {
    pub key: &'static str,
    pub help: &'static str,
    pub unit: &'static str,
    pub source: &'static str,
    pub scaled: bool,
    pub goal: bool,
    pub only_with: &'static str,
}

/// A declared field, whose default is the value that stands for it. A function for each type of value, and not for each
/// of the hundreds of fields.
#[doc(hidden)]
#[inline(never)]
pub fn declaration<T: ParameterValue>(
    prefix: &str,
    written: &Written,
    range: Option<Range>,
    value: Option<&T>,
) -> ParameterInfo {
    let Written { key, help, unit, source, scaled, goal, only_with } = *written;
    ParameterInfo {
        range,
        source: source.to_owned(),
        scaled,
        goal,
        only_with: only_with.to_owned(),
        ..ParameterInfo::of::<T>(
            format!("{prefix}{key}"),
            help,
            unit,
            value.map(ParameterValue::text).unwrap_or_default(),
        )
    }
}

/// Reads a value that a user gave for `key`.
#[doc(hidden)]
#[inline(never)]
pub fn read_value<T: ParameterValue>(key: &str, text: &str) -> Result<T, ParameterError> {
    T::read(text.trim()).map_err(|expected| ParameterError::Unreadable {
        key: key.to_owned(),
        text: text.to_owned(),
        expected,
    })
}

/// Reads a value in an attribute of `field`.
#[doc(hidden)]
#[inline(never)]
pub fn constant<T: ParameterValue>(field: &str, text: &str) -> T {
    T::read(text).unwrap_or_else(|expected| panic!("the field {field}: \"{text}\" is not {expected}"))
}

/// Two bounds as texts.
#[doc(hidden)]
#[inline(never)]
pub fn range_of<T: Bounded>(low: &T::Bound, high: &T::Bound) -> Range {
    Range { low: low.text(), high: high.text() }
}

/// Refuses a value that is not between the bounds.
#[doc(hidden)]
#[inline(never)]
pub fn check_range<T: Bounded>(
    key: &str,
    value: &T,
    low: &T::Bound,
    high: &T::Bound,
) -> Result<(), ParameterError> {
    match value.outside(low, high) {
        None => Ok(()),
        Some((value, range)) => Err(ParameterError::OutOfRange { key: key.to_owned(), value, range }),
    }
}
