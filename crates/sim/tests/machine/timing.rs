//! Times worked out by hand from configured latencies: chains add up, independent accesses overlap, nothing beats a
//! tier's bound.

use crate::support::*;
use terrace_model::{Bytes, BytesPerSec, Cycles, PageSize, Time};
use terrace_sim::design::{Design, InOrderKeys, LinkParameters, ModelParameters, PagePolicy};
use terrace_sim::memory::{Device, DeviceParameters, Span};
use terrace_sim::{Fidelity, Outcome};
use terrace_trace::{AccessKind, EventSource, MarkKind};

/// A bank that is always ready and always closed: each read costs tRCD + tCL + burst + controller = 31 ns.
fn flat() -> DeviceParameters {
    let mut device = crate::devices::simple();
    let bank = device.bank.as_mut().unwrap();
    bank.close_after = Some(Time::ZERO);
    bank.t_ras = Span::Time(Time::from_nanos(10));
    bank.t_rp = Span::Time(Time::from_nanos(1));
    bank.t_rtp = Span::Time(Time::from_nanos(1));
    device
}

/// One core of 1 GHz with round latencies: 4, 12, 40 cycles, and 31 ns of memory behind them. No translation costs.
fn round() -> Design {
    let mut design = with_scheme(small(), "perfect-tlb");
    design.os.pages = PagePolicy::Huge;
    design.core.frequency = terrace_model::Frequency(1e9);
    design.core.base_cpi = 0.25;
    design.cache.l1 = cache(4, 4, 4.0, 8);
    design.cache.l2 = cache(32, 8, 12.0, 8);
    design.cache.llc = cache(256, 16, 40.0, 8);
    design.tiers[0].path_latency = Time::ZERO;
    design.devices.insert("dram".to_owned(), flat());
    design
}

/// Cycles that `accesses` more accesses take: the same program with and without them.
fn difference(design: &Design, accesses: u64, build: impl Fn(u64) -> Program) -> f64 {
    let [short, long] = [accesses, 2 * accesses].map(|n| build(n).run(design, Fidelity::Full).cycles);
    (long - short) as f64
}

/// A dependent chase around `lines` lines of 64 bytes, and what one step of it takes, in cycles.
fn chase(design: &Design, lines: u64) -> f64 {
    let steps = 50 * lines.max(200);
    let cycles = difference(design, steps, |steps| {
        let mut program = Program::new();
        program.map(DATA, 8 * MIB);
        for line in 0..lines {
            program.read(DATA + 64 * line);
        }
        for step in 0..steps {
            program.chase(DATA + 64 * (step % lines));
        }
        program
    });
    cycles / steps as f64
}

#[test]
fn a_chase_takes_the_latency_of_the_level_that_holds_it() {
    let design = round();
    // One line; twice L1; twice L2; sixteen times the last level.
    for (lines, cycles) in [(1, 4.0), (128, 12.0), (1024, 40.0), (65536, 71.0)] {
        let lines = if lines == 65536 { 8192 } else { lines };
        let step = chase(&design, lines);
        assert!((step - cycles).abs() < 1e-3, "{lines} lines: {step} cycles, expected {cycles}");
    }
}

#[test]
fn path_and_link_add_to_every_chased_line() {
    let mut design = round();
    design.tiers[0].path_latency = Time::from_nanos(15);
    assert!((chase(&design, 8192) - 86.0).abs() < 1e-3);
    design.tiers[0].link = Some(LinkParameters {
        latency: Time::from_nanos(100),
        read_bandwidth: BytesPerSec(8e9),
        write_bandwidth: BytesPerSec(8e9),
        packet_overhead: Bytes(16),
    });
    // A request of 16 bytes there, 80 bytes back, at 8 bytes per nanosecond.
    assert!((chase(&design, 8192) - (86.0 + 100.0 + 2.0 + 10.0)).abs() < 1e-3);
}

#[test]
fn a_chase_along_rows_pays_for_each_row_once() {
    let mut design = round();
    design.devices.insert("dram".to_owned(), crate::devices::simple());
    // 16 lines of a row: 15 find it open (tCL + burst + controller = 21 ns); the first closes another (tRP) and opens
    // it (tRCD).
    let expected = 40.0 + 21.0 + (11.0 + 10.0) / 16.0;
    let step = chase(&design, 8192);
    assert!((step - expected).abs() < 1e-2, "{step}, expected {expected}");
}

#[test]
fn an_in_order_core_with_one_entry_waits_for_each_access_after_issuing_it() {
    let mut design = round();
    design.core.model = ModelParameters::InOrder(InOrderKeys { loads: 1 });
    let cycles = difference(&design, 1000, |n| {
        let mut program = Program::new();
        program.map(DATA, PAGE);
        for _ in 0..n {
            program.read(DATA);
        }
        program
    });
    assert!((cycles - 1000.0 * 4.25).abs() < 2.0, "{cycles}");
}

/// Independent loads, each with `instructions` before it, of lines that come from memory; nanoseconds per load.
fn independent(design: &Design, instructions: u64) -> f64 {
    let lines = 8192;
    let cycles = difference(design, lines, |n| {
        let mut program = Program::new();
        program.map(DATA, 8 * MIB);
        for line in 0..n + lines {
            program.access(DATA + 64 * (line % lines), 8, AccessKind::Read, 0, instructions);
        }
        program
    });
    cycles / lines as f64
}

#[test]
fn independent_misses_overlap_up_to_the_miss_registers() {
    let mut design = round();
    design.core.reorder_buffer = 512;
    for registers in [1, 2, 4, 8] {
        design.cache.l1.outstanding = registers;
        design.cache.l2.outstanding = registers;
        let step = independent(&design, 1);
        let expected = 71.0 / f64::from(registers);
        assert!((step / expected - 1.0).abs() < 0.02, "{registers} registers: {step}, expected {expected}");
    }
}

#[test]
fn independent_misses_overlap_up_to_the_reorder_buffer() {
    let mut design = round();
    design.core.reorder_buffer = 128;
    for (instructions, overlap) in [(128, 1.0), (64, 2.0), (32, 4.0)] {
        let step = independent(&design, instructions);
        // Dispatch goes on behind the oldest load until the buffer is full; the last group's own dispatch remains.
        let expected = (71.0f64).max(128.0 * 0.25) / overlap;
        let slack = instructions as f64 * 0.25 + 1.0;
        assert!((expected - 1.0..=expected + slack).contains(&step), "{instructions}: {step}, {expected}");
    }
}

/// Pairs of loads, of which the second waits for the first's data. Both of each pair miss the TLB, and one walker serves
/// them. What waits for data keeps no walk of the next pair from the walker: it alone bounds the pairs, not their latency.
#[test]
fn a_walk_holds_a_walker_from_its_own_start_on() {
    let mut design = with_scheme(round(), "radix");
    design.os.pages = PagePolicy::Base;
    design.core.reorder_buffer = 512;
    design.translation.walkers = 1;
    design.translation.l2.latency = Cycles(9.0);
    design.translation.page_walk_cache.latency = Cycles(1.0);
    design.translation.l1d.insert(PageSize::Base, tlb(1, 1));
    design.translation.l2.array.clear();
    let lines = 8192;
    let cycles = difference(&design, lines, |n| {
        let mut program = Program::new();
        program.map(DATA, 8 * MIB);
        for line in 0..n + lines {
            let at = DATA + 64 * (line % lines);
            program.read(at);
            program.chase(at + 4 * MIB);
        }
        program
    });
    let (step, two_walks) = (cycles / lines as f64, 2.0 * (1.0 + 4.0 * 4.0));
    assert!((step / two_walks - 1.0).abs() < 0.05, "{step}, expected {two_walks}");
}

/// Two pages in turn, each load depending on the one before; cycles per load.
fn alternate(design: &Design, apart: u64) -> f64 {
    let cycles = difference(design, 2000, |n| {
        let mut program = Program::new();
        program.map(DATA, 4 * MIB);
        for step in 0..n {
            program.chase(DATA + step % 2 * (apart + 64));
        }
        program
    });
    cycles / 2000.0
}

#[test]
fn translation_adds_the_latencies_on_its_way() {
    let mut design = with_scheme(round(), "radix");
    design.os.pages = PagePolicy::Base;
    design.translation.l2.latency = Cycles(9.0);
    design.translation.page_walk_cache.latency = Cycles(1.0);
    // Both pages in level 1.
    assert!((alternate(&design, PAGE) - 4.0).abs() < 1e-2);
    // One entry: the other page comes from level 2.
    design.translation.l1d.insert(PageSize::Base, tlb(1, 1));
    assert!((alternate(&design, PAGE) - (9.0 + 4.0)).abs() < 1e-2);
    // No level 2: a walk of four entries, all in the L1 cache by now, without a page-walk cache.
    design.translation.l2.array.clear();
    assert!((alternate(&design, PAGE) - (9.0 + 4.0 * 4.0 + 4.0)).abs() < 2e-2);
    // With a page-walk cache, of one.
    design.translation.page_walk_cache.entries = 8;
    assert!((alternate(&design, PAGE) - (9.0 + 1.0 + 4.0 + 4.0)).abs() < 2e-2);
    // At the fidelity without caches every entry comes from the last level, and data cost nothing.
    let steps = |n: u64| {
        let mut program = Program::new();
        program.map(DATA, PAGE * 2);
        for step in 0..n {
            program.chase(DATA + step % 2 * PAGE);
        }
        program.run(&design, Fidelity::Translation).cycles as f64
    };
    assert!((steps(4000) - steps(2000) - 2000.0 * (9.0 + 1.0 + 40.0)).abs() < 2.0);
}

/// The region's transfers per second of the first tier over the bound of its device for that mix.
fn share_of_bound(design: &Design, source: &mut dyn EventSource) -> (f64, Outcome) {
    let outcome = run(design, source, Fidelity::Full);
    let tier = &design.tiers[0];
    let [read, written] = ["bytes_read", "bytes_written"]
        .map(|what| count(&outcome, &format!("tier.{}.{what}", tier.name)) as f64);
    let device = Device::new(&design.devices[&tier.device]).unwrap();
    let bound = device.peak_mixed(read / (read + written)).0;
    let measured = (read + written) / outcome.seconds_simulated;
    println!(
        "{}: {:.2} GB/s of {:.2} GB/s ({:.1} %), {:.3} reads",
        design.machine,
        measured / 1e9,
        bound / 1e9,
        100.0 * measured / bound,
        read / (read + written)
    );
    (measured / bound, outcome)
}

const MACHINES: [&str; 7] = [
    "vbi-table1",
    "skylake-6140",
    "haswell-32",
    "broadwell-2650v4",
    "xeon-5218-dcpmm",
    "e5-2699v3",
    "zen4-cxl",
];

/// All of a machine's cores on its fast tier, as far as its device allows: nothing else holds them up.
fn wide(machine: &str) -> Design {
    let mut design = design("perfect-tlb", machine, &[("os.zero_stores", "non-temporal")]);
    design.os.pages = PagePolicy::Huge;
    for level in [&mut design.cache.l1, &mut design.cache.l2] {
        level.outstanding = 48;
    }
    design.core.outstanding = None;
    design.cache.llc.outstanding = 4096;
    design.core.reorder_buffer = 512;
    design.core.store_buffer = 128;
    // Smaller caches let small vectors miss them.
    design.cache.l2.capacity = Bytes::kib(4 * u64::from(design.cache.l2.ways));
    design.cache.llc.capacity = Bytes::kib(64 * u64::from(design.cache.llc.ways));
    design
}

/// `a[i] = b[i] + s * c[i]` over three vectors of `lines` lines, by so many threads, in a region of its own.
fn triad(threads: u64, lines: u64) -> Program {
    let mut program = Program::new();
    for thread in 1..threads {
        program.on(thread as u32).spawn(0, thread as u32, None);
    }
    // Vectors lie in one mapping, not a power of two apart.
    let apart = 64 * lines + 37 * PAGE;
    program.on(0).map(DATA, 4 * apart);
    for page in 0..(3 * apart).div_ceil(2 * MIB) {
        program.read(DATA + page * 2 * MIB);
    }
    program.mark(MarkKind::RegionBegin);
    let own = lines / threads;
    for begin in (0..own).step_by(256) {
        for thread in 0..threads {
            program.on(thread as u32);
            for line in begin..own.min(begin + 256) {
                let at = DATA + 64 * (thread * own + line);
                program.access(at + apart, 64, AccessKind::Read, 0, 1);
                program.access(at + 2 * apart, 64, AccessKind::Read, 0, 1);
                program.access(at, 64, AccessKind::Write, 0, 2);
            }
        }
    }
    program
}

#[test]
fn triad_reaches_the_bound_of_every_machines_fast_tier() {
    let mut failed = Vec::new();
    for machine in MACHINES {
        let design = wide(machine);
        let program = triad(u64::from(design.core.count), 16 * MIB / 64);
        let (share, outcome) = share_of_bound(&design, &mut program.source());
        assert_eq!(count(&outcome, "os.faults"), 0, "the region has only the triad");
        if !(0.95..=1.005).contains(&share) {
            failed.push(format!("{machine}: {:.1} % of the bound", 100.0 * share));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
#[ignore = "weekly"]
fn triad_never_exceeds_the_bound_on_the_machines_as_they_are() {
    for machine in MACHINES {
        let mut design = design("native-2m", machine, &[]);
        design.cache.l2.capacity = Bytes::kib(4 * u64::from(design.cache.l2.ways));
        design.cache.llc.capacity = Bytes::kib(64 * u64::from(design.cache.llc.ways));
        let program = triad(u64::from(design.core.count), 16 * MIB / 64);
        let (share, _) = share_of_bound(&design, &mut program.source());
        assert!((0.5..=1.005).contains(&share), "{machine}: {:.1} % of the bound", 100.0 * share);
    }
}

#[test]
#[ignore = "weekly"]
fn reads_alone_reach_the_bound_and_never_exceed_it() {
    let mut failed = Vec::new();
    for machine in MACHINES {
        let mut design = wide(machine);
        design.core.count = 1;
        design.cache.l1.outstanding = 1024;
        design.cache.l2.outstanding = 1024;
        design.core.reorder_buffer = 4096;
        let mut program = Program::new();
        program.map(DATA, 32 * MIB);
        for page in 0..16 {
            program.read(DATA + page * 2 * MIB);
        }
        program.mark(MarkKind::RegionBegin);
        for line in 0..32 * MIB / 64 {
            program.access(DATA + 64 * line, 64, AccessKind::Read, 0, 1);
        }
        let (share, _) = share_of_bound(&design, &mut program.source());
        if !(0.95..=1.005).contains(&share) {
            failed.push(format!("{machine}: {:.1} % of the bound", 100.0 * share));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
