//! `terrace reproduce`: published results beside ours.

use crate::error::{Blame, CommandResult, Failure};
use crate::options::JsonOption;
use crate::output;
use crate::progress::{self, Terminal};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write;
use terrace_sim::design::claims::{self, ClaimKind};
use terrace_study::Progress;
use terrace_study::reproduce::{Reproduction, reproduce, select};

const EXAMPLES: &str = "\
Examples:
  terrace reproduce list
  terrace reproduce                        everything; some minutes
  terrace reproduce ambix-iwb              all claims whose name begins so
  terrace reproduce vbi --json verdicts.json
  terrace reproduce my-claims.toml

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

    #[command(flatten)]
    json: JsonOption,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the claims
    List(JsonOption),
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    if let Some(Action::List(json)) = arguments.action {
        return list(&json);
    }
    let claims = select(&arguments.claim)?;
    let terminal = Terminal::install();
    let result = reproduce(&claims, &terminal)?;
    for failure in &result.failures {
        progress::note(failure);
    }
    arguments.json.write(&result)?;
    if !arguments.json.owns_stdout() {
        output::print(&describe(&result))?;
    }
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

fn kind_word(kind: ClaimKind) -> &'static str {
    match kind {
        ClaimKind::Value => "value",
        ClaimKind::Order => "order",
        ClaimKind::Shape => "shape",
    }
}

fn describe(result: &Reproduction) -> String {
    let mut text = String::new();
    let mut source = "";
    for claim in &result.claims {
        if claim.source != source {
            source = &claim.source;
            for line in output::wrap(source, 80) {
                let _ = writeln!(text, "{line}");
            }
            text.push('\n');
        }
        let scales: BTreeSet<u32> =
            claim.runs.iter().map(|run| run.scale).filter(|&scale| scale > 1).collect();
        let scales: Vec<String> = scales.iter().map(|scale| format!("scale 1/{scale}")).collect();
        let mut rows = vec![
            ("claim", format!("{} ({}, section {})", claim.id, kind_word(claim.kind), claim.section)),
            ("states", claim.statement.clone()),
            ("published", claim.published.clone()),
            ("ours", [vec![claim.ours.clone()], scales].concat().join(", ")),
            ("verdict", claim.verdict.name().to_owned()),
            ("because", claim.reason.clone()),
        ];
        rows.retain(|(_, content)| !content.is_empty());
        text += &output::two_columns(rows.iter().map(|(name, content)| (*name, content.as_str())));
        text.push('\n');
    }
    let _ = writeln!(
        text,
        "{} of {} claims reproduced, {} not reproduced, {} not evaluated",
        result.reproduced,
        result.claims.len(),
        result.not_reproduced,
        result.not_evaluated
    );
    text
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

fn list(json: &JsonOption) -> CommandResult {
    let claims = claims::embedded().or_run()?;
    if !json.owns_stdout() {
        output::print(&output::two_columns(
            claims.iter().map(|claim| (claim.id.as_str(), claim.statement.as_str())),
        ))?;
    }
    let Some(destination) = &json.json else { return Ok(()) };
    let entries = claims.into_iter().map(|claim| ListEntry {
        id: claim.id,
        kind: claim.kind,
        source: claim.source,
        section: claim.section,
        statement: claim.statement,
    });
    output::write_json(destination, &ListDocument { claims: entries.collect() })
}
