//! The Virtual Block Interface on several nodes: a controller each, blocks at home near who asks for them, and blocks that
//! move.

use crate::support::*;
use terrace_model::Bytes;
use terrace_sim::design::{Design, Library};
use terrace_sim::{Options, Outcome};

/// Two cores and two tiers, the second one node 1's, with keys of the scheme on top. Small caches, so that memory is read.
fn two(name: &str, own: &[(&str, &str)]) -> Design {
    let mut sets = vec![("core.count".to_owned(), "2".to_owned())];
    sets.extend(own.iter().map(|(key, value)| (format!("translation.scheme.{key}"), value.to_string())));
    let sets: Vec<(&str, &str)> = sets.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let mut design = design(name, "vbi-table1", &sets);
    design.tiers.iter_mut().for_each(|tier| tier.capacity = Bytes(64 * MIB));
    design.os.reserved = Bytes(0);
    design.cache.l2.capacity = Bytes(64 * KIB);
    design.cache.llc.capacity = Bytes(256 * KIB);
    design
}

fn whole(program: &Program, design: &Design) -> Outcome {
    run_with(design, &mut program.source(), Options { whole: true, ..Options::default() }).unwrap()
}

fn of_tier(outcome: &Outcome, tier: &str, by: &str) -> u64 {
    outcome.stats.integer(&format!("tier.{tier}.bytes_by.{by}"))
}

/// The first thread writes 4 MiB. Then the second one, on the other node, reads them in random order.
fn handed_over(reads: u64) -> Program {
    let mut program = Program::new();
    program.map(DATA, 4 * MIB);
    (0..4 * MIB / 64).for_each(|line| _ = program.write(DATA + 64 * line));
    program.on(1).spawn(0, 1, None);
    let mut random = Random(3);
    for _ in 0..reads {
        program.chase(DATA + random.below(4 * MIB / 64) * 64);
    }
    program
}

#[test]
fn blocks_are_at_home_where_they_are_asked_for() {
    let mut program = Program::new();
    for process in 0..2 {
        program.on(process);
        if process > 0 {
            program.spawn(process, 0, None);
        }
        program.map(DATA, 2 * MIB);
        (0..2 * MIB / 64).for_each(|line| _ = program.write(DATA + 64 * line));
    }
    for name in ["vbi-1", "vbi-2", "vbi-full"] {
        let one = whole(&program, &two(name, &[]));
        assert_eq!((of_tier(&one, "pcm", "demand"), of_tier(&one, "pcm", "writeback")), (0, 0), "{name}");
        let outcome = whole(&program, &two(name, &[("nodes", "2")]));
        assert_eq!(count(&outcome, "vbi.remote"), 0, "{name}");
        let [first, second] = ["dram", "pcm"].map(|tier| of_tier(&outcome, tier, "writeback"));
        assert!(first > MIB && first.abs_diff(second) < MIB / 4, "{name}: {first} and {second}");
        // Each node is counted, and all of them are all that there are.
        let asked = counts(&outcome, ["vbi.node_0.translations", "vbi.node_1.translations"]);
        assert!(asked[0] > 1000 && asked[0].abs_diff(asked[1]) < asked[0] / 4, "{name}: {asked:?}");
        let all = counts(&outcome, ["vbi.vit_cache.hit", "vbi.vit_cache.miss"]);
        assert_eq!(asked.iter().sum::<u64>(), all.iter().sum::<u64>(), "{name}");
    }
}

#[test]
fn another_node_s_controller_is_reached_over_a_link() {
    let program = handed_over(3000);
    let run = |hop: &str| whole(&program, &two("vbi-1", &[("nodes", "2"), ("hop", hop)]));
    let (near, far) = (run("0 ns"), run("100 ns"));
    let remote = count(&far, "vbi.remote");
    assert_eq!(remote, count(&near, "vbi.remote"));
    // Whatever misses the second core's L2.
    assert!((2500..=3100).contains(&remote), "{remote}");
    // There and back, of which the look-up of the last level hides a part.
    let more = (far.seconds_simulated - near.seconds_simulated) * 1e9 / remote as f64;
    assert!((150.0..=200.0).contains(&more), "{more} ns for each");
}

#[test]
fn a_block_moves_to_the_node_that_reads_it_and_its_memory_follows() {
    let program = handed_over(20_000);
    for name in ["vbi-1", "vbi-2", "vbi-full"] {
        let keys = |after| [("nodes", "2"), ("hop", "100 ns"), ("migrate_after", after)];
        let stays = whole(&program, &two(name, &keys("0")));
        assert_eq!(counts(&stays, ["vbi.blocks_moved", "vbi.regions_moved"]), [0, 0], "{name}");
        let moves = whole(&program, &two(name, &keys("500")));
        let [blocks, regions, promoted] =
            counts(&moves, ["vbi.blocks_moved", "vbi.regions_moved", "vbi.promotions"]);
        assert_eq!((blocks, promoted), (1, 0), "{name}");
        // All of them but for those that only caches have.
        assert!((900..=1024).contains(&regions), "{name}: {regions}");
        let copied = |tier| of_tier(&moves, tier, "copy");
        assert_eq!(
            [copied("dram"), copied("pcm")],
            [regions * 4096; 2],
            "{name}: read here and written there"
        );
        let remote = [&stays, &moves].map(|outcome| count(outcome, "vbi.remote"));
        assert!(remote[1] < 1000 && remote[0] > 15_000, "{name}: {remote:?}");
        // Blocks that are read by their own node, and by many alike, stay.
        let turns = |outcome: &Outcome| counts(outcome, ["vbi.blocks_moved"]);
        assert_eq!(turns(&whole(&handed_over(200), &two(name, &keys("500")))), [0], "{name}");
    }
}

#[test]
fn nothing_is_lost_where_blocks_move_fork_and_go() {
    for seed in 1..6 {
        let mut random = Random(seed);
        let mut program = Program::new();
        program.map(DATA, 2 * MIB).map(DATA + GIB, 2 * MIB);
        program.on(1).spawn(0, 1, None);
        for step in 0..12_000 {
            if step == 6000 {
                program.on(2).spawn(1, 0, Some(0));
            }
            let streams = if step > 6000 { 3 } else { 2 };
            program.on(random.below(streams) as u32);
            let area = DATA + random.below(2) * GIB;
            let page = area + random.below(2 * MIB / PAGE) * PAGE;
            match random.below(400) {
                0 => _ = program.unmap(page, 4 * PAGE).map(page, 4 * PAGE),
                1..=200 => _ = program.write(page + random.below(64) * 64),
                _ => _ = program.read(page + random.below(64) * 64),
            }
        }
        for name in ["vbi-1", "vbi-2", "vbi-full"] {
            let outcome = whole(&program, &two(name, &[("nodes", "2"), ("migrate_after", "8")]));
            assert!(count(&outcome, "vbi.blocks_moved") > 2, "{name}, {seed}");
        }
    }
}

#[test]
fn a_design_shows_it() {
    let outcome = whole(&handed_over(20_000), &two("vbi-nodes", &[]));
    assert_eq!(counts(&outcome, ["vbi.blocks_moved"]), [1]);
    assert!(count(&outcome, "vbi.regions_moved") > 800);
}

#[test]
fn nodes_are_a_power_of_two() {
    let sets = [("translation.scheme.nodes".to_owned(), "3".to_owned())];
    let error = Library::embedded().design("vbi-full", Some("vbi-table1"), &sets).unwrap_err().to_string();
    assert!(error.contains("nodes") && error.contains("power of two"), "{error}");
}
