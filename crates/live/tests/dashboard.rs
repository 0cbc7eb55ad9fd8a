//! The dashboard for Grafana shows what the engine exports: no metric that it does not, and all of those that it does.

use std::collections::BTreeSet;
use std::path::Path;
use terrace_live::metrics;
use terrace_live::status::Status;

fn dashboard() -> serde_json::Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/grafana/terrace.json");
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// Words of expressions and of the queries of variables.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
}

fn asked_for(dashboard: &serde_json::Value) -> BTreeSet<String> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries = targets.map(|target| target["expr"].as_str().unwrap().to_owned());
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let all = queries.chain(variables.filter_map(|one| one["query"]["query"].as_str().map(str::to_owned)));
    all.flat_map(|text| {
        words(&text).filter(|word| word.starts_with("terrace_")).map(str::to_owned).collect::<Vec<_>>()
    })
    .collect()
}

fn exported() -> String {
    let status: Status = serde_json::from_str(include_str!("fixtures/status.json")).unwrap();
    metrics::text(&status)
}

#[test]
fn every_metric_of_the_dashboard_is_exported_and_every_exported_one_is_shown() {
    let text = exported();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let exported: BTreeSet<String> =
        samples.map(|line| line.split(['{', ' ']).next().unwrap().to_owned()).collect();
    assert!(exported.len() > 15, "{exported:?}");
    assert_eq!(asked_for(&dashboard()), exported);
}

/// A legend or selector that names no label shows an empty name for every line.
#[test]
fn labels_of_legends_are_those_of_their_metrics() {
    let text = exported();
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let mut checked = 0;
    for target in panels.flat_map(|panel| panel["targets"].as_array().unwrap()) {
        let (query, legend) = (target["expr"].as_str().unwrap(), target["legendFormat"].as_str().unwrap());
        let metric = words(query).find(|word| word.starts_with("terrace_")).unwrap();
        let sample = text.lines().find(|line| line.starts_with(&format!("{metric}{{"))).unwrap_or_default();
        for label in legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap()) {
            assert!(sample.contains(&format!("{label}=\"")), "{metric} has no label {label}: {sample}");
            checked += 1;
        }
    }
    assert!(checked > 8);
}

#[test]
fn panels_have_titles_places_and_units_of_their_own() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut taken = BTreeSet::new();
    for panel in panels {
        let place = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(
            !panel["title"].as_str().unwrap().is_empty()
                && !panel["description"].as_str().unwrap().is_empty()
        );
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string());
        for (x, y) in (0..place("w")).flat_map(|x| (0..place("h")).map(move |y| (x, y))) {
            assert!(
                place("x") + x < 24 && taken.insert((place("x") + x, place("y") + y)),
                "{}",
                panel["title"]
            );
        }
    }
    let numbers: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(numbers.len(), panels.len());
}
