//! What there is to choose from: machines, designs, policies and workloads, as documents and as text.

mod design;
mod policy;
mod workload;

pub use design::{DesignPage, Ledger, Origin};
pub use policy::{AlgorithmPage, Need, ParameterPage, PolicyPage};
pub use workload::WorkloadPage;

use crate::Error;
use crate::words::shell_join;
use serde::Serialize;
use terrace_sim::design::{FileKind, Library};

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
    let presets = machines.map(|machine| Listed { name: machine.name, summary: machine.summary });
    presets.chain(here()).collect()
}

/// The machine that `terrace calibrate` measured, where it did.
fn here() -> Option<Listed> {
    let file = crate::designs::machine_word("here").ok()?;
    let summary = Library::embedded().design(&file, None, &[]).map_or_else(
        |error| format!("the machine that terrace calibrate measured, which cannot be read: {error}"),
        |resolved| resolved.design.summary,
    );
    Some(Listed { name: "here".to_owned(), summary })
}

/// Refuses a name or file that stands for a design or a policy, where a machine is asked for, and says where it is shown.
///
/// # Errors
/// What is no machine; one that does not exist.
pub fn check_machine(name: &str) -> Result<(), Error> {
    if Library::embedded().kind(name)? != FileKind::Design {
        return Ok(());
    }
    let is_policy = policies().iter().any(|policy| policy.name == name);
    let kind =
        if is_policy && designs().iter().all(|design| design.name != name) { "policy" } else { "design" };
    let command = shell_join(["terrace", kind, "show", name]);
    Err(Error::request(format!("{name} is a {kind}, not a machine; see `{command}`")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_design_and_a_policy_are_no_machines() {
        let folder = tempfile::tempdir().unwrap();
        let mine = folder.path().join("mine.toml").display().to_string();
        std::fs::write(&mine, "extends = \"native-4k\"\n").unwrap();
        for (name, shown) in [
            ("native-4k", "terrace design show native-4k"),
            ("ambix", "terrace policy show ambix"),
            (&mine, "terrace design show "),
        ] {
            let message = check_machine(name).unwrap_err().to_string();
            assert!(message.contains("not a machine; see `") && message.contains(shown), "{message}");
        }
        check_machine("zen4-cxl").unwrap();
        assert!(check_machine("no-such").is_err());
    }

    #[test]
    fn pages_of_workloads_fit_a_terminal() {
        for workload in workloads() {
            let text = WorkloadPage::of(&workload.name).unwrap().to_text();
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= 80, "{}: {longest} columns", workload.name);
        }
    }
}
