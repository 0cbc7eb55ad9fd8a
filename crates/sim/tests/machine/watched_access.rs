//! One access that is watched: its steps by hand-worked examples, and that watching changes nothing.

use crate::support::*;
use terrace_sim::design::Design;
use terrace_sim::{AccessPath, Fidelity, Options, Stage};
use terrace_trace::MarkKind;

fn one_core(name: &str) -> Design {
    design(name, "vbi-table1", &[("core.count", "1")])
}

fn watched(program: &Program, design: &Design, number: u64) -> Option<AccessPath> {
    let options = Options { watch_access: Some(number), ..Options::default() };
    run_with(design, &mut program.source(), options).unwrap().access
}

/// Names of the steps, with begin and end in cycles.
fn steps(path: &AccessPath) -> Vec<(&str, u64, u64)> {
    let cycles = |time: terrace_model::Time| (time.0 + path.cycle.0 / 2) / path.cycle.0;
    path.steps.iter().map(|step| (step.name.as_str(), cycles(step.begin), cycles(step.end))).collect()
}

fn names(path: &AccessPath) -> Vec<&str> {
    path.steps.iter().map(|step| step.name.as_str()).collect()
}

#[test]
fn watching_changes_nothing() {
    let mut program = Program::new();
    program.map(DATA, 16 * MIB);
    let mut random = Random(3);
    for at in 0..3000 {
        program.write(DATA + random.below(MIB / 4) * 64).chase(DATA + random.below(MIB / 4) * 64 + 8);
        if at == 1000 {
            program.mark(MarkKind::RegionBegin);
        }
    }
    for name in [
        "native-4k",
        "native-2m",
        "perfect-tlb",
        "vivt",
        "enigma-2m",
        "vbi-1",
        "vbi-2",
        "vbi-full",
        "virtual-4k",
    ] {
        let design = one_core(name);
        let run = |watch_access| {
            let options = Options { watch_access, ..Options::default() };
            run_with(&design, &mut program.source(), options).unwrap()
        };
        let alone = run(None);
        assert!(alone.access.is_none());
        for number in [1, 1001, 3998] {
            let mut watched = run(Some(number));
            let path = watched.access.take().unwrap_or_else(|| panic!("{name}: access {number}"));
            assert_eq!(path.write, number % 2 == 1, "{name}");
            assert!(path.steps.iter().all(|step| step.begin <= step.end), "{name}: {path:?}");
            let last = path.steps.iter().map(|step| step.end).max().unwrap();
            assert_eq!(last, path.done, "{name}: {path:?}");
            assert_eq!(watched, alone, "{name}");
        }
        assert!(run(Some(3999)).access.is_none(), "{name}: the region of interest has 3998");
    }
}

#[test]
fn a_page_that_is_known_takes_no_walk_and_a_new_one_takes_a_fault() {
    let mut program = Program::new();
    program.map(DATA, 64 * KIB).write(DATA).chase(DATA + 8).write(DATA + 4096);
    let design = one_core("native-4k");
    let first = watched(&program, &design, 1).unwrap();
    assert_eq!(names(&first)[0], "page fault");
    assert!(names(&first).contains(&"TLBs: miss") && first.steps[0].stage == Stage::Kernel, "{first:?}");
    assert_eq!(steps(&watched(&program, &design, 2).unwrap()), [("L1 TLB: hit", 0, 0), ("L1: hit", 0, 4)]);
}

#[test]
fn blocks_without_memory_are_answered_by_the_controller() {
    let mut program = Program::new();
    program.map(DATA, 64 * KIB).chase(DATA).chase(DATA + 64).chase(DATA + 64);
    let first = watched(&program, &one_core("vbi-2"), 1).unwrap();
    assert_eq!(names(&first)[0], "table of blocks (CVT), from memory");
    // The second one finds what the first has brought in. The controller begins beside the last level.
    let expected = [
        ("table of blocks (CVT), cached", 0, 0),
        ("L1: miss", 0, 4),
        ("L2: miss", 4, 8),
        ("the block's entry (VIT), cached", 8, 8),
        ("no memory yet", 8, 8),
        ("last level: miss", 8, 31),
        ("zeros, from the controller", 31, 31),
    ];
    assert_eq!(steps(&watched(&program, &one_core("vbi-2"), 2).unwrap()), expected);
    let third = watched(&program, &one_core("vbi-2"), 3).unwrap();
    assert_eq!(steps(&third), [("table of blocks (CVT), cached", 0, 0), ("L1: hit", 0, 4)]);
}

#[test]
fn a_walk_shows_each_reference_and_where_it_came_from() {
    // Pages that lie 2 MiB apart have level-1 tables of their own, all of whose entries leave L1 and L2.
    let mut program = Program::new();
    program.map(DATA, 8 * GIB);
    for round in 0..2 {
        for page in 0..4096 {
            program.chase(DATA + 2 * MIB * page % (8 * GIB) + round * 64);
        }
    }
    let design = one_core("native-4k");
    let path = watched(&program, &design, 4096 + 10).unwrap();
    let walk: Vec<&str> = names(&path).into_iter().filter(|name| name.starts_with("level ")).collect();
    assert_eq!(walk.len(), 2, "the page-walk cache knows level 3: {path:?}");
    assert!(walk[0].starts_with("level 2, from ") && walk[1].starts_with("level 1, from "), "{walk:?}");
    // One waits for the other.
    let ends: Vec<_> = steps(&path).into_iter().filter(|(name, ..)| name.starts_with("level ")).collect();
    assert_eq!(ends[0].2, ends[1].1);
    // Without a virtual machine's second dimension there are no entries of a host, with it there are.
    assert!(!names(&path).iter().any(|name| name.starts_with("host")), "{path:?}");
    let guest = watched(&program, &one_core("virtual-4k"), 4096 + 10).unwrap();
    assert!(names(&guest).iter().any(|name| name.starts_with("host, level 1")), "{guest:?}");
    assert!(names(&guest).iter().any(|name| name.starts_with("guest, level 1")), "{guest:?}");
}

#[test]
fn other_fidelities_have_no_steps() {
    let program = Program::new();
    for fidelity in [Fidelity::Translation, Fidelity::Pages] {
        let options = Options { fidelity, watch_access: Some(1), ..Options::default() };
        let error = run_with(&one_core("native-4k"), &mut program.source(), options).unwrap_err().to_string();
        assert!(error.contains("--fidelity full"), "{error}");
    }
}
