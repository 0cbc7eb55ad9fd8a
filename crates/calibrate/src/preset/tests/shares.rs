//! What a guest gets of its host's memory and caches.

use super::*;

#[test]
fn a_last_level_has_what_this_machine_gets_of_it() {
    let mut machine = zen5();
    // 14 ns of the last level and 176 of memory: 95 lies between.
    machine.last_level = vec![(4 << 20, exact(14.0)), (6 << 20, exact(60.0)), (8 << 20, exact(120.0))];
    let table = written(&machine);
    assert_eq!(value(&table, "cache.llc.capacity").as_str(), Some("6144 KiB"));
    assert_eq!(value(&table, "cache.llc.ways").as_integer(), Some(16));
    assert_eq!(spread_of(&table, "cache.llc.capacity"), "6144 KiB .. 8192 KiB");
    // More than half of a cache of 32 MiB may be used.
    machine.last_level = vec![(16 << 20, exact(20.0)), (24 << 20, exact(120.0))];
    assert_eq!(value(&written(&machine), "cache.llc.capacity").as_str(), Some("32768 KiB"));
    // What was measured over 512 MiB lay mostly in the cache.
    machine.last_level = vec![(4 << 20, exact(14.0)), (8 << 20, exact(22.0)), (12 << 20, exact(25.0))];
    let memory = std::mem::replace(&mut machine.memory[0].latency, exact(27.0));
    assert_eq!(value(&written(&machine), "cache.llc.capacity").as_str(), Some("32768 KiB"));
    machine.memory[0].latency = memory;
    machine.processor.caches.pop();
    machine.cache_latency.pop();
    machine.last_level = vec![(128 << 10, exact(4.0)), (256 << 10, exact(120.0))];
    let table = written(&machine);
    assert_eq!(value(&table, "cache.l2.capacity").as_str(), Some("128 KiB"), "the last level that there is");
}

#[test]
fn a_tier_that_was_not_measured_stays_behind_the_first() {
    let mut base = base();
    (base.tiers[0].path_ns, base.tiers[1].path_ns) = (30.0, 42.0);
    let second = |latency| {
        let mut machine = zen5();
        machine.processor.guest = false;
        machine.memory[0].latency = exact(latency);
        let table: toml::Table = write(&machine, &base, "2026-11-23").parse().unwrap();
        assert!(value(&table, "cache.l2").get("index").is_none(), "not in a guest");
        let second = value(&table, "tier").as_array().unwrap()[1].clone();
        (second["name"].as_str().unwrap().to_owned(), second["path_latency"].as_str().unwrap().to_owned())
    };
    // The first tier's path is 106 ns, or none at all.
    assert_eq!(second(176.0), ("remote".to_owned(), "118.0 ns".to_owned()));
    assert_eq!(second(70.0), ("remote".to_owned(), "12.0 ns".to_owned()));
}
