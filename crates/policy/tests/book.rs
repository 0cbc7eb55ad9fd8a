//! The book has a page per policy, made of the policy's own document.

use std::fmt::Write;
use std::path::Path;
use terrace_policy::Entry;
use toml::Table;

fn page(entry: &Entry) -> String {
    let mut page = format!("# `{}`\n\n{}\n", entry.name(), entry.document().trim_end());
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
        let _ = writeln!(page, "| key | default | meaning |\n|---|---|---|");
        for parameter in parameters {
            let help = parameter.help.replace('|', "\\|");
            let _ = writeln!(page, "| `{}` | `{}` | {help} |", parameter.name, parameter.default);
        }
    }
    page
}

#[test]
fn the_book_has_a_page_per_policy() {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src");
    let summary = std::fs::read_to_string(book.join("SUMMARY.md")).unwrap();
    for entry in terrace_policy::all() {
        let name = format!("policies/{}.md", entry.name());
        assert!(summary.contains(&format!("({name})")), "docs/src/SUMMARY.md does not list {name}");
        let path = book.join(&name);
        let page = page(entry);
        if std::env::var_os("TERRACE_UPDATE").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == page, "{} is stale; run with TERRACE_UPDATE=1", path.display());
    }
}
