//! The policies by name, with their documents and their parameters.
//!
//! A policy's file is all there is of it: the module list comes from the folder (`build.rs`), its document is the file's
//! first comment, its parameters are described by the struct that declares them.

use crate::{
    Capabilities, Capability, CapabilitySet, ENTRIES, Needs, Policy, Profile, Published, Refusal, Setup,
    Tier, Topology,
};
use terrace_model::parameters::{Kind, ParameterError, ParameterInfo, Parameters, did_you_mean, nearest};
use terrace_model::{Bytes, BytesPerSec, PageSize, Time};
use toml::{Table, Value};

/// One of the algorithms that a policy chooses from: a file in the policy's folder `algorithms/`.
#[derive(Clone, Copy, Debug)]
pub struct AlgorithmEntry {
    /// The value that chooses it.
    pub name: &'static str,
    /// The text of its file.
    pub source: &'static str,
}

impl AlgorithmEntry {
    /// One line.
    pub fn summary(&self) -> String {
        summary_of(&self.document())
    }

    /// The doc comment of its file: idea, source, what the source leaves open. Markdown.
    pub fn document(&self) -> String {
        document_of(self.source)
    }
}

/// The doc comment that a source file begins with.
fn document_of(source: &str) -> String {
    let lines = source.lines().take_while(|line| line.starts_with("//!"));
    lines
        .map(|line| line.trim_start_matches("//!").strip_prefix(' ').unwrap_or(""))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The first paragraph of a document in one line.
fn summary_of(document: &str) -> String {
    document.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// One policy.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    name: &'static str,
    former_names: &'static [&'static str],
    source: &'static str,
    algorithms: &'static [AlgorithmEntry],
    parameters: fn() -> Vec<ParameterInfo>,
    effective: fn(&Table) -> Result<Table, ParameterError>,
    acts_in: fn(&Table, &str) -> Result<bool, ParameterError>,
    decides_after: fn(&Table) -> Result<Option<u64>, ParameterError>,
    open: Open,
}

/// Builds a policy from its parameters.
type Open = fn(&Table, Setup<'_>) -> Result<Box<dyn Policy>, OpenProblem>;

#[derive(Debug)]
enum OpenProblem {
    Parameter(ParameterError),
    Refused(Refusal),
}

/// A policy that could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// There is none of this name.
    #[error("no policy \"{name}\"{suggestion}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// `; did you mean …?`, or all names where none is near.
        suggestion: String,
    },
    /// The policy has no such parameter.
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
    /// A parameter's value cannot be read, or is out of its range.
    #[error("{policy}: {problem}")]
    BadValue {
        /// The policy.
        policy: &'static str,
        /// The parameter, its value and what was expected.
        problem: ParameterError,
    },
    /// The policy refuses to run with these parameters in this world.
    #[error("{policy} does not start: {refusal}")]
    Refused {
        /// The policy.
        policy: &'static str,
        /// Why.
        refusal: Refusal,
    },
}

/// All policies, by name.
pub fn all() -> &'static [Entry] {
    ENTRIES
}

/// The policy called `name`, now or formerly.
///
/// # Errors
/// There is none; the message names the nearest.
pub fn find(name: &str) -> Result<&'static Entry, PolicyError> {
    let is_called = |entry: &&Entry| entry.name == name || entry.former_names.contains(&name);
    ENTRIES.iter().find(is_called).ok_or_else(|| {
        let names: Vec<&str> = ENTRIES.iter().map(|entry| entry.name).collect();
        PolicyError::Unknown {
            name: name.to_owned(),
            suggestion: match nearest(name, names.iter().copied()) {
                None => format!("; the policies are {}", names.join(", ")),
                near => did_you_mean(near),
            },
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
    pub const fn of<P: Published>(
        name: &'static str,
        source: &'static str,
        algorithms: &'static [AlgorithmEntry],
    ) -> Entry {
        let (parameters, effective) = (P::Parameters::parameters, effective::<P>);
        Entry {
            name,
            former_names: P::FORMER_NAMES,
            source,
            algorithms,
            parameters,
            effective,
            acts_in: acts_in::<P>,
            decides_after: decides_after::<P>,
            open: open::<P>,
        }
    }

    /// The policy's name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Names that it had, which are still accepted and not listed.
    pub const fn former_names(&self) -> &'static [&'static str] {
        self.former_names
    }

    /// What to tell a user who calls it by `name`: nothing, or that it has another name now.
    pub fn renamed(&self, name: &str) -> Option<String> {
        let renamed = || {
            format!("the policy {name} is now called {}; the old name goes on 2027-03-01 or later", self.name)
        };
        self.former_names.contains(&name).then(renamed)
    }

    /// One line.
    pub fn summary(&self) -> String {
        summary_of(&self.document())
    }

    /// The whole doc comment of its file: idea, source, what the source leaves open, when to use it. Markdown.
    pub fn document(&self) -> String {
        document_of(self.source)
    }

    /// The algorithms that its parameter `algorithm` chooses from; none for most policies.
    pub const fn algorithms(&self) -> &'static [AlgorithmEntry] {
        self.algorithms
    }

    /// The policy's parameters, in the order of the file.
    pub fn parameters(&self) -> Vec<ParameterInfo> {
        (self.parameters)()
    }

    /// All parameters with their values: those given, and the defaults.
    ///
    /// # Errors
    /// A key that it does not have, a value that cannot be read, or one out of its range.
    pub fn effective(&self, given: &Table) -> Result<Table, PolicyError> {
        (self.effective)(given).map_err(|problem| self.wrong(problem))
    }

    /// All parameters for a machine and an input whose memory is divided by `by`: periods and amounts are divided too, down
    /// to the smallest value that each can have.
    ///
    /// # Errors
    /// A wrong parameter.
    pub fn scaled(&self, given: &Table, by: u32) -> Result<Table, PolicyError> {
        let mut table = self.effective(given)?;
        for ParameterInfo { name, range, .. } in self.parameters().into_iter().filter(|own| own.scaled) {
            if let Some(value) = table.get_mut(&name) {
                divide(value, by, range.map_or(String::new(), |range| range.low).as_str());
            }
        }
        self.effective(&table)
    }

    /// The longest of the periods in which the policy acts with these parameters: a run has to be long against it before the
    /// run says anything about the policy. `None` for policies that do nothing after a page's first touch, or act on single
    /// accesses.
    ///
    /// # Errors
    /// A wrong parameter.
    pub fn longest_period(&self, given: &Table) -> Result<Option<Time>, PolicyError> {
        let table = self.effective(given)?;
        let periods = self.parameters().into_iter();
        let periods = periods.filter(|parameter| parameter.scaled && parameter.kind == Kind::Time);
        let mut longest = None;
        for ParameterInfo { name, .. } in periods {
            if (self.acts_in)(&table, &name).map_err(|problem| self.wrong(problem))? {
                let time = table.get(&name).and_then(|value| value.as_str()?.parse::<Time>().ok());
                longest = longest.max(time);
            }
        }
        Ok(longest.filter(|time| time.0 > 0))
    }

    /// Sampled accesses that it takes with these parameters before the policy decides anything by them. `None` for policies
    /// that do not decide by one access in so many.
    ///
    /// # Errors
    /// A wrong parameter.
    pub fn decides_after(&self, given: &Table) -> Result<Option<u64>, PolicyError> {
        (self.decides_after)(given).map_err(|problem| self.wrong(problem))
    }

    /// Builds the policy, and refuses unless the world offers what it needs.
    ///
    /// # Errors
    /// A wrong parameter, or a world in which it cannot run, with the reason.
    pub fn open(&self, given: &Table, setup: Setup<'_>) -> Result<Box<dyn Policy>, PolicyError> {
        let refused = |refusal| PolicyError::Refused { policy: self.name, refusal };
        let policy = (self.open)(given, setup).map_err(|problem| match problem {
            OpenProblem::Parameter(problem) => self.wrong(problem),
            OpenProblem::Refused(refusal) => refused(refusal),
        })?;
        match setup.capabilities.lacks(policy.needs().capabilities) {
            Some(lack) => Err(refused(Refusal::Lacks(lack))),
            None => Ok(policy),
        }
    }

    fn wrong(&self, problem: ParameterError) -> PolicyError {
        match problem {
            ParameterError::Unknown { key, nearest, valid } => PolicyError::UnknownKey {
                policy: self.name,
                key,
                suggestion: did_you_mean(nearest.as_deref()),
                valid: if valid.is_empty() { "none".to_owned() } else { valid.join(", ") },
            },
            problem => PolicyError::BadValue { policy: self.name, problem },
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
}

/// Divides a time, an amount of memory or a count, as a parameter says it; counts stay at least 1.
fn divide(value: &mut Value, by: u32, least: &str) {
    let part = u64::from(by);
    let divided = match &*value {
        Value::String(text) => match (text.parse::<Time>(), text.parse::<Bytes>()) {
            (Ok(time), _) => Time(time.0 / part).max(least.parse().unwrap_or(Time::ZERO)).to_string().into(),
            (_, Ok(bytes)) => Bytes(bytes.0 / part).max(least.parse().unwrap_or(Bytes(0))).to_string().into(),
            _ => return,
        },
        Value::Integer(count) if *count > 0 => Value::Integer((count / i64::from(by)).max(1)),
        _ => return,
    };
    *value = divided;
}

/// The defaults with the values of `given` in their place.
fn read<P: Published>(given: &Table) -> Result<P::Parameters, ParameterError> {
    let texts: Vec<(&String, String)> = given.iter().map(|(key, value)| (key, text_of(value))).collect();
    P::Parameters::read(texts.iter().map(|(key, text)| (key.as_str(), text.as_str())))
}

/// A TOML value as the text that stands for it elsewhere: strings without quotes.
pub fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The values of all parameters that are set, as TOML.
fn effective<P: Published>(given: &Table) -> Result<Table, ParameterError> {
    let parameters = read::<P>(given)?;
    let mut table = Table::new();
    for ParameterInfo { name, kind, .. } in P::Parameters::parameters() {
        let text = parameters.get(&name).unwrap_or_default();
        let value = match kind {
            Kind::Switch => text.parse().ok().map(Value::Boolean),
            Kind::Count => text.parse().ok().map(Value::Integer),
            Kind::Number => text.parse().ok().map(Value::Float),
            _ => Some(Value::String(text)),
        };
        // An unset number has no value.
        table.extend(value.map(|value| (name, value)));
    }
    Ok(table)
}

fn acts_in<P: Published>(given: &Table, period: &str) -> Result<bool, ParameterError> {
    Ok(P::acts_in(&read::<P>(given)?, period))
}

fn decides_after<P: Published>(given: &Table) -> Result<Option<u64>, ParameterError> {
    Ok(P::decides_after(&read::<P>(given)?))
}

fn open<P: Published>(given: &Table, setup: Setup<'_>) -> Result<Box<dyn Policy>, OpenProblem> {
    let parameters = read::<P>(given).map_err(OpenProblem::Parameter)?;
    Ok(Box::new(P::new(parameters, setup).map_err(OpenProblem::Refused)?))
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
            let summary = entry.summary();
            assert!(
                summary.len() <= 100 && summary.ends_with('.'),
                "{name}: its first line has more than 100 bytes or no full stop: {summary}"
            );
            for part in ["**Idea.**", "**Source.**", "**Left open by the source.**", "**When to use it.**"] {
                assert!(document.contains(part), "{name}: its doc comment has no {part}");
            }
            for algorithm in entry.algorithms() {
                let (name, document) = (algorithm.name, algorithm.document());
                let summary = algorithm.summary();
                assert!(
                    summary.len() <= 110 && summary.ends_with('.'),
                    "{name}: its first line has more than 110 bytes or no full stop: {summary}"
                );
                for part in ["**Idea.**", "**Source.**", "**Left open by the source.**"] {
                    assert!(document.contains(part), "{name}: its doc comment has no {part}");
                }
            }
            for parameter in entry.parameters() {
                let key = &parameter.name;
                assert!(
                    parameter.help.len() > 12 && parameter.help.ends_with('.'),
                    "{name}: {key} has no help"
                );
                assert_eq!(
                    parameter.range.is_some(),
                    parameter.kind.is_ordered(),
                    "{name}: {key} has no range"
                );
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
            let parameters = entry.parameters();
            let is_scaled = |key: &str| parameters.iter().any(|one| one.name == key && one.scaled);
            let scaled = entry.scaled(&Table::new(), 16).unwrap();
            for (key, value) in &defaults {
                let nothing = value.as_str().is_some_and(|text| text.starts_with("0 "));
                let divided = is_scaled(key) && !nothing;
                assert_eq!(scaled[key] != *value, divided, "{}: {key}", entry.name());
            }
        }
        let longest = |name: &str| find(name).unwrap().longest_period(&Table::new()).unwrap();
        assert_eq!(longest("ambix"), Some(Time::from_nanos(2_000_000_000)));
        assert_eq!(longest("first-touch"), None);
        // Periods that its parameters leave idle do not count.
        let migration = |key: &str, text: &str| {
            let mut given = Table::new();
            set(&mut given, key, text);
            find("threshold-migration").unwrap().longest_period(&given).unwrap().map(|time| time.to_string())
        };
        assert_eq!(migration("threshold", "1").as_deref(), Some("1 us"), "a look at the ring of TLB misses");
        assert_eq!(migration("balance", "true").as_deref(), Some("7.143 us"));
        assert_eq!(migration("trigger", "hint-faults").as_deref(), Some("1 s"));
        let mut period = Value::String("2 s".to_owned());
        divide(&mut period, 16, "1 ms");
        assert_eq!(period.as_str(), Some("125 ms"));
        divide(&mut period, 1000, "1 ms");
        assert_eq!(period.as_str(), Some("1 ms"));
        // No policy refuses what a division has made of its defaults.
        for entry in all() {
            let scaled = entry.scaled(&Table::new(), 1_000_000);
            assert!(scaled.is_ok(), "{}: {:?}", entry.name(), scaled.err());
        }
    }

    #[test]
    fn policies_by_samples_say_after_how_many_they_decide() {
        let after = |name: &str, given: &[(&str, &str)]| {
            let mut table = Table::new();
            given.iter().for_each(|(key, text)| set(&mut table, key, text));
            find(name).unwrap().decides_after(&table).unwrap()
        };
        assert_eq!((after("hemem", &[]), after("hemem", &[("hot_reads", "3")])), (Some(4), Some(3)));
        assert_eq!(after("memtis", &[("adapt_every", "7")]), Some(7));
        assert_eq!(after("block-hotness", &[("counters", "samples")]), Some(1));
        assert_eq!((after("block-hotness", &[]), after("tpp", &[])), (None, None));
    }

    #[test]
    fn wrong_names_keys_and_values_say_what_is_right() {
        let error = find("ambixx").unwrap_err().to_string();
        assert_eq!(error, "no policy \"ambixx\"; did you mean \"ambix\"?");
        let error = find("zz").unwrap_err().to_string();
        assert!(error.starts_with("no policy \"zz\"; the policies are ac-clock, aimr, "), "{error}");
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
            "ambix: period = 4 parsecs: expected a time with its unit, such as \"80 ns\" or \"2 s\""
        );
        let mut given = Table::new();
        set(&mut given, "dram_target", "95");
        let error = ambix.effective(&given).unwrap_err().to_string();
        assert_eq!(error, "ambix: dram_target = 95.0 is out of range: 0.0 to 1.0");
        let mut given = Table::new();
        set(&mut given, "period", "4 s");
        set(&mut given, "switch", "false");
        let effective = ambix.effective(&given).unwrap();
        assert_eq!((effective["period"].as_str(), effective["switch"].as_bool()), (Some("4 s"), Some(false)));
    }
}
