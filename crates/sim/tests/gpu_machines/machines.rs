//! Each memory of every GPU machine reaches at least 95 % of its bound and never passes it.

use terrace_sim::design::{Design, Library};
use terrace_sim::memory::Device;

use crate::gpu_support::Script;
use terrace_model::Bytes;

/// A kernel that reads `bytes` once: each load of a warp is 16 bytes of each lane, 512 bytes side by side.
fn stream(bytes: u64) -> Script {
    let mut script = Script::new(bytes);
    script.kernel();
    let groups = bytes / (8 * 8 * 512);
    for group in 0..groups {
        script.group(256);
        for warp in 0..8 {
            script.warp(warp);
            for load in 0..8 {
                // As grid-stride loops do: groups that run together read what lies together.
                script.vectors(((load * groups + group) * 8 + warp) * 512);
            }
        }
    }
    script
}

/// What a tier can send to the GPU: the least of its device without refreshes and of its link without headers.
pub fn bound(design: &Design, tier: usize) -> f64 {
    let tier = &design.tiers[tier];
    let device = Device::new(&design.devices[&tier.device]).unwrap().peak_read_bandwidth().0;
    let link = tier
        .link
        .as_ref()
        .map_or(f64::INFINITY, |link| link.read_bandwidth.0 * 64.0 / (64.0 + link.packet_overhead.0 as f64));
    device.min(link)
}

fn holds(machine: &str, tier: usize, bytes: u64, expected: f64) {
    let design = |changes: &[(String, String)]| {
        Library::embedded().design("native-4k", Some(machine), changes).unwrap().design
    };
    let name = design(&[]).tiers[tier].name.clone();
    let placement = format!("{{ kind = \"bind\", tier = \"{name}\" }}");
    let design = design(&[("os.placement".to_owned(), placement)]);
    let bound = bound(&design, tier);
    assert!((bound / expected - 1.0).abs() < 0.005, "{machine} {name}: the bound is {bound}, not {expected}");
    let outcome = stream(bytes).run(&design);
    let reached = outcome.stats.number(&format!("gpu.bandwidth.{name}"));
    assert!(
        reached <= bound * 1.001 && reached >= 0.95 * bound,
        "{machine} {name}: {:.1} of {:.1} GB/s",
        reached / 1e9,
        bound / 1e9
    );
    assert_eq!(outcome.stats.integer(&format!("tier.{name}.bytes_read")), bytes);
}

/// By hand: 2039 GB/s less 260 ns of refresh in 3.9 us; 63 GB/s less 10 of 74 bytes, behind 307 GB/s.
#[test]
fn a_card_over_pcie() {
    holds("gpu-hbm-pcie", 0, 128 << 20, 2039.04e9 * (1.0 - 0.26 / 3.9));
    holds("gpu-hbm-pcie", 1, 8 << 20, 63e9 * 64.0 / 74.0);
}

/// By hand: 4000 GB/s less the same refresh; 450 GB/s less 12 of 76 bytes, behind 500 GB/s less 140 ns of 3.9 us.
#[test]
fn a_gpu_over_a_coherent_link() {
    holds("gpu-coherent", 0, 256 << 20, 4000e9 * (1.0 - 0.26 / 3.9));
    holds("gpu-coherent", 1, 64 << 20, 450e9 * 64.0 / 76.0);
}

#[test]
fn the_memory_behind_a_wider_link_reaches_its_own_bound() {
    let changes = ["read_bandwidth", "write_bandwidth"]
        .map(|key| (format!("tier.lpddr.link.{key}"), "2 TB/s".to_owned()))
        .into_iter()
        .chain([("os.placement".to_owned(), "{ kind = \"bind\", tier = \"lpddr\" }".to_owned())]);
    let changes: Vec<_> = changes.collect();
    let design = Library::embedded().design("native-4k", Some("gpu-coherent"), &changes).unwrap().design;
    let bound = 500e9 * (1.0 - 0.14 / 3.9);
    let reached = stream(64 << 20).run(&design).stats.number("gpu.bandwidth.lpddr");
    assert!(reached <= bound * 1.001 && reached >= 0.95 * bound, "{:.1} of {bound}", reached / 1e9);
}

#[test]
fn a_gpu_is_scaled_with_its_machine() {
    let design = |machine: &str| Library::embedded().design(machine, None, &[]).unwrap().design;
    let full = design("gpu-gtx480");
    let (gpu, small) = (full.gpu.as_ref().unwrap(), full.scaled(16).unwrap().gpu.unwrap());
    assert_eq!((gpu.tlb.entries, small.tlb.entries), (64, 4));
    assert_eq!((gpu.l2.capacity, small.l2.capacity), (Bytes::kib(128), Bytes::kib(8)));
    assert_eq!(full.scaled(3).unwrap().gpu.unwrap().l2.capacity, Bytes::kib(43), "whole sets of 1 KiB");
    assert_eq!(
        (&gpu.l1, gpu.sms),
        (&small.l1, small.sms),
        "SMs and their caches stay, as cores and theirs do"
    );
    let scaled = full.scaled_parameters(16).unwrap();
    let of = |key: &str| scaled.iter().find(|(own, _)| own == key).map(|(_, value)| value.as_str());
    assert_eq!((of("gpu.tlb.entries"), of("gpu.l2.capacity")), (Some("4"), Some("8 KiB")));
    for machine in ["gpu-gtx480", "gpu-hbm-pcie", "gpu-coherent", "gpu-selective"] {
        for scale in 2..=16 {
            design(machine).scaled(scale).unwrap().gpu.unwrap().validate().unwrap();
        }
    }
}
