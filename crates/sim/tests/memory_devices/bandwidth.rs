//! Bandwidth bounds: streams reach them, nothing exceeds them, and late arrivals bend nothing.

use crate::devices::{Transfer, closed_loop, preset, simple};
use proptest::prelude::*;
use terrace_model::Time;
use terrace_sim::memory::{Device, DeviceLine, DeviceParameters, Initiator, preset_names};

/// A run of some 100 µs may end just before a refresh, and with writes still queued: up to half a percent.
const MARGIN: f64 = 1.005;

/// `reads` read streams and `writes` write streams, each sequential in memory of its own, a line of each in turn.
fn streams(reads: u64, writes: u64, lines: u64) -> impl Iterator<Item = Transfer> {
    // Not a power of two apart, as arrays of a program lie.
    let apart = (1 << 24) + 4096 * 37;
    (0..lines).flat_map(move |line| {
        (0..reads + writes)
            .map(move |stream| Transfer { line: stream * apart + line, write: stream >= reads })
    })
}

/// Measured over bound.
fn ratio(parameters: &DeviceParameters, reads: u64, writes: u64) -> f64 {
    let mut device = Device::new(parameters).unwrap();
    let outstanding = 96 * parameters.channels as usize;
    let lines = 40_000 * u64::from(parameters.channels) / (reads + writes);
    let measured = closed_loop(&mut device, outstanding, streams(reads, writes, lines));
    measured / device.peak_mixed(reads as f64 / (reads + writes) as f64).0
}

#[test]
fn sequential_streams_reach_the_bound_on_every_preset() {
    let mut failed = Vec::new();
    for name in preset_names() {
        let parameters = preset(name);
        let banks = parameters.bank.as_ref().map_or(64, |bank| u64::from(bank.ranks * bank.banks));
        for (reads, writes) in [(1, 0), (2, 0), (2, 1), (3, 1), (8, 0), (10, 5)] {
            // More streams than banks cannot each keep a row open.
            if reads + writes > banks * u64::from(parameters.channels) {
                continue;
            }
            let ratio = ratio(&parameters, reads, writes);
            if !(0.95..=MARGIN).contains(&ratio) {
                failed.push(format!(
                    "{name}: {reads} read and {writes} write streams: {ratio:.3} of the bound"
                ));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn random_reads_reach_their_own_bound_and_stay_below_it() {
    for name in preset_names() {
        let parameters = preset(name);
        let mut device = Device::new(&parameters).unwrap();
        let mut state = 7u64;
        let random = (0..200_000).map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            Transfer { line: state >> 34, write: false }
        });
        let measured = closed_loop(&mut device, 128 * parameters.channels as usize, random);
        let ratio = measured / device.peak_random_read_bandwidth().0;
        assert!((0.6..=1.01).contains(&ratio), "{name}: {ratio:.3} of the bound");
    }
}

#[test]
fn refresh_takes_its_share() {
    let mut parameters = simple();
    let without = Device::new(&parameters).unwrap().peak_read_bandwidth().0;
    assert!((without - 16e9).abs() < 1e3);
    let bank = parameters.bank.as_mut().unwrap();
    (bank.t_refi, bank.t_rfc) = (Some(Time::from_nanos(1000)), Some(Time::from_nanos(200)));
    let with = Device::new(&parameters).unwrap().peak_read_bandwidth().0;
    assert!((with / without - 0.8).abs() < 1e-6);
    let ratio = ratio(&parameters, 1, 0);
    assert!((0.95..=MARGIN).contains(&ratio), "{ratio}");
}

#[test]
fn a_random_access_cap_binds_random_reads_and_not_streams() {
    let mut parameters = simple();
    parameters.bank.as_mut().unwrap().random_access_interval = Some(Time::from_nanos(20));
    assert!(ratio(&parameters, 1, 0) > 0.95);
    let mut device = Device::new(&parameters).unwrap();
    let strided = (0..20_000u64).map(|index| Transfer { line: index * 17, write: false });
    let per_second = closed_loop(&mut device, 64, strided) / 64.0;
    assert!((per_second * 20e-9 - 1.0).abs() < 0.02, "{per_second}");
}

/// Threads in slices of 100 ns, each a slice ahead of the next: as an engine that bounds their lead runs them.
#[test]
fn slices_of_100_ns_change_latency_little() {
    let run = |slice: u64, gap: u64| {
        let mut device = Device::new(&preset("ddr4-2666")).unwrap();
        let (threads, end, mut latency, mut count) = (8u64, 200_000u64, 0.0, 0u64);
        let mut next: Vec<u64> = (0..threads).map(|thread| thread * gap / threads).collect();
        for start in (0..end).step_by(slice as usize) {
            for (thread, next) in next.iter_mut().enumerate() {
                while *next < start + slice {
                    let now = Time::from_nanos(*next);
                    let line = thread as u64 * 1_000_003 + *next / gap;
                    latency += (device.read(DeviceLine(line), now, Initiator::Demand) - now).as_nanos();
                    count += 1;
                    *next += gap;
                }
            }
        }
        latency / count as f64
    };
    // 8 threads, one line each per 50 ns: half of the channel's rate. A slice groups a thread's accesses, so a few more
    // of them find their row still open.
    let (fine, coarse) = (run(1, 50), run(100, 50));
    assert!((coarse / fine - 1.0).abs() < 0.2, "{fine} ns in order, {coarse} ns in slices");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// No transfer is done before its idle minimum, and the device never exceeds its bus, whatever arrives when.
    #[test]
    fn no_time_travel_and_no_free_bandwidth(
        preset_index in 0usize..11,
        transfers in prop::collection::vec((0u64..4096, any::<bool>(), 0u64..40, 0u64..100), 1..600),
    ) {
        let parameters = preset(preset_names().nth(preset_index).unwrap());
        let mut device = Device::new(&parameters).unwrap();
        let (mut now, mut last, mut reads) = (0u64, 0u64, 0u64);
        for &(line, write, gap, late) in &transfers {
            now += gap;
            let at = Time::from_nanos(now.saturating_sub(late));
            if write {
                prop_assert!(device.write(DeviceLine(line), at, Initiator::Writeback) >= at);
            } else {
                let done = device.read(DeviceLine(line), at, Initiator::Demand);
                prop_assert!(done >= at + parameters.controller_latency + parameters.burst());
                last = last.max(done.0);
                reads += 1;
            }
        }
        prop_assert_eq!(device.counters().total_reads(), reads);
        prop_assert_eq!(device.counters().total_writes(), transfers.len() as u64 - reads);
        let channels = u64::from(parameters.channels);
        prop_assert!(reads * parameters.burst().0 <= (last + Time::from_nanos(100).0) * channels);
    }

    /// Streams of any mix stay within the bound.
    #[test]
    fn streams_never_exceed_the_bound(reads in 1u64..6, writes in 0u64..4) {
        let parameters = preset("ddr4-2400");
        prop_assert!(ratio(&parameters, reads, writes) <= MARGIN);
    }
}
