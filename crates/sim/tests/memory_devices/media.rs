//! The module with a block medium: amplification, combining, idle latency, and the published mixed rows.

use crate::devices::{Transfer, closed_loop, module};
use terrace_model::Time;
use terrace_sim::memory::{Device, DeviceLine, Initiator};

fn ns(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

#[test]
fn idle_latencies_by_hand() {
    let mut device = Device::new(&module()).unwrap();
    assert_eq!(device.idle_read_latency(), ns(180 + 50 + 4 + 5));
    assert_eq!(device.read(DeviceLine(0), ns(0), Initiator::Demand), ns(239));
    assert_eq!(
        device.read(DeviceLine(1), ns(1000), Initiator::Demand),
        ns(1059),
        "the block is in the buffer"
    );
    // Two blocks at once: the second's data are 40 ns of medium later.
    assert_eq!(device.read(DeviceLine(100), ns(2000), Initiator::Demand), ns(2239));
    assert_eq!(device.read(DeviceLine(104), ns(2000), Initiator::Demand), ns(2279));
    // A neighbour of a block on its way waits for it, without a read of its own.
    assert_eq!(device.read(DeviceLine(105), ns(2001), Initiator::Demand), ns(2279));
    assert_eq!(device.counters().media_reads, 3);
}

#[test]
fn random_lines_cost_a_block_each_and_sequential_ones_a_quarter() {
    let mut device = Device::new(&module()).unwrap();
    for line in 0..400 {
        device.read(DeviceLine(line), ns(line * 500), Initiator::Demand);
    }
    assert_eq!(device.counters().media_reads, 100);
    let mut device = Device::new(&module()).unwrap();
    for index in 0..400u64 {
        device.read(DeviceLine(index * 64), ns(index * 500), Initiator::Demand);
    }
    assert_eq!(device.counters().media_reads, 400);
}

#[test]
fn sequential_writes_combine_and_random_ones_read_before_they_write() {
    let blocks_moved = |stride: u64| {
        let mut device = Device::new(&module()).unwrap();
        for index in 0..400u64 {
            device.write(DeviceLine(index * stride), ns(index * 500), Initiator::Writeback);
        }
        (device.counters().media_reads, device.counters().media_writes)
    };
    // Four blocks stay in the buffer at the end.
    assert_eq!(blocks_moved(1), (0, 96));
    assert_eq!(blocks_moved(64), (396, 396));
}

#[test]
fn written_lines_are_read_from_the_buffer_and_others_complete_the_block() {
    let mut device = Device::new(&module()).unwrap();
    device.write(DeviceLine(0), ns(0), Initiator::Writeback);
    assert_eq!(device.read(DeviceLine(0), ns(1000), Initiator::Demand), ns(1059));
    assert_eq!(device.counters().media_reads, 0);
    assert_eq!(device.read(DeviceLine(1), ns(2000), Initiator::Demand), ns(2239));
    // Now complete: its eviction needs no other read.
    for block in 1..=4u64 {
        device.read(DeviceLine(block * 4), ns(3000 + block * 1000), Initiator::Demand);
    }
    assert_eq!((device.counters().media_reads, device.counters().media_writes), (5, 1));
}

#[test]
fn the_write_queue_pushes_back_at_the_mediums_rate() {
    let mut device = Device::new(&module()).unwrap();
    let lines = (0..2000u64).map(|index| Transfer { line: index * 64, write: true });
    let lines_per_second = closed_loop(&mut device, 8, lines) / 64.0;
    // Each costs a read and a write of a block: 140 ns.
    assert!((lines_per_second * 140e-9 - 1.0).abs() < 0.02, "{lines_per_second}");
}

#[test]
fn energy_counts_blocks() {
    let mut device = Device::new(&module()).unwrap();
    for index in 0..5u64 {
        device.write(DeviceLine(index * 64), ns(index * 500), Initiator::Writeback);
    }
    let energy = device.energy(ns(1_000_000));
    assert!((energy.media - 24e-9).abs() < 1e-15 && (energy.write - 35e-9).abs() < 1e-15);
    assert!((energy.total() - (24e-9 + 35e-9 + 3e-3)).abs() < 1e-12);
}

/// Constants rest on the 0 % and 100 % rows alone; the mixed rows are predictions.
#[test]
fn iwb_mixed_rows_are_predicted() {
    let processor = crate::iwb::Processor::default();
    for (write, published, best) in
        [(false, crate::iwb::READ_ONLY_32, 80), (true, crate::iwb::WRITE_ONLY_32, 90)]
    {
        let ours =
            crate::iwb::SHARES.map(|share| crate::iwb::throughput(&processor, 32, share, write, 150_000));
        let argmax = (0..21).max_by(|&a, &b| ours[a].total_cmp(&ours[b])).unwrap();
        assert!(
            crate::iwb::SHARES[argmax].abs_diff(best) <= 5,
            "best share {} of {ours:?}",
            crate::iwb::SHARES[argmax]
        );
        let errors: f64 = (1..20).map(|row| (ours[row] / published[row] - 1.0).abs()).sum();
        assert!(errors / 19.0 <= 0.10, "mean error {}", errors / 19.0);
    }
}

#[test]
fn iwb_calibrated_rows_hold_where_the_devices_saturate() {
    let processor = crate::iwb::Processor::default();
    for (write, share, published) in crate::iwb::CALIBRATION {
        for (threads, published) in
            crate::iwb::THREADS.into_iter().zip(published).filter(|&(threads, _)| threads >= 16)
        {
            let ours = crate::iwb::throughput(&processor, threads, share, write, 100_000);
            let error = (ours / published - 1.0).abs();
            assert!(error < 0.10, "write {write} share {share} threads {threads}: {ours} for {published}");
        }
    }
}
