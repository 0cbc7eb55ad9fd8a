//! Selective Caching and hardware coherence: who may cache what, what crosses the link, and what each step of the ladder
//! changes.

mod keys;
mod ladder;
mod script;

use script::{Script, counts, in_cpu, in_gpu};

const LINK: [&str; 4] =
    ["link.to_cpu.packets", "link.to_cpu.flits", "link.to_gpu.packets", "link.to_gpu.flits"];

/// Two loads of a line in the CPU's memory, the second long after the first.
fn twice() -> Script {
    let mut script = Script::new(1 << 20);
    script.kernel(1);
    script.load(0, 8);
    script.compute(100_000);
    script.load(32, 8);
    script
}

#[test]
fn the_gpu_does_not_cache_the_cpu_s_memory() {
    // A sector each: a header there; a header and two flits back.
    let naive = twice().run(&in_cpu("selective-naive", &[]));
    assert_eq!(counts(&naive, LINK), [2, 2, 2, 6]);
    assert_eq!(counts(&naive, ["uncached.loads", "l1.hit", "l1.miss", "l2.miss"]), [2, 0, 0, 0]);
    // 64 bytes of memory for either.
    assert_eq!(naive.stats.integer("tier.ddr.bytes_read"), 128);
    // A request that may be joined is for the whole line: nine flits.
    let promoted = twice().run(&in_cpu("selective-l1", &[]));
    assert_eq!(counts(&promoted, LINK), [2, 2, 2, 18]);
    assert_eq!(counts(&promoted, ["uncached.coalesced_l1", "link.bytes_asked"]), [0, 256]);
    assert_eq!(promoted.stats.integer("tier.ddr.bytes_read"), 256, "both lines of 64 bytes, twice");
    // The client cache spares memory the second time, and not the link.
    let client = twice().run(&in_cpu("selective-cc", &[]));
    assert_eq!(counts(&client, LINK), [2, 2, 2, 18]);
    assert_eq!(counts(&client, ["client_cache.hit", "client_cache.miss"]), [1, 1]);
    assert_eq!(client.stats.integer("tier.ddr.bytes_read"), 128);
    // Variable sizes spare the link.
    let variable = twice().run(&in_cpu("selective-cc-vt", &[]));
    assert_eq!(counts(&variable, LINK), [2, 2, 2, 6]);
    assert_eq!(variable.stats.integer("tier.ddr.bytes_read"), 128);
    // A page that nobody writes, and hardware coherence, are cached: the second load hits.
    let read_only = twice().run(&in_cpu("selective-ro", &[]));
    assert_eq!(counts(&read_only, ["l1.hit", "l1.miss", "uncached.loads"]), [0, 2, 0], "sectors");
    let bound = twice().run(&in_cpu("gpu-hw-coherent", &[]));
    assert_eq!(counts(&bound, ["l1.hit", "l1.miss", "uncached.loads"]), [1, 1, 0]);
    assert_eq!(counts(&bound, LINK), [1, 1, 1, 9]);
}

#[test]
fn loads_under_way_are_joined_in_an_sm_and_across_sms() {
    // Two groups on two SMs; each loads the same two sectors twice at once.
    let script = || {
        let mut script = Script::new(1 << 20);
        script.kernel(1);
        for group in 0..2 {
            if group > 0 {
                script.group(1);
            }
            script.load(0, 8);
            script.load(0, 8);
            script.load(32, 8);
        }
        script
    };
    let of = |name: &str| {
        let outcome = script().run(&in_cpu(name, &[]));
        let [loads, l1, l2, packets] = counts(
            &outcome,
            ["uncached.loads", "uncached.coalesced_l1", "uncached.coalesced_l2", "link.to_cpu.packets"],
        );
        assert_eq!(loads, l1 + l2 + packets, "{name}");
        ([l1, l2], packets, outcome.stats.integer("gpu.link.to_gpu.flits"))
    };
    assert_eq!(of("selective-naive"), ([0, 0], 6, 18));
    assert_eq!(of("selective-l1"), ([4, 0], 2, 18));
    assert_eq!(of("selective-l1-l2"), ([4, 1], 1, 9));
    // The second sector is asked for as well, and joins the answer that waits for memory: one header, four flits of data.
    assert_eq!(of("selective-cc-vt"), ([2, 2], 2, 5));
}

#[test]
fn a_line_that_the_cpu_holds_is_served_there_and_one_that_it_does_not_is_refused() {
    let mut script = Script::new(1 << 20);
    script.host(0, true);
    script.kernel(1);
    // Both halves of the line are asked for; the CPU holds the first, so there is no refusal.
    script.load(0, 32);
    let outcome = script.run(&in_gpu("selective-naive", &[]));
    assert_eq!(counts(&outcome, ["remote_directory.added", "remote_directory.lines"]), [1, 1]);
    assert_eq!(counts(&outcome, ["coherence.served_by_cpu", "coherence.nacks"]), [1, 0]);
    assert_eq!(counts(&outcome, LINK), [1, 1, 1, 5], "64 bytes from the CPU");
    assert_eq!(outcome.stats.integer("tier.gddr.bytes_read"), 64, "and 64 from memory");

    let mut script = Script::new(1 << 20);
    script.host(0, true);
    script.kernel(1);
    script.load(64, 16);
    let outcome = script.run(&in_gpu("selective-naive", &[]));
    assert_eq!(counts(&outcome, ["coherence.served_by_cpu", "coherence.nacks"]), [0, 1]);
    assert_eq!(counts(&outcome, LINK), [1, 1, 1, 1], "a header there, a refusal back");
    assert_eq!(outcome.stats.integer("tier.gddr.bytes_read"), 64);
}

#[test]
fn a_request_of_the_cpu_takes_a_line_from_the_gpu_s_caches() {
    let script = || {
        let mut script = Script::new(1 << 20);
        script.kernel(1);
        script.store(0, 32);
        script.host(0, false);
        script.kernel(1);
        script.load(0, 8);
        script
    };
    let changes = [("gpu.l2.write_allocate", "sectors")];
    let outcome = script().run_whole(&in_gpu("selective-naive", &changes), true);
    assert_eq!(counts(&outcome, ["coherence.dropped_from_gpu", "remote_directory.added"]), [1, 1]);
    // What was written reaches memory, and then the CPU and the GPU by way of the CPU.
    assert_eq!(outcome.stats.integer("tier.gddr.bytes_written"), 128);
    assert_eq!(outcome.stats.integer("tier.gddr.bytes_read"), 64);
    assert_eq!(counts(&outcome, ["coherence.served_by_cpu"]), [1]);
    let outcome = script().run_whole(&in_gpu("gpu-hw-coherent", &changes), true);
    assert_eq!(counts(&outcome, ["coherence.dropped_from_gpu", "coherence.taken_from_cpu"]), [1, 1]);
    assert_eq!(counts(&outcome, ["uncached.loads", "l2.miss"]), [0, 2]);
}

#[test]
fn stores_to_the_cpu_s_memory_go_there_and_atomics_come_back() {
    let mut script = Script::new(1 << 20);
    script.kernel(1);
    script.store(0, 32);
    script.atomic(4096, 8);
    let outcome = script.run(&in_cpu("selective-cc-vt", &[]));
    assert_eq!(counts(&outcome, ["uncached.stores", "uncached.atomics", "uncached.loads"]), [1, 1, 0]);
    // Nine flits of the store; three flits of operands there, three of old values back.
    assert_eq!(counts(&outcome, LINK), [2, 12, 1, 3]);
    assert_eq!(outcome.stats.integer("tier.ddr.bytes_written"), 192);
    assert_eq!(outcome.stats.integer("tier.ddr.bytes_read"), 128, "the atomic's line, for the client cache");
}

#[test]
fn a_store_to_the_cpu_s_memory_takes_the_line_from_its_caches() {
    let mut script = Script::new(1 << 20);
    script.host(0, true);
    script.kernel(1);
    script.store(0, 8);
    script.load(0, 8);
    let outcome = script.run(&in_cpu("selective-naive", &[]));
    assert_eq!(counts(&outcome, ["coherence.taken_from_cpu", "coherence.served_by_cpu"]), [1, 0]);
    // Lines in the GPU's memory: what the CPU had modified comes back over the link.
    let mut script = Script::new(1 << 20);
    script.host(0, true);
    script.kernel(1);
    script.store(0, 8);
    let outcome = script.run(&in_gpu("selective-naive", &[]));
    assert_eq!(counts(&outcome, ["coherence.taken_from_cpu", "coherence.nacks"]), [1, 0]);
    assert_eq!(counts(&outcome, LINK), [1, 3, 1, 5]);
}

#[test]
fn a_full_directory_makes_the_cpu_give_up_the_gpu_s_lines() {
    let mut script = Script::new(1 << 20);
    (0..40).for_each(|line| script.host(128 * line, true));
    let small = [
        ("coherence.remote_directory.entries", "32"),
        ("coherence.remote_directory.fingerprint", "16"),
        ("coherence.remote_directory.high_water", "0.5"),
    ];
    let outcome = script.run_whole(&in_gpu("selective-naive", &small), true);
    // Sixteen lines are half of it: after 16 and 32 it begins anew, and what was modified went to memory.
    assert_eq!(counts(&outcome, ["remote_directory.flushes", "remote_directory.lines"]), [2, 8]);
    assert_eq!(outcome.stats.integer("tier.gddr.bytes_written"), 32 * 64);
}

#[test]
fn a_page_is_cached_until_it_is_written() {
    let script = || {
        let mut script = Script::new(1 << 20);
        script.kernel(1);
        script.load(0, 32);
        script.load(4096, 32);
        script.store(0, 8);
        script.load(0, 32);
        script.load(4096, 32);
        script
    };
    let outcome = script().run(&in_cpu("selective-ro", &[]));
    assert_eq!(counts(&outcome, ["read_only.faults", "uncached.loads", "uncached.stores"]), [1, 1, 1]);
    assert_eq!(counts(&outcome, ["l1.hit", "l1.miss"]), [1, 2], "the other page stays cached");
    let free = script().run(&in_cpu("selective-ro", &[("coherence.read_only.gpu_fault", "0 ns")]));
    let cycles = |outcome: &terrace_sim::Outcome| outcome.stats.integer("gpu.cycles");
    // 20 us of 1.4 GHz, but for rounding.
    assert!((27_990..28_010).contains(&(cycles(&outcome) - cycles(&free))), "{}", cycles(&outcome));
    // A store of the host between kernels faults too, and the GPU loads anew.
    let mut script = Script::new(1 << 20);
    script.kernel(1);
    script.load(0, 32);
    script.host(0, true);
    script.kernel(1);
    script.load(64, 16);
    let outcome = script.run(&in_cpu("selective-ro", &[]));
    assert_eq!(counts(&outcome, ["read_only.cpu_faults", "l2.hit", "l2.miss"]), [1, 0, 2]);
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |name: &str, key: &str, value: &str| {
        let changes = [(key.to_owned(), value.to_owned())];
        terrace_sim::design::Library::embedded().design(name, None, &changes).unwrap_err().to_string()
    };
    let error = refused("selective-cc", "coherence.client_cache.capacity", "1000 B");
    assert!(error.contains("client_cache.capacity"), "{error}");
    let error = refused("selective-cc", "coherence.remote_directory.entries", "60000");
    assert!(error.contains("power of two"), "{error}");
    for (key, value) in [("coalescing", "l1"), ("uncoalesced", "line"), ("read_only.enabled", "true")] {
        let error = refused("gpu-hw-coherent", &format!("coherence.{key}"), value);
        assert!(error.contains("needs coherence.kind"), "{error}");
    }
}

#[test]
fn the_link_between_both_sides_takes_the_place_of_tiers_links() {
    let library = terrace_sim::design::Library::embedded();
    let cycles = |slow: &str| {
        let changes = [("tier.ddr.link.latency", slow), ("os.policy.fast_share", "0.0")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let design = library.design("selective-naive", Some("gpu-gtx480"), &changes).unwrap().design;
        twice().run(&design).stats.integer("gpu.cycles")
    };
    assert_eq!(cycles("10 ns"), cycles("1 us"));
}
