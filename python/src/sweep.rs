//! Sweeps: their runs one by one, so that Python may hand them to other processes and machines.

use crate::columns::to_dict;
use crate::errors::{RunError, exception, request};
use crate::own::OwnSpec;
use crate::policy::Failure;
use crate::wait::carry_out;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use terrace_study::sweep::{Store, SweepFile, pack};

/// Finished runs, each with its number, as they are kept; and failures, a sentence each.
type Results = (Vec<(usize, String)>, Vec<String>);

/// A sweep, checked. Its runs are known by their numbers.
#[pyclass(frozen, module = "terrace._terrace")]
pub struct Sweep {
    sweep: terrace_study::sweep::Sweep,
    /// What its policies in Python raised.
    failure: Failure,
}

#[pymethods]
impl Sweep {
    /// Reads the text of a TOML file, called `shown` in messages.
    #[staticmethod]
    fn of_toml(text: &str, shown: &str) -> PyResult<Sweep> {
        let sweep = terrace_study::sweep::Sweep::parse(text, shown).map_err(|error| exception(&error))?;
        Ok(Sweep { sweep, failure: Failure::default() })
    }

    /// Reads a JSON document with the keys of a TOML file.
    #[staticmethod]
    fn of_json(text: &str) -> PyResult<Sweep> {
        let sweep = SweepFile::of_json(text).and_then(|file| file.sweep());
        Ok(Sweep { sweep: sweep.map_err(|error| exception(&error))?, failure: Failure::default() })
    }

    /// The sweep with the runs of its first design under these policies as well.
    fn under(&self, py: Python<'_>, policies: Vec<OwnSpec>) -> PyResult<Sweep> {
        let failure = Failure::default();
        let policies = policies.iter().map(|spec| spec.to_policy(py, None, &failure, None));
        let sweep = self.sweep.with_policies(&policies.collect::<PyResult<Vec<_>>>()?);
        Ok(Sweep { sweep: sweep.map_err(|error| exception(&error))?, failure })
    }

    /// Takes what a policy in Python raised, the first of several.
    fn raised(&self) -> Option<PyErr> {
        self.failure.take()
    }

    fn __len__(&self) -> usize {
        self.sweep.points().len()
    }

    /// What distinguishes each run.
    fn identities(&self) -> Vec<String> {
        self.sweep.points().iter().map(|point| point.identity().to_owned()).collect()
    }

    /// Runs that the folder does not have.
    fn missing(&self, folder: PathBuf) -> PyResult<Vec<usize>> {
        let store = Store::open(&folder).map_err(|error| exception(&error))?;
        self.sweep.missing(&store).map_err(|error| exception(&error))
    }

    /// Runs in groups of one input each.
    fn groups(&self, points: Vec<usize>, at_once: usize) -> PyResult<Vec<Vec<usize>>> {
        self.check(&points)?;
        Ok(self.sweep.groups(&points, at_once))
    }

    fn commands(&self, groups: Vec<Vec<usize>>, file: &str, folder: &str) -> PyResult<Vec<String>> {
        groups.iter().try_for_each(|group| self.check(group))?;
        Ok(self.sweep.commands(&groups, file, folder))
    }

    /// Runs groups. Returns each finished run with its number, as `keep` takes it, and the failures.
    fn run(
        &self,
        py: Python<'_>,
        groups: Vec<Vec<usize>>,
        folder: Option<PathBuf>,
        show: Option<Py<PyAny>>,
    ) -> PyResult<Results> {
        groups.iter().try_for_each(|group| self.check(group))?;
        let store = folder.map(|folder| Store::open(&folder)).transpose();
        let store = store.map_err(|error| exception(&error))?;
        let number = |id: &str| self.sweep.points().iter().position(|point| point.id() == id);
        let results: Mutex<Results> = Mutex::default();
        let unwritten = Mutex::new(None);
        carry_out(py, show.as_ref(), |progress| {
            self.sweep.run(&groups, progress, &|point, outcome| {
                let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                match (outcome, &store) {
                    (Err(failure), _) => results.1.push(failure),
                    (Ok(record), Some(store)) => {
                        if let Err(error) = store.put(point, &record) {
                            progress.stop().request();
                            unwritten.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                        }
                    }
                    (Ok(record), None) => {
                        let at = number(point.id()).expect("the point is one of the sweep's");
                        results.0.push((at, pack(point, &record)));
                    }
                }
            });
            match unwritten.into_inner().unwrap_or_else(PoisonError::into_inner) {
                Some(error) => Err(error),
                None => Ok(()),
            }
        })?;
        Ok(results.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps a run that was made elsewhere.
    fn keep(&self, folder: PathBuf, at: usize, packed: &str) -> PyResult<()> {
        self.check(&[at])?;
        let store = Store::open(&folder).map_err(|error| exception(&error))?;
        store.put_packed(&self.sweep.points()[at], packed).map_err(|error| exception(&error))
    }

    /// The finished runs of the folder.
    fn columns<'py>(&self, py: Python<'py>, folder: PathBuf) -> PyResult<Bound<'py, PyDict>> {
        let store = Store::open(&folder).map_err(|error| exception(&error))?;
        to_dict(py, &self.sweep.columns(&store).map_err(|error| exception(&error))?)
    }

    /// Writes `results.csv` and `results.parquet` of the finished runs.
    fn write(&self, folder: PathBuf) -> PyResult<()> {
        let store = Store::open(&folder).map_err(|error| exception(&error))?;
        let columns = self.sweep.columns(&store).map_err(|error| exception(&error))?;
        let write = |name: &str, content: &[u8]| {
            terrace_report::write_atomically(&folder.join(name), content)
                .map_err(|error| RunError::new_err(error.to_string()))
        };
        write("results.csv", columns.to_csv().as_bytes())?;
        write("results.parquet", &columns.to_parquet())
    }
}

impl Sweep {
    fn check(&self, points: &[usize]) -> PyResult<()> {
        match points.iter().find(|&&at| at >= self.sweep.points().len()) {
            Some(at) => Err(request(format!("the sweep has no run {at}"))),
            None => Ok(()),
        }
    }
}
