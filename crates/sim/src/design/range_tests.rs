//! Every numeric key was declared with a range, and whatever lies beyond it is refused by name.

use super::{Design, Library};
use crate::Options;
use crate::machine::Machine;
use std::collections::BTreeSet;
use terrace_model::parameters::{Declared, ParameterInfo};

/// Declared keys whose values have an order.
fn ordered() -> Vec<ParameterInfo> {
    Design::declared().into_iter().filter(|one| one.kind.is_ordered()).collect()
}

/// The number at the beginning of a value, or of the first element of a list.
fn number(text: &str) -> Option<&str> {
    let text = text.trim_start_matches('[').split([',', ']']).next()?.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text[..end].parse::<f64>().is_ok().then_some(text)
}

#[test]
fn every_number_is_declared_with_a_range() {
    // Any number will do.
    let free = ["os.policy.seed", "host.policy.seed"];
    for one in ordered() {
        assert!(one.range.is_some() || free.contains(&one.name.as_str()), "{} has no range", one.name);
    }
    let cores = ordered().into_iter().find(|one| one.name == "core.count").unwrap().range.unwrap();
    assert_eq!(cores.high, crate::cache::MAX_CORES.to_string(), "what the directory can name");
}

#[test]
fn every_setting_of_a_design_is_declared() {
    let declared = Design::declared();
    let library = Library::embedded();
    for listed in library.design_names().iter().chain(&library.machine_names()) {
        for parameter in library.design(&listed.name, None, &[]).unwrap().parameters {
            // A scheme and a core model without own keys are a name alone; a policy declares its own.
            let key = match parameter.key.as_str() {
                name @ ("translation.scheme" | "core.model") => format!("{name}.kind"),
                key if key.contains("policy.") || parameter.value == "[]" => continue,
                key => key.to_owned(),
            };
            assert!(declared.iter().any(|one| one.is_at(&key)), "{key} is not declared");
        }
    }
}

#[test]
fn absurd_values_are_refused_by_name_or_make_a_machine() {
    let (library, ordered) = (Library::embedded(), ordered());
    let mut seen = BTreeSet::new();
    for listed in library.design_names().iter().chain(&library.machine_names()) {
        for parameter in library.design(&listed.name, None, &[]).unwrap().parameters {
            let (key, value) = (parameter.key, parameter.value);
            let Some(declared) = ordered.iter().find(|one| one.is_at(&key)) else { continue };
            let (Some(part), true) = (number(&value), seen.insert(key.clone())) else { continue };
            let unit = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
            let high = declared.range.as_ref().map_or("0", |range| range.high.as_str());
            let high = high.split(" or ").find(|high| high.ends_with(unit)).unwrap_or("0");
            let absurd = ["0", "-1", "4294967295", "18446744073709551615", "1e30", "56000000"];
            let absurd = absurd.iter().map(|number| format!("{number}{unit}")).chain([high.to_owned()]);
            for text in absurd {
                let text = if value.starts_with('[') { format!("[{text}]") } else { text };
                // Few cores, so that many machines are built soon; two, as some have two threads to a core.
                let few_cores = ("core.count".to_owned(), "2".to_owned());
                let sets = [few_cores, (key.clone(), text.clone())];
                match library.design(&listed.name, None, &sets) {
                    Err(error) => {
                        // Another key may not fit this one any more; then the message has the value.
                        let (said, last) = (error.to_string(), key.rsplit('.').next().unwrap());
                        let named = said.contains(last) || said.contains(&text);
                        assert!(named, "{}: {key}={text}: {said}", listed.name);
                    }
                    // What the host has no memory for is refused by the key as well.
                    Ok(resolved) => {
                        if let Err(said) = Machine::new(&resolved.design, &Options::default()) {
                            assert!(said.contains(key.split('.').next().unwrap()), "{key}={text}: {said}");
                        }
                    }
                }
            }
        }
    }
    assert!(seen.len() > 150, "{}", seen.len());
}
