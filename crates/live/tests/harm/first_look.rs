//! The first looks at processes: what memory is shown of them, and what is said where none may be looked into.

use super::chaos::engine;
use super::*;
use terrace_live::status::{Board, Heading, Reporter};
use terrace_live::targets::{FirstLook, first_look, nothing_managed};

/// Asks for nothing, and comes back so many seconds later, if ever.
struct Seldom(Option<u64>);

impl Policy for Seldom {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn on(&mut self, now: Moment, _: &[Signal], _: &mut dyn MemorySystem) -> NextTick {
        self.0.map_or(NextTick::Never, |seconds| NextTick::At(Moment(now.0 + seconds * 1_000_000_000)))
    }
}

/// Pages of the targets and of all tiers, as `terrace top` shows them after so long.
fn shown(
    engine: &mut Engine,
    reporter: &mut Reporter,
    kernel: &Simulated,
    milliseconds: u64,
) -> Option<(u64, u64)> {
    let end = kernel.now() + Duration::from_millis(milliseconds);
    let mut last = None;
    while kernel.now() < end {
        let LoopControl::Sleep(rest) = engine.turn() else { panic!("the target runs") };
        if let Some(status) = reporter.turn(engine) {
            let of_processes = status.processes.iter().flat_map(|process| process.bytes.values());
            let of_tiers = status.tiers.iter().map(|tier| tier.used);
            last = Some((of_processes.sum::<u64>() >> 12, of_tiers.sum::<u64>() >> 12));
        }
        kernel.pass(rest.max(Duration::from_millis(1)));
    }
    last
}

/// A program has touched a page when its process joins, and 109 MiB a moment later.
#[test]
fn what_a_process_touches_when_it_has_joined_shows_within_two_seconds() {
    const NEW: u64 = (109 << 20) / 4096;
    for period in [None, Some(30)] {
        let kernel = two_nodes(100_000, 100_000, 1);
        let touch = |pages: u64| {
            let mut machine = kernel.machine();
            let pid = *machine.processes.keys().next().unwrap();
            let first = machine.map(pid, pages);
            machine.fill(pid, first..first + pages, PageSize::Base, 0);
        };
        kernel.machine().start(1);
        touch(1);
        let mut engine = engine(&kernel, Box::new(Seldom(period)), world(&kernel, &[]), None);
        let mut reporter = Reporter::with(Heading::default(), Board::default());
        assert_eq!(shown(&mut engine, &mut reporter, &kernel, 100), Some((1, 1)));
        touch(NEW);
        assert_eq!(shown(&mut engine, &mut reporter, &kernel, 2200), Some((1 + NEW, 1 + NEW)), "{period:?}");
        // Later it shows when the policy looks, or by itself after five seconds.
        shown(&mut engine, &mut reporter, &kernel, 40_000);
        touch(NEW);
        let next_look = 1000 * period.unwrap_or(5) + 1200;
        let all = 1 + 2 * NEW;
        assert_eq!(shown(&mut engine, &mut reporter, &kernel, next_look), Some((all, all)), "{period:?}");
    }
}

/// A machine with two processes, the second a child of the first; these may not be looked into.
fn looked_at(selection: impl Fn(u32) -> Selection, hidden: &[usize]) -> (FirstLook, String) {
    let kernel = two_nodes(1000, 1000, 1);
    let pids = {
        let mut machine = kernel.machine();
        let first = machine.start(1);
        let pids = [first, machine.start(first)];
        for pid in pids {
            let start = machine.map(pid, 10);
            machine.fill(pid, start..start + 10, PageSize::Base, 0);
        }
        machine.hidden.extend(hidden.iter().map(|at| pids[*at]));
        pids
    };
    let selection = selection(pids[0]);
    let targets = Targets::new(selection.clone(), std::process::id());
    let world = world(&kernel, &[]);
    let mut engine =
        Engine::new(world, Box::new(Seldom(None)), targets, None, Limits::default(), "/none".into());
    engine.turn();
    (first_look(&selection, &engine), nothing_managed(&kernel, &selection))
}

#[test]
fn where_no_process_may_be_looked_into_the_first_look_says_so() {
    let process = |pid| Selection::Processes(vec![pid]);
    let tree = |pid| Selection::Trees(vec![pid]);
    for (look, why) in [looked_at(process, &[0]), looked_at(tree, &[0, 1])] {
        assert_eq!(look, FirstLook::Nothing);
        let help = if terrace_live::folder::user() == 0 { "CAP_SYS_PTRACE" } else { "needs root" };
        assert!(why.contains("could be looked into") && why.contains(help), "{why}");
    }
    assert_eq!(looked_at(process, &[]).0, FirstLook::Managed);
    assert_eq!(looked_at(process, &[1]).0, FirstLook::Managed, "the child is no target");
    assert_eq!(looked_at(tree, &[]).0, FirstLook::Managed);
    let FirstLook::Warning(warning) = looked_at(tree, &[1]).0 else { panic!("one of two is managed") };
    assert!(warning.starts_with("1 of 2 processes may not be looked into"), "{warning}");
}

#[test]
fn a_cgroup_without_processes_is_waited_for_and_one_of_others_is_not() {
    let folder = "/sys/fs/cgroup/app";
    let look = |members: fn(u32) -> String, hidden: bool| {
        let kernel = two_nodes(1000, 1000, 1);
        let pid = kernel.machine().start(1);
        {
            let mut machine = kernel.machine();
            machine.hidden.extend(hidden.then_some(pid));
            machine.files.set(format!("{folder}/cgroup.procs"), members(pid));
        }
        let selection = Selection::Cgroup(folder.into());
        let targets = Targets::new(selection.clone(), std::process::id());
        let world = world(&kernel, &[]);
        let mut engine =
            Engine::new(world, Box::new(Seldom(None)), targets, None, Limits::default(), "/none".into());
        assert!(matches!(engine.turn(), LoopControl::Sleep(_)));
        first_look(&selection, &engine)
    };
    let FirstLook::Warning(warning) = look(|_| String::new(), false) else { panic!("others may come") };
    assert!(warning.contains("no process yet"), "{warning}");
    assert_eq!(look(|pid| format!("{pid}\n"), true), FirstLook::Nothing);
    assert_eq!(look(|pid| format!("{pid}\n"), false), FirstLook::Managed);
}
