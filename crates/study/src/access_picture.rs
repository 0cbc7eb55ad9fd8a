//! From the steps of one access to a picture of them.

use terrace_model::Time;
use terrace_report::{AccessPicture, AccessStep, Stage};
use terrace_sim::{AccessPath, Stage as Simulated};

/// The picture of an access.
pub fn of_access(title: &str, machine: &str, number: u64, path: &AccessPath) -> AccessPicture {
    let cycles = |time: Time| time.0 as f64 / path.cycle.0.max(1) as f64;
    let steps = path.steps.iter().map(|step| AccessStep {
        stage: match step.stage {
            Simulated::Translation => Stage::Translation,
            Simulated::Cache => Stage::Cache,
            Simulated::Memory => Stage::Memory,
            Simulated::Kernel => Stage::Kernel,
        },
        name: step.name.clone(),
        begin: cycles(step.begin),
        end: cycles(step.end),
    });
    let kind = if path.write { "a store" } else { "a load" };
    AccessPicture {
        title: title.to_owned(),
        subtitle: format!("{machine}, access {number}: {kind} at {:#x}", path.addr),
        steps: steps.collect(),
        done: cycles(path.done),
    }
}
