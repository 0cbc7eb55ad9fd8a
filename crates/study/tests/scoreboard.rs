//! The scoreboard on file is that of the claims that come with Terrace, and the documents show it.
//! `TERRACE_UPDATE=1 cargo test -p terrace-study --test scoreboard` writes them from it.

use std::path::{Path, PathBuf};
use terrace_sim::design::claims::{self, Claim};
use terrace_study::reproduce::{Around, Outcome, Reproduction, Scoreboard, definition};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn scoreboard() -> (Scoreboard, Vec<Claim>) {
    let path = repository().join("claims/verdicts.json");
    (Scoreboard::read(&path).unwrap(), claims::embedded().unwrap())
}

#[test]
fn claims_are_judged_as_they_stand_and_those_that_fail_say_why() {
    let (scoreboard, all) = scoreboard();
    let problems = scoreboard.problems(&all);
    assert!(problems.is_empty(), "{}\n(scripts/reproduce judges what has changed)", problems.join("\n"));
    let mut current = scoreboard.clone();
    current.retain(&all);
    assert_eq!(current, scoreboard, "claims/verdicts.json has claims that there are no more");
}

/// A note is written when a claim is judged, and a later judgement can turn the verdict around below it.
#[test]
fn words_of_claims_are_those_on_file_and_notes_go_with_their_verdicts() {
    const FAILURE: [&str; 9] = [
        "does not hold",
        "did not hold",
        "does not recover",
        "outside by",
        "is outside",
        "are outside",
        "not reproduced",
        "would be within",
        "falls short",
    ];
    let (scoreboard, all) = scoreboard();
    for claim in &all {
        let (id, Some(entry)) = (&claim.id, scoreboard.claims.get(&claim.id)) else { continue };
        let on_file = [&entry.statement, &entry.section, &entry.source, &entry.implied, &entry.published];
        let written =
            [&claim.statement, &claim.section, &claim.source, &claim.implied, &claim.published_text()];
        assert_eq!(on_file, written, "{id}");
        assert!(entry.reason.ends_with(&claim.note), "{id}: {}\n{}", entry.reason, claim.note);
        if entry.verdict == Outcome::Reproduced {
            assert_eq!(entry.reason, claim.note, "{id}");
            let failure = FAILURE.iter().find(|words| claim.note.contains(*words));
            assert_eq!(failure, None, "{id} holds, and its note says otherwise: {}", claim.note);
        }
    }
}

/// With ` with changes` behind it where there were some.
#[test]
fn verdicts_name_their_commit_by_eight_digits() {
    let short = |version: &str| {
        let commit = version.split(' ').next().unwrap_or_default();
        commit.len() == 8 && commit.bytes().all(|digit| digit.is_ascii_hexdigit())
    };
    for (id, entry) in scoreboard().0.claims {
        assert!(short(&entry.version), "{id}: {}", entry.version);
    }
}

#[test]
fn documents_show_the_scoreboard() {
    let (scoreboard, all) = scoreboard();
    let written = |path: &str, text: &str| {
        let path = repository().join(path);
        if std::env::var_os("TERRACE_UPDATE").is_some() {
            std::fs::write(&path, text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == text,
            "{} does not show claims/verdicts.json: TERRACE_UPDATE=1 cargo test -p terrace-study --test scoreboard",
            path.display()
        );
    };
    let page = scoreboard.page(&all);
    written("docs/src/reference/claims.md", &page);
    // Machines keep their names, whatever the scale is.
    assert!(page.contains("xeon-5218-dcpmm, 1/16 |") && !page.contains("xeon-5218-dcpmm6"));
    let (begin, end) = ("<!-- scoreboard -->\n", "<!-- end of the scoreboard -->");
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let (before, rest) = readme.split_once(begin).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    written("README.md", &format!("{before}{begin}\n{}\n{end}{after}", scoreboard.summary(&all)));
    // What is written by hand has the totals too: without what is implied, and that beside them.
    let summary = scoreboard.summary(&all);
    let totals: Vec<&str> =
        summary.lines().last().unwrap().split('|').map(str::trim).skip(2).take(4).collect();
    let of = |page: &str| std::fs::read_to_string(repository().join("docs/src").join(page)).unwrap();
    let validity = of("validity.md");
    for total in &totals {
        let (holds, implied) = total.split_once(" + ").unwrap_or((total, ""));
        let row = format!("| {holds} | {implied}");
        assert!(validity.contains(row.trim_end()), "docs/src/validity.md has no row with {row}");
    }
    let (holds, implied) = totals[3].split_once(" + ").unwrap();
    let (holds, could_fail) = holds.split_once(" of ").unwrap();
    let fidelity = of("fidelity.md").replace('\n', " ");
    for words in [
        format!("Another {implied} hold"),
        format!("Of the other {could_fail}, which could fail, {holds} hold"),
    ] {
        assert!(fidelity.contains(&words), "docs/src/fidelity.md does not say: {words}");
    }
}

const CLAIMS: &str = r#"
source = "A paper, 2020"
[run.one]
machine = "zen4-cxl"
design = "native-4k"
workload = "gups"
[[claim]]
id = "first"
section = "1"
kind = "value"
statement = "It takes a second."
expression = "one.seconds"
published = 1
tolerance = "10 %"
[[claim]]
id = "second"
section = "2"
kind = "order"
statement = "It takes some time."
expression = "0 < one.seconds"
implied = "by footprint"
"#;

/// What came of the claims, all with the same verdict.
fn judged(claims: &[Claim], verdict: Outcome, ours: &str) -> Reproduction {
    let result = |claim: &Claim| terrace_study::reproduce::ClaimResult {
        id: claim.id.clone(),
        kind: claim.kind,
        source: claim.source.clone(),
        section: claim.section.clone(),
        statement: claim.statement.clone(),
        unit: String::new(),
        expression: claim.expression_text.clone(),
        published: "1 | 2".to_owned(),
        ours: ours.to_owned(),
        verdict,
        reason: String::new(),
        rows: Vec::new(),
        runs: claim.runs(),
        recordings: [("mcf".to_owned(), "recorded today".to_owned())].into(),
        around: Some(Around { low: vec![0.9], high: vec![1.25], is_stable: true }),
    };
    Reproduction {
        reproduced: 0,
        not_reproduced: 0,
        not_evaluated: 0,
        fitted: 0,
        machines: std::collections::BTreeMap::new(),
        claims: claims.iter().map(result).collect(),
        failures: Vec::new(),
        runs: 1,
        reused: 0,
    }
}

#[test]
fn what_was_not_run_keeps_its_verdict() {
    let all = claims::parse(CLAIMS, "claims.toml").unwrap();
    let mut scoreboard = Scoreboard::default();
    assert_eq!(scoreboard.open(&all).len(), 2);
    scoreboard.update(&all, &judged(&all, Outcome::Reproduced, "1.05"), "1");
    assert_eq!((scoreboard.problems(&all), scoreboard.open(&all).len()), (Vec::new(), 0));
    let before = scoreboard.clone();
    scoreboard.update(&all, &judged(&all, Outcome::NotEvaluated, ""), "2");
    assert_eq!(scoreboard, before);
    let text = scoreboard.to_json();
    assert_eq!(serde_json::from_str::<Scoreboard>(&text).unwrap(), before);
    scoreboard.retain(&all[..1]);
    assert_eq!(scoreboard.claims.keys().collect::<Vec<_>>(), ["first"]);
}

#[test]
fn a_claim_that_changes_or_fails_without_a_note_is_a_problem() {
    let all = claims::parse(CLAIMS, "claims.toml").unwrap();
    let mut scoreboard = Scoreboard::default();
    scoreboard.update(&all, &judged(&all, Outcome::NotReproduced, "2"), "1");
    assert_eq!(scoreboard.problems(&all[..1]), ["first does not hold, and its note does not say why"]);
    scoreboard.update(&all, &judged(&all, Outcome::Reproduced, "1"), "1");
    for (from, to) in [("10 %", "20 %"), ("\"gups\"", "\"chase\""), ("published = 1", "published = 2")] {
        let other = claims::parse(&CLAIMS.replace(from, to), "claims.toml").unwrap();
        assert_ne!(definition(&other[0]), definition(&all[0]), "{from}");
        assert_eq!(scoreboard.problems(&other[..1]), ["first has changed since it was judged"], "{from}");
    }
    // Words alone change no verdict.
    let words = claims::parse(&CLAIMS.replace("It takes a second.", "A second."), "claims.toml").unwrap();
    assert_eq!(scoreboard.problems(&words), [""; 0]);
}

#[test]
fn implied_claims_are_counted_apart_and_cells_stay_cells() {
    let all = claims::parse(CLAIMS, "claims.toml").unwrap();
    let mut scoreboard = Scoreboard::default();
    scoreboard.update(&all, &judged(&all, Outcome::Reproduced, "1 < 2"), "1");
    let summary = scoreboard.summary(&all);
    assert!(summary.contains("| A paper, 2020 | 0 of 0 + 1 | | 1 of 1 | 1 of 1 + 1 | |"), "{summary}");
    let page = scoreboard.page(&all);
    let row = page.lines().find(|line| line.starts_with("| `second`")).unwrap();
    assert_eq!(
        row,
        "| `second` | It takes some time. (2) | 1 \\| 2 | 1 &lt; 2 (0.900 to 1.25) | reproduced | zen4-cxl; `mcf` recorded today | Implied: by footprint. |"
    );
}
