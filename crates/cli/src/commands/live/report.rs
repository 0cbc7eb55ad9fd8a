//! The report of a live run: the page of a simulation, from the same names of statistics.

use super::LiveOptions;
use crate::error::{Blame, Failure};
use crate::provenance;
use std::path::{Path, PathBuf};
use terrace_live::kernel::read_text;
use terrace_live::session::Session;
use terrace_model::Stats;
use terrace_report::{Comparison, LIVE, RunRecord};

/// Writes the report into `folder`; answers its page.
pub fn write(
    folder: &Path,
    session: &Session,
    input: &str,
    statistics: &Stats,
    notes: &[String],
    options: &LiveOptions,
) -> Result<PathBuf, Failure> {
    let run = record(session, input, statistics, notes, options);
    let comparison = Comparison {
        title: format!("{} on {input}, live", run.design),
        command: run.command.clone(),
        date: provenance::today(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        baseline: run.design.clone(),
        runs: vec![run],
        ..Comparison::default()
    };
    comparison.write_directory(folder).or_run()
}

fn record(
    session: &Session,
    input: &str,
    statistics: &Stats,
    notes: &[String],
    options: &LiveOptions,
) -> RunRecord {
    let world = session.engine.world();
    let release = read_text(&**world.kernel(), "/proc/sys/kernel/osrelease").unwrap_or_default();
    // In the order of the tiers, which the page takes over.
    let tiers = world.tiers().iter();
    let mut parameters: Vec<(String, String)> =
        tiers.map(|tier| (format!("tier.{}.capacity", tier.name), tier.capacity.to_string())).collect();
    parameters.push(("os.policy.name".to_owned(), session.policy.clone()));
    parameters.extend(session.parameters.iter().map(|(key, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (format!("os.policy.{key}"), text)
    }));
    let dry = options.dry_run.then(|| "A dry run: orders were counted, nothing was moved.".to_owned());
    let machine = "kernel.* counts for the whole machine, not for these processes alone.".to_owned();
    RunRecord {
        design: session.policy.clone(),
        design_summary: terrace_policy::find(&session.policy)
            .map_or_else(|_| String::new(), |entry| entry.summary()),
        machine: format!("Linux {}", release.trim()),
        input: input.to_owned(),
        fidelity: LIVE.to_owned(),
        scale: 1,
        seed: Some(options.seed),
        wall_seconds: statistics.number("live.run_time") / 1e9,
        stats: statistics.clone(),
        parameters,
        command: provenance::own_command(),
        notes: session.choices.iter().chain(notes).cloned().chain(dry).chain([machine]).collect(),
        ..RunRecord::default()
    }
}
