//! Licences, duplicate versions and sources of all dependencies, held to `deny.toml` without cargo-deny.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

struct Package {
    name: String,
    version: String,
    licence: String,
    source: Option<String>,
}

/// What the lock file resolves to on the one platform that is built.
fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--locked", "--format-version", "1"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|package| Package {
            name: text(&package["name"]),
            version: text(&package["version"]),
            licence: text(&package["license"]),
            source: package["source"].as_str().map(str::to_owned),
        })
        .collect()
}

fn rules() -> toml::Table {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deny.toml");
    std::fs::read_to_string(file).unwrap().parse().unwrap()
}

fn words<'a>(rules: &'a toml::Table, table: &str, key: &str) -> BTreeSet<&'a str> {
    rules[table][key].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect()
}

/// The parts of an expression between `word`s outside parentheses.
fn split<'a>(expression: &'a str, word: &str) -> Vec<&'a str> {
    let (mut depth, mut begin, mut parts) = (0, 0, Vec::new());
    for (at, letter) in expression.char_indices() {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        if depth == 0 && at >= begin && expression[at..].starts_with(word) {
            parts.push(&expression[begin..at]);
            begin = at + word.len();
        }
    }
    parts.push(&expression[begin..]);
    parts
}

/// Whether an expression of licences can be met with allowed ones: `OR` (in old manifests `/`), `AND`, parentheses.
fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let expression = expression.trim();
    for word in [" OR ", "/"] {
        let parts = split(expression, word);
        if parts.len() > 1 {
            return parts.iter().any(|part| is_allowed(part, allowed));
        }
    }
    let parts = split(expression, " AND ");
    if parts.len() > 1 {
        return parts.iter().all(|part| is_allowed(part, allowed));
    }
    match expression.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        Some(inner) => is_allowed(inner, allowed),
        None => allowed.contains(expression),
    }
}

#[test]
fn expressions_of_licences_are_read_as_they_are_meant() {
    let allowed = BTreeSet::from(["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"]);
    for (expression, met) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("Unlicense/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
        ("(MIT OR GPL-3.0) AND LGPL-2.1", false),
        ("MIT AND (GPL-3.0 OR LGPL-2.1)", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), met, "{expression}");
    }
}

#[test]
fn all_dependencies_have_allowed_licences_and_come_from_the_registry() {
    let rules = rules();
    let allowed = words(&rules, "licenses", "allow");
    let registries = words(&rules, "sources", "allow-registry");
    let packages = packages();
    assert!(packages.len() > 100, "{} packages", packages.len());
    let mut faults = Vec::new();
    for Package { name, version, licence, source } in &packages {
        if !is_allowed(licence, &allowed) {
            faults.push(format!("{name} {version}: the licence \"{licence}\" is not in deny.toml"));
        }
        let registry = source.as_deref().map(|source| source.trim_start_matches("registry+"));
        if registry.is_some_and(|registry| !registries.contains(registry)) {
            faults.push(format!("{name} {version}: from {registry:?}, which deny.toml does not list"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn what_is_there_in_two_versions_is_listed_and_nothing_else_is() {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let packages = packages();
    for package in &packages {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    let rules = rules();
    let skipped = rules["bans"]["skip"].as_array().unwrap().iter();
    let skipped: Vec<(&str, &str)> =
        skipped.map(|entry| entry["crate"].as_str().unwrap().split_once('@').unwrap()).collect();
    let is_skipped = |name: &str, version: &str| {
        skipped
            .iter()
            .any(|&(of, prefix)| of == name && format!("{version}.").starts_with(&format!("{prefix}.")))
    };
    for (name, versions) in &versions {
        let left = versions.iter().filter(|version| !is_skipped(name, version)).count();
        assert!(
            left <= 1,
            "{name} is there as {versions:?}: unify them, or list one in deny.toml with its reason"
        );
    }
    for (name, version) in skipped {
        let several = versions.get(name).is_some_and(|versions| versions.len() > 1);
        assert!(several, "{name} {version} of deny.toml is there in one version only: drop the entry");
    }
}
