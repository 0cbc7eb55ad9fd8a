//! Memory with a fast and a slow part under the Virtual Block Interface: the controller counts by block and moves blocks.

use crate::support::*;
use terrace_model::{AddressRange, Bytes};
use terrace_sim::design::{Design, Library};
use terrace_sim::{Fidelity, Options, Outcome};
use terrace_trace::Event;

/// A design on one core, with room for so many pages in the fast tier.
fn with_fast(name: &str, pages: u64, sets: &[(&str, &str)]) -> Design {
    let mut all = vec![("core.count", "1")];
    all.extend(sets);
    let mut design = Library::embedded().design(name, None, &owned(&all)).unwrap().design;
    design.tiers[0].capacity = Bytes(pages * PAGE);
    design.tiers[1].capacity = Bytes(64 * MIB);
    design
}

fn owned(sets: &[(&str, &str)]) -> Vec<(String, String)> {
    sets.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

/// Blocks of 16 MiB: all of the first is written, then all of the second, which is read at random ever after.
fn cold_then_hot(reads: u64) -> Program {
    let mut program = Program::new();
    let bytes = 16 * MIB;
    program.map(DATA, 2 * bytes);
    for object in 0..2 {
        let range = AddressRange::new(DATA + object * bytes, bytes);
        program.event(Event::Alloc { object, site: object as u32, range });
    }
    for line in 0..2 * bytes / 64 {
        program.write(DATA + line * 64);
    }
    let mut random = Random(7);
    for _ in 0..reads {
        program.chase(DATA + bytes + random.below(bytes / 64) * 64);
    }
    program
}

/// The share of the program's reads that the fast tier served.
fn fast_share(outcome: &Outcome, fast: &str, slow: &str) -> f64 {
    let [fast, slow] = [fast, slow].map(|tier| count(outcome, &format!("tier.{tier}.reads")) as f64);
    fast / (fast + slow)
}

#[test]
fn the_controller_moves_the_hot_block_to_fast_memory() {
    // As many reads as leave no page on its way at the end.
    for (family, fast, slow, reads) in
        [("vbi-pcm", "dram", "pcm", 500_000), ("vbi-tl-dram", "near", "far", 1_000_000)]
    {
        let program = cold_then_hot(reads);
        let run = |name: &str| program.run(&with_fast(name, 4500, &[]), Fidelity::Full);
        let (unaware, policy) = (run(&format!("{family}-unaware")), run(family));
        assert!(policy.cycles < unaware.cycles, "{family}: {} {}", policy.cycles, unaware.cycles);
        let shares = [&unaware, &policy].map(|outcome| fast_share(outcome, fast, slow));
        assert!(shares[0] < shares[1], "{family}: {shares:?}");
        // Pages move a line at a time: as many lines are read at one place as are written at the other.
        let [up, down] = counts(&policy, ["vmstat.pgpromote_success", "vmstat.pgdemote_policy"]);
        let copied = |tier: &str| policy.stats.integer(&format!("tier.{tier}.bytes_by.copy"));
        assert!(up > 1000, "{family}: {up} pages moved up");
        assert_eq!((copied(fast), copied(slow)), ((up + down) * PAGE, (up + down) * PAGE), "{family}");
    }
}

/// The bound knows beforehand, and nothing moves.
#[test]
fn the_ideal_places_the_hot_block_from_the_start() {
    let program = cold_then_hot(250_000);
    let first = with_fast("vbi-pcm-unaware", 4500, &[]);
    let options = Options { count_accesses: true, ..Options::default() };
    let pass = run_with(&first, &mut program.source(), options).unwrap();
    let profile = pass.profile.map(std::sync::Arc::new);
    let options = Options { profile, ..Options::default() };
    let ideal = run_with(&with_fast("vbi-pcm-ideal", 4500, &[]), &mut program.source(), options).unwrap();
    let policy = program.run(&with_fast("vbi-pcm", 4500, &[]), Fidelity::Full);
    assert!(ideal.cycles < policy.cycles, "{} {}", ideal.cycles, policy.cycles);
    assert_eq!(ideal.stats.integer("tier.pcm.bytes_by.copy"), 0);
}

/// With early reservation a block that moves leaves its run, and no frame is lost on the way: builds with debug assertions
/// look at all frames, those set aside for blocks included.
#[test]
fn a_block_that_moves_leaves_its_run() {
    let reserved = ("translation.scheme.reservation", "early");
    let outcome = cold_then_hot(250_000).run(&with_fast("vbi-pcm", 4500, &[reserved]), Fidelity::Full);
    assert!(count(&outcome, "vbi.switches") > 0);
    assert!(count(&outcome, "vmstat.pgpromote_success") > 1000);
}

/// The same policy where the kernel has page tables: it knows structures by their allocations and counts samples.
#[test]
fn the_same_policy_runs_on_page_tables() {
    let sets =
        [("os.policy.name", "block-hotness"), ("os.policy.epoch", "1 ms"), ("os.policy.sample_period", "16")];
    let set = |name: &str, sets: &[(&str, &str)]| {
        let mut all = vec![("core.count", "1"), ("os.reserved", "0 B")];
        all.extend(sets);
        let mut design = design(name, "vbi-table1", &all);
        design.tiers[0].capacity = Bytes(4500 * PAGE);
        design.tiers[1].capacity = Bytes(64 * MIB);
        design
    };
    let program = cold_then_hot(250_000);
    let unaware = program.run(&set("native-4k", &[]), Fidelity::Full);
    let policy = program.run(&set("native-4k", &sets), Fidelity::Full);
    let shares = [&unaware, &policy].map(|outcome| fast_share(outcome, "dram", "pcm"));
    assert!(shares[0] < shares[1] && count(&policy, "vmstat.pgpromote_success") > 500, "{shares:?}");
}

#[test]
fn what_cannot_move_pages_refuses() {
    let refused = |name: &str, sets: &[(&str, &str)]| {
        let design = design(name, "vbi-table1", sets);
        terrace_sim::simulate(&design, &mut Program::new().source(), Options::default())
            .unwrap_err()
            .to_string()
    };
    let block = ("os.policy.name", "block-hotness");
    let error = refused("native-4k", &[block, ("os.policy.counters", "controller")]);
    assert!(error.contains("it needs block-counts") && error.contains("kind = \"vbi\" has one"), "{error}");
    let error = refused("vbi-2", &[("os.policy.name", "tpp")]);
    assert!(error.contains("caches are named by block"), "{error}");
    // A device whose segments end where tiers do, with a tier too few.
    let mut lacking = with_fast("vbi-tl-dram", 4500, &[]);
    lacking.tiers.truncate(1);
    lacking.os.policy = None;
    let error =
        terrace_sim::simulate(&lacking, &mut Program::new().source(), Options::default()).unwrap_err();
    assert!(error.to_string().contains("device.dram: bank.segments.0 has no end"), "{error}");
}
