//! What there is to choose from: machines, designs, policies and workloads, as documents and as text.

mod design;
mod policy;
mod workload;

pub use design::{DesignPage, Ledger, Origin};
pub use policy::{AlgorithmPage, Need, ParameterPage, PolicyPage};
pub use workload::WorkloadPage;

use serde::Serialize;
use terrace_sim::design::Library;

/// A name with what it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// What it is asked for by.
    pub name: String,
    /// In a line.
    pub summary: String,
}

/// The machine presets.
pub fn machines() -> Vec<Listed> {
    let machines = Library::embedded().machine_names().into_iter();
    machines.map(|machine| Listed { name: machine.name, summary: machine.summary }).collect()
}

/// The designs.
pub fn designs() -> Vec<Listed> {
    let designs = Library::embedded().design_names().into_iter();
    designs.map(|design| Listed { name: design.name, summary: design.summary }).collect()
}

/// The policies.
pub fn policies() -> Vec<Listed> {
    let policies = terrace_policy::registry::all().iter();
    policies.map(|policy| Listed { name: policy.name().to_owned(), summary: policy.summary() }).collect()
}

/// The built-in workloads.
pub fn workloads() -> Vec<Listed> {
    let workloads = terrace_workload::all().iter();
    let listed = |name: &str, summary: &str| Listed { name: name.to_owned(), summary: summary.to_owned() };
    workloads.map(|workload| listed(workload.name, workload.summary)).collect()
}
