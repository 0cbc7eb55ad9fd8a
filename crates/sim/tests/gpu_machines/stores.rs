//! No memory carries more in the time of kernels than its bandwidth allows, whatever the kernels store.

use terrace_model::LINE_BYTES;
use terrace_sim::design::{Design, Library};
use terrace_sim::memory::Device;

use crate::gpu_support::Script;

/// Arrays of a kernel; each warp accesses 128 bytes of each.
const ARRAYS: u64 = 8;
/// What a work-group of eight warps accesses.
const GROUP: u64 = ARRAYS * 8 * 128;

/// Kernels over arrays of `bytes` together, of which so many are stored and the others loaded.
fn kernels(kernels: u32, bytes: u64, stored: u64) -> Script {
    let groups = bytes / GROUP;
    let mut script = Script::new(groups * GROUP);
    for _ in 0..kernels {
        script.kernel();
        for group in 0..groups {
            script.group(256);
            for warp in 0..8 {
                script.warp(warp);
                for array in 0..ARRAYS {
                    let is_stored = (array + 1) * stored / ARRAYS > array * stored / ARRAYS;
                    script.lanes(((array * groups + group) * 8 + warp) * 128, 4, is_stored, 4);
                }
            }
        }
    }
    script
}

fn design(machine: &str, tier: usize) -> Design {
    let design = |changes: &[(String, String)]| {
        Library::embedded().design("native-4k", Some(machine), changes).unwrap().design
    };
    let placement = format!("{{ kind = \"bind\", tier = \"{}\" }}", design(&[]).tiers[tier].name);
    design(&[("os.placement".to_owned(), placement)])
}

/// Holds every mix of loads and stores, of every size, to what the memory can carry. What it has accepted at the end of a
/// kernel may wait in its write queues, and as much again is allowed for requests that come out of the order of time.
fn holds(machine: &str, tier: usize, sizes: &[u64]) {
    let design = design(machine, tier);
    let name = &design.tiers[tier].name;
    let parameters = &design.devices[&design.tiers[tier].device];
    let bandwidth = Device::new(parameters).unwrap().peak_read_bandwidth().0;
    let queues = u64::from(parameters.channels) * u64::from(parameters.write_queue) * LINE_BYTES;
    let mut broken = Vec::new();
    for &bytes in sizes {
        for stored in [0, 2, 4, 7, 8] {
            // Three kernels of the largest size would show no more than one, as queues hold little of it.
            let largest = bytes > 3 * MIB;
            for &count in if largest { &[1][..] } else { &[1, 3] } {
                let outcome = kernels(count, bytes, stored).run(&design);
                let bytes_of = |what: &str| outcome.stats.integer(&format!("tier.{name}.bytes_{what}"));
                let carried = bytes_of("read") + bytes_of("written");
                let late = 2 * u64::from(count) * queues;
                let allowed = (bandwidth * outcome.seconds_simulated) as u64 + late;
                if carried > allowed {
                    broken.push(format!(
                        "{stored} of {ARRAYS} arrays stored, {bytes} bytes, {count} kernels: {carried} of {allowed} bytes"
                    ));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{machine} {name}:\n{}", broken.join("\n"));
}

/// The way to a slice is half of its latency.
#[test]
fn a_kernel_is_over_when_its_store_has_come_to_a_slice() {
    let cycles = |latency: &str| {
        let mut script = Script::new(MIB);
        script.kernel();
        script.group(32);
        script.warp(0);
        script.lanes(0, 4, true, 1);
        let changes = [("gpu.l2.latency".to_owned(), latency.to_owned())];
        let design = Library::embedded().design("native-4k", Some("gpu-gtx480"), &changes).unwrap().design;
        script.run(&design).stats.integer("gpu.cycles")
    };
    assert_eq!(cycles("400 cycles") - cycles("200 cycles"), 100);
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

#[test]
fn the_memories_of_a_published_gpu() {
    for tier in [0, 1] {
        holds("gpu-gtx480", tier, &[192 * KIB, MIB, 3 * MIB, 8 * MIB]);
    }
}

#[test]
fn the_memories_of_a_gpu_whose_caches_fetch_what_is_stored() {
    for tier in [0, 1] {
        holds("gpu-selective", tier, &[192 * KIB, 3 * MIB, 8 * MIB]);
    }
}

#[test]
fn the_memories_of_a_card() {
    for tier in [0, 1] {
        holds("gpu-hbm-pcie", tier, &[3 * MIB]);
    }
}

#[test]
fn the_memories_of_a_gpu_over_a_coherent_link() {
    for tier in [0, 1] {
        holds("gpu-coherent", tier, &[3 * MIB]);
    }
}
