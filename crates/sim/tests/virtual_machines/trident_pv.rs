//! Trident^PV by hand: a guest's pages change places in the hypervisor's table, what that costs, what is refused, and what
//! walks of the new page take.

use crate::support::probe::{in_guest, on_host, shared};
use crate::support::*;
use std::num::NonZeroU16;
use terrace_model::{Bytes, Frame, PageSize, TierId, Time};
use terrace_policy::{
    CopyBy, MemorySystem, Moment, Move, MoveOptions, NextTick, PageId, Relocate, Resize, Signal, SignalSet,
    Watch,
};
use terrace_sim::design::{Design, GuestTierParameters, HostParameters, NestedParameters, VmParameters};
use terrace_sim::{Fidelity, Options, Outcome};
use terrace_trace::Event;

const HUGE: u64 = 2 * MIB;
const MILLISECOND: u64 = 1_000_000;

/// A guest of 5 GiB with pages of 2 MiB on a host with pages of this size, neither nested TLB nor page-walk cache.
fn guest_on(host: PageSize) -> Design {
    let mut design = with_pages(small(), only(PageSize::Huge));
    design.os.reserved = Bytes(0);
    design.tiers[0].capacity = Bytes::gib(8);
    let mut tlb = design.translation.page_walk_cache.clone();
    tlb.entries = 0;
    design.translation.nested = Some(NestedParameters { tlb, ..NestedParameters::default() });
    let memory = Some(Bytes::gib(5));
    design.vm = Some(VmParameters { memory, preallocated: true, ..VmParameters::default() });
    design.host = Some(HostParameters { pages: only(host), ..HostParameters::default() });
    design
}

/// Touches the 512 pages of 2 MiB of 1 GiB, the last one first, so that they do not lie in one block; computes for a second;
/// then reads in so many of them.
fn giant(reads: u64) -> Program {
    let mut program = Program::new();
    program.map(DATA, GIB);
    (0..512).rev().for_each(|page| _ = program.write(DATA + page * HUGE));
    (0..10).for_each(|_| _ = program.event(Event::Compute { instructions: 400_000_000 }));
    (0..reads).for_each(|page| _ = program.read(DATA + page * HUGE));
    program
}

type Give = Box<dyn FnMut(&mut dyn MemorySystem) + Send>;

/// Options with policies that do each step at its time, in milliseconds, in the guest and in the hypervisor.
fn steps(guest: Vec<(u64, Give)>, host: Vec<(u64, Give)>) -> (Options, Signals) {
    let (log, signals) = shared(Vec::new());
    let on = |steps: Vec<(u64, Give)>, log: Signals| {
        let mut steps = steps.into_iter().peekable();
        move |now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem| {
            log.lock().unwrap().extend(signals.iter().filter(|signal| matches!(signal, Signal::Done { .. })));
            while let Some((_, mut step)) = steps.next_if(|(at, _)| at * MILLISECOND <= now.0) {
                step(memory);
            }
            steps.peek().map_or(NextTick::Never, |(at, _)| NextTick::At(Moment(at * MILLISECOND)))
        }
    };
    let options = on_host(SignalSet::NONE, on(host, Signals::default()));
    let options = in_guest(options, SignalSet::NONE, on(guest, log));
    (Options { fidelity: Fidelity::Translation, ..options }, signals)
}

type Signals = std::sync::Arc<std::sync::Mutex<Vec<Signal>>>;

fn run_steps(
    program: &Program,
    design: &Design,
    (options, signals): (Options, Signals),
) -> (Outcome, Vec<Signal>) {
    let outcome = run_with(design, &mut program.source(), options).unwrap();
    let signals = signals.lock().unwrap().clone();
    (outcome, signals)
}

fn by_mapping(pairs: u16) -> CopyBy {
    CopyBy::Mapping(NonZeroU16::new(pairs).unwrap())
}

fn page(n: u64) -> PageId {
    PageId::new(0, (DATA + n * HUGE) >> 12)
}

/// Joins the 1 GiB.
fn join(copy: CopyBy) -> Give {
    Box::new(move |memory| {
        memory.resize_by(&[Resize { page: page(0), to: PageSize::Giant }], copy);
    })
}

/// The one order, if it was carried out: the time it took and the bytes it copied.
fn cost(signals: &[Signal]) -> (Time, u64) {
    let [Signal::Done { outcome: terrace_policy::Outcome::Done, cost, .. }] = signals else {
        panic!("{signals:?}")
    };
    (cost.time, cost.copied)
}

fn hypercalls(outcome: &Outcome) -> [u64; 3] {
    counts(outcome, ["host.vm_exits.hypercall", "host.hypercalls.exchanged", "host.hypercalls.refused"])
}

fn milliseconds(time: Time) -> f64 {
    time.as_nanos() / 1e6
}

#[test]
fn a_promotion_without_a_copy_costs_the_sum_of_its_parts() {
    let mut design = guest_on(PageSize::Huge);
    let ns = Time::from_nanos;
    design.core.count = 1;
    design.os.costs.scan_entry = ns(20);
    design.os.costs.map = ns(700);
    (design.os.costs.shootdown, design.os.costs.shootdown_per_core) = (ns(1000), ns(100));
    let exit = (1300.0 / design.core.frequency.0 * 1e9) as u64;
    for (pairs, calls) in [(512, 1), (100, 6), (1, 512)] {
        let (outcome, signals) =
            run_steps(&giant(0), &design, steps(vec![(300, join(by_mapping(pairs)))], vec![]));
        assert_eq!(hypercalls(&outcome), [calls, 512, 0], "{pairs}");
        assert_eq!(cost(&signals).1, 0, "nothing is copied");
        // A call is 300 ns; a pair two entries looked at and two pages mapped; a flush the interrupt and the exit of the one
        // core that runs the guest.
        let expected = calls * 300 + 512 * (2 * 20 + 2 * 700) + calls * (1000 + 100 + exit);
        let found = count(&outcome, "host.hypercalls.time");
        assert!(found.abs_diff(expected) <= calls, "{pairs}: {found}, {expected} by hand");
        assert_eq!(count(&outcome, "host.shootdowns.migration.count"), calls, "one flush for each call");
        assert_eq!(count(&outcome, "host.vm_exits.interrupt"), calls, "{pairs}");
    }
    design.host.as_mut().unwrap().hypercall = ns(1300);
    let (outcome, _) = run_steps(&giant(0), &design, steps(vec![(300, join(by_mapping(512)))], vec![]));
    let expected = 1300 + 512 * (2 * 20 + 2 * 700) + (1000 + 100 + exit);
    assert!(count(&outcome, "host.hypercalls.time").abs_diff(expected) <= 1, "the key for the call");
}

/// What the source measures: a copy of 1 GiB about 600 ms, exchanged one by one less than 30 ms, in one batch about 500 us.
/// None of these is a parameter.
#[test]
fn the_three_ways_to_promote_are_orders_of_magnitude_apart() {
    let mut design = guest_on(PageSize::Huge);
    design.os.costs = crate::support::design("virtual-4k", "skylake-6140", &[]).os.costs;
    let mut times = [CopyBy::Bytes, by_mapping(1), by_mapping(512)].map(|copy| {
        let (outcome, signals) = run_steps(&giant(0), &design, steps(vec![(300, join(copy))], vec![]));
        let (time, copied) = cost(&signals);
        assert_eq!(copied, if copy == CopyBy::Bytes { GIB } else { 0 });
        let hypercalls = count(&outcome, "host.hypercalls.time");
        if copy == CopyBy::Bytes { milliseconds(time) } else { hypercalls as f64 / 1e6 }
    });
    assert!((50.0..1200.0).contains(&times[0]), "{times:?}");
    assert!((1.0..30.0).contains(&times[1]), "{times:?}");
    assert!((0.25..1.0).contains(&times[2]), "{times:?}");
    times.sort_by(f64::total_cmp);
    assert!(times[2] > 20.0 * times[1] && times[1] > 2.0 * times[0], "{times:?}");
}

#[test]
fn a_page_made_without_a_copy_has_entries_of_2_mib_and_walks_of_11_until_the_host_promotes() {
    // Reading 64 of its pieces takes so many more walks, and so many more references.
    let walks = |design: &Design, host: fn() -> Vec<(u64, Give)>, copy: CopyBy| {
        let [none, some] = [0, 64].map(|reads| {
            let (outcome, signals) = run_steps(&giant(reads), design, steps(vec![(300, join(copy))], host()));
            cost(&signals);
            assert_eq!(count(&outcome, "os.resident_bytes.1g"), GIB);
            counts(&outcome, ["walk.count", "walk.memory_refs"])
        });
        [some[0] - none[0], some[1] - none[1]]
    };
    let huge = guest_on(PageSize::Huge);
    assert_eq!(walks(&huge, Vec::new, by_mapping(512)), [64, 64 * 11]);
    // A host with 1 GiB pages has them split: the guest's data lay in two, and the new place is one.
    let giant_pages = guest_on(PageSize::Giant);
    assert_eq!(walks(&giant_pages, Vec::new, by_mapping(512)), [64, 64 * 11]);
    assert_eq!(walks(&giant_pages, Vec::new, CopyBy::Bytes), [1, 8], "copied, the host's 1 GiB pages stay");
    let (outcome, _) = run_steps(&giant(0), &giant_pages, steps(vec![(300, join(by_mapping(512)))], vec![]));
    assert_eq!(counts(&outcome, ["host.splits", "host.resident_bytes.1g"]), [3, 2 * GIB]);
    // The host's policy joins what lies behind the guest's page, at 2 GiB of the guest.
    let promote = || -> Vec<(u64, Give)> {
        let join = |memory: &mut dyn MemorySystem| {
            let page = PageId::new(0, (2 * GIB) >> 12);
            memory.resize(&[Resize { page, to: PageSize::Giant }]);
        };
        vec![(400, Box::new(join))]
    };
    // The walk's two tables stay behind 2 MiB of the host: 3 + 1 + 3 + 1 references, and 2 instead of 3 for the data.
    assert_eq!(walks(&huge, promote, by_mapping(512)), [1, 10]);
}

#[test]
fn what_the_hypervisor_refuses_is_copied() {
    let run = |design: &Design, guest: Vec<(u64, Give)>, host: Vec<(u64, Give)>| {
        let (outcome, signals) = run_steps(&giant(0), design, steps(guest, host));
        let last = signals.len() - 1;
        (hypercalls(&outcome), cost(&signals[last..]).1)
    };
    let joined = || vec![(300, join(by_mapping(512)))];
    let all = ([1, 0, 512], GIB);
    assert_eq!(run(&guest_on(PageSize::Base), joined(), vec![]), all, "pages of 4 KiB are not exchanged");
    let mut on_demand = guest_on(PageSize::Huge);
    on_demand.vm.as_mut().unwrap().preallocated = false;
    assert_eq!(run(&on_demand, joined(), vec![]), all, "nothing is mapped at the new place");
    // The host's policy watches two pages of 2 MiB at the new place, and one where the guest has nothing.
    let watch = |memory: &mut dyn MemorySystem| {
        let page = |bytes: u64| PageId::new(0, bytes >> 12);
        memory.watch(&[page(2 * GIB), page(2 * GIB + 7 * HUGE), page(4 * GIB)], Watch::Hint);
    };
    let watched = vec![(200, Box::new(watch) as Give)];
    assert_eq!(run(&guest_on(PageSize::Huge), joined(), watched), ([1, 510, 2], 2 * HUGE));
    // A page that was moved to a tier of the guest's that is bound to another of the machine's comes back by a copy.
    let tiers = |bound: bool| {
        let mut design = guest_on(PageSize::Huge);
        let mut other = design.tiers[0].clone();
        other.name = "slow".to_owned();
        design.tiers.push(other);
        let name = design.tiers[0].name.clone();
        let tier = |name: &str, gib, host: &str| GuestTierParameters {
            name: name.to_owned(),
            capacity: Bytes::gib(gib),
            host_tier: bound.then(|| host.to_owned()),
        };
        let vm = design.vm.as_mut().unwrap();
        (vm.memory, vm.tiers) = (None, vec![tier("near", 4, &name), tier("far", 1, "slow")]);
        design
    };
    let moved = || -> Vec<(u64, Give)> {
        let move_one = |memory: &mut dyn MemorySystem| {
            memory.migrate(&[Move { page: page(3), to: TierId(1) }], MoveOptions::default());
        };
        vec![(200, Box::new(move_one)), (300, join(by_mapping(512)))]
    };
    assert_eq!(run(&tiers(true), moved(), vec![]), ([1, 511, 1], HUGE));
    assert_eq!(run(&tiers(false), moved(), vec![]), ([1, 512, 0], 0));
}

#[test]
fn pages_of_2_mib_are_compacted_without_a_copy_and_smaller_ones_are_not() {
    let relocate = |program: Program, from: u64, exchange: bool, to: fn(Frame) -> Frame| {
        let give = move |memory: &mut dyn MemorySystem| {
            let from = memory.page(page(from)).unwrap().frame.unwrap();
            let how = MoveOptions { copy: by_mapping(512), ..MoveOptions::default() };
            memory.physical().unwrap().relocate(&[Relocate { from, to: to(from), exchange }], how);
        };
        move |design: &Design| {
            let (outcome, signals) = run_steps(&program, design, steps(vec![(300, Box::new(give))], vec![]));
            (hypercalls(&outcome), cost(&signals).1)
        }
    };
    let huge = guest_on(PageSize::Huge);
    let free = |_| Frame((3 * GIB) >> 12);
    assert_eq!(relocate(giant(0), 5, false, free)(&huge), ([1, 1, 0], 0), "to a free block");
    let next = |from: Frame| Frame(from.0 + 512);
    assert_eq!(relocate(giant(0), 5, true, next)(&huge), ([1, 1, 0], 0), "with the page that lies there");
    let base = with_pages(huge, only(PageSize::Base));
    assert_eq!(relocate(giant(0), 5, false, free)(&base), ([0, 0, 0], PAGE), "a page of 4 KiB is copied");
}

#[test]
fn where_there_is_no_hypervisor_the_order_is_refused() {
    let mut design = guest_on(PageSize::Huge);
    let refused = |design: &Design| {
        let (outcome, signals) = run_steps(&giant(0), design, {
            let (options, signals) = steps(vec![(300, join(by_mapping(512)))], vec![]);
            let host_policy = if design.vm.is_some() { options.host_policy } else { None };
            (Options { host_policy, ..options }, signals)
        });
        let Signal::Done { outcome: answer, .. } = signals[0] else { panic!("{signals:?}") };
        (answer, count(&outcome, "os.resident_bytes.1g"))
    };
    assert_eq!(refused(&design), (terrace_policy::Outcome::Done, GIB));
    (design.vm, design.host) = (None, None);
    design.translation.nested = None;
    assert_eq!(refused(&design), (terrace_policy::Outcome::Unsupported, 0));
}

#[test]
fn a_preallocated_guest_takes_no_violations() {
    for host in [PageSize::Base, PageSize::Huge] {
        let mut design = guest_on(host);
        let resident = 5 * GIB;
        let outcome = giant(0).run(&design, Fidelity::Translation);
        let names = ["host.ept_violations", &format!("host.resident_bytes.{host}")];
        assert_eq!(counts(&outcome, names), [0, resident], "{host}");
        design.vm.as_mut().unwrap().preallocated = false;
        let outcome = giant(0).run(&design, Fidelity::Translation);
        assert!(count(&outcome, "host.ept_violations") > 500, "{host}");
    }
}

/// Trident as the policy of guest and host. The program's memory grows by 2 MiB, so that faults bring in pages of 2 MiB, and
/// the daemon makes one of 1 GiB of them.
#[test]
fn the_designs_run_the_same_policy_with_and_without_copies() {
    let mut program = Program::new();
    for page in 0..512 {
        program.map(DATA + page * HUGE, HUGE).write(DATA + page * HUGE);
    }
    (0..20).for_each(|_| _ = program.event(Event::Compute { instructions: 400_000_000 }));
    let run = |name: &str, sets: &[(&str, &str)]| {
        let all = [("vm.memory", "4 GiB"), ("os.policy.scan_sleep", "100 ms"), ("os.policy.zero", "false")];
        let design = crate::support::design(name, "skylake-6140", &[&all[..], sets].concat());
        let outcome = program.run(&design, Fidelity::Translation);
        assert_eq!(count(&outcome, "os.resident_bytes.1g"), GIB, "{name}");
        (hypercalls(&outcome), count(&outcome, "policy.copied_bytes"))
    };
    assert_eq!(run("virtual-trident", &[]), ([0, 0, 0], GIB));
    assert_eq!(run("trident-pv", &[]), ([1, 512, 0], 0));
    assert_eq!(run("trident-pv", &[("os.policy.hypercall_pairs", "1")]), ([512, 512, 0], 0), "unbatched");
    let refused = run("trident-pv", &[("vm.preallocated", "false")]);
    assert_eq!(refused, ([1, 0, 512], GIB), "the new place has no memory yet");
}
