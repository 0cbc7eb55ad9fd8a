//! Devices with round numbers, and a closed loop.

use terrace_model::Time;
use terrace_sim::memory::{Device, DeviceLine, DeviceParameters, Initiator, preset_table};

/// One channel of one rank with 8 banks: tRCD 10, tCL 12, tRP 11, tRAS 30 ns, 4 ns per line, no refresh.
#[allow(dead_code)]
pub fn simple() -> DeviceParameters {
    parse(
        r#"
        channels = 1
        channel_interleave = "64 B"
        clock = "1 GHz"
        bus_bandwidth = "16 GB/s"
        controller_latency = "5 ns"
        write_queue = 16
        [bank]
        ranks = 1
        banks = 8
        row = "1 KiB"
        bank_interleave = "1 KiB"
        bank_permutation = false
        t_rcd = "10 ns"
        t_rp = "11 cycles"
        t_cl = "12 ns"
        t_cwl = "8 ns"
        t_ras = "30 ns"
        t_rtp = "6 ns"
        t_wr = "15 ns"
        t_rrd = "2 ns"
        t_faw = "8 ns"
        read_to_write = "3 ns"
        write_to_read = "7 ns"
        drain_high = 8
        drain_low = 4
        [energy]
        activate = "3 nJ"
        read = "5 nJ"
        write = "7 nJ"
        refresh = "100 nJ"
        background_per_second = "2 J"
        "#,
    )
}

/// One module: 4 lines per block, 4 blocks of buffer, medium reads 40 ns and writes 100 ns apart.
#[allow(dead_code)]
pub fn module() -> DeviceParameters {
    parse(
        r#"
        channels = 1
        channel_interleave = "4 KiB"
        clock = "1 GHz"
        bus_bandwidth = "16 GB/s"
        controller_latency = "5 ns"
        write_queue = 4
        [media]
        block = "256 B"
        buffer_blocks = 4
        buffer_latency = "50 ns"
        read_latency = "180 ns"
        read_interval = "40 ns"
        write_interval = "100 ns"
        [energy]
        activate = "0 pJ"
        read = "5 nJ"
        write = "7 nJ"
        media_read = "11 nJ"
        media_write = "13 nJ"
        background_per_second = "3 J"
        "#,
    )
}

/// Parameters from TOML; panics where they are wrong.
pub fn parse(text: &str) -> DeviceParameters {
    toml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A preset by name.
#[allow(dead_code)]
pub fn preset(name: &str) -> DeviceParameters {
    parse(preset_table(name).expect(name))
}

/// One transfer of a closed loop.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code)]
pub struct Transfer {
    /// Device line.
    pub line: u64,
    /// Write instead of read.
    pub write: bool,
}

/// Sends `transfers` with `outstanding` in flight; each slot sends its next when its last is done. Bytes per second from
/// zero to the last completion.
#[allow(dead_code)]
pub fn closed_loop(
    device: &mut Device,
    outstanding: usize,
    transfers: impl Iterator<Item = Transfer>,
) -> f64 {
    let mut slots = std::collections::BinaryHeap::new();
    for _ in 0..outstanding {
        slots.push(std::cmp::Reverse(0u64));
    }
    let (mut bytes, mut last) = (0.0, 0);
    for Transfer { line, write } in transfers {
        let std::cmp::Reverse(now) = slots.pop().expect("slots stay in number");
        let done = if write {
            device.write(DeviceLine(line), Time(now), Initiator::Writeback)
        } else {
            device.read(DeviceLine(line), Time(now), Initiator::Demand)
        };
        assert!(done.0 >= now, "time travel: {now} to {}", done.0);
        slots.push(std::cmp::Reverse(done.0));
        last = last.max(done.0);
        bytes += 64.0;
    }
    bytes / Time(last).as_secs()
}
