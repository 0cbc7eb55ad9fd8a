//! Columns as Python's lists, which data frames are made of.

use crate::errors::{RunError, request};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::path::PathBuf;
use terrace_report::{Column, Columns, write_atomically};

/// A dictionary from each name to its kind (`text`, `boolean`, `integer` or `real`) and its values.
pub fn to_dict<'py>(py: Python<'py>, columns: &Columns) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, column) in &columns.columns {
        let (kind, values) = match column {
            Column::Text(values) => ("text", PyList::new(py, values)?),
            Column::Boolean(values) => ("boolean", PyList::new(py, values)?),
            Column::Integer(values) => ("integer", PyList::new(py, values)?),
            Column::Real(values) => ("real", PyList::new(py, values)?),
        };
        dict.set_item(name, (kind, values))?;
    }
    Ok(dict)
}

/// Writes such a dictionary as a Parquet file.
#[pyfunction]
pub fn write_parquet(columns: &Bound<'_, PyDict>, path: PathBuf) -> PyResult<()> {
    let mut table = Columns::default();
    for (name, value) in columns {
        let (kind, values): (String, Bound<'_, PyAny>) = value.extract()?;
        let column = match kind.as_str() {
            "text" => Column::Text(values.extract()?),
            "boolean" => Column::Boolean(values.extract()?),
            "integer" => Column::Integer(values.extract()?),
            "real" => Column::Real(values.extract()?),
            _ => return Err(request(format!("\"{kind}\" is not text, boolean, integer or real"))),
        };
        table.columns.push((name.extract()?, column));
    }
    if table.columns.iter().any(|(_, column)| column.len() != table.rows()) {
        return Err(request("the columns have different lengths"));
    }
    write_atomically(&path, &table.to_parquet()).map_err(|error| RunError::new_err(error.to_string()))
}
