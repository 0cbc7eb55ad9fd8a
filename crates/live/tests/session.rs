//! What is chosen on machines that are not here.

mod common;
use common::Machine;
use std::sync::Arc;
use terrace_live::facts::Facts;
use terrace_live::kernel::Kernel;
use terrace_live::session::{Config, PREFERRED, Problem, Session};
use terrace_live::targets::Selection;
use terrace_policy::{Setup, registry};
use toml::Table;

fn preset(settings: &[(&str, &str)]) -> Table {
    let mut table = Table::new();
    settings.iter().for_each(|(key, value)| registry::set(&mut table, key, value));
    table
}

#[test]
fn every_preferred_policy_runs_where_there_is_damon() {
    let facts = Facts::discover(&Machine::named("two-nodes-6.12").kernel());
    let capabilities = facts.capabilities();
    let topology = &facts.tiers.topology;
    let setup = Setup { topology, capabilities: &capabilities, seed: 0, profile: None };
    for (name, settings) in PREFERRED {
        let opened = registry::find(name).unwrap().open(&preset(settings), setup);
        assert!(opened.is_ok(), "{name}: {}", opened.err().unwrap());
    }
}

#[test]
fn the_last_preferred_policy_runs_on_compressed_memory_without_damon() {
    let machine = Machine::named("zram-user");
    machine.set("/proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001fffeffffff\n");
    machine.set("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "1\n");
    let facts = Facts::discover(&machine.kernel());
    let capabilities = facts.capabilities();
    let topology = &facts.tiers.topology;
    let setup = Setup { topology, capabilities: &capabilities, seed: 0, profile: None };
    let runs = |(name, settings): &(&str, &[(&str, &str)])| {
        registry::find(name).unwrap().open(&preset(settings), setup).is_ok()
    };
    let names = PREFERRED.iter().filter(|one| runs(one)).map(|(name, _)| *name).collect::<Vec<_>>();
    assert_eq!(names, ["thermostat"]);
}

#[test]
fn a_refusal_says_with_what_the_policy_runs() {
    let machine = Machine::named("two-nodes-6.12");
    let kernel: Arc<dyn Kernel> = Arc::new(machine.kernel());
    let facts = Facts::discover(&*kernel);
    let refusal = |policy: &str, parameters: Table| {
        let config = Config { policy: Some(policy.to_owned()), parameters, ..Config::default() };
        match Session::prepare(&kernel, &facts, Selection::Trees(Vec::new()), &config) {
            Err(Problem::Machine(message)) => message,
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("{policy} runs"),
        }
    };
    for policy in ["ambix", "idle"] {
        let message = refusal(policy, Table::new());
        assert!(message.contains("runs with --set flush=false;"), "{message}");
    }
    let message = refusal("hemem", Table::new());
    assert!(!message.contains("--set"), "nothing helps: {message}");
}
