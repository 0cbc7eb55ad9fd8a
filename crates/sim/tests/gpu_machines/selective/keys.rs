//! Every key of `coherence` does something.

use super::script::{Script, design};

/// Accesses of both sides to what lies in both memories.
fn mixed() -> Script {
    let mut script = Script::new(4 << 20);
    for line in 0..64 {
        script.host(128 * 40 * line, true);
    }
    for kernel in 0..2u64 {
        script.kernel(4);
        for warp in 0..4 {
            script.warp(warp);
            for at in 0..64 {
                // A quarter or a half of a line at a time, lines far apart, each some times.
                let offset = 128 * 40 * (at % 32) + 32 * ((at + warp) % 3);
                script.load(offset, 8 + at / 16 % 2 * 8);
                // Lines that the host does not touch.
                script.load(offset + 128 * 40 * 128, 8);
                if at % 4 == 3 {
                    script.store(128 * 40 * (32 + at + 64 * warp) + 4096 * kernel, 32);
                }
            }
        }
        for line in 0..8 {
            script.host(128 * 40 * line + 64, line % 2 == 0);
        }
    }
    script
}

/// All that a run counts.
fn statistics(name: &str, changes: &[(&str, &str)]) -> Vec<String> {
    let mut all = vec![("os.policy.fast_share", "0.5")];
    all.extend(changes);
    let outcome = mixed().run_whole(&design(name, &all), true);
    outcome.stats.iter().map(|(name, value)| format!("{name} {value:?}")).collect()
}

#[test]
fn each_key_has_an_effect() {
    let small = [("coherence.remote_directory.entries", "16")];
    let tight = [("coherence.client_cache.capacity", "1 KiB")];
    let mut bases = std::collections::BTreeMap::new();
    for (name, key, value) in [
        ("gpu-hw-coherent", "kind", "selective"),
        ("gpu-hw-coherent", "variable_transfers", "true"),
        ("gpu-hw-coherent", "client_cache.capacity", "64 KiB"),
        ("selective-naive", "uncoalesced", "line"),
        ("selective-naive", "uncoalesced", "sector"),
        ("selective-naive", "coalescing", "l1"),
        ("selective-naive", "coalescing", "l1-l2"),
        ("selective-naive", "link.latency", "200 cycles"),
        ("selective-naive", "link.bandwidth", "1 GB/s"),
        ("selective-naive", "link.flit", "32 B"),
        ("selective-naive", "remote_directory.entries", "16"),
        ("selective-naive", "remote_directory.bucket", "1"),
        ("selective-naive", "remote_directory.fingerprint", "2"),
        ("selective-naive", "remote_directory.high_water", "0.5"),
        ("selective-cc", "client_cache.capacity", "0 B"),
        ("selective-cc", "client_cache.ways", "1"),
        ("selective-cc", "client_cache.latency", "300 cycles"),
        ("selective-cc", "client_cache.miss_latency", "300 cycles"),
        ("selective-cc", "variable_transfers", "true"),
        ("selective-ro", "read_only.enabled", "false"),
        ("selective-ro", "read_only.gpu_fault", "40 us"),
        ("selective-ro", "read_only.cpu_fault", "5 us"),
        ("selective-ro", "read_only.pending", "1"),
        ("selective-ro", "read_only.limit", "1.0"),
    ] {
        // Keys that bind only where there is little room.
        let context: &[(&str, &str)] = match key {
            "remote_directory.fingerprint" | "remote_directory.bucket" | "remote_directory.high_water" => {
                &small
            }
            "client_cache.ways" => &tight,
            _ => &[],
        };
        let base = bases.entry((name, context.first())).or_insert_with(|| statistics(name, context)).clone();
        let key = format!("coherence.{key}");
        let changes = [context, &[(key.as_str(), value)]].concat();
        assert!(statistics(name, &changes) != base, "{name}: {key} = {value} changes nothing");
    }
    let fetching = statistics("gpu-hw-coherent", &[("gpu.l2.write_allocate", "sectors")]);
    assert!(fetching != statistics("gpu-hw-coherent", &[]), "gpu.l2.write_allocate");
    // The trap of a full directory takes time.
    let trap = |cost| {
        let all =
            [("coherence.remote_directory.entries", "16"), ("coherence.remote_directory.flush_cost", cost)];
        statistics("selective-naive", &all)
    };
    assert!(trap("4 us") != trap("40 us"), "flush_cost");
}
