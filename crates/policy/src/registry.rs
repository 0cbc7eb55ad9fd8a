//! The policies by name, with their documents and their parameters.
//!
//! A policy's file is all there is of it: the module list comes from the folder (`build.rs`), its documents are the
//! comments of the file itself, its defaults are rendered by serde.

use crate::{
    Capabilities, Capability, CapabilitySet, ENTRIES, Needs, Policy, Profile, Published, Refusal, Setup,
    Tier, Topology,
};
use serde::Serialize;
use terrace_model::{Bytes, BytesPerSec, PageSize, Time};
use toml::{Table, Value};

/// One policy.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    name: &'static str,
    source: &'static str,
    effective: fn(Table) -> Result<Table, String>,
    scaled: &'static [&'static str],
    open: fn(Table, Setup<'_>) -> Result<Box<dyn Policy>, OpenProblem>,
}

#[derive(Debug)]
enum OpenProblem {
    Value(String),
    Refused(Refusal),
}

/// A policy that could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// There is none of this name.
    #[error("no policy \"{name}\"{suggestion}; the policies are {valid}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// `; did you mean …?`, or nothing.
        suggestion: String,
        /// All names.
        valid: String,
    },
    /// It has no such parameter.
    #[error("{policy} has no parameter \"{key}\"{suggestion}; its parameters are {valid}")]
    UnknownKey {
        /// The policy.
        policy: &'static str,
        /// The key.
        key: String,
        /// `; did you mean …?`, or nothing.
        suggestion: String,
        /// All keys.
        valid: String,
    },
    /// A parameter's value cannot be read.
    #[error("{policy}: {problem}")]
    BadValue {
        /// The policy.
        policy: &'static str,
        /// The parameter and what was expected.
        problem: String,
    },
    /// It refuses to run with these parameters in this world.
    #[error("{policy} does not start: {refusal}")]
    Refused {
        /// The policy.
        policy: &'static str,
        /// Why.
        refusal: Refusal,
    },
}

/// A parameter as documents show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ParameterInfo {
    /// The key.
    pub name: String,
    /// The value where none is given, as TOML; `none` where it is unset.
    pub default: String,
    /// Meaning, unit and source: the field's doc comment.
    pub help: String,
}

/// All policies, by name.
pub fn all() -> &'static [Entry] {
    ENTRIES
}

/// The policy called `name`.
///
/// # Errors
/// There is none; the message names the nearest.
pub fn find(name: &str) -> Result<&'static Entry, PolicyError> {
    ENTRIES.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let names: Vec<&str> = ENTRIES.iter().map(|entry| entry.name).collect();
        PolicyError::Unknown {
            name: name.to_owned(),
            suggestion: suggestion(name, &names),
            valid: names.join(", "),
        }
    })
}

/// Lays `--set key=text` upon `table`. `text` is TOML (`4`, `true`) or else a bare string (`2 s`).
pub fn set(table: &mut Table, key: &str, text: &str) {
    let value = toml::from_str::<Table>(&format!("value = {text}"))
        .ok()
        .filter(|parsed| parsed.len() == 1)
        .and_then(|mut parsed| parsed.remove("value"))
        .unwrap_or_else(|| Value::String(text.trim().to_owned()));
    table.insert(key.to_owned(), value);
}

impl Entry {
    /// The entry of `P`, documented by the text of its source file.
    pub const fn of<P: Published>(name: &'static str, source: &'static str) -> Entry {
        Entry { name, source, effective: effective::<P>, scaled: P::SCALED, open: open::<P> }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// One line.
    pub fn summary(&self) -> String {
        self.document().lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// The whole doc comment of its file: idea, source, what the source leaves open, when to use it. Markdown.
    pub fn document(&self) -> String {
        let lines = self.source.lines().take_while(|line| line.starts_with("//!"));
        lines
            .map(|line| line.trim_start_matches("//!").strip_prefix(' ').unwrap_or(""))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Its parameters, in the order of the file.
    pub fn parameters(&self) -> Vec<ParameterInfo> {
        let defaults = self.effective(&Table::new()).unwrap_or_default();
        let fields = fields(self.source).into_iter();
        let shown = |name: &str| defaults.get(name).map_or_else(|| "none".to_owned(), Value::to_string);
        fields.map(|(name, help)| ParameterInfo { default: shown(&name), name, help }).collect()
    }

    /// All parameters with their values: those given, and the defaults.
    ///
    /// # Errors
    /// A key that it does not have, or a value that cannot be read.
    pub fn effective(&self, given: &Table) -> Result<Table, PolicyError> {
        self.check_keys(given)?;
        (self.effective)(given.clone())
            .map_err(|problem| PolicyError::BadValue { policy: self.name, problem })
    }

    /// All parameters for a machine and an input whose memory is divided by `by`: periods and amounts are divided too.
    ///
    /// # Errors
    /// A wrong parameter.
    pub fn scaled(&self, given: &Table, by: u32) -> Result<Table, PolicyError> {
        let mut table = self.effective(given)?;
        for key in self.scaled {
            if let Some(value) = table.get_mut(*key) {
                divide(value, by);
            }
        }
        self.effective(&table)
    }

    /// Its longest period with these parameters: what a run has to be long against before it says anything about the
    /// policy. `None` for policies that do nothing after a page's first touch, or act on single accesses.
    ///
    /// # Errors
    /// A wrong parameter.
    pub fn longest_period(&self, given: &Table) -> Result<Option<Time>, PolicyError> {
        let table = self.effective(given)?;
        let times = self.scaled.iter().filter_map(|key| table.get(*key)?.as_str()?.parse::<Time>().ok());
        Ok(times.max().filter(|time| time.0 > 0))
    }

    /// Builds the policy, and refuses unless the world offers what it needs.
    ///
    /// # Errors
    /// A wrong parameter, or a world in which it cannot run, with the reason.
    pub fn open(&self, given: &Table, setup: Setup<'_>) -> Result<Box<dyn Policy>, PolicyError> {
        self.check_keys(given)?;
        let refused = |refusal| PolicyError::Refused { policy: self.name, refusal };
        let policy = (self.open)(given.clone(), setup).map_err(|problem| match problem {
            OpenProblem::Value(problem) => PolicyError::BadValue { policy: self.name, problem },
            OpenProblem::Refused(refusal) => refused(refusal),
        })?;
        match setup.capabilities.lacks(policy.needs().capabilities) {
            Some(lack) => Err(refused(Refusal::Lacks(lack))),
            None => Ok(policy),
        }
    }

    /// What the policy needs with these parameters, found by building it for a machine with two tiers.
    ///
    /// # Errors
    /// A wrong parameter.
    pub fn needs(&self, given: &Table) -> Result<Needs, PolicyError> {
        let tier = |name: &str, latency, bandwidth| Tier {
            name: name.to_owned(),
            capacity: Bytes::gib(16),
            used: Bytes(0),
            read_latency: Time::from_nanos(latency),
            write_latency: Time::from_nanos(latency),
            read_bandwidth: BytesPerSec(bandwidth),
            write_bandwidth: BytesPerSec(bandwidth),
        };
        let topology = Topology { tiers: vec![tier("fast", 80, 100e9), tier("slow", 300, 20e9)] };
        let capabilities = Capabilities::new(CapabilitySet::of(Capability::ALL), PageSize::Giant);
        let profile = Profile::default();
        let setup =
            Setup { topology: &topology, capabilities: &capabilities, seed: 0, profile: Some(&profile) };
        Ok(self.open(given, setup)?.needs())
    }

    fn check_keys(&self, given: &Table) -> Result<(), PolicyError> {
        let fields = fields(self.source);
        let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
        match given.keys().find(|key| !names.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => Err(PolicyError::UnknownKey {
                policy: self.name,
                key: key.clone(),
                suggestion: suggestion(key, &names),
                valid: if names.is_empty() { "none".to_owned() } else { names.join(", ") },
            }),
        }
    }
}

/// Divides a time, an amount of memory or a count, as a parameter says it; counts stay at least 1.
fn divide(value: &mut Value, by: u32) {
    let divided = match &*value {
        Value::String(text) => {
            let time = text.parse::<Time>().map(|time| Time(time.0 / u64::from(by)).to_string());
            let bytes = || text.parse::<Bytes>().map(|bytes| Bytes(bytes.0 / u64::from(by)).to_string());
            time.ok().or_else(|| bytes().ok()).map(Value::String)
        }
        Value::Integer(count) if *count > 0 => Some(Value::Integer((count / i64::from(by)).max(1))),
        _ => None,
    };
    if let Some(divided) = divided {
        *value = divided;
    }
}

fn read<P: Published>(given: Table) -> Result<P::Parameters, String> {
    serde_path_to_error::deserialize(Value::Table(given)).map_err(|error| {
        let key = error.path().to_string();
        // Further lines only repeat the key.
        format!("{key}: {}", error.into_inner().to_string().lines().next().unwrap_or_default())
    })
}

fn effective<P: Published>(given: Table) -> Result<Table, String> {
    Table::try_from(read::<P>(given)?).map_err(|error| error.to_string())
}

fn open<P: Published>(given: Table, setup: Setup<'_>) -> Result<Box<dyn Policy>, OpenProblem> {
    let parameters = read::<P>(given).map_err(OpenProblem::Value)?;
    Ok(Box::new(P::new(parameters, setup).map_err(OpenProblem::Refused)?))
}

/// The fields of `pub struct Parameters` in a source text, with their doc comments.
fn fields(source: &str) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    let mut help: Vec<&str> = Vec::new();
    let body = source.lines().skip_while(|line| *line != "pub struct Parameters {").skip(1);
    for line in body.take_while(|line| !line.starts_with('}')) {
        let line = line.trim();
        if let Some(text) = line.strip_prefix("///") {
            help.push(text.trim());
        } else if let Some((name, _)) = line.strip_prefix("pub ").and_then(|field| field.split_once(':')) {
            fields.push((name.to_owned(), help.join(" ")));
            help.clear();
        }
    }
    fields
}

fn suggestion(word: &str, valid: &[&str]) -> String {
    valid
        .iter()
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(similarity, _)| *similarity > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map_or_else(String::new, |(_, nearest)| format!("; did you mean \"{nearest}\"?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_documented() {
        assert!(!all().is_empty());
        for entry in all() {
            let document = entry.document();
            let name = entry.name();
            assert!(
                entry.summary().len() <= 100 && entry.summary().ends_with('.'),
                "{name}: {}",
                entry.summary()
            );
            for part in ["**Idea.**", "**Source.**", "**Left open by the source.**", "**When to use it.**"] {
                assert!(document.contains(part), "{name}: its doc comment has no {part}");
            }
            for parameter in entry.parameters() {
                assert!(parameter.help.len() > 20, "{name}: {} is not documented", parameter.name);
            }
        }
    }

    #[test]
    fn defaults_read_back() {
        for entry in all() {
            let defaults = entry.effective(&Table::new()).unwrap();
            assert_eq!(entry.effective(&defaults).unwrap(), defaults, "{}", entry.name());
            let documented: Vec<String> = entry.parameters().into_iter().map(|p| p.name).collect();
            for key in defaults.keys() {
                assert!(documented.contains(key), "{}: {key} has no document", entry.name());
            }
        }
    }

    #[test]
    fn periods_and_amounts_are_divided_with_the_machine() {
        for entry in all() {
            let defaults = entry.effective(&Table::new()).unwrap();
            for key in entry.scaled {
                assert!(
                    defaults.contains_key(*key),
                    "{}: {key} is no parameter with a default",
                    entry.name()
                );
            }
            let scaled = entry.scaled(&Table::new(), 16).unwrap();
            for (key, value) in &defaults {
                let nothing = value.as_str().is_some_and(|text| text.starts_with("0 "));
                let divided = entry.scaled.contains(&key.as_str()) && !nothing;
                assert_eq!(scaled[key] != *value, divided, "{}: {key}", entry.name());
            }
        }
        let longest = |name: &str| find(name).unwrap().longest_period(&Table::new()).unwrap();
        assert_eq!(longest("ambix"), Some(Time::from_nanos(2_000_000_000)));
        assert_eq!(longest("first-touch"), None);
        let mut period = Value::String("2 s".to_owned());
        divide(&mut period, 16);
        assert_eq!(period.as_str(), Some("125 ms"));
    }

    #[test]
    fn wrong_names_keys_and_values_say_what_is_right() {
        let error = find("ambixx").unwrap_err().to_string();
        assert!(
            error.starts_with("no policy \"ambixx\"; did you mean \"ambix\"?; the policies are"),
            "{error}"
        );
        let ambix = find("ambix").unwrap();
        let mut given = Table::new();
        set(&mut given, "perod", "4 s");
        let error = ambix.effective(&given).unwrap_err().to_string();
        assert!(error.contains("ambix has no parameter \"perod\"; did you mean \"period\"?"), "{error}");
        let mut given = Table::new();
        set(&mut given, "period", "4 parsecs");
        let error = ambix.effective(&given).unwrap_err().to_string();
        assert_eq!(
            error,
            "ambix: period: \"4 parsecs\" is not a time with its unit, such as \"80 ns\" or \"2 s\""
        );
        let mut given = Table::new();
        set(&mut given, "period", "4 s");
        set(&mut given, "switch", "false");
        let effective = ambix.effective(&given).unwrap();
        assert_eq!((effective["period"].as_str(), effective["switch"].as_bool()), (Some("4 s"), Some(false)));
    }
}
