//! What a probe measures, and that a policy places by it.

use std::sync::Arc;
use terrace_policy::Profile;
use terrace_sim::design::{Design, Library};
use terrace_sim::{Options, probe, simulate};

fn design(name: &str, machine: &str, changes: &[(&str, &str)]) -> Design {
    let changes: Vec<(String, String)> =
        changes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Library::embedded().design(name, Some(machine), &changes).unwrap().design
}

fn measured(design: &Design) -> Vec<f64> {
    probe(design, None).unwrap().iter().map(|bandwidth| bandwidth.0 / 1e9).collect()
}

/// The share of the first of two memories.
fn share(bandwidths: &[f64]) -> f64 {
    bandwidths[0] / bandwidths.iter().sum::<f64>()
}

fn near(found: f64, expected: f64, error: f64) {
    assert!((found / expected - 1.0).abs() <= error, "{found} instead of {expected}");
}

/// 200 and 80 GB/s by table 3.1 of the source, of which refreshes take 3 and 4 %.
#[test]
fn the_published_gpus_ratio_is_found() {
    let found = measured(&design("gpu-bw-aware", "gpu-gtx480", &[]));
    near(found[0] / found[1], 200.0 / 80.0, 0.05);
    near(share(&found), 200.0 / 280.0, 0.05);
    assert!(found[0] < 200.0 && found[1] < 80.0, "{found:?}");
}

/// Refreshes take 7 % of HBM, and headers 10 of 74 bytes of the link.
#[test]
fn a_link_that_is_narrower_than_its_memory_is_found() {
    let found = measured(&design("gpu-bw-aware", "gpu-hbm-pcie", &[]));
    near(found[0], 2039.0 * (1.0 - 0.26 / 3.9), 0.05);
    near(found[1], 63.0 * 64.0 / 74.0, 0.05);
}

/// Half of the channel's rate makes half of the bandwidth, which nobody reported.
#[test]
fn what_a_machine_lost_is_found() {
    let slower = [("device.ddr.bus_bandwidth", "10 GB/s")];
    let [full, half] =
        [&[][..], &slower].map(|changes| measured(&design("gpu-bw-aware", "gpu-gtx480", changes)));
    near(half[0], full[0], 0.001);
    near(half[1], full[1] / 2.0, 0.05);
}

/// All cores of a machine without a GPU read.
#[test]
fn memories_of_cpus_are_probed_by_all_cores() {
    let design = design("native-4k", "zen4-cxl", &[]);
    let found = measured(&design);
    for (at, tier) in design.tiers.iter().enumerate() {
        let device = terrace_sim::memory::Device::new(&design.devices[&tier.device]).unwrap();
        let peak = device.peak_read_bandwidth().0 / 1e9;
        assert!(
            found[at] <= 1.001 * peak && found[at] > 0.5 * peak,
            "{}: {} of {peak}",
            tier.name,
            found[at]
        );
    }
    assert!(found[0] > found[1], "{found:?}");
}

#[test]
fn a_probe_is_the_same_each_time_and_says_nothing_of_the_policy() {
    let [one, other] = ["gpu-bw-aware", "gpu-local"].map(|name| measured(&design(name, "gpu-gtx480", &[])));
    assert_eq!(one, other);
}

#[test]
fn pages_go_where_a_probe_says() {
    let by_probe =
        design("gpu-local", "gpu-gtx480", &[("os.policy", "{ name = \"bw-aware\", weights = \"probe\" }")]);
    let workload = terrace_workload::open("gpu-stream,bytes=6 MiB").unwrap();
    let run = |profile: Option<Profile>| {
        let options = Options { profile: profile.map(Arc::new), ..Options::default() };
        simulate(&by_probe, &mut workload.source(), options)
    };
    let error = run(None).unwrap_err().to_string();
    assert!(error.contains("it takes a probe of each memory"), "{error}");
    for (bandwidths, share) in [([3, 1], 0.75), ([1, 1], 0.5)] {
        let outcome = run(Some(Profile { bandwidths: bandwidths.to_vec(), ..Profile::default() })).unwrap();
        let pages =
            ["gddr", "ddr"].map(|tier| outcome.stats.integer(&format!("tier.{tier}.bytes_read")) as f64);
        near(pages[0] / (pages[0] + pages[1]), share, 0.02);
        assert!(
            outcome.notes.iter().any(|note| note.contains("as the probe measured, gddr has")),
            "{:?}",
            outcome.notes
        );
    }
}

#[test]
fn a_virtual_machine_has_no_probe() {
    let guest = design("virtual-4k", "haswell-32", &[]);
    assert!(guest.vm.is_some());
    assert!(probe(&guest, None).unwrap_err().to_string().contains("virtual machine"));
}

/// A third memory beside a GPU, as fast as the CPU's: the source's ratio holds for any number of memories.
#[test]
fn three_memories_beside_a_gpu_are_probed_and_serve_together() {
    let mut three = design(
        "gpu-local",
        "gpu-gtx480",
        &[("os.policy", "{ name = \"bw-aware\", order = \"weights\", weights = \"probe\" }")],
    );
    let (mut third, device) = (three.tiers[1].clone(), three.devices[&three.tiers[1].device].clone());
    (third.name, third.device) = ("third".to_owned(), "third".to_owned());
    three.tiers.push(third);
    three.devices.insert("third".to_owned(), device);
    let found = measured(&three);
    near(found[0] / found[2], 200.0 / 80.0, 0.05);
    near(found[1], found[2], 0.001);

    let workload = terrace_workload::open("gpu-stream,bytes=24 MiB").unwrap();
    let bandwidths = found.iter().map(|gigabytes| (gigabytes * 1e9) as u64).collect();
    let profile = Some(Arc::new(Profile { bandwidths, ..Profile::default() }));
    let run = |design: &Design| {
        let options = Options { profile: profile.clone(), ..Options::default() };
        simulate(design, &mut workload.source(), options).unwrap()
    };
    let outcome = run(&three);
    let carried = ["gddr", "ddr", "third"].map(|tier| outcome.stats.number(&format!("gpu.bandwidth.{tier}")));
    let all: f64 = carried.iter().sum();
    near(carried[0] / all, share(&[found[0], found[1] + found[2]]), 0.05);
    near(carried[1], carried[2], 0.05);
    let local = run(&design("gpu-local", "gpu-gtx480", &[])).seconds_simulated;
    near(local / outcome.seconds_simulated, 360.0 / 200.0, 0.06);
}
