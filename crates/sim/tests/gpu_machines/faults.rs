//! Pages that the GPU touches first: what their faults cost, calculated by hand.

use terrace_sim::Outcome;
use terrace_sim::design::Library;

use crate::gpu_support::Script;

/// Each warp of one work-group loads from its pages, one after the other.
fn run(latency: &str, pending: u32, warps: &[&[u64]]) -> Outcome {
    let changes = [("gpu.fault.latency", latency), ("gpu.fault.pending", &pending.to_string())]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let design = Library::embedded().design("native-4k", Some("gpu-gtx480"), &changes).unwrap().design;
    let mut script = Script::new(1 << 20);
    script.kernel();
    script.group(32 * warps.len() as u64);
    for (warp, pages) in warps.iter().enumerate() {
        script.warp(warp as u64);
        for page in *pages {
            script.lanes(page * 4096, 4, false, 1);
        }
    }
    script.run(&design)
}

fn cycles(outcome: &Outcome) -> u64 {
    outcome.stats.integer("gpu.cycles")
}

/// 20 us at 1.4 GHz.
const FAULT: u64 = 28_000;
/// The walk after it.
const WALK: u64 = 100;

#[test]
fn a_fault_takes_its_latency_and_a_walk() {
    let base = cycles(&run("0 ns", 16, &[&[0]]));
    let outcome = run("20 us", 16, &[&[0]]);
    assert!((base + FAULT + WALK).abs_diff(cycles(&outcome)) <= 1, "{base} {}", cycles(&outcome));
    let count = |name: &str| outcome.stats.integer(name);
    assert_eq!((count("gpu.faults"), count("gpu.fault.joined"), count("gpu.fault.blocked")), (1, 0, 0));
    // The walk is 71 ns.
    assert_eq!(count("gpu.fault.time"), 20_071);
    let slow = cycles(&run("40 us", 16, &[&[0]]));
    assert!((base + 2 * FAULT + WALK).abs_diff(slow) <= 1, "{base} {slow}");
}

#[test]
fn a_warp_waits_for_its_fault_and_others_go_on() {
    let (base, faulting) = (cycles(&run("0 ns", 16, &[&[0, 1]])), cycles(&run("20 us", 16, &[&[0, 1]])));
    // Without faults both loads are under way at once; so a little of the second is added to both faults.
    assert!(
        (2 * (FAULT + WALK)..2 * (FAULT + WALK) + base).contains(&(faulting - base)),
        "{base} {faulting}"
    );
    let beside = cycles(&run("20 us", 16, &[&[0], &[1]]));
    assert!((FAULT + WALK..FAULT + WALK + base).contains(&(beside - base)), "{base} {beside}");
}

#[test]
fn whoever_touches_the_same_page_waits_for_the_same_fault() {
    let outcome = run("20 us", 16, &[&[0], &[0], &[0]]);
    let count = |name: &str| outcome.stats.integer(name);
    assert_eq!((count("gpu.faults"), count("gpu.fault.joined")), (1, 2));
    let alone = cycles(&run("20 us", 16, &[&[0]]));
    assert!(cycles(&outcome) - alone < 100, "{} {alone}", cycles(&outcome));
}

#[test]
fn the_seventeenth_fault_of_an_sm_waits_for_the_first() {
    let pages: Vec<[u64; 1]> = (0..17).map(|page| [page]).collect();
    let warps: Vec<&[u64]> = pages.iter().map(|page| &page[..]).collect();
    let (sixteen, all) = (run("20 us", 16, &warps[..16]), run("20 us", 16, &warps));
    assert_eq!([&sixteen, &all].map(|outcome| outcome.stats.integer("gpu.fault.blocked")), [0, 1]);
    let more = cycles(&all) - cycles(&sixteen);
    // The seventeenth fault begins when the first ends, which began sixteen instructions earlier than the sixteenth.
    assert!((FAULT - 100..=FAULT).contains(&more), "{more}");
    let wider = run("20 us", 17, &warps);
    assert_eq!(wider.stats.integer("gpu.fault.blocked"), 0);
    assert!(cycles(&wider) < cycles(&sixteen) + 100);
}

/// What the source's designs allocate before kernels costs what it cost before there were faults.
#[test]
fn without_a_latency_nothing_of_it_exists() {
    let outcome = run("0 ns", 1, &[&[0], &[1]]);
    assert_eq!(outcome.stats.integer("gpu.faults"), 2);
    assert!(outcome.stats.get("gpu.fault.time").is_none());
    assert_eq!(cycles(&outcome), cycles(&run("0 ns", 16, &[&[0], &[1]])));
}
