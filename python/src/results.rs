//! Runs and comparisons as Python sees them.

use crate::columns;
use crate::errors::{RunError, in_python};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use terrace_model::Value;
use terrace_report::{Charset, RunRecord};

/// Columns of a terminal table.
const WIDTH: usize = 80;

/// One design on one input.
#[pyclass(frozen, module = "terrace._terrace")]
pub struct Run {
    /// The result.
    pub record: RunRecord,
}

#[pymethods]
impl Run {
    #[getter]
    fn design(&self) -> &str {
        &self.record.design
    }

    #[getter]
    fn design_summary(&self) -> &str {
        &self.record.design_summary
    }

    #[getter]
    fn machine(&self) -> &str {
        &self.record.machine
    }

    #[getter]
    fn input(&self) -> &str {
        &self.record.input
    }

    #[getter]
    fn fidelity(&self) -> &str {
        &self.record.fidelity
    }

    #[getter]
    fn scale(&self) -> u32 {
        self.record.scale
    }

    #[getter]
    fn seed(&self) -> Option<u64> {
        self.record.seed
    }

    #[getter]
    fn accesses(&self) -> u64 {
        self.record.accesses
    }

    #[getter]
    fn instructions(&self) -> u64 {
        self.record.instructions
    }

    #[getter]
    fn cycles(&self) -> u64 {
        self.record.cycles
    }

    #[getter]
    fn seconds_simulated(&self) -> f64 {
        self.record.seconds_simulated
    }

    #[getter]
    fn wall_seconds(&self) -> f64 {
        self.record.wall_seconds
    }

    #[getter]
    fn command(&self) -> &str {
        &self.record.command
    }

    #[getter]
    fn notes(&self) -> Vec<String> {
        self.record.notes.iter().map(|note| in_python(note)).collect()
    }

    #[getter]
    fn left_out(&self) -> Vec<String> {
        self.record.left_out.clone()
    }

    #[getter]
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (key, value) in &self.record.parameters {
            dict.set_item(key, value)?;
        }
        Ok(dict)
    }

    /// Statistics by their full names; a histogram is a dictionary.
    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, stat) in self.record.stats.iter() {
            match &stat.value {
                Value::Integer(value) => dict.set_item(name, value)?,
                Value::Real(value) => dict.set_item(name, value)?,
                Value::Histogram(histogram) => {
                    let inner = PyDict::new(py);
                    inner.set_item("count", histogram.count)?;
                    inner.set_item("sum", histogram.sum)?;
                    inner.set_item("max", histogram.max)?;
                    inner.set_item("buckets", histogram.buckets.clone())?;
                    dict.set_item(name, inner)?;
                }
            }
        }
        Ok(dict)
    }

    /// Units of the statistics.
    #[getter]
    fn units<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, stat) in self.record.stats.iter() {
            dict.set_item(name, stat.unit.to_string())?;
        }
        Ok(dict)
    }

    fn speedup_over(&self, baseline: &Run) -> Option<f64> {
        self.record.speedup_over(&baseline.record)
    }

    fn to_json(&self) -> String {
        self.record.to_json()
    }

    fn summary(&self) -> String {
        self.record.summary(WIDTH, Charset::Unicode)
    }

    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let runs = std::slice::from_ref(&self.record);
        columns::to_dict(py, &terrace_report::Columns::of_runs(runs))
    }
}

/// Several designs on the same inputs.
#[pyclass(frozen, module = "terrace._terrace")]
pub struct Comparison {
    /// The runs that are complete.
    pub comparison: terrace_report::Comparison,
    /// Runs that were asked for.
    pub asked: usize,
    /// What a policy in Python raised.
    pub raised: Option<PyErr>,
}

#[pymethods]
impl Comparison {
    #[getter]
    fn runs(&self) -> Vec<Run> {
        self.comparison.runs.iter().map(|record| Run { record: record.clone() }).collect()
    }

    #[getter]
    fn asked(&self) -> usize {
        self.asked
    }

    #[getter]
    fn raised(&self, py: Python<'_>) -> Option<PyErr> {
        self.raised.as_ref().map(|error| error.clone_ref(py))
    }

    #[getter]
    fn baseline(&self) -> &str {
        &self.comparison.baseline
    }

    #[getter]
    fn failures(&self) -> Vec<String> {
        self.comparison.failures.iter().map(|failure| in_python(failure)).collect()
    }

    fn table(&self) -> String {
        self.comparison.table(WIDTH, Charset::Unicode)
    }

    fn to_json(&self) -> String {
        self.comparison.to_json()
    }

    fn to_csv(&self) -> String {
        self.comparison.to_csv()
    }

    fn to_html(&self) -> String {
        self.comparison.to_html()
    }

    fn write_directory(&self, directory: PathBuf) -> PyResult<PathBuf> {
        self.comparison.write_directory(&directory).map_err(|error| RunError::new_err(error.to_string()))
    }

    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        columns::to_dict(py, &self.comparison.columns())
    }
}
