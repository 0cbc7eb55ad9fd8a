//! `results.csv`: one row per run, one column per statistic, for spreadsheets and data frames.

use crate::Comparison;
use std::collections::BTreeSet;
use terrace_model::{Stats, Value};

/// Columns before the statistics.
const FIXED: [&str; 12] = [
    "design",
    "machine",
    "input",
    "fidelity",
    "scale",
    "seed",
    "accesses",
    "instructions",
    "cycles",
    "seconds_simulated",
    "wall_seconds",
    "accesses_per_second",
];

impl Comparison {
    /// The table as text. Columns of statistics have the statistic's full name, in the order of the names, and the
    /// units that the JSON document lists; a histogram takes three, `NAME.count`, `NAME.sum` and `NAME.max`. A
    /// statistic that a run does not have is an empty field.
    pub fn to_csv(&self) -> String {
        let columns: BTreeSet<String> =
            self.runs.iter().flat_map(|run| cells(&run.stats)).map(|(n, _)| n).collect();
        let mut writer = csv::Writer::from_writer(Vec::new());
        let header = FIXED.iter().copied().chain(columns.iter().map(String::as_str));
        writer.write_record(header).expect("writing to memory");
        for run in &self.runs {
            let fixed = [
                run.design.clone(),
                run.machine.clone(),
                run.input.clone(),
                run.fidelity.clone(),
                run.scale.to_string(),
                run.seed.map(|seed| seed.to_string()).unwrap_or_default(),
                run.accesses.to_string(),
                run.instructions.to_string(),
                run.cycles.to_string(),
                real(run.seconds_simulated),
                real(run.wall_seconds),
                real(run.accesses_per_second()),
            ];
            let statistics: std::collections::BTreeMap<String, String> = cells(&run.stats).collect();
            let values = columns.iter().map(|name| statistics.get(name).cloned().unwrap_or_default());
            writer.write_record(fixed.into_iter().chain(values)).expect("writing to memory");
        }
        let bytes = writer.into_inner().expect("writing to memory");
        String::from_utf8(bytes).expect("every field is text")
    }
}

/// Column and text of every statistic.
fn cells(stats: &Stats) -> impl Iterator<Item = (String, String)> {
    stats.iter().flat_map(|(name, stat)| match &stat.value {
        Value::Integer(n) => vec![(name.to_owned(), n.to_string())],
        Value::Real(x) => vec![(name.to_owned(), real(*x))],
        Value::Histogram(h) => vec![
            (format!("{name}.count"), h.count.to_string()),
            (format!("{name}.sum"), h.sum.to_string()),
            (format!("{name}.max"), h.max.to_string()),
        ],
    })
}

/// The shortest text that reads back as the same number; empty for what is none.
fn real(value: f64) -> String {
    if value.is_finite() { value.to_string() } else { String::new() }
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
}
