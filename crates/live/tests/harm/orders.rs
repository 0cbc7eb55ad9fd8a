//! Single orders, and what may become of them.

use super::chaos::{Shared, any_machine, engine, none_in_flight};
use super::*;

#[test]
fn a_page_that_is_refused_keeps_no_other_from_moving() {
    let (kernel, mut world, fast, _) = halves([1000, 1000], 8, &[]);
    kernel.plan(Plan { attempt: Some(3), ..Plan::default() });
    world.migrate(&moves(fast, 8, SLOW), all_at_once());
    let outcomes = work_off(&mut world);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::Done).count(), 7, "{outcomes:?}");
    assert_ne!(outcomes[3], Outcome::Done);
    // Without a look: what moved is known from the answers.
    agrees(&mut world, &kernel);
}

#[test]
fn what_exceeds_the_room_is_answered_so() {
    // The limit leaves room for five of eight.
    let (kernel, mut world, _, slow) = halves([1000, 1000], 8, &[("dram", 13)]);
    world.migrate(&moves(slow, 8, FAST), all_at_once());
    let outcomes = work_off(&mut world);
    assert_eq!(outcomes[..5], [Outcome::Done; 5]);
    assert_eq!(outcomes[5..], [Outcome::NoSpace; 3]);
    assert_eq!(world.topology().tier(FAST).used, Bytes(13 << 12));
    agrees(&mut world, &kernel);
}

#[test]
fn a_limit_holds_over_many_batches() {
    let (kernel, mut world, _, slow) = halves([5000, 5000], 2000, &[("dram", 2600)]);
    world.migrate(&moves(slow, 2000, FAST), all_at_once());
    let done = work_off(&mut world).iter().filter(|outcome| **outcome == Outcome::Done).count();
    assert_eq!(done, 600);
    assert_eq!(kernel.machine().used(Place::Node(0)), 2600);
}

#[test]
fn a_page_ordered_twice_counts_once() {
    let (kernel, mut world, fast, slow) = halves([1000, 1000], 8, &[("dram", 9), ("slow", 9)]);
    let twice = [slow, slow, slow.plus(1), fast].map(|page| Move { page, to: FAST });
    world.migrate(&twice, all_at_once());
    use Outcome::{Busy, Done, NoSpace};
    assert_eq!(work_off(&mut world), [Done, Busy, NoSpace, Done]);
    assert_eq!(kernel.machine().used(Place::Node(0)), 9);
    agrees(&mut world, &kernel);
}

#[test]
fn moves_both_ways_get_on_where_one_side_is_full() {
    let (kernel, mut world, fast, slow) = halves([1000, 1000], 40, &[("dram", 40)]);
    let both: Vec<Move> = moves(slow, 40, FAST).into_iter().chain(moves(fast, 40, SLOW)).collect();
    world.migrate(&both, all_at_once());
    assert_eq!(work_off(&mut world), [Outcome::Done; 80]);
    assert_eq!(kernel.machine().used(Place::Node(0)), 40);
    agrees(&mut world, &kernel);
}

#[test]
fn an_exchange_gets_on_with_room_for_one_page() {
    // 39 of 40 pages of each node are taken.
    for spare in [[1, 1], [0, 1], [1, 0]] {
        let (kernel, mut world, fast, slow) = halves(spare.map(|spare| 300 + spare), 300, &[]);
        let pairs: Vec<Exchange> =
            (0..300).map(|at| Exchange { one: fast.plus(at), other: slow.plus(at) }).collect();
        world.exchange(&pairs, all_at_once());
        assert_eq!(work_off(&mut world), [Outcome::Done; 300], "{spare:?}");
        assert_eq!(world.counters().exchanged, 300);
        let machine = kernel.machine();
        for at in 0..300 {
            let pid = *machine.processes.keys().next().unwrap();
            assert_eq!(machine.page(pid, fast.vpn + at).unwrap().1.place, Place::Node(1));
            assert_eq!(machine.page(pid, slow.vpn + at).unwrap().1.place, Place::Node(0));
        }
    }
}

#[test]
fn without_any_room_an_exchange_says_so_and_changes_nothing() {
    let (kernel, mut world, fast, slow) = halves([300, 300], 300, &[]);
    let pairs: Vec<Exchange> =
        (0..3).map(|at| Exchange { one: fast.plus(at), other: slow.plus(at) }).collect();
    world.exchange(&pairs, all_at_once());
    assert_eq!(work_off(&mut world), [Outcome::NoSpace; 3]);
    agrees(&mut world, &kernel);
}

#[test]
fn an_exchange_changes_both_or_none() {
    for attempt in 0..12 {
        for huge in [HugePages::Whole, HugePages::SplitFirst] {
            let (kernel, mut world, fast, slow) = halves([1000, 1000], 4, &[]);
            kernel.plan(Plan { attempt: Some(attempt), ..Plan::default() });
            let pairs: Vec<Exchange> =
                (0..4).map(|at| Exchange { one: fast.plus(at), other: slow.plus(at) }).collect();
            world.exchange(&pairs, MoveOptions { huge, ..all_at_once() });
            let outcomes = work_off(&mut world);
            let pid = *kernel.machine().processes.keys().next().unwrap();
            for (at, outcome) in outcomes.iter().enumerate() {
                let place =
                    |first: PageId| kernel.machine().page(pid, first.vpn + at as u64).unwrap().1.place;
                let expected = if *outcome == Outcome::Done { [1, 0] } else { [0, 1] };
                assert_eq!([place(fast), place(slow)], expected.map(Place::Node), "{attempt}: {outcomes:?}");
            }
            agrees(&mut world, &kernel);
        }
    }
}

#[test]
fn a_huge_page_that_is_split_and_goes_only_in_part_comes_back_in_an_exchange() {
    let kernel = two_nodes(4000, 4000, 1);
    let pid = kernel.machine().start(1);
    let heads = [0, 1].map(|node| {
        let mut machine = kernel.machine();
        let head = machine.map(pid, 512);
        machine.fill(pid, head..head + 512, PageSize::Huge, node);
        head
    });
    let mut world = world(&kernel, &[]);
    let space = world.adopt(pid).unwrap();
    // In the middle of the second page's way.
    kernel.plan(Plan { attempt: Some(700), ..Plan::default() });
    let [one, other] = heads.map(|vpn| PageId { space, vpn });
    let split = MoveOptions { huge: HugePages::SplitFirst, ..all_at_once() };
    world.exchange(&[Exchange { one, other }], split);
    assert_ne!(work_off(&mut world), [Outcome::Done]);
    kernel.plan(Plan::default());
    for (node, head) in heads.into_iter().enumerate() {
        let pages = kernel.machine().pages_in(pid, head..head + 512);
        assert_eq!(pages.len(), 512);
        assert!(pages.iter().all(|(_, page)| page.place == Place::Node(node)));
    }
    settle(&mut world, &kernel);
    world.migrate(&[Move { page: one, to: SLOW }], all_at_once());
    work_off(&mut world);
    none_in_flight(&mut world);
}

#[test]
fn a_process_that_ends_between_order_and_move_is_gone() {
    let (kernel, mut world, fast, _) = halves([1000, 1000], 8, &[]);
    world.migrate(&moves(fast, 8, SLOW), all_at_once());
    let pid = *kernel.machine().processes.keys().next().unwrap();
    kernel.machine().end(pid);
    assert_eq!(work_off(&mut world), [Outcome::Gone; 8]);
    world.refresh();
    assert_eq!(world.spaces().count(), 0);
}

#[test]
fn advice_that_one_page_refuses_reaches_the_others() {
    let kernel = with_swap(100_000, 100_000, 1);
    let (pid, first) = {
        let mut machine = kernel.machine();
        let pid = machine.start(1);
        let first = machine.map(pid, 64);
        machine.fill(pid, first..first + 64, PageSize::Base, 0);
        (pid, first)
    };
    let mut world = world(&kernel, &[]);
    let space = world.adopt(pid).unwrap();
    // Every second page, so that each is a range of its own; the first half of the memory is unmapped meanwhile.
    let order: Vec<Move> =
        (0..32).map(|at| Move { page: PageId { space, vpn: first + at * 2 }, to: SLOW }).collect();
    world.migrate(&order, all_at_once());
    {
        let mut machine = kernel.machine();
        let program = machine.processes.get_mut(&pid).unwrap();
        let area = program.areas.remove(&first).unwrap();
        program.areas.insert(first + 32, area);
        program.pages.retain(|vpn, _| *vpn >= first + 32);
    }
    let outcomes = work_off(&mut world);
    let out = kernel.machine().used(Place::Swap);
    // One in ten is passed over.
    assert!((8..=16).contains(&out), "{out}");
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::Done).count() as u64, out);
    settle(&mut world, &kernel);
}

#[test]
fn a_target_that_cannot_be_read_just_now_has_not_ended() {
    let kernel = any_machine(1, false);
    let pids: Vec<u32> = kernel.machine().processes.keys().copied().collect();
    for selection in [Selection::Trees(pids.clone()), Selection::Processes(pids.clone())] {
        let mut targets = Targets::new(selection, 0);
        // Every file fails one time in four, and the list of processes likewise.
        kernel.plan(Plan { call: 1, ..Plan::default() });
        for _ in 0..100 {
            assert_eq!(targets.now(&kernel).unwrap(), pids);
        }
        kernel.plan(Plan::default());
    }
}

#[test]
fn targets_that_end_before_the_first_look_end_the_engine() {
    let kernel = any_machine(1, false);
    let world = world(&kernel, &[]);
    let mut engine = engine(&kernel, Box::new(Shared(Arc::default())), world, None);
    kernel.machine().processes.clear();
    assert_eq!(engine.turn(), LoopControl::Exit);
}

// --- Whatever is ordered ---

/// What is logged meanwhile.
fn logged(work: impl FnOnce()) -> String {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .without_time()
        .with_target(false)
        .with_level(false)
        .with_ansi(false)
        .finish();
    tracing::subscriber::with_default(subscriber, work);
    let text = log.0.lock().unwrap().clone();
    String::from_utf8(text).unwrap()
}

fn dry_world(kernel: &Simulated) -> World {
    let facts = Facts::discover(kernel);
    let options = world::Options { dry_run: true, workers: 1, ..world::Options::default() };
    World::new(Arc::new(kernel.clone()), facts.tiers.clone(), facts.capabilities(), &options).unwrap()
}

#[test]
fn a_dry_run_says_which_pages_would_be_joined_and_joins_none() {
    let (kernel, ..) = halves([2000, 2000], 8, &[]);
    let pid = *kernel.machine().processes.keys().next().unwrap();
    let first = {
        let mut machine = kernel.machine();
        let first = machine.map(pid, 1024);
        machine.fill(pid, first..first + 512, PageSize::Base, 0);
        machine.fill(pid, first + 512..first + 800, PageSize::Base, 0);
        first
    };
    let mut world = dry_world(&kernel);
    let space = world.adopt(pid).unwrap();
    let text = logged(|| {
        for vpn in [first, first + 512] {
            world.resize(&[Resize { page: PageId { space, vpn }, to: PageSize::Huge }]);
        }
        work_off(&mut world);
    });
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let whose = format!("of program {pid} ({pid})");
    let expected = [
        format!("would become 1 page of 2m: 512 pages of 4k (2 MiB) at {:#x} {whose}", first << 12),
        format!(
            "would become 1 page of 2m: 288 pages of 4k (1152 KiB) at {:#x} {whose}",
            (first + 512) << 12
        ),
    ];
    assert_eq!(lines, expected);
    assert_eq!((world.counters().planned, world.counters().collapsed), (2, 0));
    assert_eq!(world.page(PageId { space, vpn: first }).unwrap().size, PageSize::Base);
}

#[test]
fn a_dry_run_s_statistics_say_that_they_are_of_plans() {
    let (kernel, _, page, _) = halves([1000, 1000], 8, &[]);
    let turns = |world: World| {
        let mut engine = engine(&kernel, Box::new(super::chaos::ToAndFro::new(page)), world, None);
        for _ in 0..20 {
            let LoopControl::Sleep(rest) = engine.turn() else { panic!("the target runs") };
            kernel.pass(rest.max(Duration::from_millis(5)));
        }
        engine.statistics()
    };
    let (stats, notes) = turns(dry_world(&kernel));
    let planned = stats.integer("live.planned");
    assert!(planned > 0);
    let expected = format!("dry run: {planned} pieces of orders were not carried out");
    assert!(notes.iter().any(|note| note.starts_with(&expected)), "{notes:?}");
    assert!(turns(world(&kernel, &[])).1.iter().all(|note| !note.contains("dry run")));
}

#[test]
fn a_dry_run_says_which_pages_would_go_where_and_moves_none() {
    let (kernel, _, fast, slow) = halves([1000, 1000], 8, &[]);
    let mut world = dry_world(&kernel);
    let pid = *kernel.machine().processes.keys().next().unwrap();
    let space = world.adopt(pid).unwrap();
    assert_eq!(space, fast.space);
    let text = logged(|| {
        world.migrate(&moves(slow, 3, FAST), all_at_once());
        world.migrate(&moves(fast, 1, SLOW), all_at_once());
        world.exchange(&[Exchange { one: fast.plus(4), other: slow.plus(4) }], all_at_once());
        work_off(&mut world);
    });
    let name = format!("program {pid}");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let address = |page: PageId, at: u64| (page.vpn + at) << 12;
    let expected = [
        format!(
            "would promote from slow to dram: 3 pages of 4k (12 KiB) at {:#x} of {name} ({pid})",
            address(slow, 0)
        ),
        format!(
            "would demote from dram to slow: 1 page of 4k (4 KiB) at {:#x} of {name} ({pid})",
            address(fast, 0)
        ),
        format!(
            "would demote from dram to slow in exchange: 1 page of 4k (4 KiB) at {:#x} of {name} ({pid})",
            address(fast, 4)
        ),
        format!(
            "would promote from slow to dram in exchange: 1 page of 4k (4 KiB) at {:#x} of {name} ({pid})",
            address(slow, 4)
        ),
    ];
    assert_eq!(lines, expected);
    assert_eq!(world.counters().planned, 5);
    for at in 0..8 {
        assert_eq!(kernel.machine().page(pid, fast.vpn + at).unwrap().1.place, Place::Node(0));
        assert_eq!(kernel.machine().page(pid, slow.vpn + at).unwrap().1.place, Place::Node(1));
    }
}
