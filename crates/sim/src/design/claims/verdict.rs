//! Whether a claim holds, given the results of its runs.

use super::expression::{Read, Value, When, short, starred};
use super::{Claim, Published, RunKey, RunNumbers, Tolerance, over_time};
use serde::Serialize;
use terrace_model::Value as Recorded;

/// One compared number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The point, empty for a claim of one number.
    pub point: String,
    /// Our number.
    pub ours: f64,
    /// The source's.
    pub published: f64,
    /// `ours / published - 1`; absent where the published number is 0.
    pub error: Option<f64>,
    /// False where a constant was fitted to this row.
    pub judged: bool,
    /// Whether ours lies within the claim's tolerance.
    pub within: bool,
}

/// The outcome of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The claim's name.
    pub id: String,
    /// Our result, as text with its unit.
    pub ours: String,
    /// The published one.
    pub published: String,
    /// Whether the claim is reproduced.
    pub holds: bool,
    /// Whether there was a result to judge at all, one that no constant was fitted to.
    pub evaluated: bool,
    /// Why it does not hold; with a claim that holds, what is to be known about it. May be empty.
    pub reason: String,
    /// The compared numbers; empty for an order.
    pub rows: Vec<Row>,
    /// All numbers that the verdict rests on, those of an order too, one after the other.
    pub numbers: Vec<f64>,
}

/// Judges `claim` by the results that `results` gives. A run without result makes the claim not evaluated.
pub fn evaluate(claim: &Claim, results: &dyn Fn(&RunKey) -> Option<RunNumbers>) -> Verdict {
    let metric = |run: &str, name: &str, when: When| {
        let mut series = Vec::new();
        for (point, key) in claim.keys(run) {
            let numbers = results(&key).ok_or_else(|| {
                format!("the run of {} on {} with {} gave no result", key.design, key.machine, key.workload)
            })?;
            match name.split_once(".*.") {
                _ if when == When::OverTime => return over_time::read(&numbers, name).map(Value::Series),
                None => series.push((point, read_metric(&numbers, name)?)),
                Some(around) => series.extend(
                    with_any_name(&numbers, around).map(|(name, value)| (starred(&point, name), value)),
                ),
            }
        }
        if series.is_empty() {
            return Err(format!("the run has no statistic {name}"));
        }
        match series.as_slice() {
            [(point, value)] if point.is_empty() => Ok(Value::Number(*value)),
            _ => Ok(Value::Series(series)),
        }
    };
    match judge(claim, &metric) {
        Ok(verdict) => verdict,
        Err(reason) => Verdict {
            id: claim.id.clone(),
            ours: String::new(),
            published: claim.published_text(),
            holds: false,
            evaluated: false,
            reason,
            rows: Vec::new(),
            numbers: Vec::new(),
        },
    }
}

fn read_metric(numbers: &RunNumbers, name: &str) -> Result<f64, String> {
    Ok(match name {
        "seconds" => numbers.seconds,
        "cycles" => numbers.cycles as f64,
        "accesses" => numbers.accesses as f64,
        "instructions" => numbers.instructions as f64,
        "throughput" => numbers.accesses as f64 / numbers.seconds,
        statistic => match numbers.stats.get(statistic) {
            Some(stat) => stat.value.as_f64(),
            None => of_histogram(numbers, statistic)
                .ok_or_else(|| format!("the run has no statistic {statistic}"))?,
        },
    })
}

/// The statistics between whose two parts one name stands, by that name.
fn with_any_name<'a>(
    numbers: &'a RunNumbers,
    (before, after): (&'a str, &'a str),
) -> impl Iterator<Item = (&'a str, f64)> {
    numbers.stats.under(before).filter_map(move |(rest, stat)| {
        let name = rest.strip_suffix(after)?.strip_suffix('.')?;
        (!name.contains('.')).then(|| (name, stat.value.as_f64()))
    })
}

/// `.mean` or `.max` of what a histogram recorded, if that was anything.
fn of_histogram(numbers: &RunNumbers, name: &str) -> Option<f64> {
    let (statistic, figure) = name.rsplit_once('.')?;
    let Recorded::Histogram(histogram) = &numbers.stats.get(statistic)?.value else { return None };
    match figure {
        _ if histogram.count == 0 => None,
        "mean" => Some(histogram.sum as f64 / histogram.count as f64),
        "max" => Some(histogram.max as f64),
        _ => None,
    }
}

fn judge(claim: &Claim, metric: &Read<'_>) -> Result<Verdict, String> {
    if let Some((holds, values)) = claim.expression.order(metric)? {
        let ours: Vec<_> = values.iter().map(Value::to_string).collect();
        let reason = if holds { String::new() } else { "the order is another".to_owned() };
        let numbers = values.iter().flat_map(numbers_of).collect();
        return Ok(Verdict { numbers, ..verdict(claim, ours.join(" | "), holds, reason, Vec::new()) });
    }
    let rows = rows(claim, &claim.expression.value(metric)?)?;
    let judged: Vec<&Row> = rows.iter().filter(|row| row.judged).collect();
    let mut complaints = Vec::new();
    let outside: Vec<&&Row> = judged.iter().filter(|row| !row.within).collect();
    if !outside.is_empty() {
        let worst = outside.iter().max_by(|a, b| distance(a).total_cmp(&distance(b)));
        let worst = worst.map(|row| describe(row)).unwrap_or_default();
        let worst = if claim.range { format!("{worst} from the middle of the range") } else { worst };
        complaints.push(match judged.len() {
            1 => format!("off by {worst}"),
            all => format!("{} of {all} rows are outside the tolerance, the worst by {worst}", outside.len()),
        });
    }
    let errors: Vec<f64> = judged.iter().filter_map(|row| row.error).map(f64::abs).collect();
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    if let Some(limit) = claim.mean_tolerance
        && (errors.is_empty() || mean.is_nan() || mean > limit)
    {
        complaints.push(format!("the mean error is {:.1} %, above {:.1} %", mean * 100.0, limit * 100.0));
    }
    let mut ours = match rows.as_slice() {
        [row] => with_unit(short(row.ours), claim),
        rows => with_unit(rows.iter().map(|row| short(row.ours)).collect::<Vec<_>>().join(", "), claim),
    };
    if rows.len() > 1 && !errors.is_empty() {
        ours = format!("{ours} (mean error {:.1} %)", mean * 100.0);
    }
    if judged.is_empty() {
        // Shown all the same.
        let reason = "a constant was fitted to it, so nothing is predicted".to_owned();
        return Ok(Verdict { evaluated: false, ..verdict(claim, ours, false, reason, rows) });
    }
    Ok(verdict(claim, ours, complaints.is_empty(), complaints.join("; "), rows))
}

fn verdict(claim: &Claim, ours: String, holds: bool, reason: String, rows: Vec<Row>) -> Verdict {
    let reason = match (reason.is_empty(), claim.note.is_empty()) {
        (true, _) => claim.note.clone(),
        (false, true) => reason,
        (false, false) => format!("{reason}. {}", claim.note),
    };
    Verdict {
        id: claim.id.clone(),
        ours,
        published: claim.published_text(),
        holds,
        evaluated: true,
        reason,
        numbers: rows.iter().map(|row| row.ours).collect(),
        rows,
    }
}

fn numbers_of(value: &Value) -> Vec<f64> {
    match value {
        Value::Number(number) => vec![*number],
        Value::Series(series) => series.iter().map(|(_, number)| *number).collect(),
    }
}

fn rows(claim: &Claim, ours: &Value) -> Result<Vec<Row>, String> {
    let pairs: Vec<(String, f64, f64)> = match (ours, &claim.published) {
        (Value::Number(ours), Some(Published::Number(published))) => vec![(String::new(), *ours, *published)],
        (Value::Series(series), Some(Published::Number(published))) => {
            series.iter().map(|(point, ours)| (point.clone(), *ours, *published)).collect()
        }
        (Value::Series(series), Some(Published::List(published))) if series.len() == published.len() => {
            series
                .iter()
                .zip(published)
                .map(|((point, ours), published)| (point.clone(), *ours, *published))
                .collect()
        }
        (ours, Some(Published::List(published))) => {
            let count = if let Value::Series(series) = ours { series.len() } else { 1 };
            return Err(format!("{} published numbers for {count} results", published.len()));
        }
        (_, None) => return Err("there is no published number".into()),
    };
    Ok(pairs
        .into_iter()
        .map(|(point, ours, published)| Row {
            error: (published != 0.0).then(|| ours / published - 1.0),
            judged: !claim.calibrated.contains(&point),
            within: match claim.tolerance {
                // Only the mean is judged.
                None => ours.is_finite(),
                Some(Tolerance::Absolute(limit)) => (ours - published).abs() <= limit,
                Some(Tolerance::Relative(share)) => (ours - published).abs() <= share * published.abs(),
            },
            point,
            ours,
            published,
        })
        .collect())
}

fn distance(row: &Row) -> f64 {
    row.error.map_or((row.ours - row.published).abs(), f64::abs)
}

fn describe(row: &Row) -> String {
    let size = match row.error {
        Some(error) => format!("{:+.1} %", error * 100.0),
        None => short(row.ours - row.published),
    };
    if row.point.is_empty() { size } else { format!("{size} at {}", row.point) }
}

fn with_unit(text: String, claim: &Claim) -> String {
    if claim.unit.is_empty() { text } else { format!("{text} {}", claim.unit) }
}

impl Claim {
    /// What the source states, as it is shown: its number or numbers, the ends of its range, or the order.
    pub fn published_text(&self) -> String {
        let stated = match &self.published {
            None => return self.expression_text.clone(),
            Some(Published::Number(middle)) => match (self.range, self.tolerance) {
                (true, Some(Tolerance::Absolute(half))) => {
                    format!("{} to {}", short(middle - half), short(middle + half))
                }
                _ => short(*middle),
            },
            Some(Published::List(list)) => {
                list.iter().map(|number| short(*number)).collect::<Vec<_>>().join(", ")
            }
        };
        with_unit(stated, self)
    }
}
