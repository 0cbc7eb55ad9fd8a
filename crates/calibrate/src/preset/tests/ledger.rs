//! The ledger of a calibrated machine.

use super::*;

fn resolve(measured: &Measured, preset: &str) -> Resolved {
    parse(&write(measured, &base_of(preset), "2026-11-23")).unwrap()
}

/// What a design chooses, whatever its machine.
const CHOICES: [&str; 5] =
    ["os.policy", "os.pages", "os.placement", "translation.scheme", "translation.coherence"];

/// What things are called.
const NAMES: [&str; 3] = [".name", ".device", ".sizes"];

#[test]
fn each_constant_is_measured_or_marked() {
    for preset in ["zen4-cxl", "zen5-turin", "skylake-6140", "xeon-5218-dcpmm"] {
        for measured in [zen5(), with_two_nodes()] {
            let resolved = resolve(&measured, preset);
            let ledger = &resolved.design.ledger;
            let is_of_the_machine = |key: &str| {
                ["core.", "translation.", "cache.", "tier.", "device.", "os."]
                    .iter()
                    .any(|table| key.starts_with(table))
                    && !CHOICES.iter().any(|table| key.starts_with(table))
                    && !NAMES.iter().any(|end| key.ends_with(end))
            };
            let keys = resolved.parameters.iter().map(|one| one.key.as_str());
            let unmarked: Vec<&str> =
                keys.filter(|key| is_of_the_machine(key) && !ledger.mentions(key)).collect();
            assert!(unmarked.is_empty(), "{preset}: {unmarked:#?}");
        }
    }
}

#[test]
fn what_the_preset_is_known_by_does_not_hold_here() {
    let mut measured = zen5();
    measured.walks.truncate(1);
    let library = Library::embedded();
    let preset = library.design("native-4k", Some("skylake-6140"), &[]).unwrap().design;
    assert!(preset.ledger.is_vouched_for("translation.walkers"), "the preset cites it");
    let here = resolve(&measured, "skylake-6140").design;
    assert_eq!(here.translation.walkers, preset.translation.walkers);
    assert!(!here.ledger.is_vouched_for("translation.walkers"), "{:#?}", here.ledger);
    assert!(here.ledger.is_vouched_for("os.fault_cost"));
}

#[test]
fn a_shootdown_that_took_no_time_is_no_measurement() {
    let mut measured = zen5();
    measured.protect_beside =
        Some(Spread { low: measured.protect_alone.median - 1.0, ..measured.protect_alone });
    let text = write(&measured, &base_of("zen5-turin"), "2026-11-23");
    assert!(!text.contains("\nshootdown ="), "{text}");
    let ledger = resolve(&measured, "zen5-turin").design.ledger;
    let about = |entries: &[String]| entries.iter().any(|entry| entry.starts_with("os.costs.shootdown:"));
    assert!(!about(&ledger.cited) && about(&ledger.assumed), "{:?}", ledger.assumed);
    assert!(
        !ledger.spread.iter().any(|entry| entry.starts_with("os.costs.shootdown ")),
        "{:?}",
        ledger.spread
    );
}
