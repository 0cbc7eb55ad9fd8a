//! Runs as columns: one row per run, for CSV, Parquet and data frames.

use crate::run::tiers_in_words;
use crate::{Comparison, RunRecord, SpeedUp};
use std::collections::BTreeMap;
use terrace_model::{Stats, Value};

/// A table by columns of equal length, each with its name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns {
    /// Names and values, in the order of display.
    pub columns: Vec<(String, Column)>,
}

/// The values of a column, a row each; none where a row has no such value.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Names and texts.
    Text(Vec<Option<String>>),
    /// What is true or false.
    Boolean(Vec<Option<bool>>),
    /// Counts.
    Integer(Vec<Option<u64>>),
    /// Measured or derived quantities. Never infinite or not a number: such a value is none.
    Real(Vec<Option<f64>>),
}

impl Column {
    /// Rows.
    pub fn len(&self) -> usize {
        match self {
            Column::Text(values) => values.len(),
            Column::Boolean(values) => values.len(),
            Column::Integer(values) => values.len(),
            Column::Real(values) => values.len(),
        }
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Values of one name that were not all of one kind: integers where all are, else real numbers.
    fn of_numbers(values: Vec<Option<Number>>) -> Column {
        let is_integer = |value: &Option<Number>| matches!(value, None | Some(Number::Integer(_)));
        if values.iter().all(is_integer) {
            let integer = |value| match value {
                Some(Number::Integer(value)) => Some(value),
                _ => None,
            };
            return Column::Integer(values.into_iter().map(integer).collect());
        }
        let real = |value| match value {
            Some(Number::Integer(value)) => Some(value as f64),
            Some(Number::Real(value)) => Some(value).filter(|value| value.is_finite()),
            None => None,
        };
        Column::Real(values.into_iter().map(real).collect())
    }
}

#[derive(Clone, Copy)]
enum Number {
    Integer(u64),
    Real(f64),
}

impl Columns {
    /// A row per run. First what every run has, then a column per statistic, in the order of the names, with the units
    /// that the JSON document lists; a histogram takes three, `NAME.count`, `NAME.sum` and `NAME.max`.
    pub fn of_runs(runs: &[RunRecord]) -> Columns {
        let text = |of: fn(&RunRecord) -> &String| {
            Column::Text(runs.iter().map(|run| Some(of(run).clone())).collect())
        };
        let integer = |of: fn(&RunRecord) -> Option<u64>| Column::Integer(runs.iter().map(of).collect());
        let real = |of: fn(&RunRecord) -> f64| {
            Column::Real(runs.iter().map(|run| Some(of(run)).filter(|value| value.is_finite())).collect())
        };
        let fixed = [
            ("design", text(|run| &run.design)),
            ("machine", text(|run| &run.machine)),
            ("input", text(|run| &run.input)),
            ("fidelity", text(|run| &run.fidelity)),
            ("scale", integer(|run| Some(u64::from(run.scale)))),
            ("seed", integer(|run| run.seed)),
            ("accesses", integer(|run| Some(run.accesses))),
            ("instructions", integer(|run| Some(run.instructions))),
            ("cycles", integer(|run| Some(run.cycles))),
            ("seconds_simulated", real(|run| run.seconds_simulated)),
            ("wall_seconds", real(|run| run.wall_seconds)),
            ("accesses_per_second", real(RunRecord::accesses_per_second)),
            // No comma, so that a line can be split at commas.
            (
                "machine_tiers",
                Column::Text(runs.iter().map(|run| Some(tiers_in_words(&run.tiers, "; "))).collect()),
            ),
        ];
        let mut statistics: BTreeMap<String, Vec<Option<Number>>> = BTreeMap::new();
        for (row, run) in runs.iter().enumerate() {
            for (name, value) in cells(&run.stats) {
                statistics.entry(name).or_insert_with(|| vec![None; runs.len()])[row] = Some(value);
            }
        }
        let fixed = fixed.into_iter().map(|(name, column)| (name.to_owned(), column));
        let statistics = statistics.into_iter().map(|(name, values)| (name, Column::of_numbers(values)));
        Columns { columns: fixed.chain(statistics).collect() }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.len())
    }

    /// The table as text for spreadsheets: a line of names, then a line per row. What a row does not have is an empty
    /// field.
    pub fn to_csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(self.columns.iter().map(|(name, _)| name)).expect("writing to memory");
        for row in 0..self.rows() {
            let field = |(_, column): &(String, Column)| {
                let text = match column {
                    Column::Text(values) => values[row].clone(),
                    Column::Boolean(values) => values[row].map(|value| value.to_string()),
                    Column::Integer(values) => values[row].map(|value| value.to_string()),
                    // The shortest text that reads back as the same number.
                    Column::Real(values) => values[row].map(|value| value.to_string()),
                };
                text.unwrap_or_default()
            };
            writer.write_record(self.columns.iter().map(field)).expect("writing to memory");
        }
        let bytes = writer.into_inner().expect("writing to memory");
        String::from_utf8(bytes).expect("every field is text")
    }
}

impl Comparison {
    /// The runs by columns.
    pub fn columns(&self) -> Columns {
        let mut columns = Columns::of_runs(&self.runs).columns;
        let of = |value: fn(&SpeedUp) -> f64| {
            let values = self.runs.iter().map(|run| self.speedup_of(run).as_ref().map(value));
            Column::Real(values.map(|value| value.filter(|value| value.is_finite())).collect())
        };
        // Beside the time that they compare.
        let after = columns.iter().position(|(name, _)| name == "seconds_simulated").map_or(0, |at| at + 1);
        let speedups = [
            ("speedup", of(|one| one.value)),
            ("speedup_low", of(|one| one.low)),
            ("speedup_high", of(|one| one.high)),
        ];
        columns.splice(after..after, speedups.map(|(name, column)| (name.to_owned(), column)));
        Columns { columns }
    }

    /// `results.csv`: the runs as text for spreadsheets and data frames.
    pub fn to_csv(&self) -> String {
        self.columns().to_csv()
    }
}

/// Column and value of every statistic.
fn cells(stats: &Stats) -> impl Iterator<Item = (String, Number)> {
    stats.iter().flat_map(|(name, stat)| match &stat.value {
        Value::Integer(n) => vec![(name.to_owned(), Number::Integer(*n))],
        Value::Real(x) => vec![(name.to_owned(), Number::Real(*x))],
        Value::Histogram(h) => vec![
            (format!("{name}.count"), Number::Integer(h.count)),
            (format!("{name}.sum"), Number::Integer(h.sum)),
            (format!("{name}.max"), Number::Integer(h.max)),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data;
    use terrace_model::Unit;

    #[test]
    fn the_table_of_the_test_comparison() {
        insta::assert_snapshot!(test_data::comparison().to_csv());
    }

    #[test]
    fn fields_with_separators_are_quoted_and_missing_statistics_empty() {
        let mut comparison = test_data::comparison();
        comparison.runs[0].design = "a,\"b\"\nc".to_owned();
        comparison.runs[1].stats.count("only.here", 5, Unit::Count);
        let text = comparison.to_csv();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let at = reader.headers().unwrap().iter().position(|name| name == "only.here").unwrap();
        let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
        assert_eq!(&rows[0][0], "a,\"b\"\nc");
        assert_eq!((&rows[0][at], &rows[1][at]), ("", "5"));
    }

    #[test]
    fn without_runs_only_the_header_remains() {
        assert_eq!(Comparison::default().to_csv().lines().count(), 1);
    }

    #[test]
    fn a_statistic_of_two_kinds_is_real_and_what_is_no_number_is_none() {
        let mut comparison = test_data::comparison();
        comparison.runs[0].stats.count("mixed", 3, Unit::Ratio);
        comparison.runs[1].stats.real("mixed", 0.5, Unit::Ratio);
        comparison.runs[2].stats.real("mixed", f64::NAN, Unit::Ratio);
        let columns = comparison.columns();
        let (_, mixed) = columns.columns.iter().find(|(name, _)| name == "mixed").unwrap();
        assert_eq!(*mixed, Column::Real(vec![Some(3.0), Some(0.5), None]));
        assert!(columns.columns.iter().all(|(_, column)| column.len() == columns.rows()));
    }
}
