//! The book and the guides without mdBook: every page is listed, every link, anchor and include resolves.

mod common;
use common::repository;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Targets of `[text](target)` outside code, with the line they stand on.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut in_code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            continue;
        }
        // Odd parts lie between backquotes.
        let prose: String =
            line.split('`').enumerate().map(|(n, part)| if n % 2 == 0 { part } else { "code" }).collect();
        let mut rest = prose.as_str();
        while !in_code && let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let Some(end) = rest.find(')') else { break };
            links.push((number + 1, rest[..end].to_owned()));
        }
    }
    links
}

/// The anchor of a heading, as mdBook and GitHub make it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix('#'))
        .map(|h| anchor(h.trim_start_matches('#')))
        .collect()
}

fn markdown_under(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(markdown_under(&path));
        } else if path.extension().is_some_and(|e| e == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn every_link_resolves() {
    let root = repository();
    let mut pages = markdown_under(&root.join("docs/src"));
    pages.extend(markdown_under(&root.join("docs/decisions")));
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "BENCHMARKS.md"] {
        pages.push(root.join(name));
    }
    let mut broken = Vec::new();
    for page in &pages {
        let text = std::fs::read_to_string(page).unwrap();
        for (line, link) in links(&text) {
            if link.starts_with("https://") || link.starts_with("http://") {
                continue;
            }
            let (file, fragment) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let known = match std::fs::read_to_string(&target) {
                Ok(target) => fragment.is_empty() || anchors(&target).contains(fragment),
                // Folders and pictures.
                Err(_) => target.exists() && fragment.is_empty(),
            };
            if !known {
                broken.push(format!("{}:{line}: {link}", page.strip_prefix(&root).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn the_summary_lists_every_page_once() {
    let source = repository().join("docs/src");
    let summary = std::fs::read_to_string(source.join("SUMMARY.md")).unwrap();
    let listed: Vec<PathBuf> = links(&summary).into_iter().map(|(_, link)| source.join(link)).collect();
    let distinct: BTreeSet<&PathBuf> = listed.iter().collect();
    assert_eq!(distinct.len(), listed.len(), "a page is listed twice");
    for page in markdown_under(&source) {
        if page.file_name().unwrap() != "SUMMARY.md" {
            assert!(distinct.contains(&page), "{} is not in SUMMARY.md", page.display());
        }
    }
}

#[test]
fn the_book_includes_every_decision() {
    let root = repository();
    let page = std::fs::read_to_string(root.join("docs/src/decisions.md")).unwrap();
    for decision in markdown_under(&root.join("docs/decisions")) {
        let name = decision.file_name().unwrap().to_str().unwrap();
        let include = format!("{{{{#include ../decisions/{name}}}}}");
        assert!(page.contains(&include), "decisions.md lacks {include}");
        let text = std::fs::read_to_string(&decision).unwrap();
        assert!(text.starts_with("## "), "{name} begins with a heading of the second level");
        for part in ["**Context.**", "**Choice.**", "**Consequences.**"] {
            assert!(text.contains(part), "{name} has no {part}");
        }
    }
    assert_eq!(page.matches("{{#include").count(), markdown_under(&root.join("docs/decisions")).len());
}

#[test]
fn the_documents_name_only_what_exists() {
    let root = repository();
    let workloads: Vec<&str> = terrace_workload::all().iter().map(|info| info.name).collect();
    let page = std::fs::read_to_string(root.join("docs/src/workloads.md")).unwrap();
    for name in workloads {
        assert!(page.contains(&format!("| `{name}` |")), "workloads.md lacks {name}");
    }
    let page = std::fs::read_to_string(root.join("docs/src/policies.md")).unwrap();
    for policy in terrace_policy::all() {
        let (name, link) = (policy.name(), format!("| [`{0}`](policies/{0}.md) |", policy.name()));
        assert!(page.contains(&link), "policies.md lacks {name}");
    }
}

#[test]
fn every_design_and_policy_is_found_among_the_systems() {
    let root = repository();
    let page = std::fs::read_to_string(root.join("docs/src/systems.md")).unwrap();
    let in_tables: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
    let is_found = |name: &str| in_tables.iter().any(|line| line.contains(&format!("`{name}`")));
    let stem = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let designs = std::fs::read_dir(root.join("designs")).unwrap().map(|entry| stem(entry.unwrap().path()));
    let names = designs.chain(terrace_policy::all().iter().map(|policy| policy.name().to_owned()));
    let missing: Vec<String> = names.filter(|name| !is_found(name)).collect();
    assert!(missing.is_empty(), "docs/src/systems.md lacks {}", missing.join(", "));
}

/// Names of a page's tables with their alternatives written out; `<…>` and `*` stay.
fn statistics_of(page: &str) -> Vec<String> {
    fn alternatives(name: &str) -> Vec<String> {
        let Some((before, rest)) = name.split_once('{') else { return vec![name.to_owned()] };
        let Some((inside, behind)) = rest.split_once('}') else { return vec![name.to_owned()] };
        inside.split(',').flat_map(|one| alternatives(&format!("{before}{one}{behind}"))).collect()
    }
    let mut names: Vec<String> = Vec::new();
    for cell in page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next()) {
        for written in format!("`{cell}").split('`').skip(1).step_by(2) {
            // `.p50` stands beside `requests.latency.mean`.
            let stem =
                names.last().and_then(|last| Some(last.rsplit_once('.')?.0.to_owned())).unwrap_or_default();
            let whole = if written.starts_with('.') { stem + written } else { written.to_owned() };
            names.extend(alternatives(&whole));
        }
    }
    names
}

fn is_meant(pattern: &str, name: &str) -> bool {
    if let Some(stem) = pattern.strip_suffix('*') {
        return name.starts_with(stem);
    }
    let (mut patterns, mut parts) = (pattern.split('.'), name.split('.'));
    loop {
        match (patterns.next(), parts.next()) {
            (None, None) => return true,
            (Some(pattern), Some(part)) if pattern == part || pattern.starts_with('<') => {}
            _ => return false,
        }
    }
}

#[test]
fn every_statistic_is_documented() {
    let mut page = std::fs::read_to_string(repository().join("docs/src/reference/statistics.md")).unwrap();
    // A translation scheme's own statistics stand on its page.
    for entry in std::fs::read_dir(repository().join("docs/src/translation")).unwrap() {
        page += &std::fs::read_to_string(entry.unwrap().path()).unwrap();
    }
    let documented = statistics_of(&page);
    assert!(is_meant("tier.<tier>.pages", "tier.dram.pages") && !is_meant("tier.<tier>.pages", "tier.dram"));
    // Small ones: how much memory there is decides no name.
    let runs: [&[&str]; 7] = [
        &["--design", "native-thp", "--workload", "gups,bytes=16 MiB,updates=1e4,threads=2"],
        &["--design", "ambix", "--machine", "xeon-5218-dcpmm", "--workload", "kv,keys=1e4,requests=1e4"],
        &[
            "--design",
            "native-4k",
            "--set",
            "translation.nested.host=\"4k\"",
            "--workload",
            "kv,keys=1e4,requests=1e4",
        ],
        &[
            "--design",
            "virtual-thp",
            "--set",
            "host.policy.name=first-touch",
            "--workload",
            "gups,bytes=16 MiB,updates=1e4",
        ],
        &["--design", "colt", "--workload", "chase,bytes=16 MiB,accesses=1e4"],
        &["--design", "pom-tlb", "--workload", "chase,bytes=16 MiB,accesses=1e4"],
        &["--design", "hatric", "--workload", "kv,keys=1e4,requests=1e4,threads=2"],
    ];
    for run in runs {
        let document = common::json(common::terrace().arg("sim").args(run).args(["--json", "-"]));
        let units = document["units"].as_object().unwrap();
        assert!(units.len() > 50, "{run:?}");
        for name in units.keys() {
            assert!(
                documented.iter().any(|pattern| is_meant(pattern, name)),
                "statistics.md lacks {name}, which terrace sim {} tells",
                run.join(" ")
            );
        }
    }
}

#[test]
fn anchors_by_hand() {
    assert_eq!(anchor(" The built-in study"), "the-built-in-study");
    assert_eq!(anchor(" `terrace trace info`"), "terrace-trace-info");
    assert_eq!(
        links("a [b](c.md#d) `[x](y)` [e](f)\n```\n[g](h)\n```"),
        [(1, "c.md#d".into()), (1, "f".into())]
    );
}
