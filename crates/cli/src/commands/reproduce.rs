//! `terrace reproduce`: published results beside ours.

use crate::error::{Blame, CommandResult, Failure};
use crate::options::ResultOptions;
use crate::output::{self, OutputFile};
use crate::progress::{self, Terminal};
use clap::{Args, Subcommand};
use serde::Serialize;
use terrace_model::text::two_columns;
use terrace_sim::design::claims::{self, ClaimKind};
use terrace_study::Progress;
use terrace_study::reproduce::{Kept, Scoreboard, check_names, reproduce, select};

const EXAMPLES: &str = "\
Examples:
  terrace reproduce list
  terrace reproduce                        everything: hours
  terrace reproduce ambix-iwb              all claims whose name begins so
  terrace reproduce vbi --json verdicts.json
  terrace reproduce my-claims.toml
  terrace reproduce --intervals trident-pv
  terrace reproduce --scoreboard claims/verdicts.json

Results of runs are kept in $XDG_CACHE_HOME/terrace/runs for this build of
Terrace: what was stopped goes on, and only what changed is run again.

A claim that does not reproduce is a result: the exit code is 0 unless
--strict. Rows that a constant of the machine was calibrated to are shown and
not judged.";

/// Run published claims, and show whether they hold
///
/// Prints the published number beside ours, the verdict, and the reason where
/// a claim does not hold. Runs that several claims share are made once.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,

    /// Names or beginnings of names of claims, or files with claims; all
    /// embedded claims where absent
    #[arg(value_name = "CLAIM|FILE")]
    claim: Vec<String>,

    /// Exit with 1 if a claim does not reproduce
    #[arg(long)]
    strict: bool,

    /// Make every run anew, also those whose results are kept
    #[arg(long)]
    fresh: bool,

    /// Say of each claim how far our numbers could be off: assumed constants at
    /// the ends of their spread, and another seed, in up to two more runs of each
    #[arg(long)]
    intervals: bool,

    /// Take the verdicts over into FILE; what it says of other claims stays as
    /// it is, but for claims that there are no more
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    scoreboard: Option<OutputFile>,

    /// What the scoreboard says of the version that judged
    #[arg(long, value_name = "TEXT", requires = "scoreboard", default_value = env!("CARGO_PKG_VERSION"),
        help_heading = "Output")]
    revision: String,

    #[command(flatten)]
    results: ResultOptions,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the claims
    List(ResultOptions),
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    if let Some(Action::List(results)) = arguments.action {
        return list(&results);
    }
    let claims = select(&arguments.claim)?;
    let terminal = Terminal::install();
    let scoreboard = arguments.scoreboard.as_ref().map(open).transpose()?;
    if scoreboard.is_some() {
        check_names(&claims)?;
    }
    let kept = Kept::of_this_program().filter(|_| !arguments.fresh);
    let result = reproduce(&claims, arguments.intervals, kept.as_ref(), &terminal)?;
    for failure in &result.failures {
        progress::note(failure);
    }
    if let Some((path, mut scoreboard)) = scoreboard {
        scoreboard.update(&claims, &result, &arguments.revision);
        scoreboard.retain(&[claims::embedded().or_run()?, claims.clone()].concat());
        output::write_text(path, &scoreboard.to_json())?;
    }
    arguments.results.write_rows(&result, "claims")?;
    arguments.results.print(|| result.to_text())?;
    if terminal.stop().requested() && result.not_evaluated > 0 {
        return Err(Failure::run(format!("stopped; {} claims were not evaluated", result.not_evaluated)));
    }
    if !result.failures.is_empty() {
        return Err(Failure::run(format!("{} runs failed", result.failures.len())));
    }
    let open = result.not_evaluated + result.not_reproduced;
    if arguments.strict && open > 0 {
        return Err(Failure::run(format!("{open} of {} claims are not reproduced", claims.len())));
    }
    Ok(())
}

/// A scoreboard on file, or a new one where there is none.
fn open(path: &OutputFile) -> Result<(&OutputFile, Scoreboard), Failure> {
    match path.exists() {
        true => Ok((path, Scoreboard::read(path)?)),
        false => Ok((path, Scoreboard::default())),
    }
}

#[derive(Serialize)]
struct ListDocument {
    claims: Vec<ListEntry>,
}

#[derive(Serialize)]
struct ListEntry {
    id: String,
    kind: ClaimKind,
    source: String,
    section: String,
    statement: String,
}

fn list(results: &ResultOptions) -> CommandResult {
    let claims = claims::embedded().or_run()?;
    results
        .print(|| two_columns(claims.iter().map(|claim| (claim.id.as_str(), claim.statement.as_str()))))?;
    let entries = claims.into_iter().map(|claim| ListEntry {
        id: claim.id,
        kind: claim.kind,
        source: claim.source,
        section: claim.section,
        statement: claim.statement,
    });
    results.write_rows(&ListDocument { claims: entries.collect() }, "claims")
}
