//! What holds for every step of the ladder, on random accesses and on the built-in workloads.

use super::script::{Script, counts, design, in_cpu};
use proptest::prelude::*;
use terrace_sim::{Options, Outcome, simulate};

const LADDER: [&str; 7] = [
    "gpu-hw-coherent",
    "selective-naive",
    "selective-l1",
    "selective-l1-l2",
    "selective-cc",
    "selective-cc-vt",
    "selective-ro",
];

/// Bytes over the link are those of the data and a header of 16 bytes for each packet, whoever sent them.
fn conserves(outcome: &Outcome, name: &str) {
    let [to_cpu, cpu_flits, cpu_data, to_gpu, gpu_flits, gpu_data, bytes] = counts(
        outcome,
        [
            "link.to_cpu.packets",
            "link.to_cpu.flits",
            "link.to_cpu.data_bytes",
            "link.to_gpu.packets",
            "link.to_gpu.flits",
            "link.to_gpu.data_bytes",
            "link.bytes",
        ],
    );
    assert_eq!(16 * cpu_flits, cpu_data + 16 * to_cpu, "{name}");
    assert_eq!(16 * gpu_flits, gpu_data + 16 * to_gpu, "{name}");
    assert_eq!(bytes, 16 * (cpu_flits + gpu_flits), "{name}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Everything in the CPU's memory, no host: what comes back is what was asked for, and memory reads what is not cached.
    #[test]
    fn bytes_and_requests_add_up(
        steps in prop::collection::vec((0u64..4, 0u64..40, 0u64..4, 1u64..33, 0u8..8), 1..120)
    ) {
        for name in LADDER {
            let mut script = Script::new(1 << 20);
            script.kernel(4);
            for &(warp, line, sector, lanes, kind) in &steps {
                script.warp(warp);
                let (offset, lanes) = (128 * line + 32 * sector, lanes.min(8 * (4 - sector)));
                match kind {
                    0 => script.store(offset, lanes),
                    1 => script.atomic(offset, lanes),
                    _ => script.load(offset, lanes),
                }
            }
            let outcome = script.run(&in_cpu(name, &[("gpu.l2.write_allocate", "sectors")]));
            conserves(&outcome, name);
            let [loads, l1, l2, stores, atomics] = counts(
                &outcome,
                ["uncached.loads", "uncached.coalesced_l1", "uncached.coalesced_l2", "uncached.stores", "uncached.atomics"],
            );
            let [asked, packets, answers, data] = counts(
                &outcome,
                ["link.bytes_asked", "link.to_cpu.packets", "link.to_gpu.packets", "link.to_gpu.data_bytes"],
            );
            let read = outcome.stats.integer("tier.ddr.bytes_read");
            if name != "gpu-hw-coherent" && name != "selective-ro" {
                // A transaction each: what did not join is a packet.
                prop_assert_eq!(packets, loads - l1 - l2 + stores + atomics, "{}", name);
            }
            match name {
                // Atomics bring old values as well.
                "selective-naive" => prop_assert!(data >= asked && read >= asked),
                "selective-l1" | "selective-l1-l2" | "selective-cc" => {
                    prop_assert_eq!(answers, (loads - l1 - l2) + atomics);
                    prop_assert_eq!(asked, 128 * (loads - l1 - l2));
                }
                _ => {}
            }
            if name.starts_with("selective-cc") {
                let [hits, misses] = counts(&outcome, ["client_cache.hit", "client_cache.miss"]);
                prop_assert_eq!(hits + misses, loads - l1 - l2 + atomics);
                prop_assert_eq!(read, 128 * misses);
            }
        }
    }
}

fn workload(name: &str, text: &str) -> Outcome {
    let mut source = terrace_workload::open(text).unwrap().source();
    simulate(&design(name, &[]), &mut *source, Options::default()).unwrap()
}

#[test]
fn steps_are_in_their_order_where_memory_is_read_again_and_again() {
    let text = "gpu-kmeans,points=8192,features=16,clusters=3";
    let cycles = LADDER.map(|name| workload(name, text)).map(|outcome| outcome.stats.integer("gpu.cycles"));
    let [_, naive, l1, l1_l2, cc, cc_vt, _] = cycles;
    assert!(cc_vt < cc && l1_l2 <= l1 && l1 < naive, "{cycles:?}");
    // The client cache saves traffic and adds a step for what misses it.
    assert!(cc as f64 <= 1.03 * l1_l2 as f64, "{cycles:?}");
}

#[test]
fn equal_inputs_give_equal_statistics_and_conserve_bytes() {
    for name in LADDER {
        let run = || workload(name, "gpu-xsbench,lookups=4096,nuclides=12,gridpoints=200");
        let (one, other) = (run(), run());
        conserves(&one, name);
        assert_eq!(one, other);
    }
}
