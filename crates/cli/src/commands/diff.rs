//! `terrace diff`: what changed between two sets of results.

use crate::error::{CommandResult, Failure};
use crate::options::ResultOptions;
use crate::output;
use crate::shares::parse_share;
use clap::Args;
use std::fmt::Write;
use std::path::PathBuf;
use terrace_study::difference::{Difference, Pair, RunDifference, difference};

const EXAMPLES: &str = "\
Examples:
  terrace compare native-4k native-thp --workload kv -o before
  terrace compare native-4k native-thp --workload kv -o after   # a new version
  terrace diff before after
  terrace diff before after --fail-on 2%    # exits with 1 if slower

Simulated runs repeat to the last digit, so every difference has a cause:
another program, design, machine or version of Terrace. Recordings of a program
differ a little each time; compare them from one trace.";

/// Show what changed between two sets of results
///
/// Compares runs of the same design, machine and input: their simulated time,
/// the parameters that differ, and the statistics that changed most.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// Results of before: a results.json, or a folder with one
    before: PathBuf,

    /// Results of now
    after: PathBuf,

    /// Exit with 1 if a run takes longer by more than SHARE, or is no longer
    /// there
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    fail_on: Option<f64>,

    /// So many statistics for each run
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "Output")]
    statistics: usize,

    #[command(flatten)]
    results: ResultOptions,
}

/// Carries out the subcommand.
pub fn run(arguments: &Arguments) -> CommandResult {
    let result = difference(&arguments.before, &arguments.after)?;
    arguments.results.write_rows(&result, "runs")?;
    arguments.results.print(|| text(&result, arguments.statistics))?;
    let Some(share) = arguments.fail_on else { return Ok(()) };
    let slower = result.slower_by(share).count();
    match (slower, result.only_before.len()) {
        (0, 0) => Ok(()),
        (0, gone) => Err(Failure::run(format!("{gone} runs are no longer there"))),
        (slower, _) => Err(Failure::run(format!(
            "{slower} of {} runs take longer by more than {:.3} %",
            result.runs.len(),
            share * 100.0
        ))),
    }
}

fn text(result: &Difference, most: usize) -> String {
    let mut out = String::new();
    let (equal, changed): (Vec<_>, Vec<_>) = result.runs.iter().partition(|run| is_equal(run));
    for run in changed {
        for line in output::wrap(&run.name.to_string(), 80) {
            let _ = writeln!(out, "{line}");
        }
        let unit = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us")]
            .into_iter()
            .find(|(size, _)| run.seconds.before >= *size)
            .unwrap_or((1e-9, "ns"));
        let seconds = Pair { before: run.seconds.before / unit.0, after: run.seconds.after / unit.0 };
        let _ = writeln!(out, "{}", row(&format!("time, {}", unit.1), seconds));
        for (name, pair) in run.statistics.iter().take(most) {
            let _ = writeln!(out, "{}", row(name, *pair));
        }
        if run.statistics.len() > most {
            let _ = writeln!(out, "  and {} more statistics", run.statistics.len() - most);
        }
        for (key, (before, after)) in &run.parameters {
            let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "not there".to_owned());
            out += &output::hanging("  ", &format!("{key}: {} -> {}", side(before), side(after)), 78);
        }
        out.push('\n');
    }
    match equal.len() {
        0 => (),
        1 => out += "1 run is equal in every statistic.\n",
        count => {
            let _ = writeln!(out, "{count} runs are equal in every statistic.");
        }
    }
    for (runs, side) in [(&result.only_before, "before"), (&result.only_after, "after")] {
        for run in runs {
            out += &output::hanging("", &format!("Only {side}: {run}"), 80);
        }
    }
    out
}

fn is_equal(run: &RunDifference) -> bool {
    run.seconds.before == run.seconds.after && run.statistics.is_empty() && run.parameters.is_empty()
}

/// A name, both numbers and the change, in 80 columns.
fn row(name: &str, pair: Pair) -> String {
    let name = match name.char_indices().rev().nth(33) {
        Some((at, _)) if at > 0 => format!("...{}", &name[at + 3..]),
        _ => name.to_owned(),
    };
    let change = match pair.change() {
        change if change.is_finite() => format!("{:+.2} %", change * 100.0),
        _ => "new".to_owned(),
    };
    format!("  {name:<34}{:>14} {:>14}{change:>14}", number(pair.before), number(pair.after))
}

/// Whole numbers whole, others with five digits.
fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e13 {
        format!("{value:.0}")
    } else if (0.001..1e9).contains(&value.abs()) {
        let digits = 4 - (value.abs().log10().floor() as i32).clamp(0, 4);
        format!("{value:.*}", digits.max(0) as usize)
    } else {
        format!("{value:.4e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_and_keep_the_end_of_a_long_name() {
        let pair = Pair { before: 1_234_567_890_123.0, after: 0.123_456 };
        let long = row("translation_coherence.invalidations.of.something.far.down", pair);
        assert_eq!(long.chars().count(), 79);
        assert!(long.starts_with("  ...") && long.contains("something.far.down "), "{long}");
        assert!(row("walk.count", Pair { before: 4.0, after: 5.0 }).ends_with("+25.00 %"));
        assert!(row("walk.count", Pair { before: 0.0, after: 5.0 }).ends_with("new"));
    }

    #[test]
    fn numbers_have_five_digits_or_are_whole() {
        let shown: Vec<String> = [3.0, 1.5, 123.456, 0.25, 1e-7, 123_456_789.5].map(number).to_vec();
        assert_eq!(shown, ["3", "1.5000", "123.46", "0.2500", "1.0000e-7", "123456790"]);
    }
}
