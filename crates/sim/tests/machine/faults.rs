//! What page faults cost, by hand: the kernel's path, the zeroing of the page, and where the zeros lie afterwards.

use crate::support::*;
use terrace_model::{BytesPerSec, PageSize, Time};
use terrace_sim::design::{Design, PagePolicy, ZeroStores};
use terrace_sim::{Fidelity, Outcome};
use terrace_trace::MapKind;

const HUGE_LINES: u64 = 2 * MIB / 64;

/// A cycle is a nanosecond; a fault takes 500 ns, a line of a base page 1 ns, of a larger page 2 ns. All of a 2 MiB page
/// fits in the last level.
fn machine(pages: PagePolicy) -> Design {
    let mut design = with_scheme(with_pages(small(), pages), "perfect-tlb");
    design.core.frequency = terrace_model::Frequency(1e9);
    design.cache.l1 = cache(32, 8, 4.0, 16);
    design.cache.l2 = cache(256, 8, 12.0, 16);
    design.cache.llc = cache(4096, 16, 40.0, 16);
    design.os.zero_stores = ZeroStores::Cached;
    design.os.fault_cost = Time::from_nanos(500);
    design.os.zero_bandwidth = BytesPerSec(64e9);
    design.os.huge_zero_bandwidth = BytesPerSec(32e9);
    design
}

/// One access to each of `pages` pieces of 2 MiB.
fn touch(pages: u64) -> Program {
    let mut program = Program::new();
    program.map(DATA, 2 * MIB * pages);
    for page in 0..pages {
        program.read(DATA + page * 2 * MIB);
    }
    program
}

/// Nanoseconds of a fault on a 2 MiB page: the accessed base page is zeroed at the rate of base pages.
const HUGE_FAULT: u64 = 500 + 64 + 2 * (HUGE_LINES - 64);

#[test]
fn a_fault_costs_the_kernels_path_and_the_zeroing_of_its_page() {
    for (pages, each) in [(PagePolicy::Base, 500 + 64), (PagePolicy::Huge, HUGE_FAULT)] {
        let outcome = touch(16).run(&machine(pages), Fidelity::Full);
        assert_eq!(counts(&outcome, ["os.faults", "os.fault_cycles"]), [16, 16 * each]);
        assert_eq!(count(&outcome, "core.cycles.os"), 16 * each);
    }
    let outcome = touch(16).run(&machine(PagePolicy::Huge), Fidelity::Translation);
    assert_eq!(count(&outcome, "os.fault_cycles"), 16 * HUGE_FAULT, "the same without caches");
}

#[test]
fn each_rate_and_the_path_count_alone() {
    let cost = |pages, change: fn(&mut Design)| {
        let mut design = machine(pages);
        change(&mut design);
        count(&touch(1).run(&design, Fidelity::Full), "os.fault_cycles")
    };
    let slower: [fn(&mut Design); 3] = [
        |design| design.os.fault_cost = Time::from_nanos(600),
        |design| design.os.zero_bandwidth = BytesPerSec(32e9),
        |design| design.os.huge_zero_bandwidth = BytesPerSec(16e9),
    ];
    let base = slower.map(|change| cost(PagePolicy::Base, change));
    assert_eq!(base, [664, 628, 564]);
    let huge = slower.map(|change| cost(PagePolicy::Huge, change) - HUGE_FAULT);
    assert_eq!(huge, [100, 64, 2 * (HUGE_LINES - 64)]);
}

#[test]
fn a_frame_that_the_caches_still_hold_is_zeroed_at_the_rate_of_base_pages() {
    let mut program = Program::new();
    program.map(DATA, 2 * MIB).read(DATA).unmap(DATA, 2 * MIB).map(DATA, 2 * MIB).read(DATA);
    let outcome = program.run(&machine(PagePolicy::Huge), Fidelity::Full);
    assert_eq!(counts(&outcome, ["os.faults", "os.fault_cycles"]), [2, HUGE_FAULT + 500 + HUGE_LINES]);
}

/// Reads every line of a page after its fault, each once.
fn read_all(design: &Design, bytes: u64) -> Outcome {
    let mut program = Program::new();
    program.map(DATA, 2 * MIB);
    for line in 0..bytes / 64 {
        program.read(DATA + line * 64);
    }
    program.run(design, Fidelity::Full)
}

#[test]
fn a_new_base_page_lies_in_the_first_level() {
    for scheme in ["radix", "perfect-tlb", "vivt"] {
        let outcome = read_all(&with_scheme(machine(PagePolicy::Base), scheme), PAGE);
        assert_eq!(count(&outcome, "tier.dram.bytes_by.demand"), 0, "{scheme:?}");
        assert_eq!(count(&outcome, "cache.zero_fills"), 64, "{scheme:?}");
        let missed = count(&outcome, "cache.l1.miss");
        assert!(missed <= count(&outcome, "walk.memory_refs"), "{scheme:?}: only walks miss, {missed}");
    }
}

#[test]
fn a_new_huge_page_lies_in_the_last_level_as_far_as_it_fits() {
    let mut design = machine(PagePolicy::Huge);
    for inclusive in [false, true] {
        design.cache.inclusive = inclusive;
        design.cache.llc = cache(4096, 16, 40.0, 16);
        let outcome = read_all(&design, 2 * MIB);
        let names = ["cache.llc.miss", "tier.dram.bytes_by.zero", "cache.zero_fills"];
        assert_eq!(counts(&outcome, names), [0, 0, HUGE_LINES], "inclusive: {inclusive}");
        assert_eq!(count(&outcome, "cache.l1.hit"), 64, "the base page that was accessed is near");

        // Half of a page fits: the rest went to memory when it was zeroed.
        design.cache.llc = cache(1024, 16, 40.0, 16);
        let outcome = read_all(&design, 2 * MIB);
        let [zeroed, fills] = counts(&outcome, ["tier.dram.bytes_by.zero", "cache.zero_fills"]);
        assert_eq!(fills, 16384 + 64, "the last level's lines, and the base page that was accessed");
        assert_eq!(zeroed, 2 * MIB - 64 * fills);
    }
}

#[test]
fn non_temporal_stores_leave_nothing_in_caches() {
    for (pages, bytes) in [(PagePolicy::Base, PAGE), (PagePolicy::Huge, 2 * MIB)] {
        let mut design = machine(pages);
        design.os.zero_stores = ZeroStores::NonTemporal;
        let outcome = read_all(&design, bytes);
        let names = ["tier.dram.bytes_by.zero", "cache.zero_fills", "tier.dram.bytes_by.demand"];
        assert_eq!(counts(&outcome, names), [bytes, 0, bytes], "{bytes} B");
    }
}

#[test]
fn zeros_that_leave_the_caches_are_written_once() {
    let outcome = touch(16).run(&machine(PagePolicy::Huge), Fidelity::Full);
    let written = count(&outcome, "tier.dram.bytes_written");
    assert_eq!(written, count(&outcome, "tier.dram.bytes_by.writeback"));
    assert_eq!(written, 64 * count(&outcome, "cache.llc.writeback"));
    assert!(written <= 32 * MIB - 4 * MIB, "{written}: 4 MiB are still in the last level");
    assert_eq!(count(&outcome, "tier.dram.bytes_read"), 0, "whole lines are written unread");
}

#[test]
fn a_fault_is_no_faster_than_memory_takes_its_zeros() {
    let mut design = machine(PagePolicy::Huge);
    design.os.huge_zero_bandwidth = BytesPerSec(1e15);
    design.os.zero_bandwidth = BytesPerSec(1e15);
    let outcome = touch(64).run(&design, Fidelity::Full);
    let bound = terrace_sim::memory::Device::new(&design.devices["dram"]).unwrap().peak_write_bandwidth().0;
    let written = count(&outcome, "tier.dram.bytes_written") as f64;
    assert!(
        written / outcome.seconds_simulated <= bound * 1.01,
        "{written} in {}",
        outcome.seconds_simulated
    );
    assert!(count(&outcome, "core.cycles.memory") > 0);
}

/// What leaves the caches is on its way to memory while the core goes on: a long way costs nothing.
#[test]
fn the_way_of_evicted_lines_is_not_waited_for() {
    let seconds = [0, 500].map(|path| {
        let mut design = machine(PagePolicy::Base);
        design.cache.llc = cache(256, 16, 40.0, 16);
        design.tiers[0].path_latency = Time::from_nanos(path);
        let mut program = Program::new();
        program.map(DATA, 8 * MIB);
        for page in 0..8 * MIB / PAGE {
            program.write(DATA + page * PAGE);
        }
        let outcome = program.run(&design, Fidelity::Full);
        assert!(count(&outcome, "tier.dram.bytes_by.writeback") > 6 * MIB);
        outcome.seconds_simulated
    });
    assert!(seconds[1] < 1.01 * seconds[0], "{seconds:?}");
}

#[test]
fn a_stack_has_no_huge_page_of_the_transparent_kind() {
    let sizes = |kind: MapKind| {
        let mut program = Program::new();
        program.map_kind(DATA, 4 * MIB, kind).write(DATA);
        let outcome = program.run(&with_pages(small(), PagePolicy::Thp), Fidelity::Full);
        counts(&outcome, ["os.peak_resident_bytes.4k", "os.peak_resident_bytes.2m", "os.huge_unfit"])
    };
    assert_eq!(sizes(MapKind::Anonymous), [0, 2 * MIB, 0]);
    assert_eq!(sizes(MapKind::Stack), [PAGE, 0, 0]);
}

#[test]
fn huge_pages_pay_for_a_program_that_writes_its_memory_once() {
    // Measured on the machine of `zen5-turin`: a 2 MiB fault costs 107 to 141 us, 512 base faults 650 to 850 us.
    for machine in ["skylake-6140", "haswell-32", "zen4-cxl", "zen5-turin"] {
        let seconds = ["native-4k", "native-thp"].map(|name| {
            let design = design(name, machine, &[]);
            let mut program = Program::new();
            program.map(DATA, 8 * MIB);
            for line in 0..8 * MIB / 64 {
                program.write(DATA + line * 64);
            }
            program.run(&design, Fidelity::Full).seconds_simulated
        });
        assert!(seconds[0] > 1.2 * seconds[1], "{machine}: {seconds:?}");
    }
    let cost = |size: PageSize, pages: &str| {
        let design = design("native-4k", "zen5-turin", &[("os.pages", pages)]);
        let outcome = touch(8).run(&design, Fidelity::Full);
        let cycles = count(&outcome, "os.fault_cycles") as f64;
        assert_eq!(count(&outcome, &format!("os.faults_by_size.{size}")), 8);
        cycles / 8.0 / design.core.frequency.0 * 1e9
    };
    let (base, huge) = (cost(PageSize::Base, "4k"), cost(PageSize::Huge, "2m"));
    assert!((1280.0..1360.0).contains(&base), "{base} ns");
    assert!((100e3..120e3).contains(&huge), "{huge} ns");
}
