//! Several virtual machines side by side: whose memory is whose, who runs where, and who is interrupted for whom.

use crate::support::probe::on_host;
use crate::support::*;
use terrace_model::{Bytes, Cycles, Frequency, PageSize, TierId, Time};
use terrace_policy::{Clear, MemorySystem, Moment, Move, MoveOptions, NextTick, PageId};
use terrace_policy::{ScanHand, Scope, Signal, SignalSet, Step};
use terrace_sim::design::{
    Design, GuestTierParameters, HostParameters, KernelThreads, Library, OsParameters, PolicyParameters,
    VmParameters,
};
use terrace_sim::{Fidelity, Options, Outcome};
use terrace_trace::{Event, MarkKind};

/// So many virtual machines of one virtual CPU and 64 MiB each, all pages of 4 KiB; a cycle is a nanosecond.
fn machine(cores: u32, count: u32) -> Design {
    let mut design = with_pages(small(), only(PageSize::Base));
    design.core.count = cores;
    design.core.frequency = Frequency(1e9);
    design.os.reserved = Bytes(0);
    design.vm = Some(VmParameters {
        count: Some(count),
        memory: Some(Bytes::mib(64)),
        vcpus: Some(1),
        ..VmParameters::default()
    });
    design.host = Some(HostParameters { pages: only(PageSize::Base), ..HostParameters::default() });
    design
}

/// One process for each number, each with a thread of its own that writes so many pages.
fn processes(pages: &[u64]) -> Program {
    let mut program = Program::without_spawn();
    for (at, pages) in pages.iter().enumerate() {
        program.on(at as u32).spawn(at as u32, 0, None).map(DATA, 64 * PAGE);
        (0..*pages).for_each(|page| _ = program.write(DATA + page * PAGE));
    }
    program
}

fn of_vm(outcome: &Outcome, vm: usize, names: [&str; 4]) -> [u64; 4] {
    names.map(|name| count(outcome, &format!("vm.{vm}.{name}")))
}

/// Each frame of the machine is a page of one virtual machine or one of the hypervisor's tables; each frame of a guest
/// that is in use holds a page of its processes or a table.
fn check_frames(outcome: &Outcome, vms: usize) {
    let sum = |name: &str| (0..vms).map(|vm| count(outcome, &format!("vm.{vm}.{name}"))).sum::<u64>();
    let machine = ["dram", "pcm"].map(|tier| {
        outcome
            .stats
            .get(&format!("tier.{tier}.pages"))
            .map_or(0, |_| count(outcome, &format!("tier.{tier}.pages")))
    });
    let all = machine.iter().sum::<u64>();
    assert_eq!(sum("host_pages") + count(outcome, "host.page_table_pages"), all);
    let resident: u64 =
        PageSize::ALL.iter().map(|size| count(outcome, &format!("os.resident_bytes.{size}")) / PAGE).sum();
    assert_eq!(sum("guest_pages"), resident + count(outcome, "os.page_table_pages"));
    assert_eq!(sum("ept_violations"), count(outcome, "host.ept_violations"));
    assert_eq!(sum("interrupts"), count(outcome, "host.vm_exits.interrupt"));
}

#[test]
fn programs_take_turns_and_each_guest_has_memory_of_its_own() {
    let program = processes(&[3, 5, 2]);
    let names = ["programs", "accesses", "guest_pages", "host_pages"];
    // Each process has a page table of four pages beside its own.
    let outcome = program.run(&machine(2, 2), Fidelity::Full);
    assert_eq!(of_vm(&outcome, 0, names), [2, 3 + 2, 3 + 2 + 8, 3 + 2 + 8], "the first and the third");
    assert_eq!(of_vm(&outcome, 1, names), [1, 5, 5 + 4, 5 + 4]);
    assert_eq!(count(&outcome, "vm.0.ept_violations"), 13);
    assert_eq!(count(&outcome, "core.cores_used"), 2);
    check_frames(&outcome, 2);
    let three = program.run(&machine(3, 3), Fidelity::Full);
    for (vm, pages) in [3, 5, 2].into_iter().enumerate() {
        assert_eq!(of_vm(&three, vm, names), [1, pages, pages + 4, pages + 4]);
    }
    check_frames(&three, 3);
    // The processes that one guest has share its memory: the third has no room left.
    let mut design = machine(2, 2);
    design.vm.as_mut().unwrap().memory = Some(Bytes(13 * PAGE));
    assert!(run_with(&design, &mut program.source(), Options::default()).is_ok());
    design.vm.as_mut().unwrap().memory = Some(Bytes(12 * PAGE));
    let said = run_with(&design, &mut program.source(), Options::default()).unwrap_err().to_string();
    assert!(said.contains("out of memory") && said.contains("raise vm.memory"), "{said}");
    assert!(outcome.stats.get("vm.2.programs").is_none());
    let one = program.run(&machine(2, 1), Fidelity::Full);
    assert!(one.stats.get("vm.0.programs").is_none(), "absent where there are not several");
}

#[test]
fn what_a_forked_process_executes_goes_to_the_next() {
    let mut program = Program::new();
    program.map(DATA, 8 * PAGE).write(DATA);
    for child in 1..3 {
        program.on(0).event(Event::Compute { instructions: 1000 });
        program.on(child).spawn(child, 0, Some(0)).read(DATA).event(Event::Exec { name: "other".to_owned() });
        program.map(DATA, 64 * PAGE);
        (0..10 * u64::from(child)).for_each(|page| _ = program.write(DATA + page * PAGE));
        // A thread of the new program.
        program.on(10 + child).spawn(child, 1, None).write(DATA + 63 * PAGE);
    }
    let outcome = program.run(&machine(2, 2), Fidelity::Full);
    let pages = |vm: usize| count(&outcome, &format!("vm.{vm}.guest_pages"));
    assert_eq!(count(&outcome, "vm.0.programs"), 2, "the first and what its second child executes");
    assert_eq!(count(&outcome, "vm.1.programs"), 1);
    // Pages, and tables: three lowest ones more where the thread's page is in the same.
    assert_eq!((pages(0), pages(1)), (1 + 4 + 21 + 4, 11 + 4));
    check_frames(&outcome, 2);
    assert_eq!(count(&outcome, "os.copy_on_write_faults"), 0);
}

#[test]
fn virtual_cpus_of_several_machines_take_turns_on_a_core() {
    let program = {
        let mut program = processes(&[1, 1]);
        for step in 0..80 {
            program.on(step % 2).event(Event::Compute { instructions: 1_000_000 });
        }
        (0..2).for_each(|thread| _ = program.on(thread).write(DATA));
        program
    };
    let run = |cores: u32| {
        let mut design = machine(cores, 2);
        design.os.timeslice = Time::from_nanos(500_000);
        let outcome = program.run(&design, Fidelity::Translation);
        counts(&outcome, ["core.cores_used", "host.vm_exits.preemption", "vm.0.cycles", "vm.1.cycles"])
    };
    let [cores, preemptions, first, second] = run(2);
    assert_eq!([cores, preemptions], [2, 0], "pinned to a core each");
    assert!(first.abs_diff(second) < 100_000, "{first}, {second}");
    let [cores, preemptions, of_one, of_other] = run(1);
    assert_eq!(cores, 1);
    assert!((35..45).contains(&preemptions), "{preemptions}: 20 ms in slices of 0.5 ms");
    let least = 19 * first / 10;
    assert!(of_one.max(of_other) > least, "{of_one}, {of_other}: both last twice as long as {first}");
}

/// One virtual machine per core. Each writes 4 pages, then computes while the hypervisor moves all pages of one of them,
/// then reads what it has.
fn run_moving(coherence: &str, vms: u32, moved: Option<u32>) -> Outcome {
    run_moving_on(machine(vms, vms), coherence, vms, moved)
}

fn run_moving_on(mut design: Design, coherence: &str, vms: u32, moved: Option<u32>) -> Outcome {
    design.translation.coherence = coherence.to_owned();
    let mut program = processes(&vec![4; vms as usize]);
    let all = |program: &mut Program, event: &Event| {
        (0..vms).for_each(|thread| _ = program.on(thread).event(event.clone()));
    };
    let barrier = Event::Mark { kind: MarkKind::Barrier, name: String::new(), value: 0 };
    all(&mut program, &barrier);
    all(&mut program, &Event::Compute { instructions: 40_000_000 });
    all(&mut program, &barrier);
    for thread in 0..vms {
        program.on(thread);
        (0..4).for_each(|page| _ = program.read(DATA + page * PAGE));
    }
    let mut given = false;
    let on = move |now: Moment, _: &[Signal], memory: &mut dyn MemorySystem| {
        if now.0 < 5_000_000 {
            return NextTick::At(Moment(5_000_000));
        }
        if !std::mem::replace(&mut given, true) {
            let mut pages = Vec::new();
            let mut hand = ScanHand { next: PageId::new(0, 0) };
            let clear = Clear { accessed: false, dirty: false, flush: false };
            memory.scan(Scope::All, &mut hand, clear, &mut |view| {
                pages.push(view.page);
                Step::Keep
            });
            let orders: Vec<Move> = pages
                .into_iter()
                .filter(|page| Some(page.space.0) == moved)
                .map(|page| Move { page, to: TierId(1) })
                .collect();
            assert_eq!(orders.len(), if moved.is_some() { 8 } else { 0 }, "four pages and four tables");
            memory.migrate(&orders, MoveOptions::default());
        }
        NextTick::Never
    };
    let options = Options { fidelity: Fidelity::Translation, ..on_host(SignalSet::NONE, on) };
    run_with(&design, &mut program.source(), options).unwrap()
}

#[test]
fn a_remote_flush_reaches_only_who_runs_that_virtual_machine() {
    for coherence in ["software", "ideal", "unitd", "hatric"] {
        let quiet = run_moving(coherence, 3, None);
        let outcome = run_moving(coherence, 3, Some(1));
        let [shootdowns, targets] =
            counts(&outcome, ["host.shootdowns.migration.count", "host.shootdowns.migration.targets"]);
        let interrupts = [0, 1, 2].map(|vm| count(&outcome, &format!("vm.{vm}.interrupts")));
        assert!(shootdowns > 0, "{coherence}");
        if coherence == "software" {
            assert_eq!(targets, shootdowns, "one core runs it");
            assert_eq!(interrupts, [0, shootdowns, 0]);
        } else {
            assert_eq!((interrupts[0], interrupts[2]), (0, 0), "{coherence}");
        }
        // The machine that was interrupted walks again for its four pages; the others have kept all that they had.
        let walks = |outcome: &Outcome| count(outcome, "walk.count");
        let more = walks(&outcome) - walks(&quiet);
        // Hardware drops what lies in one line of the table: before the move, three of the four walk again in any case.
        let expected = if ["unitd", "hatric"].contains(&coherence) { 1..=4 } else { 4..=4 };
        assert!(expected.contains(&more), "{coherence}: {more}");
    }
}

#[test]
fn an_exit_that_takes_no_time_is_counted() {
    for coherence in ["software", "unitd"] {
        let mut free = machine(3, 3);
        free.host.as_mut().unwrap().vm_exit = Cycles(0.0);
        let names = ["host.vm_exits.interrupt", "vm.1.interrupts", "host.shootdowns.targets"];
        let [usual, free] = [machine(3, 3), free].map(|on| run_moving_on(on, coherence, 3, Some(1)));
        assert_eq!(counts(&free, names), counts(&usual, names), "{coherence}");
        assert!(count(&free, "host.vm_exits.interrupt") > 0, "{coherence}");
    }
}

#[test]
fn a_machine_ran_last_at_a_time_of_the_region_of_interest() {
    let program = |rests: bool| {
        let mut program = processes(&[3, 5]);
        let compute = |instructions| Event::Compute { instructions };
        program.on(1).mark(MarkKind::Barrier);
        program.on(0).event(compute(40_000_000)).mark(MarkKind::Barrier).mark(MarkKind::RegionBegin);
        program.event(compute(400_000)).write(DATA);
        if !rests {
            program.on(1).event(compute(200_000)).write(DATA);
        }
        program
    };
    let whole = program(false).run_whole(&machine(2, 2), Fidelity::Translation);
    let before = count(&whole, "vm.0.cycles") - 100_000;
    for rests in [false, true] {
        let outcome = program(rests).run(&machine(2, 2), Fidelity::Translation);
        let [first, second] = [0, 1].map(|vm| count(&outcome, &format!("vm.{vm}.cycles")));
        assert!(first <= outcome.cycles && outcome.cycles < before / 2, "{first} of {}", outcome.cycles);
        assert!(if rests { second == 0 } else { second > 0 && second < first }, "{second} of {first}");
        let programs = [0, 1].map(|vm| count(&outcome, &format!("vm.{vm}.programs")));
        assert_eq!(programs, [1, 1], "they went there before the region");
    }
}

#[test]
fn a_map_of_placement_knows_the_first_tier_of_each_machine() {
    let options = Options { placement_map: true, ..Options::default() };
    let outcome = run_with(&with_tiers(2), &mut processes(&[3, 5]).source(), options).unwrap();
    let map = outcome.placement_map.unwrap();
    assert_eq!(
        (map.tiers.as_slice(), map.first_capacity),
        (&["fast".to_owned(), "slow".to_owned()][..], 32 * PAGE)
    );
    let served =
        map.columns.iter().fold([0; 2], |sum, column| [sum[0] + column.served[0], sum[1] + column.served[1]]);
    assert!(served[0] >= 8 && served[1] == 0, "every page lies in fast memory: {served:?}");
    let resident =
        map.columns.last().unwrap().resident.iter().fold([0; 2], |sum, at| [sum[0] + at[0], sum[1] + at[1]]);
    assert_eq!(resident, [8, 0]);
}

#[test]
fn side_by_side_or_one_after_the_other_the_run_is_the_same_each_time() {
    let run = || {
        let mut design = design("virtual-thp", "vbi-table1", &[]);
        design.core.count = 2;
        let vm = VmParameters { count: Some(2), memory: Some(Bytes::mib(256)), ..VmParameters::default() };
        design.vm = Some(vm);
        let outcome = run(&design, &mut *endless("kv,keys=8e3,requests=2e4,threads=4"), Fidelity::Full);
        (
            outcome.cycles,
            outcome.stats.iter().map(|(name, stat)| format!("{name} {stat:?}")).collect::<Vec<_>>(),
        )
    };
    assert_eq!(run(), run());
}

/// A policy with one parameter.
fn policy(name: &str, parameter: &str, value: &str) -> Option<PolicyParameters> {
    let parameters = [(parameter.to_owned(), value.into())].into_iter().collect();
    Some(PolicyParameters { name: name.to_owned(), seed: 1, parameters })
}

/// So many virtual machines with two tiers each, of 16 pages and of 4 MiB.
fn with_tiers(count: u32) -> Design {
    let mut design = machine(count, count);
    let tier =
        |name: &str, capacity| GuestTierParameters { name: name.to_owned(), capacity, host_tier: None };
    let vm = design.vm.as_mut().unwrap();
    vm.memory = None;
    vm.tiers = vec![tier("fast", Bytes(16 * PAGE)), tier("slow", Bytes::mib(4))];
    design
}

/// Processes that fill 40 pages, and then use the last `used` of them for 4 ms.
fn hot_ends(used: &[u64]) -> Program {
    let mut program = processes(&vec![40; used.len()]);
    for _ in 0..40 {
        for (at, used) in used.iter().enumerate() {
            program.on(at as u32).event(Event::Compute { instructions: 100_000 });
            (40 - used..40).for_each(|page| _ = program.read(DATA + page * PAGE));
        }
    }
    program
}

#[test]
fn each_guest_has_a_policy_that_does_what_it_would_do_alone() {
    // Without caches the guests have nothing in common but the host's memory. A policy that is called a little earlier or
    // later may find a page of the eight used or not.
    let run = |count: u32| {
        let design = Design {
            os: OsParameters { policy: policy("nimble", "period", "100 us"), ..with_tiers(count).os },
            ..with_tiers(count)
        };
        hot_ends(&vec![8; count as usize]).run(&design, Fidelity::Translation)
    };
    let moves =
        ["vmstat.pgpromote_success", "vmstat.pgdemote_policy", "policy.exchanges", "policy.copied_bytes"];
    let (alone, three) = (run(1), run(3));
    let expected = counts(&alone, moves);
    assert!(expected.iter().all(|moved| *moved >= 8), "pages of the slow tier became hot: {expected:?}");
    for vm in 0..3 {
        for (moved, expected) in of_vm(&three, vm, moves).into_iter().zip(expected) {
            assert!(moved <= expected && moved * 3 >= expected * 2, "guest {vm}: {moved} of {expected}");
        }
        let [calls, at_most] =
            [count(&three, &format!("vm.{vm}.policy.calls")), count(&alone, "policy.calls") + 3];
        assert!((10..=at_most).contains(&calls), "guest {vm}: {calls}");
    }
    for name in moves {
        let of_each = (0..3).map(|vm| count(&three, &format!("vm.{vm}.{name}")));
        assert_eq!(count(&three, name), of_each.sum::<u64>(), "{name}");
    }
    check_frames(&three, 3);
}

#[test]
fn a_guest_keeps_its_fast_memory_for_its_own_pages() {
    // What is idle goes to slow memory. The first guest's program rests, the second's uses eight pages.
    let mut design = with_tiers(2);
    design.os.policy = policy("idle", "scan", "200 us");
    let outcome = hot_ends(&[0, 8]).run(&design, Fidelity::Translation);
    let of_both = |name: &str| [0, 1].map(|vm| count(&outcome, &format!("vm.{vm}.vmstat.{name}")));
    assert_eq!(of_both("pgpromote_success"), [0, 8]);
    // Beside four tables twelve pages were in fast memory. None of the second guest's came to the first one's.
    assert_eq!(of_both("pgdemote_policy"), [12, 12]);
    check_frames(&outcome, 2);
}

#[test]
fn guests_and_the_hypervisor_manage_memory_at_the_same_time() {
    let periods = [("nimble", "period"), ("idle", "scan"), ("tpp", "scan_period")];
    for (at, (of_guests, parameter)) in periods.into_iter().enumerate() {
        for threads in [KernelThreads::MachineCores, KernelThreads::ExtraCores] {
            let (of_host, of_hosts) = periods[(at + 1) % 3];
            let mut design = with_tiers(2);
            design.os.kernel_threads = threads;
            design.os.policy = policy(of_guests, parameter, "100 us");
            design.host.get_or_insert_default().policy = policy(of_host, of_hosts, "130 us");
            let run = || hot_ends(&[8, 20]).run(&design, Fidelity::Full);
            let outcome = run();
            // The run's own audit counts every frame of each guest and of the host.
            for who in ["vm.0", "vm.1", "host"] {
                assert!(
                    count(&outcome, &format!("{who}.policy.calls")) > 10,
                    "{of_guests} under {of_host}: {who}"
                );
            }
            assert_eq!(run().cycles, outcome.cycles, "{of_guests} under {of_host}");
            check_frames(&outcome, 2);
        }
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let refused = |sets: &[(&str, &str)]| {
        let sets: Vec<(String, String)> =
            sets.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Library::embedded().design("virtual-4k", Some("vbi-table1"), &sets).unwrap_err().to_string()
    };
    for (sets, expected) in [
        (&[("vm.count", "0")][..], "vm.count: 0 is not between 1 and 64"),
        (
            &[("vm.count", "2"), ("vm.memory", "100 GiB")],
            "2 virtual machines of 100 GiB are larger than the ",
        ),
        (
            &[("vm.count", "2"), ("os.policy.name", "bw-aware"), ("os.policy.weights", "probe")],
            "without virtual machines",
        ),
        (
            &[("vm.count", "2"), ("os.policy.name", "oracle")],
            "in which of several virtual machines a page lies",
        ),
    ] {
        let said = refused(sets);
        assert!(said.contains(expected), "{said}: not \"{expected}\"");
    }
    // Left out, the sizes follow from the machine's.
    let sets = [("vm.count".to_owned(), "4".to_owned())];
    Library::embedded().design("virtual-4k", Some("vbi-table1"), &sets).unwrap();
}
