//! The report of a live run: the page of a simulation, from the same names of statistics.

use super::LiveOptions;
use crate::error::{Blame, Failure};
use crate::provenance;
use std::path::{Path, PathBuf};
use terrace_live::kernel::read_text;
use terrace_live::session::Session;
use terrace_live::status::Status;
use terrace_model::{Stats, Thinned};
use terrace_report::{Comparison, LIVE, RunRecord, TimelinePoint};

/// How a run goes, in few points however long it lasts.
#[derive(Debug, Default)]
pub struct Timeline(Thinned<TimelinePoint>);

impl Timeline {
    /// One more snapshot.
    pub fn add(&mut self, status: &Status) {
        self.0.add(|| TimelinePoint {
            seconds: status.run_seconds,
            promoted_bytes: status.moves.promoted,
            demoted_bytes: status.moves.demoted,
            used_bytes: status.tiers.iter().map(|tier| (tier.name.clone(), tier.used)).collect(),
        });
    }

    /// What was kept, by time.
    pub fn points(&self) -> Vec<TimelinePoint> {
        self.0.points().to_vec()
    }
}

/// Writes the report of a run into `folder`; returns its page.
pub fn write(folder: &Path, run: RunRecord) -> Result<PathBuf, Failure> {
    let comparison = Comparison {
        title: format!("{} on {}, live", run.design, run.input),
        command: run.command.clone(),
        date: terrace_calibrate::today(),
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        baseline: run.design.clone(),
        runs: vec![run],
        ..Comparison::default()
    };
    comparison.write_directory(folder).or_run()
}

/// What a session did, in the shape of a simulation's result; its timeline is added by who has it.
pub fn record(
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
    let own = session.parameters.iter();
    parameters.extend(own.map(|(key, value)| (format!("os.policy.{key}"), terrace_policy::text_of(value))));
    parameters.extend(world.is_dry_run().then(|| ("dry_run".to_owned(), "true".to_owned())));
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
        notes: session.choices.iter().chain(notes).cloned().chain([machine]).collect(),
        ..RunRecord::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::live::top::example;

    #[test]
    fn a_long_run_keeps_its_beginning_and_its_end() {
        let mut timeline = Timeline::default();
        for second in 0..10_000 {
            timeline.add(&Status { run_seconds: f64::from(second), ..example() });
        }
        let points = timeline.points();
        assert_eq!(points[0].seconds, 0.0);
        assert!(points[points.len() - 1].seconds > 9_700.0);
        assert_eq!(points[0].used_bytes["dram"], 24 << 20);
    }
}
