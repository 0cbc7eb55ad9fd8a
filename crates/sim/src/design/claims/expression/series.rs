//! Arithmetic and functions of series.

use super::{Expression, Read, Reduction, STAR, Value};

/// Arithmetic number by number. Errors: two series with different points.
pub(super) fn pointwise(
    left: &Value,
    right: &Value,
    apply: impl Fn(f64, f64) -> f64,
) -> Result<Value, String> {
    let one = |series: &[(String, f64)], apply: &dyn Fn(f64) -> f64| {
        Value::Series(series.iter().map(|(point, value)| (point.clone(), apply(*value))).collect())
    };
    Ok(match (left, right) {
        (Value::Number(a), Value::Number(b)) => Value::Number(apply(*a, *b)),
        (Value::Series(a), Value::Number(b)) => one(a, &|a| apply(a, *b)),
        (Value::Number(a), Value::Series(b)) => one(b, &|b| apply(*a, b)),
        (Value::Series(a), Value::Series(b)) => {
            if !a.iter().map(|(point, _)| point).eq(b.iter().map(|(point, _)| point)) {
                return Err("the series have different points".into());
            }
            let both = a.iter().zip(b).map(|((point, a), (_, b))| (point.clone(), apply(*a, *b)));
            Value::Series(both.collect())
        }
    })
}

/// The number of `series` at the point that `point` names.
pub(super) fn at(series: &[(String, f64)], point: &Expression, metric: &Read<'_>) -> Result<f64, String> {
    let found = match point {
        Expression::Point(name) => series.iter().find(|(point, _)| point == name),
        number => match number.value(metric)? {
            Value::Number(number) => series.iter().find(|(point, _)| point.parse() == Ok(number)),
            Value::Series(_) => return Err("at() takes one point, not a series".into()),
        },
    };
    let points = || series.iter().map(|(point, _)| point.as_str()).collect::<Vec<_>>().join(", ");
    let found = found.map(|(_, value)| *value);
    found.ok_or_else(|| format!("the series has no such point; it has {}", points()))
}

/// The share of numbers above `limit`.
pub(super) fn above(series: &[(String, f64)], limit: f64) -> f64 {
    series.iter().filter(|(_, value)| *value > limit).count() as f64 / series.len() as f64
}

/// The first point at which the number is above `limit`, infinity where it never is. Errors: points that are no numbers.
pub(super) fn first_above(series: &[(String, f64)], limit: f64) -> Result<f64, String> {
    let first = series.iter().find(|(_, value)| *value > limit);
    first.map_or(Ok(f64::INFINITY), |(point, _)| number_of(point))
}

/// The part of a series whose points are `within`. Errors: points that are no numbers, a part without any.
pub(super) fn part(series: &[(String, f64)], within: impl Fn(f64) -> bool) -> Result<Value, String> {
    let mut part = Vec::new();
    for (point, value) in series {
        if within(number_of(point)?) {
            part.push((point.clone(), *value));
        }
    }
    match (part.is_empty(), series) {
        (true, [(first, _), .., (last, _)]) => {
            Err(format!("the series has no point there; it goes from {first} to {last}"))
        }
        (true, _) => Err("the series has no point there".into()),
        (false, _) => Ok(Value::Series(part)),
    }
}

fn number_of(point: &str) -> Result<f64, String> {
    point.parse().map_err(|_| format!("the point \"{point}\" is no number"))
}

/// One number for each point, of all that it has. Errors: a series without a star, and those of the reduction.
pub(super) fn each(series: &[(String, f64)], reduction: Reduction) -> Result<Value, String> {
    let mut points: Vec<(&str, Vec<(String, f64)>)> = Vec::new();
    for (label, value) in series {
        let (point, name) = label
            .rsplit_once(STAR)
            .ok_or("the series has one number for each point, as no * is in its metric")?;
        let one = (name.to_owned(), *value);
        match points.last_mut().filter(|(last, _)| *last == point) {
            Some((_, of_point)) => of_point.push(one),
            None => points.push((point, vec![one])),
        }
    }
    let reduced = |(point, of_point): (&str, Vec<_>)| Ok((point.to_owned(), reduction.of(&of_point)?));
    let series = points.into_iter().map(reduced).collect::<Result<Vec<_>, String>>()?;
    Ok(match series.as_slice() {
        [(point, value)] if point.is_empty() => Value::Number(*value),
        _ => Value::Series(series),
    })
}

impl Reduction {
    /// Makes one number of a series. Errors: a point that should be a number and is none.
    pub(super) fn of(self, series: &[(String, f64)]) -> Result<f64, String> {
        let values = series.iter().map(|(_, value)| *value);
        let count = series.len() as f64;
        let extreme = |sign: f64| {
            let best = series.iter().max_by(|(_, a), (_, b)| (sign * a).total_cmp(&(sign * b)));
            best.map_or(Ok(f64::NAN), |(point, _)| number_of(point))
        };
        match self {
            Reduction::Max => Ok(values.fold(f64::NAN, f64::max)),
            Reduction::Min => Ok(values.fold(f64::NAN, f64::min)),
            Reduction::Mean => Ok(values.sum::<f64>() / count),
            Reduction::Geomean => Ok((values.map(f64::ln).sum::<f64>() / count).exp()),
            Reduction::Argmax => extreme(1.0),
            Reduction::Argmin => extreme(-1.0),
            Reduction::Last => Ok(series.last().map_or(f64::NAN, |(_, value)| *value)),
        }
    }
}
