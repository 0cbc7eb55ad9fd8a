//! The book has a page per policy: the policy's own document, what it does on one trace, and the claims that it takes part
//! in.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use terrace_policy::Entry;
use toml::{Table, Value};

const WHEN: &str = "**When to use it.** ";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(entry: &Entry, claims: &[Claim]) -> String {
    let name = entry.name();
    let document = entry.document();
    let (document, when) = document.trim_end().split_once(WHEN).unwrap();
    let mut page = format!("# `{name}`\n\n{}\n\n## When to use it\n\n{when}\n", document.trim_end());
    if !entry.algorithms().is_empty() {
        let _ = writeln!(page, "\n## Algorithms");
    }
    for algorithm in entry.algorithms() {
        let _ = writeln!(page, "\n### `{}`\n\n{}", algorithm.name, algorithm.document().trim_end());
    }
    if root().join(format!("docs/src/images/policies/{name}.svg")).exists() {
        let _ = writeln!(
            page,
            "\n## On one trace\n\n![Where memory lies under {name}](../images/policies/{name}.svg)\n\n\
             [How to read it, and the same under all policies](../policies.md#pictures)"
        );
    }
    if let Some(command) = drawn_with(&format!("gpu_of_{}", name.replace('-', "_"))) {
        let _ = writeln!(
            page,
            "\n## On a GPU\n\n![Where memory lies on a GPU under {name}](../images/policies/{name}-gpu.svg)\n\n\
             ```console\n$ terrace sim {command} \\\n    --placement-map {name}.svg\n```\n\n[How to read \
             it](../policies.md#pictures), and [GPUs](../gpu.md)"
        );
    }
    if root().join(format!("docs/src/images/policies/{name}-memory.svg")).exists() {
        let _ = writeln!(
            page,
            "\n## Memory before and after\n\n![Who holds which frame before and after a program under \
             {name}](../images/policies/{name}-memory.svg)\n\n```console\n$ terrace sim --design {name} {} \\\n    \
             --memory-map {name}.svg\n```\n\n[How to read it, and what the others make of the same \
             memory](../policies.md#pictures-of-memory)",
            memory_of(name)
        );
    }
    let _ = writeln!(page, "\n## Claims\n");
    let mine: Vec<&Claim> = claims.iter().filter(|claim| claim.policies.contains(name)).collect();
    if mine.is_empty() {
        let _ = writeln!(page, "No published result about it is checked.");
    } else {
        let _ = writeln!(
            page,
            "`terrace reproduce ID` prints the [result](../fidelity.md#claims) of each claim.\n\n\
             | claim | where | statement |\n|---|---|---|"
        );
        for Claim { id, section, statement, .. } in mine {
            let _ = writeln!(page, "| `{id}` | {section} | {statement} |");
        }
    }
    let needs = entry.needs(&Table::new()).unwrap();
    let _ = writeln!(page, "\n## What it needs\n");
    let mut needed = false;
    for capability in needs.capabilities.iter() {
        let _ = writeln!(page, "- `{}`: {}", capability.name(), capability.meaning());
        needed = true;
    }
    if needs.first_pass {
        let _ =
            writeln!(page, "- A first pass over the same input, which counts the accesses of every page.");
    } else if !needed {
        let _ = writeln!(page, "Nothing.");
    }
    let _ = writeln!(page, "\n## Parameters\n");
    let parameters = entry.parameters();
    if parameters.is_empty() {
        let _ = writeln!(page, "None.");
    } else {
        let _ = writeln!(page, "`--set os.policy.KEY=VALUE`, or under `[os.policy]` in a design.\n");
        let _ = writeln!(page, "| key | default | range | meaning |\n|---|---|---|---|");
        for parameter in parameters {
            let help = parameter.explanation().replace('|', "\\|");
            let range = parameter.range.as_ref();
            let range = range.map(|range| format!("{} to {}", range.low, range.high)).unwrap_or_default();
            let _ = writeln!(page, "| `{}` | `{}` | {range} | {help} |", parameter.name, parameter.default);
        }
    }
    page
}

/// What `scripts/policy-pictures` draws a policy's picture of memory with.
fn memory_of(name: &str) -> String {
    let own = drawn_with(&format!("memory_of_{name}")).map_or(String::new(), |own| format!(" \\\n    {own}"));
    drawn_with("memory").unwrap() + &own
}

/// A variable of that script.
fn drawn_with(variable: &str) -> Option<String> {
    let script = std::fs::read_to_string(root().join("scripts/policy-pictures")).unwrap();
    let (_, text) = script.split_once(&format!("\n{variable}='"))?;
    text.split_once('\'').map(|(text, _)| text.to_owned())
}

/// A published result, and the policies whose runs it is judged by.
struct Claim {
    id: String,
    section: String,
    statement: String,
    policies: BTreeSet<String>,
}

/// All claims, in the order of `claims/`.
fn claims() -> Vec<Claim> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(root().join("claims")).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    files.sort();
    files.iter().flat_map(|path| claims_of(&std::fs::read_to_string(path).unwrap())).collect()
}

/// A policy of a design, at `at`: the one that it names, or that of a design which it extends.
fn policy_in(word: &str, at: &[&str]) -> Option<String> {
    let text = std::fs::read_to_string(root().join(format!("designs/{word}.toml"))).ok()?;
    let design: Table = toml::from_str(&text).unwrap();
    let design = Value::Table(design);
    let name = at.iter().try_fold(&design, |value, key| value.get(key)).and_then(|policy| policy.get("name"));
    if let Some(name) = name {
        return Some(name.as_str().unwrap().to_owned());
    }
    let extended: Vec<&str> = match design.get("extends") {
        Some(Value::Array(all)) => all.iter().map(|one| one.as_str().unwrap()).collect(),
        one => one.and_then(Value::as_str).into_iter().collect(),
    };
    extended.into_iter().find_map(|word| policy_in(word, at))
}

/// The policy that a run's programs are under, by the word that stands for it: a policy's name or a design's.
fn policy_of(word: &str) -> String {
    policy_in(word, &["os", "policy"]).unwrap_or_else(|| word.to_owned())
}

fn claims_of(text: &str) -> Vec<Claim> {
    let file: Table = toml::from_str(text).unwrap();
    let word = |table: &Table, key: &str| {
        table
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut policies: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let runs = file["run"].as_table().unwrap();
    for run in runs.keys() {
        let said = |keys: &[&str]| said(runs, run, keys).unwrap_or_default();
        let policy = match said(&["set", "os.policy.name"]) {
            // The mechanisms of Nimble without any policy.
            "" if said(&["workload"]) == "microbenchmark:migration" => "nimble",
            "" => said(&["design"]),
            policy => policy,
        };
        let of_host = match said(&["set", "host.policy.name"]) {
            "" => policy_in(said(&["design"]), &["host", "policy"]),
            policy => Some(policy.to_owned()),
        };
        policies.insert(run.clone(), [policy_of(policy)].into_iter().chain(of_host).collect());
    }
    let defined = file.get("define").and_then(Value::as_table).cloned().unwrap_or_default();
    let claim = |table: &Table| {
        let mut used = BTreeSet::new();
        let mut open = vec![word(table, "expression")];
        let mut seen = BTreeSet::new();
        while let Some(expression) = open.pop() {
            let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
            for name in expression.split(|c| !is_name(c)).filter(|name| !name.is_empty()) {
                if let Some(policies) = name.split('.').next().and_then(|run| policies.get(run)) {
                    used.extend(policies.iter().cloned());
                } else if defined.contains_key(name) && seen.insert(name.to_owned()) {
                    open.push(word(&defined, name));
                }
            }
        }
        let text = |key| word(table, key).replace('|', "\\|");
        Claim { id: text("id"), section: text("section"), statement: text("statement"), policies: used }
    };
    file["claim"].as_array().unwrap().iter().map(|table| claim(table.as_table().unwrap())).collect()
}

/// What a run says at `keys`, or one that it is `like`.
fn said<'a>(runs: &'a Table, run: &str, keys: &[&str]) -> Option<&'a str> {
    let own = keys.iter().try_fold(&runs[run], |value, key| value.get(key)).and_then(Value::as_str);
    own.or_else(|| said(runs, runs[run].get("like")?.as_str()?, keys))
}

#[test]
fn the_book_has_a_page_per_policy() {
    let book = root().join("docs/src");
    let summary = std::fs::read_to_string(book.join("SUMMARY.md")).unwrap();
    let claims = claims();
    assert!(claims.iter().any(|claim| claim.policies.contains("thermostat")));
    for entry in terrace_policy::all() {
        let name = format!("policies/{}.md", entry.name());
        assert!(summary.contains(&format!("({name})")), "docs/src/SUMMARY.md does not list {name}");
        let path = book.join(&name);
        let page = page(entry, &claims);
        if std::env::var_os("TERRACE_UPDATE").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == page, "{} is stale; run with TERRACE_UPDATE=1", path.display());
    }
}

#[test]
fn a_claim_belongs_to_the_policies_whose_runs_it_reads() {
    let text = r#"
        run.plain = { design = "first-touch", workload = "gups" }
        run.other = { design = "native-4k", set = { "os.policy.name" = "tpp" }, workload = "gups" }
        run.move = { design = "first-touch", workload = "microbenchmark:migration" }
        run.more = { like = "other", workload = "bfs" }
        run.most = { like = "more", set = { "os.policy.name" = "ambix" } }
        run.less = { like = "plain", workload = "bfs" }
        run.paged = { design = "virtual-hatric", workload = "gups" }
        run.joined = { like = "paged", set = { "host.policy.name" = "trident" } }
        define.gain = "plain.seconds / other.seconds"
        [[claim]]
        id = "gain"
        expression = "geomean(gain)"
        [[claim]]
        id = "rate"
        expression = "move.migration.base_pages.t1 / 1000"
        [[claim]]
        id = "like"
        expression = "more.seconds + less.seconds / most.seconds"
        [[claim]]
        id = "host"
        expression = "paged.seconds / joined.seconds"
    "#;
    let found: Vec<Vec<String>> =
        claims_of(text).into_iter().map(|claim| claim.policies.into_iter().collect()).collect();
    // The last one's programs are under no policy of their own: the word for it is the design's.
    let expected = [
        vec!["first-touch", "tpp"],
        vec!["nimble"],
        vec!["ambix", "first-touch", "tpp"],
        vec!["demand-paging", "trident", "virtual-hatric"],
    ];
    assert_eq!(found, expected);
}
