//! `terrace tune`: a policy's parameters, searched on an input.

use crate::error::{CommandResult, Failure};
use crate::input;
use crate::options::{HintsOption, StudyOptions, only};
use crate::progress::Terminal;
use clap::Args;
use std::path::Path;
use terrace_study::Input;
use terrace_study::record::check_ending;
use terrace_study::shares::{parse_fast_share, parse_share};
use terrace_study::tune::Tune;

const EXAMPLES: &str = "\
Examples:
  terrace tune ambix --trace app.trace --time-scale 100
  terrace tune tpp --fast 25% --runs 100 --workload kv,requests=1e6 \\
      --check kv,requests=1e6,skew=0.8 --check other.trace
  terrace tune hemem --parameter period,hot_reads --workload bfs
  terrace tune ambix --range period=\"1 ms..100 ms\" --workload kv
  terrace tune memtis --slowdown 5% --price slow=0.33 --trace app.trace

Take over the result with the --set options of its last line.";

/// Search a policy's parameters on an input
///
/// Tries settings of the policy's numbers, times and switches, guided by an
/// optimiser (a tree-structured Parzen estimator); beginning with the values in
/// force. Reports the gain, how much each parameter matters around the best
/// setting, and how that setting does on inputs it was not tuned on: those of
/// --check, else a built-in workload under other seeds.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, mut_arg("fidelity", |arg| only(arg, "full")))]
pub struct Arguments {
    /// A name of `terrace policy list`
    #[arg(value_name = "POLICY")]
    policy: String,

    /// Parameters to search, separated by commas. By default all numbers,
    /// times, amounts and switches
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Search")]
    parameter: Vec<String>,

    /// Bounds of a parameter. By default an eighth to eight times the value in
    /// force; shares stay below 1. Repeatable
    #[arg(long, value_name = "NAME=LOW..HIGH", value_parser = parse_range, help_heading = "Search")]
    range: Vec<(String, String, String)>,

    /// Settings to try; those for the sensitivity and the checks come on top
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "Search")]
    runs: u32,

    /// Seed of the search; the same seed tries the same settings
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Search")]
    seed: u64,

    /// Minimize the price of the memory in use (without --price: fast memory)
    /// among settings within this slowdown, instead of the run time
    #[arg(long, value_name = "SHARE", value_parser = parse_share, help_heading = "Search")]
    slowdown: Option<f64>,

    /// Input that the setting is not tuned on but tried on: a trace, or a
    /// workload with its parameters. Repeatable
    #[arg(long, value_name = "FILE|NAME[,KEY=VALUE…]", help_heading = "Input")]
    check: Vec<String>,

    /// Make the fastest tier this share of what the input has resident
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = parse_fast_share, help_heading = "Design")]
    fast: f64,

    #[command(flatten)]
    hints: HintsOption,

    #[command(flatten)]
    study: StudyOptions,
}

/// `period=1 ms..100 ms`.
fn parse_range(text: &str) -> Result<(String, String, String), String> {
    let parts = || {
        let (name, range) = text.split_once('=')?;
        let (low, high) = range.split_once("..")?;
        Some((name.trim().to_owned(), low.trim().to_owned(), high.trim().to_owned()))
    };
    parts().ok_or_else(|| format!("\"{text}\" is not NAME=LOW..HIGH, such as period=\"1 ms..100 ms\""))
}

/// Carries out the search.
pub fn run(arguments: Arguments) -> CommandResult {
    let terminal = Terminal::for_an_answer();
    let tune = Tune {
        policy: arguments.policy,
        changes: arguments.study.designs.changes(),
        simulation: arguments.study.simulation.to_simulation(),
        parameters: arguments.parameter,
        ranges: arguments.range,
        runs: arguments.runs,
        seed: arguments.seed,
        slowdown: arguments.slowdown,
        fast: arguments.fast,
        prices: arguments.study.price.price,
        hints: arguments.hints.read()?,
    };
    tune.check()?;
    let input = input::prepare_one(
        &arguments.study.input,
        &arguments.study.recording,
        "tune",
        "--check takes the others",
    )?;
    let mut others = Vec::new();
    for word in arguments.check {
        let path = Path::new(&word);
        let other = if path.exists() {
            Input::trace(path, arguments.study.input.salvage)?
        } else {
            let unknown = |error| Failure::usage(format!("--check {word}: there is no such file; {error}"));
            Input::workload(&word).map_err(unknown)?
        };
        others.push((word, other));
    }
    let tuned = tune.run(input, others, &terminal)?;
    arguments.study.results.write_rows(&tuned, "parameters")?;
    arguments.study.results.print(|| tuned.to_text())?;
    Ok(check_ending(tuned.trouble.as_deref())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        let (name, low, high) = parse_range("period=1 ms..100 ms").unwrap();
        assert_eq!((name.as_str(), low.as_str(), high.as_str()), ("period", "1 ms", "100 ms"));
        assert!(parse_range("period=1 ms").unwrap_err().contains("LOW..HIGH"));
    }
}
