//! Verdicts of all claims on file, so that documents show what was computed and nothing else.

use super::{Around, ClaimResult, Outcome, Recordings, Reproduction};
use crate::Error;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use terrace_sim::design::claims::{Claim, ClaimKind};

/// What is known of every claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scoreboard {
    /// By the claim's name.
    pub claims: BTreeMap<String, Entry>,
}

/// A claim as it was judged last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The paper.
    pub source: String,
    /// Section, figure or table of the paper.
    pub section: String,
    /// What it states: a value, an order or a shape.
    pub kind: ClaimKind,
    /// What the paper states.
    pub statement: String,
    /// The published number.
    pub published: String,
    /// Our number; empty where a run is missing.
    pub ours: String,
    /// Whether it holds.
    pub verdict: Outcome,
    /// Why it does not hold, where it does not.
    pub reason: String,
    /// What makes it hold besides what it states: its footprint, or the claim that it follows from. Empty for most.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub implied: String,
    /// Machines that were simulated.
    pub machines: Vec<String>,
    /// The recordings that it was judged with, if any: those of whoever judged it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub recordings: Recordings,
    /// How far our numbers could be off, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub around: Option<Around>,
    /// Divisors of the machines' capacities.
    pub scales: Vec<u32>,
    /// `full`, `translation` or `pages`.
    pub fidelities: Vec<String>,
    /// Changes whenever the claim or what it runs does.
    pub definition: String,
    /// The version of Terrace that judged it.
    pub version: String,
}

/// Tells whether a claim is still the one that was judged. The expression is taken as it is written, not in its parsed
/// form; each run of spaces counts as one.
pub fn definition(claim: &Claim) -> String {
    let Claim { expression_text, published, tolerance, mean_tolerance, calibrated, .. } = claim;
    let expression = expression_text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = format!(
        "{expression:?} {published:?} {tolerance:?} {mean_tolerance:?} {calibrated:?} {:?}",
        claim.runs()
    );
    format!("{:08x}", crc32fast::hash(text.as_bytes()))
}

impl Outcome {
    /// Whether it is that of a claim that a constant was fitted to: our numbers are there, and not judged.
    pub(super) fn is_of_calibrated(self, ours: &str) -> bool {
        self == Outcome::NotEvaluated && !ours.is_empty()
    }
}

impl Entry {
    fn of(claim: &Claim, result: &ClaimResult, version: &str) -> Entry {
        fn each<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
            values.collect::<BTreeSet<T>>().into_iter().collect()
        }
        Entry {
            source: result.source.clone(),
            section: result.section.clone(),
            kind: result.kind,
            statement: result.statement.clone(),
            published: result.published.clone(),
            ours: result.ours.clone(),
            verdict: result.verdict,
            reason: result.reason.clone(),
            implied: claim.implied.clone(),
            machines: each(result.runs.iter().map(|run| run.machine.clone())),
            recordings: result.recordings.clone(),
            around: result.around.clone(),
            scales: each(result.runs.iter().map(|run| run.scale)),
            fidelities: each(result.runs.iter().map(|run| run.fidelity.clone())),
            definition: definition(claim),
            version: version.to_owned(),
        }
    }

    /// Shown, but not judged, since a constant was fitted to it.
    fn is_calibrated(&self) -> bool {
        self.verdict.is_of_calibrated(&self.ours)
    }

    fn verdict_word(&self) -> &'static str {
        match self.is_calibrated() {
            true => "fitted, not judged",
            false => self.verdict.name(),
        }
    }
}

/// A scoreboard has one claim of a name: another's must not take the place of one that comes with Terrace.
///
/// # Errors
/// The first claim that has the name of an embedded one about another source.
pub fn check_names(claims: &[Claim]) -> Result<(), Error> {
    let known = terrace_sim::design::claims::embedded()?;
    let other =
        |claim: &Claim| known.iter().find(|known| known.id == claim.id && known.source != claim.source);
    match claims.iter().find_map(other) {
        None => Ok(()),
        Some(Claim { id, source, .. }) => Err(Error::request(format!(
            "--scoreboard: {id} is the name of a claim about {source}; give yours another"
        ))),
    }
}

impl Scoreboard {
    /// Reads one.
    ///
    /// # Errors
    /// A file that cannot be read or is none.
    pub fn read(path: &Path) -> Result<Scoreboard, Error> {
        let of = |problem: &dyn std::fmt::Display| Error::request(format!("{}: {problem}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| of(&error))?;
        serde_json::from_str(&text).map_err(|error| of(&error))
    }

    /// Takes over what came of claims. One whose runs failed or were not made keeps its verdict of before.
    pub fn update(&mut self, claims: &[Claim], result: &Reproduction, version: &str) {
        for (claim, result) in claims.iter().zip(&result.claims) {
            if result.verdict == Outcome::NotEvaluated && result.ours.is_empty() {
                continue;
            }
            self.claims.insert(claim.id.clone(), Entry::of(claim, result, version));
        }
    }

    /// Drops the claims that there are no more.
    pub fn retain(&mut self, all: &[Claim]) {
        let names: BTreeSet<&str> = all.iter().map(|claim| claim.id.as_str()).collect();
        self.claims.retain(|name, _| names.contains(name.as_str()));
    }

    /// As it is kept: sorted, a line for each value, so that differences between two are read easily.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("names and texts are JSON");
        text.push('\n');
        text
    }

    /// What is wrong with it as the scoreboard of `all` claims, a sentence each: a claim that has changed since it was
    /// judged, and one that does not hold without a reason that someone has written.
    pub fn problems(&self, all: &[Claim]) -> Vec<String> {
        let problem = |claim: &Claim| {
            let (id, entry) = (&claim.id, self.claims.get(&claim.id)?);
            if entry.definition != definition(claim) {
                return Some(format!("{id} has changed since it was judged"));
            }
            let has_no_reason = entry.verdict == Outcome::NotReproduced && claim.note.is_empty();
            has_no_reason.then(|| format!("{id} does not hold, and its note does not say why"))
        };
        all.iter().filter_map(problem).collect()
    }

    /// The claims that were never judged.
    pub fn open<'a>(&self, all: &'a [Claim]) -> Vec<&'a Claim> {
        all.iter().filter(|claim| !self.claims.contains_key(&claim.id)).collect()
    }

    /// Claims by source in the order of `all`, with the entry of each that was judged.
    fn sources<'a>(&'a self, all: &'a [Claim]) -> Vec<(&'a str, Vec<Judged<'a>>)> {
        let mut sources: Vec<(&str, Vec<Judged<'_>>)> = Vec::new();
        for claim in all {
            let judged = (claim, self.claims.get(&claim.id));
            match sources.iter_mut().find(|(source, _)| *source == claim.source) {
                Some((_, claims)) => claims.push(judged),
                None => sources.push((&claim.source, vec![judged])),
            }
        }
        sources
    }

    /// A table of how many claims of each source and kind hold, in Markdown.
    pub fn summary(&self, all: &[Claim]) -> String {
        let mut text = String::from(
            "| source | order | shape | value | all | not judged yet |\n|---|---|---|---|---|---|\n",
        );
        let mut every = Vec::new();
        for (source, entries) in self.sources(all) {
            let _ = writeln!(text, "| {} {} |", escape(source), counts(&entries));
            every.extend(entries);
        }
        let _ = writeln!(text, "| **all** {} |", counts(&every));
        text
    }

    /// Every claim, a row each, in Markdown.
    pub fn page(&self, all: &[Claim]) -> String {
        let mut text = format!("{INTRODUCTION}\n{}", self.summary(all));
        for (source, entries) in self.sources(all) {
            let _ = write!(text, "\n## {source}\n\n{TABLE_HEAD}\n");
            for (claim, entry) in entries {
                let name = &claim.id;
                let Some(entry) = entry else {
                    let statement = escape(&format!("{} ({})", claim.statement, claim.section));
                    let _ = writeln!(text, "| `{name}` | {statement} |  |  | not judged yet |  |  |");
                    continue;
                };
                let mut why = entry.reason.clone();
                if !entry.implied.is_empty() {
                    let _ =
                        write!(why, "{}Implied: {}.", if why.is_empty() { "" } else { " " }, entry.implied);
                }
                let scales = entry.scales.iter().filter(|scale| **scale > 1);
                let scales: String = scales.map(|scale| format!(", 1/{scale}")).collect();
                let on = entry.machines.join(", ") + &scales;
                let recorded: String =
                    entry.recordings.iter().map(|(name, what)| format!("; `{name}` {what}")).collect();
                let on = on + &recorded;
                let around = entry.around.as_ref().map(|around| format!(" {}", around.in_words()));
                let ours = entry.ours.clone() + &around.unwrap_or_default();
                let cells =
                    [&format!("{} ({})", entry.statement, entry.section), &entry.published, &ours, &on, &why];
                let [statement, published, ours, on, why] = cells.map(|cell| escape(cell));
                let _ = writeln!(
                    text,
                    "| `{name}` | {statement} | {published} | {ours} | {} | {} | {why} |",
                    entry.verdict_word(),
                    on
                );
            }
        }
        text
    }
}

const INTRODUCTION: &str = "\
# Claims and verdicts

<!-- Written by `TERRACE_UPDATE=1 cargo test -p terrace-study --test scoreboard` from claims/verdicts.json. -->

Every claim that comes with Terrace, as it was judged last (`claims/verdicts.json`, which `scripts/reproduce` writes). What the
kinds mean, and what is calibrated and what predicted, is on [the page of fidelity](../fidelity.md). *Fitted* are rows that a
constant of the machine was fitted to: they are shown and not judged. Each cell of the table counts claims that hold, of those
that could fail; behind the plus sign, and not among these, those that hold without proving much, since the footprint or another claim makes
them true. Brackets behind our number say how far it could be off: assumed constants at the ends of their spread and another seed, added up
(`terrace reproduce --intervals`); claims without them were judged without.
";

const TABLE_HEAD: &str = "\
| claim | the source states | published | ours | verdict | on | why, where it does not hold |
|---|---|---|---|---|---|---|";

/// A claim, and what is known of it if it was judged.
type Judged<'a> = (&'a Claim, Option<&'a Entry>);

/// Cells for orders, shapes, values, all, and what is not judged yet. What is implied is behind the two numbers
/// of a cell, and in neither.
fn counts(claims: &[Judged<'_>]) -> String {
    let cell = |is_of: &dyn Fn(&Entry) -> bool| {
        let judged = claims.iter().filter_map(|(_, entry)| *entry).filter(|e| is_of(e) && !e.is_calibrated());
        let (implied, open): (Vec<&Entry>, Vec<&Entry>) =
            judged.partition(|entry| entry.verdict == Outcome::Reproduced && !entry.implied.is_empty());
        let holds = open.iter().filter(|entry| entry.verdict == Outcome::Reproduced).count();
        match (open.len(), implied.len()) {
            (0, 0) => "|".to_owned(),
            (could_fail, 0) => format!("| {holds} of {could_fail}"),
            (could_fail, implied) => format!("| {holds} of {could_fail} + {implied}"),
        }
    };
    let kinds = [ClaimKind::Order, ClaimKind::Shape, ClaimKind::Value];
    let cells = kinds.map(|kind| cell(&move |entry: &Entry| entry.kind == kind));
    let open = match claims.iter().filter(|(_, entry)| entry.is_none()).count() {
        0 => "|".to_owned(),
        open => format!("| {open}"),
    };
    format!("{} {} {} {} {open}", cells[0], cells[1], cells[2], cell(&|_| true))
}

/// For a cell of a Markdown table.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ").replace('<', "&lt;")
}
