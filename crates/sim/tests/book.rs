//! The book has a page per scheme of hardware that profits from contiguity: its file's own document, its design and parameters,
//! and what it gains in the run of the overview.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Design, file, and the value of `translation.contiguity.kind`.
const SCHEMES: [(&str, &str, &str); 4] = [
    ("colt", "coalesced", "coalesced"),
    ("rmm", "range", "range"),
    ("direct-segment", "segment", "direct-segment"),
    ("spot", "spot", "spot"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The comment at the head of a source file, without links that only the compiler knows.
fn document(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let text: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    let mut text = text.join("\n");
    while let Some(at) = text.find("](crate::") {
        let end = at + text[at..].find(')').unwrap();
        let begin = text[..at].rfind('[').unwrap();
        text = format!("{}{}{}", &text[..begin], &text[begin + 1..at], &text[end + 1..]);
    }
    text
}

/// The cells of a table's row.
fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect()
}

fn page((name, file, kind): (&str, &str, &str), overview: &str) -> String {
    let document = document(&read(&format!("crates/sim/src/translate/contiguity/{file}.rs")));
    let (title, text) = document.split_once(": ").unwrap();
    let mut first = text.chars();
    let text = first.next().unwrap().to_uppercase().collect::<String>() + first.as_str();
    let mut page = format!("# {title} (`{name}`)\n\n{text}\n\n## The design\n\n```toml\n");
    let _ = writeln!(page, "{}```\n\n## Parameters\n", read(&format!("designs/{name}.toml")));
    let _ =
        writeln!(page, "| key of `translation.contiguity` | unit | default | meaning |\n|---|---|---|---|");
    let reference = read("docs/src/reference/designs.md");
    let (_, table) = reference.split_once("| key of `translation.contiguity` |").unwrap();
    let is_own = |row: &&str| row.contains(&format!("`{kind}`:")) || row.contains(&format!("`{kind}`)"));
    for row in table.lines().skip(2).take_while(|row| row.starts_with('|')).filter(is_own) {
        let _ = writeln!(page, "{row}");
    }
    let (_, run) = overview.split_once("```console\n").unwrap();
    let (command, run) = run.split_once("\n```").unwrap();
    let others = SCHEMES.iter().filter(|(other, _, _)| *other != name);
    let command = others
        .fold(command.to_owned(), |command, (other, _, _)| command.replace(&format!(" --tlb {other}"), ""));
    let mut rows = run.lines().filter(|line| line.starts_with('|'));
    let column = cells(rows.next().unwrap()).iter().position(|cell| *cell == format!("`{name}`")).unwrap();
    let _ = writeln!(
        page,
        "\n## What it gains in one run\n\n```console\n{command}\n```\n\n\
         | pages | gain, TLB as it is | with `{name}` | waits, TLB as it is | with `{name}` |\n|---|---:|---:|---:|---:|"
    );
    for row in rows.skip(1) {
        let row = cells(row);
        let [before, after] = [1, column].map(|at| row[at].split_once(", ").unwrap());
        let _ = writeln!(page, "| {} | {} | {} | {} | {} |", row[0], before.0, after.0, before.1, after.1);
    }
    let _ = writeln!(page, "\n[What the columns mean, and the others beside it](../translation.md)");
    page
}

#[test]
fn the_book_has_a_page_per_scheme() {
    let summary = read("docs/src/SUMMARY.md");
    let overview = read("docs/src/translation.md");
    for scheme in SCHEMES {
        let name = format!("translation/{}.md", scheme.0);
        assert!(summary.contains(&format!("({name})")), "docs/src/SUMMARY.md does not list {name}");
        assert!(overview.contains(&format!("({name})")), "docs/src/translation.md does not list {name}");
        let path = root().join("docs/src").join(&name);
        let page = page(scheme, &overview);
        if std::env::var_os("TERRACE_UPDATE").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &page).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == page, "{} is stale; run with TERRACE_UPDATE=1", path.display());
    }
}
