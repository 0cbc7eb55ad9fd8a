//! What was declared of a struct, and of optional structs, lists and maps of them.

use super::{ParameterError, ParameterInfo, ParameterValue};
use std::collections::BTreeMap;

/// Declared parameters: which there are, and whether values are within their ranges. Derived, for structs with
/// [`Parameters`](super::Parameters) and for tables of files:
///
/// ```
/// use serde::Deserialize;
/// use terrace_model::Time;
/// use terrace_model::parameters::{Declared, Parameters};
///
/// /// A memory and its links.
/// #[derive(Deserialize, Parameters)]
/// #[parameter(table)]
/// struct Memory {
///     /// Independent channels.
///     #[parameter(range = 1..=64)]
///     channels: u32,
///     #[parameter(section)]
///     #[serde(default)]
///     link: Vec<Link>,
/// }
///
/// #[derive(Deserialize, Parameters)]
/// #[parameter(table)]
/// struct Link {
///     /// Its name.
///     #[parameter(element)]
///     name: String,
///     /// Added to every transfer.
///     #[parameter(range = "0 ns"..="1 s")]
///     #[serde(default)]
///     latency: Time,
/// }
///
/// let declared = Memory::declared();
/// let names: Vec<&str> = declared.iter().map(|parameter| parameter.name.as_str()).collect();
/// assert_eq!(names, ["channels", "link.*.name", "link.*.latency"]);
/// assert_eq!((declared[0].default.as_str(), declared[2].default.as_str()), ("", "0 s"));
///
/// let far = Link { name: "far".to_owned(), latency: Time::from_nanos(2_000_000_000) };
/// let memory = Memory { channels: 2, link: vec![far] };
/// assert_eq!(memory.check().unwrap_err().to_string(), "link.far.latency = 2 s is out of range: 0 s to 1 s");
/// ```
///
/// An enum with `#[serde(tag = "…")]` is a table, too: its tag is a choice, and each variant has fields of its own.
pub trait Declared {
    /// Adds what was declared, in the order of the fields, each name after `prefix`. The defaults are those of `values`
    /// where some are given.
    fn declare(values: Option<&Self>, prefix: &str, declared: &mut Vec<ParameterInfo>);

    /// Whether all values are within their ranges.
    ///
    /// # Errors
    /// The first that is not, with its range.
    fn check(&self) -> Result<(), ParameterError>;

    /// What keys call it as an element of a list; its position where it has no name.
    fn element(&self) -> Option<&str> {
        None
    }

    /// What was declared, in the order of the fields.
    fn declared() -> Vec<ParameterInfo> {
        let mut declared = Vec::new();
        Self::declare(None, "", &mut declared);
        declared
    }

    /// What was declared, with the values in force as defaults.
    fn current(&self) -> Vec<ParameterInfo> {
        let mut declared = Vec::new();
        Self::declare(Some(self), "", &mut declared);
        declared
    }
}

impl<T: Declared> Declared for Option<T> {
    fn declare(values: Option<&Self>, prefix: &str, declared: &mut Vec<ParameterInfo>) {
        T::declare(values.and_then(Option::as_ref), prefix, declared);
    }

    fn check(&self) -> Result<(), ParameterError> {
        self.as_ref().map_or(Ok(()), T::check)
    }
}

/// What stands for the name of an element in the keys of a list or a map.
const ANY: &str = "*.";

impl<T: Declared> Declared for Vec<T> {
    fn declare(_: Option<&Self>, prefix: &str, declared: &mut Vec<ParameterInfo>) {
        T::declare(None, &format!("{prefix}{ANY}"), declared);
    }

    fn check(&self) -> Result<(), ParameterError> {
        let within = |at: usize, element: &T| match element.element() {
            Some(name) => format!("{name}."),
            None => format!("{at}."),
        };
        let mut elements = self.iter().enumerate();
        elements.try_for_each(|(at, one)| one.check().map_err(|error| error.within(&within(at, one))))
    }
}

impl<K: ParameterValue, T: Declared> Declared for BTreeMap<K, T> {
    fn declare(_: Option<&Self>, prefix: &str, declared: &mut Vec<ParameterInfo>) {
        T::declare(None, &format!("{prefix}{ANY}"), declared);
    }

    fn check(&self) -> Result<(), ParameterError> {
        let mut elements = self.iter();
        elements
            .try_for_each(|(key, one)| one.check().map_err(|error| error.within(&format!("{}.", key.text()))))
    }
}
