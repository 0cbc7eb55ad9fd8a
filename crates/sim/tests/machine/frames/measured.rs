//! What copies cost the program beside them, and contiguity as it is sampled.

use super::*;

/// Run time in seconds, bytes copied, and bytes that copies moved to and from memory. Half of the memory holds pages of a
/// file, and where `copies`, one thread moves them to and fro for as long as the program runs.
fn beside_copies(workload_spec: &str, copies: bool) -> (f64, u64, u64) {
    let sets = [
        ("os.reserved", "0 B"),
        ("core.count", "4"),
        ("device.local.channels", "1"),
        ("os.zero_stores", "non-temporal"),
        ("os.zero_bandwidth", "1000 GB/s"),
    ];
    let mut design = design("native-4k", "broadwell-2650v4", &sets);
    design.tiers.truncate(1);
    design.tiers[0].capacity = Bytes(96 * MIB);
    let aging = Aging::PageCache { reads: 1.0, dropped: 0.5, kernel: 0.0, fmfi: None, seed: 1 };
    design.os.memory = MemoryParameters { max_order: 10, aging, ..MemoryParameters::default() };
    let mut places: Vec<(Frame, Frame)> = Vec::new();
    let mut pending = 0;
    let on = move |_: Moment, signals: &[Signal], memory: &mut dyn MemorySystem| {
        pending -= outcomes(signals).len();
        if copies && pending == 0 {
            let physical = memory.physical().unwrap();
            if places.is_empty() {
                // The highest frames: faults begin at the lowest.
                let (first, frames) = physical.tier_frames(TIER);
                let upper: Vec<Frame> = (first.0 + frames / 2..first.0 + frames).map(Frame).collect();
                let held = |frame: &&Frame| physical.state(**frame) == FrameState::MovableOther;
                let free = |frame: &&Frame| matches!(physical.state(**frame), FrameState::Free { .. });
                places = upper.iter().filter(held).copied().zip(upper.iter().filter(free).copied()).collect();
                places.truncate(512);
            }
            let moves: Vec<Relocate> =
                places.iter().map(|(from, to)| Relocate { from: *from, to: *to, exchange: false }).collect();
            places.iter_mut().for_each(|(from, to)| std::mem::swap(from, to));
            pending = moves.len();
            physical.relocate(&moves, MoveOptions { in_flight: None, ..MoveOptions::default() });
        }
        NextTick::Unchanged
    };
    let policy: Box<dyn Policy> = Box::new(Probe { signals: SignalSet::NONE, first: TIER, on });
    let options = terrace_sim::Options { policy: Some(Box::new(move |_| Ok(policy))), ..Default::default() };
    let outcome = run_with(&design, &mut *workload(workload_spec), options).unwrap();
    let [copied, moved] = counts(&outcome, ["policy.copied_bytes", "tier.dram.bytes_by.copy"]);
    (outcome.seconds_simulated, copied, moved)
}

#[test]
fn copies_take_bandwidth_from_a_program_that_wants_it_and_from_no_other() {
    // Within the caches, and at the bandwidth of one channel.
    for (spec, slower) in [
        ("gups,bytes=64KiB,updates=25e5,threads=4", 0.999..1.001),
        ("stream,bytes=24MiB,iterations=4,threads=4", 1.1..2.0),
    ] {
        let (alone, nothing, no_traffic) = beside_copies(spec, false);
        let (beside, copied, moved) = beside_copies(spec, true);
        assert_eq!((nothing, no_traffic), (0, 0), "{spec}");
        // Copies under way when counting begins have moved some of their bytes before.
        assert!(moved > 4 * MIB && moved > copied + copied / 2, "{spec}: {copied}, {moved}");
        assert!(slower.contains(&(beside / alone)), "{spec}: {alone} s alone, {beside} s beside copies");
    }
}

/// Forty pages one by one downwards, in as many regions, and sixty upwards, in one; then about two milliseconds.
fn scattered() -> Program {
    let mut program = Program::new();
    program.map(DATA, 64 * MIB);
    for at in (0..40).rev().chain(100..160) {
        program.write(DATA + at * PAGE);
    }
    for _ in 0..2000 {
        program.access(DATA, 8, terrace_trace::AccessKind::Read, 0, 4600);
    }
    program
}

#[test]
fn contiguity_is_sampled_whatever_the_design() {
    let figures = ["contiguous_regions_mean", "coverage_32", "coverage_32_mean", "coverage_128_mean"];
    let of = |outcome: &terrace_sim::Outcome, prefix: &str| {
        figures.map(|name| outcome.stats.number(&format!("{prefix}.{name}")))
    };
    let mut design = machine(4000);
    let period = terrace_model::Time::from_nanos(300_000);
    assert!(
        scattered().run(&design, Fidelity::Pages).stats.get("os.coverage_32").is_none(),
        "none asked for"
    );
    design.os.sample_contiguity = Some(period);
    for fidelity in [Fidelity::Full, Fidelity::Translation, Fidelity::Pages] {
        let outcome = scattered().run(&design, fidelity);
        assert_eq!(count(&outcome, "os.contiguous_regions"), 41, "{fidelity:?}");
        assert_eq!(of(&outcome, "os"), [41.0, 0.91, 0.91, 1.0], "{fidelity:?}");
        let samples = (outcome.seconds_simulated / period.as_secs()) as u64;
        let taken = count(&outcome, "os.contiguity_samples");
        // Where only pages are simulated, all of this program is one batch, which passes at once.
        assert_eq!(taken, if fidelity == Fidelity::Pages { 1 } else { samples }, "{fidelity:?}");
        let over_time = &outcome.contiguity;
        assert!(over_time.len() as u64 <= taken && over_time.len() as u64 >= taken.min(32), "{over_time:?}");
        assert!(over_time.is_sorted_by(|one, next| one.seconds < next.seconds), "{over_time:?}");
        assert!(over_time.iter().all(|point| (point.regions, point.coverage_32) == (41, 0.91)));
    }
    // A policy that samples by itself finds the same.
    let sets = [
        ("os.policy.name", "ranger"),
        ("os.policy.coalesce", "false"),
        ("os.policy.thp", "false"),
        ("os.policy.sample_period", "300 us"),
        ("os.sample_contiguity", "300 us"),
    ];
    let outcome = scattered().run(&machine_with(4000, &sets), Fidelity::Full);
    assert_eq!(of(&outcome, "os"), of(&outcome, "policy.own"));
    let by_policy = scattered().run(&machine_with(4000, &sets[..4]), Fidelity::Full);
    assert_eq!(by_policy.contiguity.len(), outcome.contiguity.len());
    assert_eq!(count(&outcome, "os.contiguous_regions"), 41);
}

#[test]
fn samples_are_taken_while_a_program_only_computes() {
    let mut design = machine(8000);
    design.os.zero_bandwidth = terrace_model::BytesPerSec(1e12); // Faults are one step of the program, unsampled.
    design.os.sample_contiguity = Some(terrace_model::Time::from_nanos(1_000_000));
    let mut source = workload("growth,bytes=8MiB,at_once=1,chunked=0,compute=1e8,accesses=0");
    let options = terrace_sim::Options { whole: true, fidelity: Fidelity::Pages, ..Default::default() };
    let outcome = run_with(&design, &mut *source, options).unwrap();
    let (samples, spans) =
        (count(&outcome, "os.contiguity_samples"), (outcome.seconds_simulated * 1e3) as u64);
    assert!(spans > 5 && samples + 1 >= spans, "{samples} in {spans} ms");
}
