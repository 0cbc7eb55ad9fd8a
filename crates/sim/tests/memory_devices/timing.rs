//! Worked examples of single transfers: row hits, conflicts, refresh, turnaround, energy.

use crate::devices::{module, parse, preset, simple};
use terrace_model::{Bytes, Stats, Time};
use terrace_sim::memory::{Device, DeviceLine, Initiator, SegmentParameters, Span};

const DEMAND: Initiator = Initiator::Demand;

fn ns(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

#[test]
fn closed_hit_and_conflict_by_hand() {
    let mut device = Device::new(&simple()).unwrap();
    // Closed: tRCD 10 + tCL 12 + burst 4 + controller 5.
    assert_eq!(device.read(DeviceLine(0), ns(100), DEMAND), ns(131));
    assert_eq!(device.idle_read_latency(), ns(31));
    // Hit: tCL 12 + burst 4 + controller 5.
    assert_eq!(device.read(DeviceLine(1), ns(200), DEMAND), ns(221));
    // Line 128 is row 1 of bank 0 (8 banks of 16-line rows). Conflict: tRP 11 before all of the above.
    assert_eq!(device.read(DeviceLine(128), ns(300), DEMAND), ns(342));
    let counters = device.counters();
    assert_eq!((counters.row_misses, counters.row_hits, counters.row_conflicts), (1, 1, 1));
}

#[test]
fn a_conflict_waits_until_the_row_may_close() {
    let mut device = Device::new(&simple()).unwrap();
    device.read(DeviceLine(0), ns(0), DEMAND);
    // Activated at 0, so it may close at tRAS 30; tRP, tRCD, tCL, burst, controller follow.
    assert_eq!(device.read(DeviceLine(128), ns(5), DEMAND), ns(30 + 11 + 31));
}

#[test]
fn a_late_read_waits_no_longer_than_the_latest() {
    // Reads of two rows in turn, as fast as the bank takes them: a row is open for tRAS 30, tRP 11 follows.
    let mut device = Device::new(&simple()).unwrap();
    (0..1000u64).for_each(|at| {
        device.read(DeviceLine(128 * (at % 2)), ns(41 * at), DEMAND);
    });
    // As if it came with the last: the row opened 11 ns after that may close 30 ns later; then a conflict as above.
    assert_eq!(device.read(DeviceLine(256), ns(100), DEMAND), ns(100 + 11 + 30 + 42));
}

#[test]
fn a_late_read_is_served_while_its_bank_is_idle() {
    let mut device = Device::new(&simple()).unwrap();
    device.read(DeviceLine(0), ns(50_000), DEMAND);
    // A row is closed, tRP 11, and opened; tRCD, tCL, burst and controller follow.
    assert_eq!(device.read(DeviceLine(128), ns(0), DEMAND), ns(11 + 31));
    assert_eq!(
        device.read(DeviceLine(129), ns(20), DEMAND),
        ns(25 + 21),
        "its row is open still, behind a burst"
    );
    assert_eq!(device.read(DeviceLine(130), ns(200), DEMAND), ns(200 + 11 + 31), "it has closed");
}

#[test]
fn what_late_reads_take_of_a_bank_is_booked() {
    let cycle = 30 + 11; // tRAS and tRP of a row that is read once
    let mut device = Device::new(&simple()).unwrap();
    let rows = |device: &mut Device, rows: std::ops::Range<u64>, now: Time| {
        rows.map(|row| device.read(DeviceLine(128 * row), now, DEMAND)).fold(Time::ZERO, Time::max)
    };
    rows(&mut device, 0..100, ns(50_000));
    // Two of them fit into the time before.
    let late = rows(&mut device, 100..200, ns(49_900));
    assert!(late >= ns(49_900 + 197 * cycle), "as long as if they had come at once: {late:?}");
    let last = rows(&mut device, 200..201, ns(50_000));
    assert!(last >= ns(50_000 + 198 * cycle), "{last:?}");
}

#[test]
fn late_writes_wait_as_long_as_the_latest() {
    let fill = |device: &mut Device, now: Time| {
        (0..64u64).map(|at| device.write(DeviceLine(128 * at), now, DEMAND)).fold(Time::ZERO, Time::max)
    };
    let mut device = Device::new(&simple()).unwrap();
    let waited = fill(&mut device, ns(50_000)) - ns(50_000);
    let late = fill(&mut device, ns(0));
    assert!(late < ns(50_000) && late > waited, "{late:?} after a backlog of {waited:?}");
}

#[test]
fn requests_for_a_row_about_to_close_go_first() {
    let mut device = Device::new(&simple()).unwrap();
    device.read(DeviceLine(0), ns(0), DEMAND);
    device.read(DeviceLine(128), ns(5), DEMAND); // closes row 0 at 30
    assert_eq!(device.read(DeviceLine(1), ns(15), DEMAND), ns(15 + 21), "row 0 is still open");
    // At 35 row 0 is gone: row 1, activated at 41, may close at 71.
    assert_eq!(device.read(DeviceLine(2), ns(35), DEMAND), ns(71 + 11 + 31));
}

#[test]
fn simultaneous_requests_share_the_bus_and_the_activation_budget() {
    let mut device = Device::new(&simple()).unwrap();
    device.read(DeviceLine(0), ns(0), DEMAND);
    // Four hits at once: data follow each other on the bus, 4 ns each.
    let done: Vec<_> = (1..5).map(|line| device.read(DeviceLine(line), ns(100), DEMAND)).collect();
    assert_eq!(done, [ns(121), ns(125), ns(129), ns(133)]);
    // With 40 ns for four activations on four banks they are 10 ns apart.
    let mut parameters = simple();
    parameters.bank.as_mut().unwrap().t_faw = Span::Time(ns(40));
    let mut device = Device::new(&parameters).unwrap();
    let done: Vec<_> = (0..4).map(|bank| device.read(DeviceLine(bank * 16), ns(0), DEMAND)).collect();
    assert_eq!(done, [ns(31), ns(41), ns(51), ns(61)]);
}

#[test]
fn an_untouched_row_closes_when_the_policy_says_so() {
    let mut parameters = simple();
    for (close_after, expected) in [(None, 42), (Some(ns(50)), 31), (Some(ns(0)), 31)] {
        parameters.bank.as_mut().unwrap().close_after = close_after;
        let mut device = Device::new(&parameters).unwrap();
        device.read(DeviceLine(0), ns(0), DEMAND);
        assert_eq!(
            device.read(DeviceLine(128), ns(200), DEMAND),
            ns(200 + expected),
            "close after {close_after:?}"
        );
    }
}

#[test]
fn writes_are_posted_and_drain_in_batches_that_turn_the_bus() {
    let mut device = Device::new(&simple()).unwrap();
    device.read(DeviceLine(0), ns(0), DEMAND);
    for line in 0..7 {
        assert_eq!(device.write(DeviceLine(line), ns(100), Initiator::Writeback), ns(100));
    }
    assert_eq!(device.counters().write_drains, 0);
    // A read passes the waiting writes.
    assert_eq!(device.read(DeviceLine(8), ns(100), DEMAND), ns(121));
    // The eighth starts a drain of four: turn 3 ns, four bursts; then turn back 7 ns before the read's slot.
    assert_eq!(device.write(DeviceLine(7), ns(200), Initiator::Writeback), ns(200));
    assert_eq!(device.counters().write_drains, 1);
    assert_eq!(device.read(DeviceLine(9), ns(200), DEMAND), ns(200 + 3 + 16 + 7 + 21));
}

#[test]
fn a_full_write_queue_pushes_back() {
    let mut device = Device::new(&simple()).unwrap();
    let accepted: Vec<_> =
        (0..64).map(|line| device.write(DeviceLine(line * 128), ns(0), Initiator::Copy)).collect();
    assert_eq!(accepted[15], ns(0), "sixteen entries take sixteen writes");
    assert!(accepted[63] > ns(1000), "rows of one bank go one by one: {:?}", accepted[63]);
    assert!(accepted.is_sorted());
}

#[test]
fn refresh_stops_the_channel_and_closes_rows() {
    let mut parameters = simple();
    let bank = parameters.bank.as_mut().unwrap();
    (bank.t_refi, bank.t_rfc) = (Some(ns(1000)), Some(ns(100)));
    let mut device = Device::new(&parameters).unwrap();
    assert_eq!(device.read(DeviceLine(0), ns(900), DEMAND), ns(931));
    assert_eq!(
        device.read(DeviceLine(1), ns(1040), DEMAND),
        ns(1100 + 31),
        "waits for the refresh, then activates"
    );
    assert_eq!(device.read(DeviceLine(2), ns(1500), DEMAND), ns(1521), "a hit until the next refresh");
    assert_eq!(device.read(DeviceLine(3), ns(7250), DEMAND), ns(7250 + 31), "closed by one of those between");
    assert_eq!(device.refreshes(ns(7250)), 7);
}

#[test]
fn pcm_pays_for_closing_a_written_row_only() {
    let mut parameters = preset("pcm-800");
    parameters.write_queue = 2;
    let bank = parameters.bank.as_mut().unwrap();
    (bank.drain_high, bank.drain_low) = (1, 0);
    // Cycles of 2.5 ns: tRCD 55, tCL 12.5, burst 10, controller 10 ns.
    let mut device = Device::new(&parameters).unwrap();
    assert_eq!(device.read(DeviceLine(0), ns(0), DEMAND), Time::from_nanos_f64(87.5));
    let other_row = 8 * 128;
    // Clean: one cycle.
    assert_eq!(device.read(DeviceLine(other_row), ns(1000), DEMAND), Time::from_nanos_f64(1087.5 + 2.5));
    assert_eq!(device.counters().dirty_precharges, 0);
    device.write(DeviceLine(other_row + 1), ns(2000), Initiator::Writeback);
    // Dirty: 60 cycles.
    assert_eq!(device.read(DeviceLine(0), ns(3000), DEMAND), Time::from_nanos_f64(3087.5 + 150.0));
    assert_eq!(device.counters().dirty_precharges, 1);
    assert_eq!(device.energy(ns(4000)).media, 1102e-9);
}

#[test]
fn pcm_row_writebacks_of_one_rank_keep_their_distance() {
    let mut parameters = preset("pcm-800");
    parameters.write_queue = 2;
    let bank = parameters.bank.as_mut().unwrap();
    (bank.drain_high, bank.drain_low) = (1, 0);
    let mut device = Device::new(&parameters).unwrap();
    for bank in 0..2 {
        device.write(DeviceLine(bank * 128), ns(0), Initiator::Writeback);
    }
    let first = device.read(DeviceLine(8 * 128), ns(5000), DEMAND);
    let second = device.read(DeviceLine(9 * 128), ns(5000), DEMAND);
    assert_eq!(second - first, Time::from_nanos_f64(27.5), "11 cycles between dirty precharges");
}

#[test]
fn near_and_far_segments_share_banks_and_differ_in_timing() {
    let mut parameters = simple();
    let near = Span::Time(ns(4));
    parameters.bank.as_mut().unwrap().segments = vec![SegmentParameters {
        end: Some(Bytes::kib(8)),
        t_rcd: near,
        t_rp: near,
        t_ras: near,
        t_wr: near,
    }];
    let mut device = Device::new(&parameters).unwrap();
    assert_eq!(device.read(DeviceLine(0), ns(0), DEMAND), ns(25), "near");
    // Line 128 is the first of the far segment, in the same bank: near's precharge, far's activation.
    assert_eq!(device.read(DeviceLine(128), ns(100), DEMAND), ns(100 + 4 + 31));
    assert_eq!(
        device.read(DeviceLine(0), ns(200), DEMAND),
        ns(200 + 11 + 25),
        "far's precharge, near's activation"
    );
    assert_eq!(device.segments().len(), 1);
}

#[test]
fn a_row_moves_to_the_other_segment_over_its_bitlines() {
    let mut parameters = simple();
    let near = Span::Time(ns(4));
    let bank = parameters.bank.as_mut().unwrap();
    bank.t_transfer = Some(Span::Time(ns(3)));
    bank.segments = vec![SegmentParameters {
        end: Some(Bytes::kib(8)),
        t_rcd: near,
        t_rp: near,
        t_ras: near,
        t_wr: near,
    }];
    let (ras, mut device) = (bank.t_ras.at(Time::from_nanos(1)), Device::new(&parameters).unwrap());
    // Line 128 is the first of the far segment. Its row has to be open for t_ras; the near cells take 3 ns more.
    let moved = ras + ns(3);
    assert_eq!(device.transfer(DeviceLine(128), DeviceLine(0), ns(0), Initiator::Copy), Some(moved));
    assert_eq!(
        device.transfer(DeviceLine(129), DeviceLine(1), ns(0), Initiator::Copy),
        Some(moved),
        "all of the row went at once"
    );
    assert_eq!(
        device.transfer(DeviceLine(130), DeviceLine(2), moved + ns(9), Initiator::Copy),
        Some(moved + ns(9))
    );
    assert_eq!(device.transfer(DeviceLine(0), DeviceLine(1), ns(500), Initiator::Copy), None, "both near");
    // The bus is not used: a read of another bank finds it idle. One of the same bank waits for the move.
    let mut device = Device::new(&parameters).unwrap();
    device.transfer(DeviceLine(128), DeviceLine(0), ns(0), Initiator::Copy);
    assert_eq!(
        device.read(DeviceLine(144), ns(0), DEMAND),
        ns(2 + 31),
        "the next bank, activated 2 ns later"
    );
    assert_eq!(
        device.read(DeviceLine(0), ns(0), DEMAND),
        moved + ns(11 + 25),
        "far's precharge, near's activation"
    );
    let counters = device.counters();
    assert_eq!((counters.reads[Initiator::Copy as usize], counters.writes[Initiator::Copy as usize]), (1, 1));
    let mut without = parameters.clone();
    without.bank.as_mut().unwrap().t_transfer = None;
    assert_eq!(
        Device::new(&without).unwrap().transfer(DeviceLine(128), DeviceLine(0), ns(0), Initiator::Copy),
        None
    );
    without.bank.as_mut().unwrap().segments.clear();
    without.bank.as_mut().unwrap().t_transfer = Some(near);
    let error = Device::new(&without).unwrap_err();
    assert_eq!(error, "bank.t_transfer needs bank.segments: rows move between segments");
}

#[test]
fn segments_without_an_end_end_where_tiers_do() {
    let mut parameters = simple();
    let near = Span::Time(ns(4));
    parameters.bank.as_mut().unwrap().segments =
        vec![SegmentParameters { end: None, t_rcd: near, t_rp: near, t_ras: near, t_wr: near }];
    let capacities = [Bytes::kib(8), Bytes::kib(64)];
    parameters.end_segments(capacities.into_iter()).unwrap();
    assert_eq!(parameters.bank.as_ref().unwrap().segments[0].end, Some(Bytes::kib(8)));
    let device = Device::new(&parameters).unwrap();
    assert_eq!(
        (device.idle_read_latency_at(DeviceLine(0)), device.idle_read_latency_at(DeviceLine(128))),
        (ns(25), ns(31))
    );
    parameters.bank.as_mut().unwrap().segments[0].end = None;
    let error = parameters.end_segments(capacities[..1].iter().copied()).unwrap_err();
    assert!(error.starts_with("bank.segments.0 has no end and ends where a tier does, but 1 lie"), "{error}");
}

#[test]
fn energy_is_the_sum_of_what_happened() {
    let mut parameters = simple();
    let bank = parameters.bank.as_mut().unwrap();
    (bank.t_refi, bank.t_rfc) = (Some(ns(100)), Some(ns(10)));
    let mut device = Device::new(&parameters).unwrap();
    device.read(DeviceLine(0), ns(20), DEMAND);
    device.read(DeviceLine(1), ns(50), Initiator::Walk);
    device.write(DeviceLine(2), ns(60), Initiator::Copy);
    let energy = device.energy(ns(1000));
    let close = |a: f64, b: f64| (a - b).abs() < 1e-15;
    assert!(close(energy.activate, 3e-9) && close(energy.read, 10e-9) && close(energy.write, 7e-9));
    assert!(close(energy.refresh, 10.0 * 100e-9) && close(energy.background, 2e-6));
    assert!(close(energy.total(), 3e-9 + 10e-9 + 7e-9 + 1e-6 + 2e-6));
}

#[test]
fn traffic_is_counted_by_initiator() {
    let mut device = Device::new(&simple()).unwrap();
    for (index, by) in Initiator::ALL.into_iter().enumerate() {
        for line in 0..=index as u64 {
            device.read(DeviceLine(line), ns(0), by);
            device.write(DeviceLine(line), ns(0), by);
        }
    }
    assert_eq!(device.counters().reads, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(device.counters().writes, [1, 2, 3, 4, 5, 6, 7]);
    let mut stats = Stats::new();
    device.counters().report("device.dram", &mut stats);
    assert_eq!(stats.integer("device.dram.reads.walk"), 2);
    assert_eq!(stats.integer("device.dram.writes.kernel"), 7);
}

#[test]
fn runs_are_paced_and_end_with_their_last_line() {
    let mut device = Device::new(&simple()).unwrap();
    // A line every 10 ns within one row: the last is issued at 150 and hits.
    assert_eq!(device.read_run(DeviceLine(0), 16, ns(0), ns(10), Initiator::Copy), ns(150 + 21));
    assert_eq!(device.write_run(DeviceLine(0), 16, ns(1000), ns(10), Initiator::Copy), ns(1150));
    assert_eq!((device.counters().total_reads(), device.counters().total_writes()), (16, 16));
}

#[test]
fn impossible_parameters_are_refused_by_name() {
    let refused = |change: fn(&mut terrace_sim::memory::DeviceParameters), word: &str| {
        let mut parameters = simple();
        change(&mut parameters);
        let message = Device::new(&parameters).unwrap_err();
        assert!(message.contains(word), "{message}");
    };
    refused(|p| p.channels = 0, "channels");
    refused(|p| p.channel_interleave = Bytes(96), "channel_interleave");
    refused(|p| p.write_queue = 4, "drain_high");
    refused(|p| p.bank = None, "[bank] or a [media]");
    refused(|p| p.media = module().media, "[bank] or a [media]");
    refused(|p| p.bank.as_mut().unwrap().banks = 12, "bank.banks");
    refused(|p| p.bank.as_mut().unwrap().bank_interleave = Bytes::kib(2), "bank.bank_interleave");
    refused(|p| p.bank.as_mut().unwrap().t_refi = Some(ns(1)), "t_rfc");
    refused(|p| p.bank.as_mut().unwrap().random_write_interval = Some(ns(1)), "random_access_interval");
    let text = toml::to_string(&simple()).unwrap();
    assert_eq!(parse(&text), simple(), "parameters read back as written");
    let error =
        toml::from_str::<terrace_sim::memory::DeviceParameters>(&text.replace("10 ns", "10")).unwrap_err();
    assert!(error.to_string().contains("\"13.75 ns\""), "{error}");
}
