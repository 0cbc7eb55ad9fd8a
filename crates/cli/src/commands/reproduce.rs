//! `terrace reproduce`: published results beside ours.

use crate::error::{Blame, CommandResult, Failure};
use crate::interrupt::Interrupt;
use crate::options::JsonOption;
use crate::output;
use crate::progress::{self, Progress};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use terrace_sim::design::Library;
use terrace_sim::design::claims::{self, Claim, ClaimKind, MIGRATION, Row, RunKey, RunNumbers, Verdict};
use terrace_sim::{Fidelity, MigrationRow, Options, migration_benchmark};
use terrace_trace::{Batch, EventSource, Header, SourceError};

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
    let interrupt = Interrupt::install();
    let keys: BTreeSet<RunKey> = claims.iter().flat_map(Claim::runs).collect();
    let (results, failures) = run_all(keys.into_iter().collect(), &interrupt)?;
    for failure in &failures {
        progress::note(failure);
    }
    let verdicts: Vec<Verdict> =
        claims.iter().map(|claim| claims::evaluate(claim, &|key| results.get(key).cloned())).collect();

    if let Some(destination) = &arguments.json.json {
        output::write_json(destination, &Document::new(&claims, &verdicts))?;
    }
    if !arguments.json.owns_stdout() {
        output::print(&describe(&claims, &verdicts))?;
    }
    let open = verdicts.iter().filter(|verdict| !verdict.evaluated).count();
    let refuted = verdicts.iter().filter(|verdict| verdict.evaluated && !verdict.holds).count();
    if interrupt.requested() && open > 0 {
        return Err(Failure::run(format!("stopped; {open} claims were not evaluated")));
    }
    if !failures.is_empty() {
        return Err(Failure::run(format!("{} runs failed", failures.len())));
    }
    if arguments.strict && open + refuted > 0 {
        return Err(Failure::run(format!(
            "{} of {} claims are not reproduced",
            open + refuted,
            claims.len()
        )));
    }
    Ok(())
}

/// The claims that the words name; each must name at least one.
fn select(words: &[String]) -> Result<Vec<Claim>, Failure> {
    let embedded = claims::embedded().or_run()?;
    if words.is_empty() {
        return Ok(embedded);
    }
    let mut selected: Vec<Claim> = Vec::new();
    for word in words {
        let found: Vec<Claim> = if word.ends_with(".toml") || word.contains('/') {
            claims::load(Path::new(word)).or_usage()?
        } else {
            embedded.iter().filter(|claim| claim.id.starts_with(word.as_str())).cloned().collect()
        };
        if found.is_empty() {
            let ids = embedded.iter().map(|claim| claim.id.as_str());
            let nearest =
                ids.max_by(|a, b| strsim::jaro_winkler(a, word).total_cmp(&strsim::jaro_winkler(b, word)));
            let hint = nearest.map(|id| format!("; did you mean \"{id}\"?")).unwrap_or_default();
            return Err(Failure::usage(format!(
                "no claim is called \"{word}\"{hint} (see: terrace reproduce list)"
            )));
        }
        for claim in found {
            if !selected.iter().any(|known| known.id == claim.id) {
                selected.push(claim);
            }
        }
    }
    Ok(selected)
}

type Results = BTreeMap<RunKey, RunNumbers>;

/// Makes every run once, as many at a time as there are cores. Answers the results and what failed.
fn run_all(keys: Vec<RunKey>, interrupt: &Interrupt) -> Result<(Results, Vec<String>), Failure> {
    let mut expected = 0;
    for key in &keys {
        if key.workload == MIGRATION {
            continue;
        }
        expected += terrace_workload::open(&key.workload).or_usage()?.accesses();
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, finished, accesses) = (AtomicUsize::new(0), AtomicUsize::new(0), Arc::new(AtomicU64::new(0)));
    let results = Mutex::new(Results::new());
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..cores.min(keys.len()) {
            scope.spawn(|| {
                while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed))
                    && !interrupt.requested()
                {
                    match run_one(key, interrupt, &accesses) {
                        Ok(Some(numbers)) => {
                            let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                            results.insert(key.clone(), numbers);
                        }
                        Ok(None) => (),
                        Err(error) => {
                            let text =
                                format!("{} on {} with {}: {error:#}", key.design, key.machine, key.workload);
                            failures.lock().unwrap_or_else(PoisonError::into_inner).push(text);
                        }
                    }
                }
                finished.fetch_add(1, Ordering::Release);
            });
        }
        let mut progress = Progress::new(format!("{} runs", keys.len()));
        let mut shown = 0;
        while finished.load(Ordering::Acquire) < cores.min(keys.len()) {
            let total = accesses.load(Ordering::Relaxed);
            progress.advance(total - shown, || (expected > 0).then(|| total as f64 / expected as f64));
            shown = total;
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let mut failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    failures.sort();
    Ok((results.into_inner().unwrap_or_else(PoisonError::into_inner), failures))
}

/// One run; `None` when the user stopped it.
fn run_one(
    key: &RunKey,
    interrupt: &Interrupt,
    accesses: &Arc<AtomicU64>,
) -> anyhow::Result<Option<RunNumbers>> {
    let resolved = Library::embedded().design(&key.design, Some(&key.machine), &key.sets)?;
    let design = resolved.design.scaled(key.scale).map_err(anyhow::Error::msg)?;
    if key.workload == MIGRATION {
        let rows = migration_benchmark(&design).map_err(anyhow::Error::msg)?;
        return Ok(Some(RunNumbers { stats: MigrationRow::stats(&rows), ..RunNumbers::default() }));
    }
    let fidelity = match key.fidelity.as_str() {
        "pages" => Fidelity::Pages,
        "translation" => Fidelity::Translation,
        _ => Fidelity::Full,
    };
    let source = terrace_workload::open(&key.workload)?.source();
    let mut counted = Counted { source, accesses: Arc::clone(accesses) };
    let options = Options {
        fidelity,
        whole: key.whole,
        fast_forward: key.fast_forward,
        stop: Some(interrupt.flag()),
        ..Options::default()
    };
    tracing::info!(?key, "run begins");
    let outcome = terrace_sim::simulate(&design, &mut counted, options)?;
    tracing::info!(?key, seconds = outcome.seconds_simulated, "run ends");
    if outcome.stopped {
        return Ok(None);
    }
    Ok(Some(RunNumbers {
        accesses: outcome.accesses,
        instructions: outcome.instructions,
        cycles: outcome.cycles,
        seconds: outcome.seconds_simulated,
        stats: outcome.stats,
    }))
}

/// Counts accesses over all runs, for the progress bar.
struct Counted {
    source: Box<dyn EventSource>,
    accesses: Arc<AtomicU64>,
}

impl EventSource for Counted {
    fn header(&self) -> &Header {
        self.source.header()
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        let batch = self.source.next_batch()?;
        if let Some(batch) = &batch {
            self.accesses.fetch_add(batch.len() as u64, Ordering::Relaxed);
        }
        Ok(batch)
    }
}

#[derive(Serialize)]
struct Document<'a> {
    reproduced: usize,
    not_reproduced: usize,
    not_evaluated: usize,
    claims: Vec<ClaimDocument<'a>>,
}

#[derive(Serialize)]
struct ClaimDocument<'a> {
    id: &'a str,
    kind: ClaimKind,
    source: &'a str,
    section: &'a str,
    statement: &'a str,
    unit: &'a str,
    expression: &'a str,
    published: &'a str,
    ours: &'a str,
    verdict: &'static str,
    reason: &'a str,
    rows: &'a [Row],
    runs: Vec<RunKey>,
}

impl<'a> Document<'a> {
    fn new(claims: &'a [Claim], verdicts: &'a [Verdict]) -> Document<'a> {
        let count = |word: &str| verdicts.iter().filter(|v| verdict_word(v) == word).count();
        let documents = claims.iter().zip(verdicts).map(|(claim, verdict)| ClaimDocument {
            id: &claim.id,
            kind: claim.kind,
            source: &claim.source,
            section: &claim.section,
            statement: &claim.statement,
            unit: &claim.unit,
            expression: &claim.expression_text,
            published: &verdict.published,
            ours: &verdict.ours,
            verdict: verdict_word(verdict),
            reason: &verdict.reason,
            rows: &verdict.rows,
            runs: claim.runs(),
        });
        Document {
            reproduced: count(REPRODUCED),
            not_reproduced: count(NOT_REPRODUCED),
            not_evaluated: count(NOT_EVALUATED),
            claims: documents.collect(),
        }
    }
}

const REPRODUCED: &str = "reproduced";
const NOT_REPRODUCED: &str = "not reproduced";
const NOT_EVALUATED: &str = "not evaluated";

fn verdict_word(verdict: &Verdict) -> &'static str {
    match (verdict.evaluated, verdict.holds) {
        (true, true) => REPRODUCED,
        (true, false) => NOT_REPRODUCED,
        (false, _) => NOT_EVALUATED,
    }
}

fn kind_word(kind: ClaimKind) -> &'static str {
    match kind {
        ClaimKind::Value => "value",
        ClaimKind::Order => "order",
        ClaimKind::Shape => "shape",
    }
}

fn describe(claims: &[Claim], verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    let mut source = "";
    for (claim, verdict) in claims.iter().zip(verdicts) {
        if claim.source != source {
            source = &claim.source;
            for line in output::wrap(source, 80) {
                let _ = writeln!(text, "{line}");
            }
            text.push('\n');
        }
        let scales: BTreeSet<u32> =
            claim.runs().iter().map(|run| run.scale).filter(|&scale| scale > 1).collect();
        let scales: Vec<String> = scales.iter().map(|scale| format!("scale 1/{scale}")).collect();
        let mut rows = vec![
            ("claim", format!("{} ({}, section {})", claim.id, kind_word(claim.kind), claim.section)),
            ("states", claim.statement.clone()),
            ("published", verdict.published.clone()),
            ("ours", [vec![verdict.ours.clone()], scales].concat().join(", ")),
            ("verdict", verdict_word(verdict).to_owned()),
            ("because", verdict.reason.clone()),
        ];
        rows.retain(|(_, content)| !content.is_empty());
        text += &output::two_columns(rows.iter().map(|(name, content)| (*name, content.as_str())));
        text.push('\n');
    }
    let count = |word: &str| verdicts.iter().filter(|v| verdict_word(v) == word).count();
    let _ = writeln!(
        text,
        "{} of {} claims reproduced, {} not reproduced, {} not evaluated",
        count(REPRODUCED),
        verdicts.len(),
        count(NOT_REPRODUCED),
        count(NOT_EVALUATED)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_named_whole_or_by_their_beginning() {
        let all = select(&[]).unwrap();
        let some = select(&["vbi".to_owned()]).unwrap();
        assert!(!some.is_empty() && some.len() < all.len());
        assert!(some.iter().all(|claim| claim.id.starts_with("vbi")));
        let twice = select(&["vbi".to_owned(), some[0].id.clone()]).unwrap();
        assert_eq!(twice.len(), some.len());
    }

    #[test]
    fn an_unknown_claim_names_the_nearest() {
        let Err(Failure::Usage(error)) = select(&["vbj".to_owned()]) else { panic!("must be refused") };
        assert!(error.to_string().contains("did you mean \"vbi"), "{error}");
    }
}
