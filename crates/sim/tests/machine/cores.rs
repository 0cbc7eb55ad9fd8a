//! Core models and groups of cores on the whole machine, by hand.

use crate::support::*;
use terrace_model::Frequency;
use terrace_sim::design::{CoreGroup, Design, InOrderKeys, Library, ModelParameters, PagePolicy};
use terrace_sim::{Fidelity, Outcome};
use terrace_trace::{AccessKind, Event, MarkKind};

/// One core of 1 GHz and four instructions per cycle, caches of 4, 12 and 40 cycles. No translation costs.
fn round(model: ModelParameters) -> Design {
    let mut design = with_scheme(small(), "perfect-tlb");
    design.os.pages = PagePolicy::Huge;
    design.core.model = model;
    design.core.frequency = Frequency(1e9);
    design.core.base_cpi = 0.25;
    design.core.store_buffer = 4;
    design.cache.l1 = cache(4, 4, 4.0, 32);
    design.cache.l2 = cache(32, 8, 12.0, 32);
    design.cache.llc = cache(256, 16, 40.0, 32);
    design
}

fn in_order(loads: u32) -> ModelParameters {
    ModelParameters::InOrder(InOrderKeys { loads })
}

/// Cycles of each of many accesses to 1024 lines in turn, which the last level alone holds.
fn per_access(design: &Design, kind: AccessKind, depends_on: u8) -> f64 {
    let run = |rounds: u64| {
        let mut program = Program::new();
        program.map(DATA, 2 * MIB);
        for line in (0..rounds * 1024).map(|at| at % 1024) {
            program.access(DATA + 64 * line, 8, kind, depends_on, 1);
        }
        program.run(design, Fidelity::Full).cycles
    };
    (run(20) - run(10)) as f64 / (10.0 * 1024.0)
}

#[test]
fn in_order_loads_overlap_only_up_to_their_entries() {
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 0.02, "{found}, {expected}");
    // Chains pay each latency, however many loads may be outstanding; the instruction issues during the stall.
    for loads in [2, 8] {
        close(per_access(&round(in_order(loads)), AccessKind::Read, 1), 40.0);
    }
    // As many independent loads begin in 40 cycles and a quarter as there are entries.
    for loads in [1, 2, 4, 8] {
        let expected = 40.25 / f64::from(loads);
        close(per_access(&round(in_order(loads)), AccessKind::Read, 0), expected);
    }
    // Out of order, the miss registers of L1 alone limit them.
    close(per_access(&round(ModelParameters::default()), AccessKind::Read, 0), 40.0 / 32.0);
}

#[test]
fn a_chain_costs_the_same_in_order_and_out_of_order() {
    let cycles =
        [in_order(8), ModelParameters::default()].map(|model| per_access(&round(model), AccessKind::Read, 1));
    assert!((cycles[0] - cycles[1]).abs() < 0.02, "{cycles:?}");
}

#[test]
fn in_order_stores_hide_behind_their_buffer() {
    // Four entries, and the store that waits for one of them has asked for its line already: five in 40 cycles and the
    // quarter that the first of them takes to issue.
    let full = per_access(&round(in_order(8)), AccessKind::Write, 0);
    assert!((full - 40.25 / 5.0).abs() < 0.01, "{full}");
    // A line of L1: a store drains each cycle, behind four instructions.
    let mut program = Program::new();
    program.map(DATA, 2 * MIB).write(DATA);
    for _ in 0..1000 {
        program.access(DATA, 8, AccessKind::Write, 0, 4);
    }
    let cycles = program.run(&round(in_order(8)), Fidelity::Full);
    // What is lost by rounding counts as base.
    assert!((1000..=1002).contains(&count(&cycles, "core.cycles.base")));
    assert!(count(&cycles, "core.cycles.memory") < 200);
}

fn group(name: &str, count: u32) -> CoreGroup {
    CoreGroup {
        name: name.to_owned(),
        count,
        model: None,
        frequency: None,
        dispatch_width: None,
        reorder_buffer: None,
        store_buffer: None,
        base_cpi: None,
    }
}

/// One fast core of 2 GHz and one in-order core of 1 GHz that takes a cycle for each instruction.
fn fast_and_slow() -> Design {
    let mut design = round(ModelParameters::default());
    let fast = CoreGroup { frequency: Some(Frequency(2e9)), ..group("fast", 1) };
    let slow = CoreGroup { model: Some(in_order(8)), base_cpi: Some(1.0), ..group("slow", 1) };
    design.core.groups = vec![fast, slow];
    design.core.count = 2;
    design
}

fn of_group(outcome: &Outcome, name: &str) -> (u64, u64, f64) {
    let count = |what: &str| outcome.stats.integer(&format!("core.group.{name}.{what}"));
    (count("cycles"), count("instructions"), outcome.stats.number(&format!("core.group.{name}.ipc")))
}

#[test]
fn groups_count_their_own_cycles_and_totals_those_of_the_machine() {
    let mut program = Program::new();
    program.event(Event::Compute { instructions: 4000 });
    program.on(1).spawn(0, 1, None).event(Event::Compute { instructions: 4000 });
    let outcome = program.run(&fast_and_slow(), Fidelity::Full);
    // 500 ns at 2 GHz; then the second thread comes, for 4000 ns at 1 GHz.
    assert_eq!(of_group(&outcome, "fast"), (1000, 4000, 4.0));
    assert_eq!(of_group(&outcome, "slow"), (4000, 4000, 1.0));
    // In cycles of the machine's clock, 1 GHz.
    assert_eq!(outcome.cycles, 4500);
    assert_eq!(outcome.instructions, 8000);
    assert_eq!(counts(&outcome, ["core.cycles.base", "core.cycles.idle"]), [4500, 4500]);
    // Two threads more: each group has one more, by their numbers.
    for thread in [2, 3] {
        program.on(thread).spawn(0, 1 + thread, None).event(Event::Compute { instructions: 1000 });
    }
    let outcome = program.run(&fast_and_slow(), Fidelity::Full);
    assert_eq!(of_group(&outcome, "fast").1, 5000);
    assert_eq!(of_group(&outcome, "slow").1, 5000);
}

#[test]
fn groups_are_counted_from_where_the_region_begins() {
    let mut program = Program::new();
    program.event(Event::Compute { instructions: 400 }).mark(MarkKind::RegionBegin);
    program.event(Event::Compute { instructions: 4000 });
    let outcome = program.run(&fast_and_slow(), Fidelity::Full);
    assert_eq!(of_group(&outcome, "fast"), (1000, 4000, 4.0));
    assert_eq!(of_group(&outcome, "slow"), (0, 0, 0.0));
}

#[test]
fn equal_groups_are_a_machine_without_groups() {
    let spec = "kv,keys=2e3,requests=4e3,threads=6";
    let mut design = design("native-4k", "vbi-table1", &[("core.count", "4")]);
    let plain = run(&design, &mut *workload(spec), Fidelity::Full);
    design.core.groups = vec![group("one", 1), group("three", 3)];
    let grouped = run(&design, &mut *workload(spec), Fidelity::Full);
    assert_eq!(plain.cycles, grouped.cycles);
    let rest = grouped.stats.iter().filter(|(name, _)| !name.starts_with("core.group."));
    assert!(plain.stats.iter().eq(rest));
    let sum: u64 = ["one", "three"].map(|name| of_group(&grouped, name).1).iter().sum();
    assert_eq!(sum, plain.instructions);
}

fn resolve(sets: &[(&str, &str)]) -> Result<Design, String> {
    let sets: Vec<_> = sets.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let resolved = Library::embedded().design("native-4k", Some("vbi-table1"), &sets);
    resolved.map(|resolved| resolved.design).map_err(|error| error.to_string())
}

#[test]
fn groups_of_a_design_file() {
    let groups = "[{ name = \"big\", count = 4 }, { name = \"little\", count = 4, model = \"in-order\", \
                  frequency = \"1.5 GHz\", dispatch_width = 2, base_cpi = 0.5 }]";
    let design = resolve(&[("core.groups", groups), ("core.groups.little.model.loads", "3")]).unwrap();
    assert_eq!((design.core.count, design.core.groups.len()), (8, 2));
    let each = design.core.each();
    assert_eq!(each.len(), 8);
    assert_eq!((&each[3].model, each[3].frequency), (&ModelParameters::default(), design.core.frequency));
    assert_eq!((&each[4].model, each[4].frequency), (&in_order(3), Frequency(1.5e9)));
    assert_eq!((each[4].dispatch_width, each[4].store_buffer), (2, design.core.store_buffer));
    // In either order, a group's model is set within the list of groups.
    let model = ("core.groups.little.model.kind", "interval");
    for sets in [[("core.groups", groups), model], [model, ("core.groups", groups)]] {
        assert_eq!(resolve(&sets).unwrap().core.each()[4].model, ModelParameters::default());
    }
}

#[test]
fn the_older_spelling_of_the_model_is_read() {
    assert_eq!(resolve(&[("core.kind", "in-order")]).unwrap().core.model, in_order(1));
    assert_eq!(resolve(&[("core.kind", "out-of-order")]).unwrap().core.model, ModelParameters::default());
    assert_eq!(resolve(&[("core.model", "in-order")]).unwrap().core.model, in_order(8));
}

#[test]
fn bad_cores_give_one_message() {
    let slow = "[{ name = \"slow\", count = 2 }]";
    for (sets, expected) in [
        (&[("core.count", "0")][..], "core.count: 0 is not between 1 and 1024"),
        (&[("core.count", "1025")], "core.count: 1025 is not between 1 and 1024"),
        (
            &[("core.groups", "[{ name = \"a\", count = 1000 }, { name = \"b\", count = 25 }]")],
            "core.count: 1025 is not between 1 and 1024",
        ),
        (
            &[("core.groups", "[{ name = \"a\", count = 0 }]")],
            "core.groups.a.count: 0 is not between 1 and 1024",
        ),
        (
            &[("core.groups", "[{ name = \"a\", count = 1 }, { name = \"a\", count = 2 }]")],
            "there is another group of cores named \"a\"",
        ),
        (
            &[("core.groups", "[{ name = \"Big\", count = 1 }]")],
            "\"Big\" is not a name of small letters, digits, - and _ (nor fastest, slowest)",
        ),
        (
            &[("core.groups", "[{ name = \"a\", count = 1, width = 4 }]")],
            "unknown key \"core.groups.a.width\"",
        ),
        (&[("core.groups", "[{ name = \"a\" }]")], "core.groups.a.count is missing"),
        (
            &[("core.groups", slow), ("core.groups.slow.base_cpi", "0.1")],
            "core.groups.slow.base_cpi: 0.1 is below 0.25, which is 1 / dispatch_width",
        ),
        (
            &[("core.groups", slow), ("core.count", "4")],
            "core.count: the groups of cores say how many there are; set core.groups.NAME.count",
        ),
        (
            &[("core.model", "in-ordre")],
            "core.model.kind: \"in-ordre\" is not valid; did you mean \"in-order\"?",
        ),
        (&[("core.model.loads", "4")], "unknown key"),
        (
            &[("core.model", "in-order"), ("core.model.loads", "0")],
            "core.model.loads: 0 is not between 1 and 256",
        ),
    ] {
        let error = resolve(sets).unwrap_err();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}\n{expected}");
    }
}

#[test]
fn the_in_order_design_stands_on_every_machine() {
    let library = Library::embedded();
    for machine in library.machine_names() {
        let design = library.design("in-order", Some(&machine.name), &[]).unwrap().design;
        assert_eq!(design.core.model, in_order(8));
        let plain = library.design("native-4k", Some(&machine.name), &[]).unwrap().design;
        assert_eq!(plain.core.model, ModelParameters::default(), "{}", machine.name);
    }
    let spec = "gups,bytes=16 MiB,updates=2e4";
    let cycles = ["native-4k", "in-order"]
        .map(|name| run(&design(name, "vbi-table1", &[]), &mut *workload(spec), Fidelity::Full).cycles);
    assert!(cycles[1] > cycles[0], "{cycles:?}");
}

/// Cycles of two hardware threads that load `lines` lines each, over and over, from places of their own.
fn side_by_side(design: &Design, lines: u64, rounds: u64) -> Outcome {
    let mut program = Program::new();
    program.map(DATA, 4 * MIB);
    program.on(1).spawn(0, 1, None);
    for line in (0..rounds * lines).map(|at| at % lines) {
        for (stream, place) in [(0, 0), (1, 2 * MIB)] {
            program.on(stream).access(DATA + place + 64 * line, 8, AccessKind::Read, 0, 4);
        }
    }
    program.run(design, Fidelity::Full)
}

#[test]
fn hardware_threads_of_a_core_share_its_caches_and_its_miss_registers() {
    let machine = |threads: u32, outstanding: u32| {
        let mut design = round(ModelParameters::default());
        design.core.count = 2;
        design.core.threads = threads;
        design.cache.l1.outstanding = outstanding;
        design
    };
    // Level 1 has 64 lines. Each thread's 48 fit; the 96 of both together do not, and LRU then keeps none of them.
    let misses = |design: &Design| {
        let until = |rounds| count(&side_by_side(design, 48, rounds), "cache.l1.miss");
        until(20) - until(10)
    };
    assert_eq!(misses(&machine(1, 32)), 0);
    // Nearly every time: where one thread is ahead of the other for a while, some of its lines stay.
    let both = misses(&machine(2, 32));
    assert!((864..=960).contains(&both), "{both} of 960");
    // 1024 lines of each thread are in the last level alone. With two registers, two misses are under way in all, not two
    // each.
    let time = |design: &Design| {
        let until = |rounds| side_by_side(design, 1024, rounds).cycles;
        (until(8) - until(3)) as f64
    };
    let alone = time(&machine(1, 2));
    let ratio = time(&machine(2, 2)) / alone;
    assert!((1.95..2.05).contains(&ratio), "{ratio}");
    let ratio = time(&machine(2, 4)) / alone;
    assert!((0.95..1.05).contains(&ratio), "{ratio}");
    // With two for each thread, none has the four of its core to itself, and three of a core are shared by both.
    let limited = |outstanding: u32| {
        let mut design = machine(2, outstanding);
        design.core.outstanding = Some(2);
        design
    };
    for (outstanding, expected) in [(2, 2.0), (3, 4.0 / 3.0), (4, 1.0), (8, 1.0)] {
        let ratio = time(&limited(outstanding)) / alone;
        assert!((0.95..1.05).contains(&(ratio / expected)), "{outstanding}: {ratio}");
    }
}

#[test]
fn hardware_threads_that_make_no_whole_cores_are_refused() {
    for (sets, because) in [
        ([("core.count", "6"), ("core.threads", "3")], "3 is not a power of two"),
        (
            [("core.count", "3"), ("core.threads", "2")],
            "3 hardware threads are no whole number of cores with 2 each",
        ),
        (
            [("core.threads", "2"), ("translation.coherence", "hatric")],
            "the directory of coherence \"hatric\"",
        ),
    ] {
        let sets = sets.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let error =
            Library::embedded().design("native-4k", Some("skylake-6140"), &sets).unwrap_err().to_string();
        assert!(error.contains("core.threads") && error.contains(because), "{error}");
    }
}
