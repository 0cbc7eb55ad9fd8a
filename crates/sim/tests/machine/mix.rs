//! Several programs side by side on one machine.

use crate::support::*;
use terrace_model::{Bytes, Frequency, PageSize, Stats, Time};
use terrace_sim::design::{Design, HostParameters, PagePolicy, VmParameters};
use terrace_sim::{Fidelity, Options, Outcome};
use terrace_trace::{
    Event, EventSource, Header, MarkKind, Mix, MixPart, MixedProgram, VecSource, marks_region,
};

/// A program of a mix that a workload makes.
fn of_workload(name: &str, spec: &str) -> MixPart {
    let spec = spec.to_owned();
    let marks_region = marks_region(workload(&spec).as_mut()).unwrap();
    MixPart::new(MixedProgram { name: name.to_owned(), marks_region }, move || Ok(workload(&spec)))
}

/// One that was written by hand.
fn by_hand(name: &str, program: &Program) -> MixPart {
    let source = program.source();
    let marks_region = marks_region(&mut source.clone()).unwrap();
    MixPart::new(MixedProgram { name: name.to_owned(), marks_region }, move || Ok(Box::new(source.clone())))
}

fn run_mix(design: &Design, parts: impl IntoIterator<Item = MixPart>, options: Options) -> Outcome {
    run_with(design, &mut Mix::open(parts).unwrap(), options).unwrap()
}

fn of(outcome: &Outcome, program: &str, what: &str) -> f64 {
    let name = format!("mix.program.{program}.{what}");
    outcome.stats.get(&name).unwrap_or_else(|| panic!("{name}")).value.as_f64()
}

/// All statistics but those of the mix.
fn of_the_machine(stats: &Stats) -> Vec<(String, String)> {
    let others = stats.iter().filter(|(name, _)| !name.starts_with("mix."));
    others.map(|(name, stat)| (name.to_owned(), format!("{stat:?}"))).collect()
}

/// A machine with a private everything but memory, of which there is plenty.
fn with_cores(count: u32) -> Design {
    let mut design = design("native-4k", "zen4-cxl", &[]);
    design.core.count = count;
    design.os.timeslice = Time::from_nanos(20_000);
    design.os.reserved = Bytes(0);
    design
}

const GUPS: &str = "gups,bytes=8MiB,updates=2e4";
const STREAM: &str = "stream,bytes=2MiB,iterations=2";

#[test]
fn a_mix_of_one_program_is_the_plain_run() {
    for spec in [
        GUPS,
        "stream,bytes=1MiB,iterations=1",
        "kv,keys=5e3,requests=2e3,threads=3",
        "bfs,scale=10,edges=1e5,threads=2",
    ] {
        for fidelity in [Fidelity::Full, Fidelity::Translation, Fidelity::Pages] {
            for (whole, fast_forward) in [(false, false), (true, false), (false, true)] {
                let options = || Options { fidelity, whole, fast_forward, ..Options::default() };
                let design = with_cores(4);
                let plain = run_with(&design, workload(spec).as_mut(), options()).unwrap();
                let mixed = run_mix(&design, [of_workload("alone", spec)], options());
                let context = format!("{spec} {fidelity:?} {whole} {fast_forward}");
                assert_eq!(of_the_machine(&mixed.stats), of_the_machine(&plain.stats), "{context}");
                assert_eq!((mixed.accesses, mixed.cycles), (plain.accesses, plain.cycles), "{context}");
                assert_eq!(of(&mixed, "alone", "accesses"), plain.accesses as f64, "{context}");
                assert_eq!(of(&mixed, "alone", "instructions"), plain.instructions as f64, "{context}");
                assert_eq!(of(&mixed, "alone", "repeats"), 0.0);
                if !(fast_forward && fidelity == Fidelity::Pages) {
                    let [mixed, plain] = [of(&mixed, "alone", "time"), plain.seconds_simulated * 1e9];
                    assert!((mixed / plain - 1.0).abs() < 0.001, "{context}: {mixed} ns, plain {plain} ns");
                }
            }
        }
    }
}

#[test]
fn equal_mixes_have_equal_statistics() {
    let mix = || {
        let parts = [of_workload("a", GUPS), of_workload("b", STREAM), of_workload("c", GUPS)];
        run_mix(&with_cores(2), parts, Options::default())
    };
    assert_eq!(mix(), mix());
}

#[test]
fn programs_that_share_nothing_run_as_fast_as_alone() {
    // Both programs fit into the first two levels of their own cores.
    let specs = ["gups,bytes=128KiB,updates=3e5", "stream,bytes=32KiB,iterations=60"];
    let design = with_cores(4);
    let alone = specs.map(|spec| run(&design, workload(spec).as_mut(), Fidelity::Full));
    let parts = ["a", "b"].into_iter().zip(specs).map(|(name, spec)| of_workload(name, spec));
    let mixed = run_mix(&design, parts, Options::default());
    for (name, alone) in ["a", "b"].into_iter().zip(&alone) {
        assert_eq!(of(&mixed, name, "instructions"), alone.instructions as f64);
        let slowdown = of(&mixed, name, "time") / (alone.seconds_simulated * 1e9);
        assert!((slowdown - 1.0).abs() < 0.03, "{name} takes {slowdown:.3} times as long");
    }
}

#[test]
fn programs_that_share_one_core_or_one_bus_slow_each_other_down() {
    let alone = run(&with_cores(1), workload(GUPS).as_mut(), Fidelity::Full);
    let parts = || [of_workload("a", GUPS), of_workload("b", GUPS)];
    let slowdown = |cores: u32| {
        let mixed = run_mix(&with_cores(cores), parts(), Options::default());
        assert_eq!(of(&mixed, "a", "instructions"), alone.instructions as f64);
        ["a", "b"].map(|name| of(&mixed, name, "time") / (alone.seconds_simulated * 1e9))
    };
    let on_one_core = slowdown(1);
    assert!(on_one_core.iter().all(|&slowdown| slowdown > 1.7), "{on_one_core:?}");
    let on_two = slowdown(2);
    assert!(on_two.iter().all(|&slowdown| slowdown < 1.3), "{on_two:?}");
}

#[test]
fn a_huge_page_of_one_program_does_not_stop_another() {
    // Faults of 2 MiB, each of which takes hundreds of microseconds, beside a program that misses its caches.
    let mut design = with_pages(with_cores(2), only(PageSize::Huge));
    design.core.count = 2;
    let random = "gups,bytes=64MiB,updates=2e5";
    let alone = run(&design, workload(random).as_mut(), Fidelity::Full);
    let mut faults = Program::new();
    faults.map(DATA, 256 * MIB);
    (0..128).for_each(|page| _ = faults.write(DATA + page * 2 * MIB));
    let parts = [by_hand("faults", &faults), of_workload("random", random)];
    let mixed = run_mix(&design, parts, Options::default());
    let slowdown = of(&mixed, "random", "time") / (alone.seconds_simulated * 1e9);
    assert!(slowdown > 1.0 && slowdown < 2.0, "{slowdown:.2} times as long");
}

/// Reads so many pages of its own over and over, for so many rounds in its region.
fn reader(before: u64, rounds: u64) -> Program {
    let mut program = Program::new();
    program.map(DATA, 64 * PAGE);
    (0..before).for_each(|at| _ = program.read(DATA + at % 64 * PAGE));
    program.mark(MarkKind::RegionBegin);
    for round in 0..rounds {
        (0..64).for_each(|page| _ = program.read(DATA + page * PAGE + round % 64 * 64));
        program.event(Event::Compute { instructions: 2000 });
    }
    program.mark(MarkKind::RegionEnd);
    program
}

#[test]
fn regions_begin_together_and_a_short_program_is_repeated() {
    let design = with_cores(2);
    let parts = || [by_hand("short", &reader(64, 4)), by_hand("long", &reader(4000, 8000))];
    let mixed = run_mix(&design, parts(), Options::default());
    assert_eq!(of(&mixed, "short", "accesses"), 4.0 * 64.0);
    assert_eq!(of(&mixed, "long", "accesses"), 8000.0 * 64.0);
    assert_eq!(of(&mixed, "long", "repeats"), 0.0);
    assert!(of(&mixed, "short", "repeats") > 10.0);
    // The long program's region is the machine's: the short one does not end it, and its repetitions count.
    assert!((mixed.seconds_simulated * 1e9 / of(&mixed, "long", "time") - 1.0).abs() < 0.01);
    assert!(mixed.accesses > 8004 * 64 + 64 * 50);
    assert!(mixed.accesses < 10_000 * 64, "what was before the regions does not count");
    // Each repetition frees what the one before had: pages of two programs, and of a third that is being freed at most.
    assert!(count(&mixed, "tier.dram.peak_pages") < 300, "{}", count(&mixed, "tier.dram.peak_pages"));
    let whole = run_mix(&design, parts(), Options { whole: true, ..Options::default() });
    assert_eq!(of(&whole, "short", "accesses"), 5.0 * 64.0);
}

#[test]
fn a_program_without_a_region_begins_with_those_of_the_others() {
    let mut plain = Program::new();
    plain.map(DATA, 64 * PAGE);
    (0..640).for_each(|at| _ = plain.write(DATA + at % 64 * PAGE));
    let parts = || [by_hand("plain", &plain), by_hand("marked", &reader(64_000, 20))];
    for fast_forward in [false, true] {
        let options = Options { fast_forward, ..Options::default() };
        let mixed = run_mix(&with_cores(2), parts(), options);
        assert_eq!(of(&mixed, "plain", "accesses"), 640.0);
        assert_eq!(of(&mixed, "marked", "accesses"), 20.0 * 64.0);
        // All 64,000 accesses before it are over when both begin.
        let faults = count(&mixed, "os.faults");
        assert!(faults >= 64, "the faults of the plain program count: {faults}");
    }
}

#[test]
fn a_slice_of_a_trace_goes_on_without_the_events_before_it() {
    // The first batch of the slice follows an event that is not in the slice.
    let mut batch = terrace_trace::Batch { after: 1000, ..terrace_trace::Batch::default() };
    (0..500).for_each(|at| batch.push(DATA + at % 16 * PAGE, 8, terrace_trace::AccessKind::Read, 0, 4));
    let program = MixedProgram { name: "slice".to_owned(), marks_region: false };
    let slice = MixPart::new(program, move || {
        Ok(Box::new(VecSource::new(Header::default(), [batch.clone()])) as Box<dyn EventSource>)
    });
    let mixed = run_mix(
        &with_cores(2),
        [slice, of_workload("other", STREAM)],
        Options { whole: true, ..Options::default() },
    );
    assert_eq!(of(&mixed, "slice", "accesses"), 500.0);
    assert!(
        of(&mixed, "slice", "time") < 0.5 * of(&mixed, "other", "time"),
        "it does not wait for the other's end"
    );
}

#[test]
fn nothing_comes_of_a_program_that_does_nothing() {
    let empty = by_hand("empty", &Program::new());
    let mixed = run_mix(&with_cores(2), [empty, of_workload("other", STREAM)], Options::default());
    assert_eq!(of(&mixed, "empty", "accesses"), 0.0);
    assert!(of(&mixed, "other", "accesses") > 0.0);
}

#[test]
fn threads_of_a_program_stay_on_its_cores() {
    // Three programs on four cores: the first has two of them.
    let threads = |name: &str| of_workload(name, "gups,bytes=1MiB,updates=4e3,threads=4");
    let mixed = run_mix(&with_cores(4), [threads("a"), threads("b"), threads("c")], Options::default());
    assert_eq!(count(&mixed, "core.cores_used"), 4);
    let time = |name: &str| of(&mixed, name, "time");
    assert!(time("a") < 0.7 * time("b"), "{} {}", time("a"), time("b"));
    assert!((time("b") / time("c") - 1.0).abs() < 0.1);
}

#[test]
fn each_program_has_its_virtual_machine() {
    let mut design = with_pages(small(), only(PageSize::Base));
    design.core.count = 2;
    design.core.frequency = Frequency(1e9);
    design.os.reserved = Bytes(0);
    let count_of = Some(2);
    design.vm = Some(VmParameters {
        count: count_of,
        memory: Some(Bytes::mib(64)),
        vcpus: Some(1),
        ..VmParameters::default()
    });
    design.host = Some(HostParameters { pages: only(PageSize::Base), ..HostParameters::default() });
    let parts = [by_hand("short", &reader(0, 2)), by_hand("long", &reader(0, 2000))];
    let mixed = run_mix(&design, parts, Options::default());
    assert!(of(&mixed, "short", "repeats") > 3.0);
    // However often it is repeated, and although it began before the region.
    assert_eq!(counts(&mixed, ["vm.0.programs", "vm.1.programs"]), [1, 1]);
}

#[test]
fn a_wrong_access_names_the_program() {
    let mut wrong = Program::new();
    wrong.map(DATA, PAGE).read(DATA).read(1 << 48);
    let mut mix = Mix::open([by_hand("right", &reader(0, 1)), by_hand("wrong", &wrong)]).unwrap();
    let said = run_with(&with_cores(2), &mut mix, Options::default()).unwrap_err().to_string();
    assert!(said.starts_with("wrong: stream 1, access 1: 8 bytes at address 0x1000000000000"), "{said}");
}

#[test]
fn the_time_of_a_mix_ends_with_its_last_program_and_not_with_what_another_has_begun() {
    let mut design = with_cores(2);
    design.os.pages = PagePolicy::Huge;
    // The first store of each repetition zeroes a huge page, which takes longer than all else that the program does.
    let mut huge = Program::new();
    huge.map(DATA, 2 * MIB).write(DATA);
    let mut plain = Program::new();
    plain.map(DATA, 64 * PAGE);
    for rounds in 1..40 {
        (0..640).for_each(|at| _ = plain.write(DATA + at % 64 * PAGE));
        let parts = || [by_hand("huge", &huge), by_hand("plain", &plain)];
        let mixed = run_mix(&design, parts(), Options::default());
        let last = of(&mixed, "huge", "time").max(of(&mixed, "plain", "time"));
        assert!((mixed.seconds_simulated * 1e9 - last).abs() < 1e-3, "{rounds}: {mixed:?}");
        let parts = ["base", "translation", "cache", "memory", "os", "idle"];
        let sum: u64 = parts.iter().map(|part| count(&mixed, &format!("core.cycles.{part}"))).sum();
        assert!(sum.abs_diff(2 * mixed.cycles) <= 2, "{rounds}: {sum} of twice {}", mixed.cycles);
    }
}
