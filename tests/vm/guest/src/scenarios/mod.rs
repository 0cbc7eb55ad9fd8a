//! What must hold on a real kernel, one file per subject.

mod agreement;
mod arena;
mod boot;
mod calibrate;
mod damon;
mod doctor;
mod exec;
mod focus;
mod harm;
mod hints;
mod huge;
mod killed;
mod move_pages;
mod offload;
mod policies;
mod probe;
mod sampled;
mod structures;
mod swap;
mod torture;
mod unit;
mod view;
mod watch;
mod write_hot;
mod writes;

pub use agreement::simulate_all;

use crate::check::Checks;
use anyhow::{Context, Result, ensure};

/// A scenario's name, the machine it runs on, and what it does.
struct Scenario {
    name: &'static str,
    machine: &'static str,
    run: fn(&mut Checks) -> Result<()>,
}

const SCENARIOS: &[Scenario] = &[
    Scenario { name: "boot", machine: "two", run: boot::two },
    Scenario { name: "move", machine: "two", run: move_pages::base_and_huge },
    Scenario { name: "softdirty", machine: "two", run: writes::soft_dirty },
    Scenario { name: "pagemap-scan", machine: "two", run: writes::protected },
    Scenario { name: "helped", machine: "two", run: writes::helped },
    Scenario { name: "track-accesses", machine: "two", run: policies::track_accesses },
    Scenario { name: "exec", machine: "two", run: exec::run },
    Scenario { name: "sampled", machine: "quick", run: sampled::run },
    Scenario { name: "pageout", machine: "two", run: swap::page_out },
    Scenario { name: "watch", machine: "two", run: watch::run },
    Scenario { name: "calibrate", machine: "two", run: calibrate::run },
    Scenario { name: "damon", machine: "two", run: damon::run },
    Scenario { name: "focus", machine: "two", run: focus::run },
    Scenario { name: "verify-self", machine: "two", run: move_pages::under_fire },
    Scenario { name: "policies", machine: "two", run: policies::converge },
    Scenario { name: "more-policies", machine: "two", run: policies::more_converge },
    Scenario { name: "write-hot", machine: "two", run: write_hot::run },
    Scenario { name: "offload", machine: "two", run: offload::run },
    Scenario { name: "thermostat", machine: "two", run: policies::thermostat },
    Scenario { name: "agreement", machine: "two", run: agreement::run },
    Scenario { name: "integrity", machine: "two", run: harm::integrity },
    Scenario { name: "exchange-full", machine: "two", run: harm::exchange_full },
    Scenario { name: "whole-thp", machine: "two", run: harm::whole_huge_pages },
    Scenario { name: "hints", machine: "two", run: hints::run },
    Scenario { name: "structures", machine: "two", run: structures::run },
    Scenario { name: "arena-hints", machine: "two", run: arena::hints },
    Scenario { name: "view", machine: "two", run: view::run },
    Scenario { name: "huge", machine: "two", run: huge::run },
    Scenario { name: "shares", machine: "two", run: harm::shares },
    Scenario { name: "dry-run", machine: "two", run: harm::dry_run },
    Scenario { name: "admin", machine: "two", run: harm::administrator },
    Scenario { name: "speed", machine: "two", run: harm::speed },
    Scenario { name: "giant", machine: "giant", run: move_pages::giant },
    Scenario { name: "arena-giant", machine: "giant", run: arena::giant },
    Scenario { name: "giant-moved", machine: "giant", run: harm::giant },
    Scenario { name: "bounded", machine: "quick", run: policies::bounded },
    Scenario { name: "killed", machine: "two", run: killed::on_nodes },
    Scenario { name: "killed-helped", machine: "two", run: killed::helped },
    Scenario { name: "probe", machine: "one", run: probe::run },
    Scenario { name: "compressed", machine: "one", run: swap::policy },
    Scenario { name: "killed-swap", machine: "one", run: killed::with_swap },
    Scenario { name: "tiers", machine: "four", run: boot::four },
    Scenario { name: "hotplug", machine: "hotplug", run: boot::hotplug },
    Scenario { name: "torture", machine: "torture", run: torture::run },
    Scenario { name: "unit", machine: "systemd", run: unit::run },
    Scenario { name: "old", machine: "old", run: boot::old },
];

/// What the harness leaves to `run --weekly` and to whoever names it: these take a quarter of the time of all, and show how
/// well pages are placed. What shows that no byte is lost and that all is put back runs each time.
const WEEKLY: &[&str] =
    &["agreement", "exchange-full", "focus", "more-policies", "speed", "structures", "tiers", "write-hot"];

/// For the harness: which scenario runs on which machine, and which are left to `--weekly`.
pub fn list() {
    for Scenario { name, machine, .. } in SCENARIOS {
        let weekly = if WEEKLY.contains(name) { " weekly" } else { "" };
        println!("{name} {machine}{weekly}");
    }
}

/// Runs scenarios one after the other and prints the verdict, on which the harness relies.
pub fn run(names: &[String]) -> Result<()> {
    let (mut passed, mut failed) = (0, 0);
    for name in names {
        let scenario = SCENARIOS
            .iter()
            .find(|scenario| scenario.name == name)
            .with_context(|| format!("no scenario \"{name}\""))?;
        let mut checks = Checks::new(scenario.name);
        if let Err(error) = (scenario.run)(&mut checks) {
            checks.that(false, "runs to its end", format!("{error:#}"));
        }
        ensure!(checks.passed + checks.failed > 0, "{name} checked nothing");
        passed += checks.passed;
        failed += checks.failed;
    }
    println!("VERDICT passed={passed} failed={failed}");
    Ok(())
}
