//! The statistics tree: every run, simulated or live, ends in one.
//!
//! Names are dotted paths in the field's standard terms (`tlb.l2.miss`, `tier.cxl.bytes_written`). Each entry carries
//! its unit. Order is that of the names, so two equal runs print byte-identical trees.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What a statistic counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A plain count of events.
    Count,
    /// Core clock cycles.
    Cycles,
    /// Bytes.
    Bytes,
    /// Pages of 4 KiB.
    Pages,
    /// Nanoseconds of simulated time.
    Nanoseconds,
    /// Joules.
    Joules,
    /// Bytes per second of simulated time.
    BytesPerSecond,
    /// A ratio without unit.
    Ratio,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Count => "count",
            Unit::Cycles => "cycles",
            Unit::Bytes => "bytes",
            Unit::Pages => "pages",
            Unit::Nanoseconds => "nanoseconds",
            Unit::Joules => "joules",
            Unit::BytesPerSecond => "bytes_per_second",
            Unit::Ratio => "ratio",
        })
    }
}

/// A histogram with buckets at powers of two: bucket `k` counts values in `[2^(k-1), 2^k)`, bucket 0 counts zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// Counts per bucket; trailing empty buckets are absent.
    pub buckets: Vec<u64>,
    /// Number of values.
    pub count: u64,
    /// Sum of the values.
    pub sum: u64,
    /// Largest value.
    pub max: u64,
}

impl Histogram {
    /// Adds one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        let bucket = (64 - value.leading_zeros()) as usize;
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum += value;
        self.max = self.max.max(value);
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        if other.buckets.len() > self.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// The value that so many (a share) do not exceed, rounded up to the end of its bucket, but no more than the largest.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && *count > 0 {
                let upper = 1u64.checked_shl(bucket as u32).map_or(u64::MAX, |end| end - 1);
                return upper.min(self.max);
            }
        }
        self.max
    }
}

/// The value of a statistic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A counter.
    Integer(u64),
    /// A measured or derived quantity.
    Real(f64),
    /// A distribution.
    Histogram(Histogram),
}

impl Value {
    /// As a number; a histogram gives its count.
    pub fn as_f64(&self) -> f64 {
        match self {
            Value::Integer(n) => *n as f64,
            Value::Real(x) => *x,
            Value::Histogram(h) => h.count as f64,
        }
    }
}

/// One statistic: value and unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stat {
    /// What was counted or measured.
    pub value: Value,
    /// What the number means.
    pub unit: Unit,
    /// Whether it says how much there is, or was at most, and not how often something happened: of a part of a run it is as
    /// it was at the end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_level: bool,
}

/// The tree, kept as sorted dotted names. No name is a prefix of another at a dot: a node is a branch or a leaf.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    entries: BTreeMap<String, Stat>,
}

impl Stats {
    /// An empty tree.
    pub fn new() -> Stats {
        Stats::default()
    }

    /// Sets a counter. Panics when the name makes a leaf of a branch or the reverse: that is a bug of the caller.
    pub fn count(&mut self, name: impl Into<String>, value: u64, unit: Unit) {
        self.insert(name.into(), Stat { value: Value::Integer(value), unit, is_level: false });
    }

    /// Sets how much there is, or was at most. Panics like [`Stats::count`].
    pub fn level(&mut self, name: impl Into<String>, value: u64, unit: Unit) {
        self.insert(name.into(), Stat { value: Value::Integer(value), unit, is_level: true });
    }

    /// Sets a real-valued statistic. Panics like [`Stats::count`].
    pub fn real(&mut self, name: impl Into<String>, value: f64, unit: Unit) {
        self.insert(name.into(), Stat { value: Value::Real(value), unit, is_level: false });
    }

    /// Sets a real-valued quantity as it is at a moment, or was at most. Panics like [`Stats::count`].
    pub fn real_level(&mut self, name: impl Into<String>, value: f64, unit: Unit) {
        self.insert(name.into(), Stat { value: Value::Real(value), unit, is_level: true });
    }

    /// Sets a histogram. Panics like [`Stats::count`].
    pub fn histogram(&mut self, name: impl Into<String>, value: Histogram, unit: Unit) {
        self.insert(name.into(), Stat { value: Value::Histogram(value), unit, is_level: false });
    }

    /// Adds a counter as it is.
    pub fn insert(&mut self, name: String, stat: Stat) {
        let below = format!("{name}.");
        let is_branch =
            self.entries.range(below.clone()..).next().is_some_and(|(k, _)| k.starts_with(&below));
        let under_leaf = name.match_indices('.').any(|(at, _)| self.entries.contains_key(&name[..at]));
        assert!(!is_branch && !under_leaf, "statistic {name} is both a branch and a leaf");
        self.entries.insert(name, stat);
    }

    /// The statistic of this full name.
    pub fn get(&self, name: &str) -> Option<&Stat> {
        self.entries.get(name)
    }

    /// A counter's value; 0 where the name does not exist or is no counter.
    pub fn integer(&self, name: &str) -> u64 {
        match self.entries.get(name) {
            Some(Stat { value: Value::Integer(n), .. }) => *n,
            _ => 0,
        }
    }

    /// A number's value; 0.0 where the name does not exist.
    pub fn number(&self, name: &str) -> f64 {
        self.entries.get(name).map_or(0.0, |stat| stat.value.as_f64())
    }

    /// All statistics, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Stat)> {
        self.entries.iter().map(|(name, stat)| (name.as_str(), stat))
    }

    /// The statistics whose names start with `prefix` followed by a dot, the rest of the name with each.
    pub fn under<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a Stat)> {
        self.iter().filter_map(move |(name, stat)| {
            name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.')).map(|rest| (rest, stat))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_lists_one_branch() {
        let mut stats = Stats::new();
        stats.count("tlb.l2.miss", 3, Unit::Count);
        stats.count("tlb.l2.hit", 4, Unit::Count);
        stats.count("walk.count", 3, Unit::Count);
        let names: Vec<_> = stats.under("tlb.l2").map(|(name, _)| name).collect();
        assert_eq!(names, ["hit", "miss"]);
        assert_eq!(stats.integer("tlb.l2.miss"), 3);
    }

    #[test]
    #[should_panic(expected = "both a branch and a leaf")]
    fn a_leaf_cannot_become_a_branch() {
        let mut stats = Stats::new();
        stats.count("walk", 1, Unit::Count);
        stats.count("walk.count", 1, Unit::Count);
    }

    #[test]
    fn histogram_buckets_are_powers_of_two() {
        let mut histogram = Histogram::default();
        for value in [0, 1, 2, 3, 4, 1000] {
            histogram.record(value);
        }
        assert_eq!(histogram.buckets, [1, 1, 2, 1, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((histogram.count, histogram.sum, histogram.max), (6, 1010, 1000));
    }

    #[test]
    fn quantiles_are_upper_bounds() {
        let mut histogram = Histogram::default();
        for value in (0..98).map(|_| 500).chain([70_000, 90_000]) {
            histogram.record(value);
        }
        assert_eq!(histogram.quantile(0.5), 511);
        assert_eq!(
            histogram.quantile(0.99),
            90_000,
            "of the bucket up to 131,071, but no more than the most"
        );
        assert_eq!(Histogram::default().quantile(0.99), 0);
    }
}
