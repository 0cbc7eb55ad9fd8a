//! Any JSON document as a table, so that every command's result can be a data frame.

use crate::{Column, Columns};
use serde_json::{Map, Value};

impl Columns {
    /// A row per object of the document's list `rows`, or one row of the whole document without that name. Members of
    /// objects inside a row are columns of their own, `OUTER.INNER`; lists are texts in JSON. What stands beside the list
    /// and is no object or list is repeated in every row, where the row has no column of that name. Columns come in the
    /// order in which rows bring them, within a row by name; the version of the document is left out.
    pub fn of_document(document: &Value, rows: Option<&str>) -> Columns {
        let nothing = Map::new();
        let document = document.as_object().unwrap_or(&nothing);
        let mut around = Vec::new();
        let mut table = Table::default();
        for (name, value) in
            document.iter().filter(|(name, _)| *name != "schema" && Some(name.as_str()) != rows)
        {
            if rows.is_none() {
                flatten(name, value, &mut around);
            } else if !value.is_object() && !value.is_array() {
                around.push((name.clone(), value.clone()));
            }
        }
        let Some(rows) = rows else {
            table.add(around);
            return table.finish();
        };
        let list = document.get(rows).and_then(Value::as_array);
        for row in list.into_iter().flatten() {
            let mut cells = around.clone();
            let mut own = Vec::new();
            row.as_object()
                .unwrap_or(&nothing)
                .iter()
                .for_each(|(name, value)| flatten(name, value, &mut own));
            cells.retain(|(name, _)| own.iter().all(|(other, _)| other != name));
            cells.extend(own);
            table.add(cells);
        }
        table.finish()
    }
}

fn flatten(name: &str, value: &Value, cells: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(inner, value)| flatten(&format!("{name}.{inner}"), value, cells));
        }
        other => cells.push((name.to_owned(), other.clone())),
    }
}

/// Cells by column and row, as they come.
#[derive(Default)]
struct Table {
    rows: usize,
    columns: Vec<(String, Vec<Value>)>,
}

impl Table {
    fn add(&mut self, cells: Vec<(String, Value)>) {
        for (name, value) in cells {
            let at = self.columns.iter().position(|(other, _)| *other == name).unwrap_or_else(|| {
                self.columns.push((name, Vec::new()));
                self.columns.len() - 1
            });
            let column = &mut self.columns[at].1;
            column.resize(self.rows, Value::Null);
            column.push(value);
        }
        self.rows += 1;
    }

    fn finish(self) -> Columns {
        let column = |(name, mut values): (String, Vec<Value>)| {
            values.resize(self.rows, Value::Null);
            (name, typed(&values))
        };
        Columns { columns: self.columns.into_iter().map(column).collect() }
    }
}

/// True and false or counts where all values are, else numbers where all are, else texts.
fn typed(values: &[Value]) -> Column {
    let all = |is: fn(&Value) -> bool| values.iter().all(|value| value.is_null() || is(value));
    if values.iter().all(Value::is_null) {
        return Column::Text(vec![None; values.len()]);
    }
    if all(Value::is_boolean) {
        return Column::Boolean(values.iter().map(Value::as_bool).collect());
    }
    if all(Value::is_u64) {
        return Column::Integer(values.iter().map(Value::as_u64).collect());
    }
    if all(Value::is_number) {
        return Column::Real(values.iter().map(Value::as_f64).collect());
    }
    let text = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    Column::Text(values.iter().map(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_of_a_list_hold_what_stands_beside_it() {
        let document = json!({
            "schema": 1,
            "input": "kv",
            "tiers": [{ "name": "dram" }],
            "ways": [
                { "name": "4k", "figures": { "gain": 0, "walks": 7 }, "sizes": [1, 2], "input": "own" },
                { "name": "2m", "figures": { "gain": 0.5 }, "refused": true },
            ],
        });
        let columns = Columns::of_document(&document, Some("ways"));
        let text = |values: &[Option<&str>]| {
            Column::Text(values.iter().map(|value| value.map(str::to_owned)).collect())
        };
        let expected = [
            ("figures.gain", Column::Real(vec![Some(0.0), Some(0.5)])),
            ("figures.walks", Column::Integer(vec![Some(7), None])),
            ("input", text(&[Some("own"), Some("kv")])),
            ("name", text(&[Some("4k"), Some("2m")])),
            ("sizes", text(&[Some("[1,2]"), None])),
            ("refused", Column::Boolean(vec![None, Some(true)])),
        ];
        assert_eq!(columns.columns, expected.map(|(name, column)| (name.to_owned(), column)));
        assert_eq!(columns.to_csv().lines().nth(2), Some("0.5,,kv,2m,,true"));
    }

    #[test]
    fn a_document_without_a_list_is_one_row() {
        let document = json!({ "schema": 1, "program": "sort", "base": { "faults": 12 }, "none": null });
        let columns = Columns::of_document(&document, None);
        assert_eq!(columns.to_csv(), "base.faults,none,program\n12,,sort\n");
    }

    #[test]
    fn a_list_without_rows_is_a_table_without_rows() {
        let document = json!({ "input": "kv", "ways": [] });
        assert_eq!(Columns::of_document(&document, Some("ways")).rows(), 0);
    }

    #[test]
    fn every_cell_of_random_documents_is_found_again() {
        let mut random = terrace_model::Random::new(5);
        for _ in 0..200 {
            let rows: Vec<Value> = (0..random.below(6))
                .map(|_| {
                    let mut row = Map::new();
                    for at in 0..random.below(5) {
                        let value = match random.below(5) {
                            0 => Value::Null,
                            1 => json!(random.below(1 << 40)),
                            2 => json!(random.below(1000) as f64 / 8.0),
                            3 => json!(format!("text {}", random.below(9))),
                            _ => json!({ "in": random.below(9) }),
                        };
                        row.insert(format!("c{at}"), value);
                    }
                    Value::Object(row)
                })
                .collect();
            let columns = Columns::of_document(&json!({ "rows": rows.clone() }), Some("rows"));
            for (at, row) in rows.iter().enumerate() {
                for (name, value) in row.as_object().unwrap() {
                    let (name, value) = match value {
                        Value::Object(inner) => (format!("{name}.in"), &inner["in"]),
                        other => (name.clone(), other),
                    };
                    let column =
                        columns.columns.iter().find(|(other, _)| *other == name).map(|(_, column)| column);
                    let found = match column {
                        Some(Column::Integer(values)) => values[at].map(|value| json!(value)),
                        Some(Column::Real(values)) => values[at].map(|value| json!(value)),
                        Some(Column::Text(values)) => values[at].clone().map(Value::String),
                        Some(Column::Boolean(values)) => values[at].map(|value| json!(value)),
                        None => None,
                    };
                    let shown = |value: &Value| match value {
                        Value::String(text) => text.clone(),
                        Value::Number(number) => format!("{}", number.as_f64().unwrap()),
                        other => other.to_string(),
                    };
                    let found = found.map_or("null".to_owned(), |value| match &value {
                        Value::String(text) => {
                            text.parse::<f64>().map_or(text.clone(), |number| format!("{number}"))
                        }
                        other => shown(other),
                    });
                    assert_eq!(found, shown(value), "{name} of row {at}");
                }
            }
        }
    }
}
