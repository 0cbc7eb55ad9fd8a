//! The extension module below the Python package `terrace`: a thin door over `terrace-study`.
//!
//! What users see is the Python code in `terrace/`, which gives these functions their defaults and documentation. Here
//! words become a study's types, results become Python's, and errors become exceptions with the same words.

mod columns;
mod errors;
mod inputs;
mod memory;
mod own;
mod policy;
mod results;
mod studies;
mod sweep;
mod wait;

use pyo3::prelude::*;

#[pymodule]
mod _terrace {
    #[pymodule_export]
    use super::columns::write_parquet;
    #[pymodule_export]
    use super::errors::{RequestError, RunError, TerraceError};
    #[pymodule_export]
    use super::memory::Memory;
    #[pymodule_export]
    use super::policy::nanoseconds;
    #[pymodule_export]
    use super::results::{Comparison, Run};
    #[pymodule_export]
    use super::studies::{advise, advise_pages, compare, profile, record, reproduce, run_under, tune};
    #[pymodule_export]
    use super::sweep::Sweep;

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        // A study that has nothing complete has no result; whoever handles the error may ask all the same.
        module.py().get_type::<RunError>().setattr("result", module.py().None())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
