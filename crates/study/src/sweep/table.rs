//! A sweep as a table for people.

use crate::figures::time;
use terrace_report::{Column, Columns};

/// Columns that say what a run is, and how long it takes.
pub fn table(columns: &Columns) -> String {
    let is_shown = |name: &str| {
        name.starts_with("workload.")
            || name.starts_with("set.")
            || ["design", "machine", "input"].contains(&name)
    };
    let mut shown: Vec<Vec<String>> = Vec::new();
    for (name, column) in &columns.columns {
        let cells: Vec<String> = match (name.as_str(), column) {
            ("seconds_simulated", Column::Real(values)) => {
                values.iter().map(|value| value.map_or_else(String::new, time)).collect()
            }
            (name, _) if !is_shown(name) => continue,
            (_, Column::Text(values)) => {
                values.iter().map(|value| value.clone().unwrap_or_default()).collect()
            }
            (_, Column::Integer(values)) => {
                values.iter().map(|value| value.map_or_else(String::new, |value| value.to_string())).collect()
            }
            (_, Column::Real(values)) => {
                values.iter().map(|value| value.map_or_else(String::new, |value| value.to_string())).collect()
            }
        };
        let head = if name == "seconds_simulated" { "run time" } else { name.as_str() };
        shown.push(std::iter::once(head.to_owned()).chain(cells).collect());
    }
    let mut text = String::new();
    for row in 0..=columns.rows() {
        let mut line = String::new();
        for column in &shown {
            let width = column.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
            line += &format!("{:width$}  ", column[row]);
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}
