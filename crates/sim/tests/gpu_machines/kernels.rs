//! The GPU machine: bandwidth of each memory against its bound, placement's shapes, caches, barriers, determinism.

use terrace_sim::design::{Design, Library};
use terrace_sim::{Options, Outcome, simulate};
use terrace_trace::{Event, Header, MarkKind, VecSource};

use crate::gpu_support::Script;

fn design(name: &str, changes: &[(&str, &str)]) -> Design {
    let changes: Vec<(String, String)> =
        changes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Library::embedded().design(name, Some("gpu-gtx480"), &changes).unwrap().design
}

/// A kernel that reads `bytes` once, 128 bytes for each load of a warp; with a store of as much where `copies`.
fn stream(bytes: u64, copies: bool) -> Script {
    let mut script = Script::new(2 * bytes);
    script.kernel();
    let groups = bytes / (8 * 8 * 128);
    for group in 0..groups {
        script.group(256);
        for warp in 0..8 {
            script.warp(warp);
            for load in 0..8 {
                // As grid-stride loops do: groups that run together read what lies together.
                let offset = ((load * groups + group) * 8 + warp) * 128;
                script.lanes(offset, 4, false, 4);
                if copies {
                    script.lanes(bytes + offset, 4, true, 4);
                }
            }
        }
    }
    script
}

fn bandwidth(outcome: &Outcome) -> [f64; 2] {
    ["gddr", "ddr"].map(|tier| outcome.stats.number(&format!("gpu.bandwidth.{tier}")) / 1e9)
}

const BYTES: u64 = 24 << 20;

#[test]
fn each_memory_reaches_its_bound_and_never_passes_it() {
    // What refresh leaves: 110 ns of 3.9 us, 350 ns of 7.8 us.
    for (tier, at, peak, refresh) in [("gddr", 0, 200.0, 0.11 / 3.9), ("ddr", 1, 80.0, 0.35 / 7.8)] {
        let placement = format!("{{ kind = \"bind\", tier = \"{tier}\" }}");
        let outcome = stream(BYTES, false).run(&design("native-4k", &[("os.placement", &placement)]));
        let (reached, bound) = (bandwidth(&outcome)[at], peak * (1.0 - refresh));
        assert!(reached <= bound * 1.001 && reached >= 0.95 * bound, "{tier}: {reached} of {bound} GB/s");
        assert_eq!(outcome.stats.integer(&format!("tier.{tier}.bytes_read")), BYTES);
        assert_eq!(bandwidth(&outcome)[1 - at], 0.0);
    }
}

/// Fig. 3.4's shapes as the source's model has them: LOCAL 200, INTERLEAVE min(2 b_B, 2 b_C), BW-AWARE 200 + b_C.
#[test]
fn placements_have_their_analytic_shapes() {
    let refresh = [1.0 - 0.11 / 3.9, 1.0 - 0.35 / 7.8];
    let total = |name: &str, changes: &[(&str, &str)], ddr: f64| {
        let bus = format!("{} GB/s", ddr / 4.0);
        let mut all =
            vec![("device.ddr.bus_bandwidth", bus.as_str()), ("tier.ddr.link.read_bandwidth", "400 GB/s")];
        all.extend(changes);
        bandwidth(&stream(BYTES, false).run(&design(name, &all))).iter().sum::<f64>()
    };
    for ddr in [40.0, 80.0, 200.0] {
        let [fast, slow] = [200.0 * refresh[0], ddr * refresh[1]];
        let weights = format!("[{}, {}]", (200.0 / 20.0) as u32, (ddr / 20.0) as u32);
        for (what, found, expected) in [
            ("local", total("first-touch", &[], ddr), fast),
            ("interleave", total("interleave", &[], ddr), 2.0 * slow.min(fast)),
            (
                "bw-aware",
                total("weighted-interleave", &[("os.placement.weights", &weights)], ddr),
                fast + slow,
            ),
        ] {
            let error = found / expected - 1.0;
            assert!(error.abs() <= 0.05, "{what} at {ddr} GB/s: {found:.1} instead of {expected:.1}");
        }
    }
}

#[test]
fn lines_that_stay_in_a_cache_are_read_once() {
    let mut script = Script::new(1 << 20);
    script.kernel();
    script.group(32);
    script.warp(0);
    for _ in 0..3 {
        script.lanes(0, 4, false, 1);
    }
    // Another kernel: the SM's cache is empty, the slice is not.
    script.kernel();
    script.group(32);
    script.warp(0);
    script.lanes(0, 4, false, 1);
    let outcome = script.run(&design("native-4k", &[]));
    let count = |name: &str| outcome.stats.integer(name);
    assert_eq!((count("gpu.l1.hit"), count("gpu.l1.miss")), (2, 2));
    assert_eq!((count("gpu.l2.hit"), count("gpu.l2.miss")), (1, 1));
    assert_eq!((count("gpu.loads"), count("gpu.transactions"), count("gpu.sectors")), (128, 4, 16));
    assert_eq!(count("tier.gddr.bytes_read"), 128);
    assert_eq!((count("gpu.kernels"), count("gpu.work_groups"), count("gpu.warps")), (2, 2, 2));
    assert_eq!((count("gpu.faults"), count("gpu.tlb.miss")), (1, 1));
}

#[test]
fn stores_read_nothing_and_leave_when_they_must() {
    // Twice what all slices hold, so that half of it is written back.
    let slices = 12 * (128 << 10);
    let mut script = Script::new(2 * slices);
    script.kernel();
    for group in 0..2 * slices / 128 / 8 {
        script.group(256);
        for warp in 0..8 {
            script.warp(warp);
            script.lanes((group * 8 + warp) * 128, 4, true, 1);
        }
    }
    let outcome = script.run(&design("interleave", &[]));
    let sum = |what: &str| {
        ["gddr", "ddr"].map(|tier| outcome.stats.integer(&format!("tier.{tier}.{what}"))).iter().sum::<u64>()
    };
    assert_eq!(sum("bytes_read"), 0, "whole sectors need nothing from memory");
    let written = sum("bytes_written");
    assert!((slices..2 * slices).contains(&written), "{written}");
    assert_eq!(outcome.stats.integer("gpu.l2.miss"), 2 * slices / 128);
}

#[test]
fn a_barrier_holds_the_fast_warp_for_the_slow_one() {
    let run = |barrier: bool| {
        let mut script = Script::new(1 << 20);
        script.kernel();
        script.group(64);
        script.warp(0);
        script.event(Event::Compute { instructions: 10_000 });
        script.warp(1);
        script.event(Event::Compute { instructions: 1 });
        if barrier {
            script.mark(MarkKind::GroupBarrier, 0);
        }
        script.warp(1);
        script.event(Event::Compute { instructions: 5000 });
        script.run(&design("native-4k", &[("gpu.issue_width", "2")])).stats.integer("gpu.cycles")
    };
    // Two instructions a cycle are shared by both warps: without the barrier all 15,001 are one queue.
    let (with, without) = (run(true), run(false));
    assert!(with >= without && with >= 7500, "{with} {without}");
}

#[test]
fn equal_inputs_give_equal_statistics() {
    let design = design("bw-aware", &[("os.policy.order", "draw")]);
    let run = || stream(1 << 20, true).run(&design);
    let (one, other) = (run(), run());
    assert_eq!(one, other);
    let copied: u64 = 1 << 20;
    let read: u64 =
        ["gddr", "ddr"].map(|tier| one.stats.integer(&format!("tier.{tier}.bytes_read"))).iter().sum();
    assert_eq!(read, copied);
}

/// Whoever draws where memory lies changes nothing, and sees what was served.
#[test]
fn a_map_of_placement_shows_both_memories_and_changes_nothing() {
    let design = design("bw-aware", &[]);
    let run = |placement_map| {
        let options = Options { placement_map, ..Options::default() };
        let mut source = VecSource::new(Header::default(), stream(1 << 20, true).take());
        simulate(&design, &mut source, options).unwrap()
    };
    let (watched, alone) = (run(true), run(false));
    assert_eq!(watched.stats, alone.stats);
    assert!(alone.placement_map.is_none());
    let map = watched.placement_map.unwrap();
    assert_eq!(map.tiers, ["gddr", "ddr"]);
    let last = map.columns.last().unwrap();
    let resident = last.resident.iter().fold([0; 2], |sum, piece| [sum[0] + piece[0], sum[1] + piece[1]]);
    // 512 pages, about 5 of 7 by the bandwidths.
    assert!(resident.iter().sum::<u64>() == 512 && (360..=372).contains(&resident[0]), "{resident:?}");
    let served: u64 = map.columns.iter().map(|column| column.served.iter().sum::<u64>()).sum();
    assert_eq!(served, (2 << 20) / 128);
}

/// Every key of the GPU does something.
#[test]
fn every_key_has_an_effect() {
    let cycles = |changes: &[(&str, &str)]| {
        let mut script = stream(1 << 20, true);
        // Again, for the caches: a warp that goes over a few pages twice.
        script.kernel();
        script.group(32);
        script.warp(0);
        for at in (0..64u64).chain(0..64) {
            script.lanes(at * 4096, 4, false, 1);
        }
        let outcome = script.run(&design("native-4k", changes));
        let names = ["gpu.cycles", "gpu.l1.hit", "gpu.l2.hit", "gpu.tlb.hit"];
        names.map(|name| outcome.stats.integer(name))
    };
    let base = cycles(&[]);
    for (key, value) in [
        ("gpu.sms", "2"),
        ("gpu.frequency", "700 MHz"),
        ("gpu.issue_width", "4"),
        ("gpu.warps", "8"),
        ("gpu.groups", "1"),
        ("gpu.loads", "1"),
        ("gpu.l1.capacity", "1 KiB"),
        ("gpu.l1.ways", "1"),
        ("gpu.l1.latency", "100 cycles"),
        ("gpu.l1.outstanding", "2"),
        ("gpu.l1.stores", "1"),
        ("gpu.l2.capacity", "4 KiB"),
        ("gpu.l2.ways", "1"),
        ("gpu.l2.latency", "400 cycles"),
        ("gpu.l2.outstanding", "1"),
        ("gpu.tlb.entries", "2"),
        ("gpu.tlb.miss_latency", "1000 cycles"),
    ] {
        assert_ne!(cycles(&[(key, value)]), base, "{key} = {value}");
    }
}

#[test]
fn what_the_gpu_cannot_do_is_refused() {
    let refused = |design: &Design, options: Options| {
        let mut source = VecSource::new(Header::default(), []);
        simulate(design, &mut source, options).unwrap_err().to_string()
    };
    let error = refused(&design("virtual-4k", &[]), Options::default());
    assert!(error.contains("a GPU in a virtual machine is not simulated"), "{error}");
    let options = Options { fidelity: terrace_sim::Fidelity::Pages, ..Options::default() };
    let error = refused(&design("native-4k", &[]), options);
    assert!(error.contains("use --fidelity full"), "{error}");
    for pages in ["2m", "1g", "thp"] {
        let error = refused(&design("native-4k", &[("os.pages", pages)]), Options::default());
        assert!(error.contains("the GPU's TLBs hold pages of 4 KiB alone"), "{error}");
    }
    let odd = [("gpu.l1.capacity".to_owned(), "1000 B".to_owned())];
    let error = Library::embedded().design("native-4k", Some("gpu-gtx480"), &odd).unwrap_err().to_string();
    assert!(error.contains("gpu.l1.capacity"), "{error}");
}

#[test]
fn a_machine_without_a_gpu_runs_kernels_on_a_core_and_says_so() {
    let notes = |machine: Option<&str>| {
        let design = Library::embedded().design("native-4k", machine, &[]).unwrap().design;
        stream(1 << 20, true).run(&design).notes.join("\n")
    };
    let on_a_core = notes(None);
    // 128 bytes of each array are 32 lanes of 4 bytes.
    let expected =
        "the machine has no GPU: 524,288 accesses of the input's kernels ran as one thread on a core";
    assert!(on_a_core.contains(expected) && on_a_core.contains("--machine gpu-gtx480"), "{on_a_core}");
    assert!(!notes(Some("gpu-gtx480")).contains("no GPU"));
}

/// All that memories and the link carried is in the intervals, and what each structure read and wrote under its name.
#[test]
fn what_was_carried_is_known_over_time_and_by_structure() {
    let weights = "{ kind = \"weighted-interleave\", weights = [3, 1] }";
    let mut script = stream(BYTES, true);
    let outcome = script.run(&design("native-4k", &[("os.placement", weights)]));
    let pools = outcome.pools.as_ref().unwrap();
    let lines = |tier: &str, what: &str| outcome.stats.integer(&format!("tier.{tier}.{what}"));
    for (at, tier) in ["gddr", "ddr"].into_iter().enumerate() {
        let carried: u64 = pools.intervals.iter().map(|one| one.demand[at] + one.migration[at]).sum();
        assert_eq!(carried, 64 * (lines(tier, "reads") + lines(tier, "writes")), "{tier}");
        // Seldom above its limit, and then by what a queue holds.
        let limit = pools.pools[at].bytes_per_second * pools.interval_seconds;
        let most = pools.intervals.iter().map(|one| one.demand[at]).max().unwrap() as f64;
        assert!(most > 0.8 * limit && most < 1.3 * limit, "{tier}: {most} of {limit}");
    }
    // A request is 16 bytes, and a line 80.
    let over = |of: fn(&terrace_model::PoolInterval) -> u64| pools.intervals.iter().map(of).sum::<u64>();
    assert_eq!(over(|one| one.to_gpu), 80 * lines("ddr", "reads"));
    assert_eq!(over(|one| one.to_cpu), 16 * lines("ddr", "reads") + 80 * lines("ddr", "writes"));
    let seconds = outcome.seconds_simulated;
    let expected = over(|one| one.to_gpu) as f64 / (pools.link.unwrap().to_gpu * seconds);
    let found = outcome.stats.number("gpu.link.to_gpu.utilization");
    assert!((found / expected - 1.0).abs() < 1e-6, "{found} of {expected}");
    let time = pools.interval_seconds * pools.intervals.len() as f64;
    assert!(time >= 0.99 * seconds && time < seconds + 2.0 * pools.interval_seconds, "{time} of {seconds}");

    // Three structures: what is read, what is written, and one that nobody touches.
    let named = |site: u32, name: &str| Event::Site { site, name: name.to_owned() };
    let mut script = Script::new(4 << 20);
    for (object, site, name) in [(1, 1, "read"), (2, 2, "written"), (3, 3, "left alone")] {
        script.event(named(site, name));
        let range = terrace_model::AddressRange::new(
            crate::gpu_support::BASE + u64::from(site - 1) * (1 << 20),
            1 << 20,
        );
        script.event(Event::Alloc { object, site, range });
    }
    script.kernel();
    script.group(32);
    script.warp(0);
    for line in 0..64 {
        script.lanes(128 * line, 4, false, 4);
        script.lanes((1 << 20) + 128 * line, 4, true, 4);
    }
    script.lanes(0, 4, false, 4);
    let outcome = script.run(&design("native-4k", &[]));
    let structures = &outcome.pools.as_ref().unwrap().structures;
    let found: Vec<_> =
        structures.iter().map(|one| (one.name.as_str(), one.bytes, one.lines.clone())).collect();
    // The last load is served by the SM's cache.
    assert_eq!(found, [("read", 1 << 20, vec![64, 0]), ("written", 1 << 20, vec![64, 0])]);
}
