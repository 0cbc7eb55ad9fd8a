//! What is chosen on machines that are not here.

mod common;
use common::Machine;
use std::sync::Arc;
use terrace_live::facts::Facts;
use terrace_live::help::Trackers;
use terrace_live::kernel::Kernel;
use terrace_live::session::{Config, PREFERRED, Problem, Session};
use terrace_live::targets::Selection;
use terrace_live::world::{Managed, Options};
use terrace_policy::{Capability, Setup, registry};
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

/// Whoever starts a session measures the nodes before.
#[test]
fn a_policy_may_ask_for_measured_bandwidths() {
    let wants = |settings: &[(&str, &str)]| {
        let policy = Some("bw-aware".to_owned());
        Config { policy, parameters: preset(settings), ..Config::default() }.wants_probe()
    };
    assert_eq!(
        [wants(&[("weights", "probe")]), wants(&[("weights", "5,2")]), wants(&[])],
        [true, false, false]
    );
    assert!(!Config::default().wants_probe());
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

/// With the reason once, and the policies that do run.
#[test]
fn where_no_preferred_policy_runs_others_are_named() {
    let machine = Machine::named("one-node-6.18");
    let kernel: Arc<dyn Kernel> = Arc::new(machine.kernel());
    let facts = Facts::discover(&*kernel);
    let config = Config::default();
    let message = refused(Session::prepare(&kernel, &facts, Selection::Trees(Vec::new()), &config));
    let said = "none of the policies that Terrace chooses by itself can run here: ambix, nimble, idle and thermostat do \
                not start: ";
    assert!(message.starts_with(said), "{message}");
    assert_eq!(message.matches("it has one memory tier").count(), 1, "{message}");
    assert!(message.contains("--policy first-touch, --policy interleave"), "{message}");
    assert!(!message.contains("--policy ambix"), "{message}");
}

/// What runs with other parameters is named with them.
#[test]
fn policies_that_run_are_named_as_on_the_command_line() {
    let machine = Machine::named("two-nodes-6.12");
    machine.set("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "1\n");
    let kernel: Arc<dyn Kernel> = Arc::new(machine.kernel());
    let facts = Facts::discover(&*kernel);
    let select = || Selection::Trees(Vec::new());
    let message = refused(Session::prepare(&kernel, &facts, select(), &Config::default()));
    let named = message.split_once("These can: ").unwrap().1.split_once(". `").unwrap().0;
    assert!(named.contains("--policy thp --set fault=false"), "{message}");
    for option in named.split(", ") {
        let mut words = option.split(" --set ");
        let policy = words.next().unwrap().strip_prefix("--policy ").map(str::to_owned);
        let settings: Vec<(&str, &str)> = words.map(|word| word.split_once('=').unwrap()).collect();
        let config = Config { policy, parameters: preset(&settings), ..Config::default() };
        let prepared = Session::prepare(&kernel, &facts, select(), &config);
        assert!(prepared.is_ok(), "{option}: {}", prepared.err().unwrap());
    }
}

fn prepared(
    machine: &Machine,
    managed: Managed,
    policy: &str,
    parameters: &[(&str, &str)],
) -> Result<Session, Problem> {
    let kernel: Arc<dyn Kernel> = Arc::new(machine.kernel());
    let facts = Facts::discover(&*kernel);
    let config = Config {
        policy: Some(policy.to_owned()),
        parameters: preset(parameters),
        world: Options {
            trackers: (managed != Managed::All).then(Trackers::default),
            managed,
            ..Options::default()
        },
        ..Config::default()
    };
    Session::prepare(&kernel, &facts, Selection::Trees(Vec::new()), &config)
}

fn refused(prepared: Result<Session, Problem>) -> String {
    match prepared {
        Err(Problem::Machine(message)) => message,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it runs"),
    }
}

/// Not even policies that ask for nothing: their processes could never be looked into.
#[test]
fn without_a_way_to_find_pages_nothing_is_managed() {
    let machine = Machine::named("two-nodes-6.1");
    for policy in ["first-touch", "interleave", "ambix"] {
        let message = refused(prepared(&machine, Managed::All, policy, &[]));
        assert!(message.contains("PAGEMAP_SCAN") && message.contains("a kernel from 6.7 on"), "{message}");
    }
}

#[test]
fn sampled_faults_serve_policies_that_count_and_no_others() {
    let thermostat = |machine: &Machine, prefilter: &str| {
        prepared(machine, Managed::Sampled, "thermostat", &[("prefilter", prefilter)])
    };
    let machine = Machine::named("two-nodes-6.12");
    let session = thermostat(&machine, "false").unwrap();
    assert!(session.engine.source_name().starts_with("minor faults of watched pages"));
    let message = refused(thermostat(&machine, "true"));
    assert!(message.contains("--track-accesses") && message.contains("--set prefilter=false"), "{message}");
    let message = refused(prepared(&machine, Managed::Sampled, "ambix", &[("flush", "false")]));
    assert!(message.contains("--track-accesses"), "{message}");
    // A userfaultfd of user code only, by bit 63; and one without minor faults of shared memory.
    for (features, part) in
        [("0x800000000001ffff", "vm.unprivileged_userfaultfd=1"), ("0x1fbff", "no minor faults")]
    {
        let probes = format!("pagemap-scan 0\nuserfaultfd {features}\nprocess-madvise 0\ncollapse 0\n");
        machine.set("/probes", &probes);
        let message = refused(thermostat(&machine, "false"));
        assert!(message.contains(part), "{message}");
    }
    let message = refused(thermostat(&Machine::named("two-nodes-6.1"), "false"));
    assert!(message.contains("6.11"), "{message}");
}

/// With the help of the command accesses to its shared memory are known although someone else has DAMON.
#[test]
fn entry_dropping_serves_where_damon_does_not() {
    let prepared =
        |machine: &Machine| prepared(machine, Managed::EntriesDropped, "ambix", &[("flush", "false")]);
    let refused = |machine: &Machine| refused(prepared(machine));
    let machine = Machine::named("two-nodes-6.12");
    machine.set("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "1\n");
    let session = prepared(&machine).unwrap();
    assert!(session.choices.iter().any(|choice| choice.starts_with("accesses: entry dropping")));
    assert!(session.engine.source_name().starts_with("entry dropping"));
    let facts = Facts::discover(&machine.kernel());
    let missing = facts.missing()[&Capability::AccessedBits].to_string();
    assert!(missing.contains("run --track-accesses"), "{missing}");

    let message = refused(&Machine::named("two-nodes-6.1"));
    assert!(message.contains("6.11"), "{message}");
    let message = refused(&Machine::named("zram-user"));
    assert!(message.contains("page-out probe"), "{message}");
}
