//! Reads `key=value` parameters of a workload: sizes with units, counts such as `1e6` or `1_000_000`, choices.

use crate::{WorkloadError, WorkloadInfo};
use terrace_model::Bytes;

/// One parameter of a workload. Its default is text, read by the same parser as a value from the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterInfo {
    /// The key.
    pub name: &'static str,
    /// The value where none is given.
    pub default: &'static str,
    /// What a value counts or which values exist: `bytes`, `accesses`, `pages|lines|none`.
    pub unit: &'static str,
    /// One sentence.
    pub help: &'static str,
}

/// `threads`, shared by all workloads.
pub(crate) const THREADS: ParameterInfo =
    ParameterInfo { name: "threads", default: "1", unit: "threads", help: "Threads that share the work." };

/// `seed`, shared by all workloads that draw random numbers.
pub(crate) const SEED: ParameterInfo = ParameterInfo {
    name: "seed",
    default: "1",
    unit: "number",
    help: "Seed of every random choice; the same seed gives the same accesses on every machine.",
};

/// `init`, shared by the workloads whose arrays exist from the start.
pub(crate) const INIT: ParameterInfo = ParameterInfo {
    name: "init",
    default: "pages",
    unit: "pages|lines|none",
    help: "Initialisation before the run: one store per 4 KiB page (bounded stand-in for the program's own \
           initialisation loop), one per 64 B line, or none.",
};

/// `settle`, shared by the workloads that stand for programs of tens of gigabytes.
pub(crate) const SETTLE: ParameterInfo = ParameterInfo {
    name: "settle",
    default: "0",
    unit: "instructions",
    help: "Computed by each thread between initialisation and run, so that daemons come to their work; about \
           2000 small pieces of the run are made meanwhile.",
};

/// Largest size or count accepted, so that sums of a few of them cannot overflow and every layout fits the
/// 47-bit user address space.
const LARGEST_BYTES: u64 = 32 << 40;
const LARGEST_COUNT: u64 = 1_000_000_000_000_000;

/// The resolved parameters of one workload.
#[derive(Clone, Debug)]
pub(crate) struct Parameters {
    info: &'static WorkloadInfo,
    values: Vec<String>,
}

impl Parameters {
    /// Reads `key=value` pairs separated by commas; keys that are absent take their default.
    pub fn parse(info: &'static WorkloadInfo, text: &str) -> Result<Parameters, WorkloadError> {
        let mut values: Vec<Option<&str>> = vec![None; info.parameters.len()];
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| WorkloadError::NotAPair { workload: info.name, text: pair.to_owned() })?;
            let (key, value) = (key.trim(), value.trim());
            let index = info.parameters.iter().position(|p| p.name == key).ok_or_else(|| {
                let valid: Vec<&str> = info.parameters.iter().map(|p| p.name).collect();
                WorkloadError::UnknownParameter {
                    workload: info.name,
                    key: key.to_owned(),
                    nearest: nearest(key, &valid),
                    valid: valid.join(", "),
                }
            })?;
            if values[index].replace(value).is_some() {
                return Err(WorkloadError::Twice { workload: info.name, key: info.parameters[index].name });
            }
        }
        let values =
            values.iter().zip(info.parameters).map(|(v, p)| v.unwrap_or(p.default).to_owned()).collect();
        Ok(Parameters { info, values })
    }

    /// All parameters as `key=value`, in the order of the workload's list.
    pub fn resolved(&self) -> Vec<String> {
        self.info.parameters.iter().zip(&self.values).map(|(p, v)| format!("{}={v}", p.name)).collect()
    }

    fn text(&self, name: &str) -> &str {
        let index = self.info.parameters.iter().position(|p| p.name == name);
        &self.values[index.expect("a program reads only the parameters it declares")]
    }

    pub fn error(&self, name: &'static str, expected: impl Into<String>) -> WorkloadError {
        WorkloadError::BadValue {
            workload: self.info.name,
            key: name,
            value: self.text(name).to_owned(),
            expected: expected.into(),
        }
    }

    /// A size of at least `minimum` bytes, with its unit in the text.
    pub fn bytes(&self, name: &'static str, minimum: u64) -> Result<u64, WorkloadError> {
        let expected =
            || format!("a size with its unit from {} to 32 TiB, such as \"1 GiB\"", Bytes(minimum));
        let bytes: Bytes = self.text(name).parse().map_err(|_| self.error(name, expected()))?;
        if (minimum..=LARGEST_BYTES).contains(&bytes.0) {
            Ok(bytes.0)
        } else {
            Err(self.error(name, expected()))
        }
    }

    /// A whole number of at least `minimum`: `1000`, `1_000`, `1e3`.
    pub fn count(&self, name: &'static str, minimum: u64) -> Result<u64, WorkloadError> {
        self.count_within(name, minimum, LARGEST_COUNT)
    }

    /// A whole number within `minimum..=maximum`.
    pub fn count_within(&self, name: &'static str, minimum: u64, maximum: u64) -> Result<u64, WorkloadError> {
        let expected = || format!("a whole number from {minimum} to {maximum}, such as 1000, 1_000 or 1e3");
        let digits = self.text(name).replace('_', "");
        let value = digits.parse::<u64>().ok().or_else(|| {
            // Exponents go through f64, which is exact for every whole number the limit admits.
            let value = digits.parse::<f64>().ok()?;
            (value.fract() == 0.0 && (0.0..=LARGEST_COUNT as f64).contains(&value)).then_some(value as u64)
        });
        value.filter(|v| (minimum..=maximum).contains(v)).ok_or_else(|| self.error(name, expected()))
    }

    /// Any 64-bit seed.
    pub fn seed(&self) -> Result<u64, WorkloadError> {
        self.count_within("seed", 0, u64::MAX)
    }

    /// The number of threads, at most 1024.
    pub fn threads(&self) -> Result<u32, WorkloadError> {
        Ok(self.count_within("threads", 1, 1024)? as u32)
    }

    /// A number within `minimum..=maximum`.
    pub fn number(&self, name: &'static str, minimum: f64, maximum: f64) -> Result<f64, WorkloadError> {
        self.text(name)
            .parse::<f64>()
            .ok()
            .filter(|v| (minimum..=maximum).contains(v))
            .ok_or_else(|| self.error(name, format!("a number from {minimum} to {maximum}")))
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&self, name: &'static str, choices: &[(&str, T)]) -> Result<T, WorkloadError> {
        let text = self.text(name);
        choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            self.error(name, format!("one of {}", words.join(", ")))
        })
    }
}

/// The most similar of `valid`, when it is similar at all.
pub(crate) fn nearest(word: &str, valid: &[&str]) -> Option<String> {
    valid
        .iter()
        .map(|v| (strsim::jaro_winkler(word, v), v))
        .filter(|(similarity, _)| *similarity > 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, v)| (*v).to_owned())
}
