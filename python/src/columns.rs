//! Columns as Python's lists, which data frames are made of.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use terrace_report::{Column, Columns};

/// A dictionary from each name to its kind (`text`, `integer` or `real`) and its values.
pub fn to_dict<'py>(py: Python<'py>, columns: &Columns) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, column) in &columns.columns {
        let (kind, values) = match column {
            Column::Text(values) => ("text", PyList::new(py, values)?),
            Column::Integer(values) => ("integer", PyList::new(py, values)?),
            Column::Real(values) => ("real", PyList::new(py, values)?),
        };
        dict.set_item(name, (kind, values))?;
    }
    Ok(dict)
}
