//! The space that is searched: a policy's parameters as numbers.

use crate::Error;
use terrace_model::parameters::{Kind, ParameterInfo};
use terrace_model::{Bytes, BytesPerSec, Time};
use toml::{Table, Value};

/// A parameter that can be searched.
#[derive(Clone, Debug)]
pub struct Dimension {
    /// The parameter's name.
    pub name: String,
    /// What its numbers mean.
    pub kind: Kind,
    /// Where the search begins: the value in force.
    pub default: f64,
    /// Smallest value that is tried.
    pub low: f64,
    /// Largest value that is tried.
    pub high: f64,
    /// Whether factors matter rather than differences.
    pub logarithmic: bool,
}

/// A text as a number: 0 is false, 1 is true, times are in nanoseconds; none for what has no order.
fn read(kind: Kind, text: &str) -> Option<f64> {
    match kind {
        Kind::Switch => text.parse::<bool>().ok().map(|on| f64::from(u8::from(on))),
        Kind::Count => text.parse::<u64>().ok().map(|count| count as f64),
        Kind::Number => text.parse::<f64>().ok().filter(|number| number.is_finite()),
        Kind::Time => text.parse::<Time>().ok().map(Time::as_nanos),
        Kind::Bytes => text.parse::<Bytes>().ok().map(|bytes| bytes.0 as f64),
        Kind::Rate => text.parse::<BytesPerSec>().ok().map(|rate| rate.0),
        _ => None,
    }
}

/// A policy's parameters, split into those that are searched and the names of those that are not.
pub struct Space {
    /// In the order of the policy's file.
    pub dimensions: Vec<Dimension>,
    /// Neither numbers nor switches, or 0, of which no multiple can be tried.
    pub left_out: Vec<String>,
}

/// A range is this factor to either side of the value in force.
const SPAN: f64 = 8.0;

impl Space {
    /// The space of `policy` around the values in force. `only` narrows it, `ranges` set its bounds.
    ///
    /// # Errors
    /// Names and ranges that cannot be.
    pub fn new(
        policy: &str,
        values: &Table,
        declared: &[ParameterInfo],
        only: &[String],
        ranges: &[(String, String, String)],
    ) -> Result<Space, Error> {
        for name in only.iter().chain(ranges.iter().map(|(name, ..)| name)) {
            if !declared.iter().any(|parameter| parameter.name == *name) {
                let names: Vec<&str> = declared.iter().map(|parameter| parameter.name.as_str()).collect();
                let valid = names.join(", ");
                return Err(Error::request(format!(
                    "{policy} has no parameter \"{name}\"; its parameters are {valid}"
                )));
            }
        }
        let mut space = Space { dimensions: Vec::new(), left_out: Vec::new() };
        let is_wanted = |parameter: &&ParameterInfo| only.is_empty() || only.contains(&parameter.name);
        for parameter in declared.iter().filter(is_wanted) {
            let (name, kind) = (&parameter.name, parameter.kind);
            let range = ranges.iter().rev().find(|(of, ..)| of == name);
            let found = values.get(name).and_then(|value| number(kind, value));
            // A goal is the user's to set: without it, the best slowdown to tolerate would be none.
            let is_goal = parameter.goal && only.is_empty() && range.is_none();
            match found.filter(|_| !is_goal) {
                None if range.is_some() || !only.is_empty() => {
                    return Err(Error::request(format!("{policy}: {name} is neither a number nor a switch")));
                }
                None => space.left_out.push(name.clone()),
                Some(0.0) if range.is_none() && only.is_empty() && kind != Kind::Switch => {
                    space.left_out.push(name.clone());
                }
                Some(value) => space.dimensions.push(dimension(policy, parameter, value, range)?),
            }
        }
        if space.dimensions.is_empty() {
            return Err(Error::request(format!("{policy} has no parameter that can be searched")));
        }
        Ok(space)
    }
}

/// The value of a parameter as a number.
fn number(kind: Kind, value: &Value) -> Option<f64> {
    value.as_str().map_or_else(|| read(kind, &value.to_string()), |text| read(kind, text))
}

fn dimension(
    policy: &str,
    parameter: &ParameterInfo,
    value: f64,
    range: Option<&(String, String, String)>,
) -> Result<Dimension, Error> {
    let (name, kind) = (&parameter.name, parameter.kind);
    // Numbers of 0 to 1 are shares: near 1 differences matter, near 0 factors do.
    let is_share = kind == Kind::Number && (0.0..=1.0).contains(&value);
    let logarithmic = kind != Kind::Switch && value > 0.0 && !(is_share && value >= 0.3);
    let (low, high) = match range {
        Some((_, low, high)) => {
            let read = |text: &str| {
                let wrong =
                    || Error::request(format!("--range {name}: {policy} has no {name} of \"{text}\""));
                read(kind, text.trim()).ok_or_else(wrong)
            };
            (read(low)?, read(high)?)
        }
        None => match kind {
            Kind::Switch => (0.0, 1.0),
            Kind::Count => ((value / SPAN).max(1.0).min(value), value * SPAN),
            _ if is_share && !logarithmic => (value / 2.0, 1.0),
            _ if is_share => (value / SPAN, (value * SPAN).min(1.0)),
            _ => (value / SPAN, value * SPAN),
        },
    };
    // What the policy would refuse is not tried.
    let bound = |text: &str, otherwise| read(kind, text).unwrap_or(otherwise);
    let declared = parameter.range.as_ref();
    let low = declared.map_or(low, |range| low.max(bound(&range.low, low)));
    let high = declared.map_or(high, |range| high.min(bound(&range.high, high)));
    if low >= high {
        return Err(Error::request(format!("--range {name}: give LOW..HIGH, the lower first")));
    }
    Ok(Dimension {
        name: name.to_owned(),
        kind,
        default: value,
        low,
        high,
        logarithmic: logarithmic && low > 0.0,
    })
}

impl Dimension {
    /// The values that the optimiser sees.
    pub fn range(&self) -> (f64, f64) {
        (self.inner(self.low), self.inner(self.high))
    }

    /// A parameter's value as the optimiser sees it.
    pub fn inner(&self, value: f64) -> f64 {
        if self.logarithmic { value.ln() } else { value }
    }

    /// What the optimiser asks for, as a value that the policy can have: three digits, in the range.
    pub fn value(&self, inner: f64) -> f64 {
        let value = if self.logarithmic { inner.exp() } else { inner };
        self.round(value.clamp(self.low, self.high))
    }

    fn round(&self, value: f64) -> f64 {
        match self.kind {
            Kind::Switch => value.round(),
            Kind::Count => three_digits(value).round().max(1.0_f64.min(self.low)),
            Kind::Bytes => {
                // Whole units, or sixteenths of few, so that the text is short.
                let unit = 1024f64.powf((value.max(1.0).ln() / 1024f64.ln()).floor());
                let step = if value < 10.0 * unit && unit > 1.0 { unit / 16.0 } else { unit };
                ((value / step).round() * step).max(1.0)
            }
            Kind::Time => three_digits(value).round().max(1.0),
            _ => three_digits(value),
        }
    }

    /// The value as `--set` takes it.
    pub fn text(&self, value: f64) -> String {
        match self.kind {
            Kind::Switch => (value >= 0.5).to_string(),
            Kind::Count => format!("{}", value as u64),
            Kind::Number => format!("{value:?}"),
            Kind::Time => Time::from_nanos_f64(value).to_string(),
            Kind::Bytes => Bytes(value as u64).to_string(),
            Kind::Rate => BytesPerSec(value).to_string(),
            other => unreachable!("{other:?} has no order, so it is no dimension"),
        }
    }

    /// The value in three digits, for people.
    pub fn shown(&self, value: f64) -> String {
        self.text(self.round(value))
    }

    /// Values a step to either side, for the sensitivity: half and double, a tenth of the range, the other position.
    pub fn neighbours(&self, value: f64) -> Vec<f64> {
        let step = (self.high - self.low) / 10.0;
        let beside = match self.kind {
            Kind::Switch => vec![1.0 - value],
            _ if self.logarithmic => vec![value / 2.0, value * 2.0],
            _ => vec![value - step, value + step],
        };
        // Shares stay shares; else a step may leave the range.
        let limit = if self.kind == Kind::Number && self.high <= 1.0 { 1.0 } else { f64::INFINITY };
        let mut beside: Vec<f64> = beside.into_iter().map(|v| self.round(v.clamp(0.0, limit))).collect();
        beside.retain(|other| *other != value);
        beside.dedup();
        beside
    }
}

fn three_digits(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    format!("{value:.2e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(policy: &str, only: &[&str], ranges: &[(&str, &str, &str)]) -> Result<Space, String> {
        let entry = terrace_policy::find(policy).unwrap();
        let only: Vec<String> = only.iter().map(ToString::to_string).collect();
        let ranges: Vec<_> =
            ranges.iter().map(|(n, l, h)| (n.to_string(), l.to_string(), h.to_string())).collect();
        let values = entry.effective(&Table::new()).unwrap();
        Space::new(policy, &values, &entry.parameters(), &only, &ranges).map_err(|error| error.to_string())
    }

    #[test]
    fn every_value_of_the_space_is_one_that_the_policy_reads_back() {
        for entry in terrace_policy::all() {
            let Ok(space) = space(entry.name(), &[], &[]) else { continue };
            for dimension in &space.dimensions {
                let (low, high) = dimension.range();
                for inner in [low, (low + high) / 2.0, high, dimension.inner(dimension.default)] {
                    let value = dimension.value(inner);
                    let mut given = Table::new();
                    terrace_policy::registry::set(&mut given, &dimension.name, &dimension.text(value));
                    let read = entry.effective(&given).unwrap_or_else(|error| panic!("{error}"));
                    let back = number(dimension.kind, &read[&dimension.name]).unwrap();
                    assert!(
                        (back - value).abs() <= value.abs() * 1e-9,
                        "{}: {back} != {value}",
                        dimension.name
                    );
                }
            }
        }
    }

    #[test]
    fn ranges_are_around_the_default_or_as_given() {
        let ambix = space("ambix", &["period", "dram_target"], &[]).unwrap();
        let [period, target] = &ambix.dimensions[..] else { panic!() };
        assert_eq!(
            (period.text(period.low), period.text(period.high)),
            ("250 ms".to_owned(), "16 s".to_owned())
        );
        assert_eq!((target.low, target.high, target.logarithmic), (0.475, 1.0, false));
        let narrow = space("ambix", &["period"], &[("period", "1 s", "2 s")]).unwrap();
        assert_eq!(narrow.dimensions[0].low, 1e9);
        assert_eq!(period.neighbours(2e9), [1e9, 4e9]);
    }

    #[test]
    fn no_value_is_tried_that_the_policy_refuses() {
        let thp = space("thp", &["max_ptes_none"], &[]).unwrap();
        assert_eq!(thp.dimensions[0].high, 511.0);
        assert_eq!(space("ambix", &[], &[("dram_limit", "0.5", "3")]).unwrap().dimensions[6].high, 1.0);
    }

    #[test]
    fn a_goal_is_not_searched_unless_it_is_named() {
        assert!(space("thermostat", &[], &[]).unwrap().left_out.contains(&"slowdown".to_owned()));
        assert_eq!(space("thermostat", &["slowdown"], &[]).unwrap().dimensions.len(), 1);
    }

    #[test]
    fn wrong_names_and_ranges_are_named() {
        let error =
            |only: &[&str], ranges: &[(&str, &str, &str)]| space("ambix", only, ranges).err().unwrap();
        assert!(error(&["perid"], &[]).contains("no parameter \"perid\"; its parameters are period,"));
        assert!(error(&[], &[("period", "1 s", "two")]).contains("no period of \"two\""));
        assert!(error(&[], &[("period", "2 s", "1 s")]).contains("the lower first"));
    }
}
