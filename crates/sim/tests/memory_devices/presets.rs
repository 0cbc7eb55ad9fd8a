//! The presets: complete, sourced, and with the peaks and latencies their names promise.

use crate::devices::preset;
use terrace_model::{Bytes, BytesPerSec, Time};
use terrace_sim::design::LinkParameters;
use terrace_sim::memory::{Device, Link, Way, preset_names, preset_table};

#[test]
fn every_preset_reads_states_its_source_and_makes_a_device() {
    assert!(preset_names().is_sorted());
    for name in preset_names() {
        let parameters = preset(name);
        assert!(!parameters.source.is_empty(), "{name} has no source");
        Device::new(&parameters).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert!(preset_table("ddr9").is_none());
}

#[test]
fn peaks_lie_just_below_the_bus() {
    for (name, bus) in [
        ("ddr3-1600", 12.8e9),
        ("ddr4-2133", 17.07e9),
        ("ddr4-2666", 21.33e9),
        ("gddr5", 200e9),
        ("hbm2", 256e9),
    ] {
        let peak = Device::new(&preset(name)).unwrap().peak_read_bandwidth().0;
        assert!(peak < bus && peak > 0.9 * bus, "{name}: {peak}");
    }
}

#[test]
fn idle_latencies_differ_as_measured() {
    let idle = |name| Device::new(&preset(name)).unwrap().idle_read_latency().as_nanos();
    // Random reads: 305 ns of DCPMM beside 101 ns of DRAM (Yang et al., FAST 2020).
    let difference = idle("dcpmm-128") - idle("dcpmm-dram");
    assert!((difference - 204.0).abs() < 1.0, "{difference}");
    // tRCD 5 + tCL 5 cycles of 2.5 ns, 5 ns burst, 10 ns controller.
    assert!((idle("ddr3-1600") - 40.0).abs() < 0.01);
}

#[test]
fn a_link_adds_latency_and_queues_per_direction() {
    let parameters = LinkParameters {
        latency: Time::from_nanos(60),
        read_bandwidth: BytesPerSec(20e9),
        write_bandwidth: BytesPerSec(10e9),
        packet_overhead: Bytes(16),
    };
    let mut link = Link::new(&parameters).unwrap();
    // A request is 16 bytes at 10 GB/s, a line 80 bytes at 20 GB/s.
    assert_eq!(link.send_request(Way::There, Time::ZERO), Time::from_nanos_f64(1.6 + 30.0));
    assert_eq!(link.return_line(Way::There, Time::from_nanos(100)), Time::from_nanos(134));
    assert_eq!(
        link.return_line(Way::There, Time::from_nanos(100)),
        Time::from_nanos(138),
        "behind the other"
    );
    assert_eq!(
        link.send_line(Way::There, Time::from_nanos(100)),
        Time::from_nanos(138),
        "the other direction is free"
    );
    assert!(Link::new(&LinkParameters { read_bandwidth: BytesPerSec(0.0), ..parameters }).is_err());
}
