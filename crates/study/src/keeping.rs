//! What runs kept on disk share: numbers that read back as they were, and short names.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use terrace_model::{Histogram, Stat, Stats, Unit, Value};

/// A real number as the shortest text that reads back as the same number. Readers of JSON may round the last digit of its
/// own numbers, and JSON has none that is infinite.
#[derive(Serialize, Deserialize)]
pub struct Exact(String);

impl Exact {
    pub fn of(value: f64) -> Exact {
        Exact(value.to_string())
    }

    pub fn value(&self) -> Option<f64> {
        self.0.parse().ok()
    }
}

/// Statistics by name.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExactStats(BTreeMap<String, ExactStat>);

#[derive(Serialize, Deserialize)]
struct ExactStat {
    unit: Unit,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_level: bool,
    #[serde(flatten)]
    value: ExactValue,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ExactValue {
    Integer(u64),
    Real(Exact),
    Histogram(Histogram),
}

impl ExactStats {
    pub fn of(stats: &Stats) -> ExactStats {
        let exact = |stat: &Stat| ExactStat {
            unit: stat.unit,
            is_level: stat.is_level,
            value: match &stat.value {
                Value::Integer(value) => ExactValue::Integer(*value),
                Value::Real(value) => ExactValue::Real(Exact::of(*value)),
                Value::Histogram(value) => ExactValue::Histogram(value.clone()),
            },
        };
        ExactStats(stats.iter().map(|(name, one)| (name.to_owned(), exact(one))).collect())
    }

    /// The tree; `None` where a damaged file has what is no number, or a name that is both a branch and a leaf.
    pub fn into_stats(self) -> Option<Stats> {
        let mut stats = Stats::new();
        for (name, stat) in self.0 {
            let value = match stat.value {
                ExactValue::Integer(value) => Value::Integer(value),
                ExactValue::Real(value) => Value::Real(value.value()?),
                ExactValue::Histogram(value) => Value::Histogram(value),
            };
            let under_leaf = name.match_indices('.').any(|(at, _)| stats.get(&name[..at]).is_some());
            if under_leaf || stats.under(&name).next().is_some() {
                return None;
            }
            stats.insert(name, Stat { value, unit: stat.unit, is_level: stat.is_level });
        }
        Some(stats)
    }
}

/// The folder of what can be made again, `$XDG_CACHE_HOME` or `~/.cache`; nothing where neither variable is an absolute
/// path.
pub fn cache_folder() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))
}

/// A name for files and commands of what is described in a text: its hash, which is the same everywhere.
pub fn short_name(text: &str) -> String {
    format!("{:016x}", fnv1a(text.as_bytes()))
}

/// The 64-bit hash of Fowler, Noll and Vo (variant 1a, <http://www.isthe.com/chongo/tech/comp/fnv/>), which is the same for
/// all versions of all tools. The store compares whole identities, so a collision costs a run and no more.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // Test vectors of the authors' page.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
