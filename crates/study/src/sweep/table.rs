//! A sweep as a table for people.

use crate::figures::time;
use terrace_model::text::hanging;
use terrace_report::{Column, Columns, has_times};

/// Columns of a terminal.
const WIDTH: usize = 80;
const RUN_TIME: &str = "run time";

/// What distinguishes the runs, and how long each takes; before it what all of them have in common. Of the names of
/// parameters, `workload.` and `set.` go where what is left is no other column's name.
pub fn table(columns: &Columns) -> String {
    let shown: Vec<(String, Vec<String>)> =
        columns.columns.iter().filter_map(|(name, column)| shown(name, column, columns)).collect();
    let of_all = |(name, cells): &(String, Vec<String>)| {
        name != RUN_TIME && cells.len() > 1 && cells.iter().all(|cell| *cell == cells[0])
    };
    let (common, own): (Vec<_>, Vec<_>) = shown.into_iter().partition(of_all);
    let mut text = String::new();
    if !common.is_empty() {
        let said: Vec<String> = common.iter().map(|(name, cells)| format!("{name} {}", cells[0])).collect();
        let first = "All runs: ";
        text += &hanging(first, &format!("{}.", said.join(", ")), WIDTH - first.len());
        text.push('\n');
    }
    let heads = heads(&own);
    let widths: Vec<usize> = std::iter::zip(&heads, &own)
        .map(|(head, (_, cells))| {
            cells.iter().chain([head]).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut line = |cells: Vec<&str>| {
        let padded = std::iter::zip(cells, &widths).map(|(cell, width)| format!("{cell:width$}  "));
        text += padded.collect::<String>().trim_end();
        text.push('\n');
    };
    line(heads.iter().map(String::as_str).collect());
    for row in 0..columns.rows() {
        line(own.iter().map(|(_, cells)| cells[row].as_str()).collect());
    }
    text
}

/// The name and the cells of a column that is shown.
fn shown(name: &str, column: &Column, of: &Columns) -> Option<(String, Vec<String>)> {
    let is_parameter = name.starts_with("workload.") || name.starts_with("set.");
    let cells = match column {
        Column::Real(values) if name == "seconds_simulated" => {
            let cell = |(row, value): (usize, &Option<f64>)| match value {
                Some(value) if is_timed(of, row) => time(*value),
                _ => "-".to_owned(),
            };
            return Some((RUN_TIME.to_owned(), values.iter().enumerate().map(cell).collect()));
        }
        _ if !is_parameter && !["design", "machine", "input"].contains(&name) => return None,
        Column::Text(values) => values.iter().map(|value| value.clone().unwrap_or_default()).collect(),
        Column::Boolean(values) => values.iter().map(cell).collect(),
        Column::Integer(values) => values.iter().map(cell).collect(),
        Column::Real(values) => values.iter().map(cell).collect(),
    };
    Some((name.to_owned(), cells))
}

/// Whether the run of this row has a time.
fn is_timed(columns: &Columns, row: usize) -> bool {
    let fidelity = columns.columns.iter().find(|(name, _)| name == "fidelity");
    match fidelity {
        Some((_, Column::Text(values))) => values[row].as_deref().is_none_or(has_times),
        _ => true,
    }
}

fn cell<T: ToString>(value: &Option<T>) -> String {
    value.as_ref().map_or_else(String::new, T::to_string)
}

/// Names without what they begin with, where that is still one column's.
fn heads(columns: &[(String, Vec<String>)]) -> Vec<String> {
    let short = |name: &str| {
        let rest = name.strip_prefix("workload.").or_else(|| name.strip_prefix("set."));
        rest.unwrap_or(name).to_owned()
    };
    let all: Vec<String> = columns.iter().map(|(name, _)| short(name)).collect();
    std::iter::zip(columns, &all)
        .map(|((name, _), short)| {
            let is_one = all.iter().filter(|other| *other == short).count() == 1;
            if is_one { short.clone() } else { name.clone() }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(columns: Vec<(&str, Column)>) -> Columns {
        Columns { columns: columns.into_iter().map(|(name, column)| (name.to_owned(), column)).collect() }
    }

    fn text(values: [&str; 2]) -> Column {
        Column::Text(values.map(|value| Some(value.to_owned())).to_vec())
    }

    #[test]
    fn what_all_runs_have_in_common_is_said_once() {
        let table = table(&columns(vec![
            ("workload.bytes", text(["16 MiB", "256 MiB"])),
            ("workload.updates", Column::Integer(vec![Some(100_000); 2])),
            ("set.tlb.entries", Column::Integer(vec![Some(64), None])),
            ("design", text(["native-4k", "native-4k"])),
            ("cycles", Column::Integer(vec![Some(1), Some(2)])),
            ("seconds_simulated", Column::Real(vec![Some(1e-3); 2])),
        ]));
        let expected = "All runs: workload.updates 100000, design native-4k.\n\n\
                        bytes    tlb.entries  run time\n\
                        16 MiB   64           1 ms\n\
                        256 MiB               1 ms\n";
        assert_eq!(table, expected);
    }

    #[test]
    fn a_run_without_times_shows_none() {
        let table = table(&columns(vec![
            ("design", text(["native-4k", "native-2m"])),
            ("fidelity", text(["pages", "full"])),
            ("seconds_simulated", Column::Real(vec![Some(1e-3); 2])),
        ]));
        assert_eq!(table, "design     run time\nnative-4k  -\nnative-2m  1 ms\n");
    }

    #[test]
    fn names_stay_whole_where_they_would_be_one() {
        let table = table(&columns(vec![
            ("workload.threads", Column::Integer(vec![Some(1), Some(2)])),
            ("set.threads", Column::Integer(vec![Some(2), Some(1)])),
        ]));
        assert!(table.starts_with("workload.threads  set.threads\n"), "{table}");
    }
}
