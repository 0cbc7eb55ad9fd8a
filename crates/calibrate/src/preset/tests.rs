use super::*;
use crate::bandwidth::Kind;
use crate::compression::Compression;
use crate::measure::{NodeMemory, Rate};
use crate::moves::Moves;
use crate::nodes::Node;
use crate::prefetch::Stride;
use crate::processor::{Cache, Processor};
use crate::spread::Spread;
use crate::translation::{Point, Walks};
use proptest::prelude::*;
use terrace_sim::design::{Library, Resolved};
use terrace_sim::memory::Device;

mod hypervisor;
mod ledger;
mod shares;

fn exact(value: f64) -> Spread {
    Spread { median: value, low: value, high: value, count: 3 }
}

fn cache(kib: u64, ways: u32, sharers: usize) -> Cache {
    Cache { bytes: kib << 10, ways, sharers }
}

fn points(extras: &[(u64, f64)]) -> Vec<Point> {
    extras.iter().map(|(pages, extra)| Point { pages: *pages, extra: exact(*extra), quiet: *extra }).collect()
}

fn node(id: i32, processors: usize, latency: f64) -> NodeMemory {
    let rates = [1, 2].iter().flat_map(|threads| {
        Kind::MEMORY.map(|kind| Rate { kind, threads: *threads, rate: exact(30e9 * *threads as f64) })
    });
    let node = Node { id, processors: (0..processors).collect(), total: 24 << 30, free: 20 << 30 };
    NodeMemory { node, latency: exact(latency), rates: rates.collect() }
}

fn zen5() -> Measured {
    Measured {
        processor: Processor {
            vendor: "AuthenticAMD".to_owned(),
            name: "AMD \"EPYC\"".to_owned(),
            family: 26,
            count: 2,
            caches: vec![cache(48, 12, 1), cache(1 << 10, 16, 1), cache(32 << 10, 16, 2)],
            guest: true,
        },
        bandwidth_bytes: 512 << 20,
        processor_share: 1.0,
        frequency: Some(exact(4e9)),
        base_fault: exact(1300.0),
        huge_fault_held: Some(exact(28_200.0)),
        huge_fault: Some(exact(105_000.0)),
        cache_latency: vec![exact(1.0), exact(3.5), exact(14.0)],
        last_level: Vec::new(),
        cache_rates: vec![vec![Rate { kind: Kind::Read, threads: 1, rate: exact(200e9) }]; 3],
        memory_interval: exact(22.0),
        base_translation: points(&[
            (64, 0.0),
            (80, 0.1),
            (96, 2.0),
            (2048, 2.0),
            (3584, 2.0),
            (4096, 14.1),
            (16_384, 17.8),
        ]),
        huge_translation: Err("the system maps no huge page of zeros".to_owned()),
        pieces: None,
        walks: [(1, 30.0, 12.0), (2, 15.0, 6.0), (4, 7.5, 3.0), (8, 4.5, 1.5), (16, 4.4, 1.0)]
            .map(|(chains, apart, dense)| Walks {
                chains,
                apart: exact(apart),
                dense: exact(dense),
                quiet: (apart, dense),
            })
            .to_vec(),
        strides: [(1, 8.0), (2, 12.0), (4, 150.0)]
            .map(|(lines, ns)| Stride { lines, time: exact(ns) })
            .to_vec(),
        memory: vec![node(0, 2, 176.0)],
        skipped: Vec::new(),
        copies: vec![Rate { kind: Kind::Copy, threads: 1, rate: exact(20e9) }],
        protect_alone: exact(900.0),
        protect_beside: Some(exact(3400.0)),
        moves: Err("this machine has one memory node".to_owned()),
        compression: Ok(Compression {
            compress: exact(9000.0),
            decompress: exact(3000.0),
            ratio: Spread { median: 2.5, low: 2.0, high: 3.0, count: 500 },
        }),
    }
}

fn with_two_nodes() -> Measured {
    let mut machine = zen5();
    machine.memory.push(node(1, 0, 276.0));
    let calls = [(1, 5000.0), (32, 36_000.0), (512, 516_000.0)];
    machine.moves = Ok(calls.map(|(pages, call)| Moves { pages, call: exact(call) }).to_vec());
    machine
}

/// As the command makes it of a preset.
fn base_of(name: &str) -> Base {
    let sets = [("device.spare.preset".to_owned(), "ddr5-4800".to_owned())];
    let design = Library::embedded().design("native-4k", Some(name), &sets).unwrap().design;
    let tier = |name: &str, device: &str, path_ns: f64| {
        let device = Device::new(&design.devices[device]).unwrap();
        BaseTier {
            name: name.to_owned(),
            path_ns,
            device_ns: device.idle_read_latency().as_nanos(),
            peak_read: device.peak_read_bandwidth().0,
        }
    };
    let ways = |ways: terrace_sim::design::Associativity| match ways {
        terrace_sim::design::Associativity::Ways(ways) => Some(ways),
        terrace_sim::design::Associativity::Full(_) => None,
    };
    Base {
        name: name.to_owned(),
        tiers: design
            .tiers
            .iter()
            .map(|one| tier(&one.name, &one.device, one.path_latency.as_nanos()))
            .collect(),
        spare: tier("spare", "spare", 0.0),
        reserved: design.os.reserved.0,
        cache_cycles: [&design.cache.l1, &design.cache.l2, &design.cache.llc].map(|level| level.latency.0),
        frequency: design.core.frequency.0,
        threads: design.core.threads,
        has_groups: !design.core.groups.is_empty(),
        first_tlbs: design
            .translation
            .l1d
            .iter()
            .map(|(size, tlb)| Array {
                sizes: vec![size.name().to_owned()],
                entries: tlb.entries,
                ways: ways(tlb.ways),
            })
            .collect(),
        second_tlbs: design
            .translation
            .l2
            .array
            .iter()
            .map(|array| Array {
                sizes: array.sizes.iter().map(|size| size.name().to_owned()).collect(),
                entries: array.entries,
                ways: ways(array.ways),
            })
            .collect(),
        walkers: design.translation.walkers,
        has_streams: design.cache.prefetcher.streams > 0 && design.cache.prefetcher.degree > 0,
    }
}

fn base() -> Base {
    let mut base = base_of("zen5-turin");
    base.tiers[0].device_ns = 56.0;
    base
}

fn value<'a>(table: &'a toml::Table, path: &str) -> &'a toml::Value {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    let here = &table[first];
    if rest.is_empty() { here } else { value(here.as_table().unwrap(), rest) }
}

fn written(machine: &Measured) -> toml::Table {
    write(machine, &base(), "2026-11-23").parse().unwrap()
}

fn spread_of(table: &toml::Table, key: &str) -> String {
    let entries = value(table, "ledger.spread").as_array().unwrap();
    let of = |entry: &toml::Value| Some(entry.as_str()?.strip_prefix(key)?.strip_prefix(" = ")?.to_owned());
    entries.iter().find_map(of).unwrap_or_else(|| panic!("no spread of {key} in {entries:?}"))
}

#[test]
fn a_device_that_is_slower_than_the_load_is_said() {
    let mut base = base();
    base.tiers[0].device_ns = 170.0;
    let text = write(&zen5(), &base, "2026-11-23");
    // 176 ns of a load, 14 ns of the last level and 170 ns of the device.
    assert!(text.contains("They are 8.0 ns more than the load"), "{text}");
    let table: toml::Table = text.parse().unwrap();
    let tier = value(&table, "tier").as_array().unwrap()[0].as_table().unwrap();
    assert_eq!(tier["path_latency"].as_str(), Some("0.0 ns"));
}

#[test]
fn what_was_measured_becomes_keys() {
    let table = written(&zen5());
    for (key, expected) in [
        ("extends", "zen5-turin"),
        ("core.frequency", "4.00 GHz"),
        ("cache.l1.latency", "4 cycles"),
        ("cache.l2.latency", "14 cycles"),
        ("cache.llc.latency", "56 cycles"),
        ("cache.llc.capacity", "32768 KiB"),
        ("translation.l2.latency", "8 cycles"),
        ("os.fault_cost", "1247.4 ns"),
        ("os.zero_bandwidth", "77.81 GB/s"),
        ("os.huge_zero_bandwidth", "20.18 GB/s"),
        ("os.costs.shootdown", "2500.0 ns"),
    ] {
        assert_eq!(value(&table, key).as_str(), Some(expected), "{key}");
    }
    assert_eq!(value(&table, "cache.l1.outstanding").as_integer(), Some(8), "176 ns over 22 ns");
    assert_eq!(value(&table, "translation.l1d.4k.entries").as_integer(), Some(96));
    assert_eq!(value(&table, "translation.walkers").as_integer(), Some(4), "18 ns over 4.4 ns");
    assert_eq!(value(&table, "cache.prefetcher.enabled").as_bool(), Some(true));
    let second = value(&table, "translation.l2.array").as_array().unwrap();
    assert_eq!(second[0]["entries"].as_integer(), Some(4096));
    assert_eq!(second[1]["entries"].as_integer(), Some(1024), "that of the preset");
    let tier = value(&table, "tier").as_array().unwrap()[0].as_table().unwrap();
    // 176 ns less 14 ns of the last level and 56 ns of the device.
    assert_eq!((tier["name"].as_str(), tier["path_latency"].as_str()), (Some("dram"), Some("106.0 ns")));
    assert_eq!(tier["capacity"].as_str(), Some("24576 MiB"));
    for level in ["l2", "llc"] {
        assert_eq!(value(&table, &format!("cache.{level}.index")).as_str(), Some("hashed"), "in a guest");
    }
}

#[test]
fn each_node_is_a_tier_and_moves_are_costs() {
    let table = written(&with_two_nodes());
    let tiers = value(&table, "tier").as_array().unwrap();
    assert_eq!(tiers.len(), 2);
    let link = tiers[1]["link"].as_table().unwrap();
    let remote = base().tiers[1].device_ns;
    // 276 ns less 14 ns of the last level, 106 ns of the path, and the device.
    let left = format!("{:.1} ns", 276.0 - 14.0 - 106.0 - remote);
    assert_eq!((tiers[1]["name"].as_str(), link["latency"].as_str()), (Some("remote"), Some(left.as_str())));
    assert_eq!(link["read_bandwidth"].as_str(), Some("60.00 GB/s"), "of both threads");
    // A further page takes 1000 ns. Its copy takes 410 ns.
    assert_eq!(value(&table, "os.costs.order").as_str(), Some("4000.0 ns"));
    assert_eq!(value(&table, "os.costs.map").as_str(), Some("147.6 ns"));

    let mut three = with_two_nodes();
    three.memory.push(node(2, 0, 500.0));
    let table = written(&three);
    let tiers = value(&table, "tier").as_array().unwrap();
    assert_eq!(tiers[2]["device"].as_str(), Some("node2"), "the preset has no third tier");
    assert_eq!(value(&table, "device.node2.preset").as_str(), Some("ddr5-4800"));
}

#[test]
fn what_was_not_measured_is_marked_with_the_reason() {
    let marks = |machine: &Measured| {
        let table = written(machine);
        let entries = value(&table, "ledger.assumed").as_array().unwrap().clone();
        entries.iter().map(|entry| entry.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let one = marks(&zen5());
    for expected in [
        "translation.l1d.2m: from zen5-turin; the system maps no huge page of zeros",
        "tier.remote: from zen5-turin; one memory node could be measured here",
        "os.costs.order, os.costs.allocate, os.costs.unmap, os.costs.map, os.costs.free: from zen5-turin; this machine has one memory node",
    ] {
        assert!(one.iter().any(|entry| entry == expected), "{expected} in {one:#?}");
    }
    let two = marks(&with_two_nodes());
    assert!(!two.iter().any(|entry| entry.contains("tier.remote") || entry.contains("os.costs.order")));

    let mut machine = zen5();
    (machine.huge_fault_held, machine.huge_fault, machine.protect_beside) = (None, None, None);
    machine.base_translation = points(&[(16, 0.0), (4096, 0.1)]);
    machine.walks.truncate(1);
    machine.strides = vec![Stride { lines: 1, time: exact(100.0) }];
    machine.frequency = None;
    let less = marks(&machine);
    for keys in [
        "core.frequency",
        "os.zero_bandwidth",
        "os.costs.shootdown:",
        "translation.l1d.4k",
        "translation.l2.latency",
        "translation.l2.array:",
        "translation.walkers",
        "cache.prefetcher.enabled",
    ] {
        assert!(less.iter().any(|entry| entry.starts_with(keys)), "{keys} in {less:#?}");
    }
    machine.frequency = Some(exact(24e9));
    assert!(marks(&machine).iter().any(|entry| entry.contains("faster than one in a cycle")));
    let table = written(&machine);
    assert_eq!(value(&table, "os.fault_cost").as_str(), Some("1300.0 ns"));
    assert!(!value(&table, "os").as_table().unwrap().contains_key("zero_bandwidth"));
}

#[test]
fn no_cache_answers_later_than_what_lies_behind_it() {
    let mut machine = zen5();
    machine.cache_latency[1] = exact(61.0);
    let text = write(&machine, &base(), "2026-11-23");
    let table: toml::Table = text.parse().unwrap();
    assert_eq!(value(&table, "cache.l2.latency").as_str(), Some("56 cycles"), "as the last level");
    assert!(text.contains("# Something disturbed it: what lies behind answers in 14.0 ns."), "{text}");
    assert_eq!(text.matches("Something disturbed").count(), 1);

    machine.cache_latency[2] = exact(500.0);
    let table = written(&machine);
    assert_eq!(value(&table, "cache.l2.latency").as_str(), Some("244 cycles"), "61 ns");
    assert_eq!(value(&table, "cache.llc.latency").as_str(), Some("704 cycles"), "as memory");

    machine.processor.caches.truncate(2);
    machine.cache_latency.truncate(2);
    let table = written(&machine);
    assert_eq!(value(&table, "cache.l2.latency").as_str(), Some("50 cycles"), "as the preset's last level");
}

#[test]
fn the_spread_of_what_was_measured_is_in_the_ledger() {
    let mut machine = with_two_nodes();
    machine.base_fault = Spread { median: 1300.0, low: 1170.0, high: 1430.0, count: 11 };
    machine.huge_fault = Some(Spread { median: 105_000.0, low: 100_000.0, high: 110_000.0, count: 11 });
    machine.memory[0].latency = Spread { median: 176.0, low: 170.0, high: 190.0, count: 11 };
    machine.cache_latency[2] = Spread { median: 14.0, low: 13.0, high: 16.0, count: 11 };
    let table = written(&machine);
    for (key, expected) in [
        ("os.fault_cost", "1117.1 ns .. 1377.6 ns"),
        ("os.zero_bandwidth", "77.43 GB/s .. 78.19 GB/s"),
        ("os.huge_zero_bandwidth", "19.23 GB/s .. 21.23 GB/s"),
        // 170 less 16 and 56, 190 less 13 and 56.
        ("tier.dram.path_latency", "98.0 ns .. 121.0 ns"),
        ("cache.l1.outstanding", "7 .. 9"),
        ("cache.llc.latency", "52 cycles .. 64 cycles"),
        ("translation.l1d.4k.entries", "81 .. 96"),
        ("os.costs.shootdown", "2500.0 ns .. 2500.0 ns"),
        ("tier.remote.link.read_bandwidth", "60.00 GB/s .. 60.00 GB/s"),
    ] {
        assert_eq!(spread_of(&table, key), expected, "{key}");
    }
    spread_of(&table, "tier.remote.link.latency");
}

#[test]
fn the_text_is_read_by_people() {
    let text = write(&zen5(), &base(), "2026-11-23");
    for expected in [
        "# Measured: 80 pages fit and 96 do not, which takes 2.0 ns; the preset's number lies between.",
        "# Measured: 30.00 GB/s, two reads to a write, 1 thread; quartiles 30.00 to 30.00, 3 repetitions.",
        "# Loads in order are prefetched up to 2 lines apart.",
        "# Measured: 9.00 us to compress a page of 4 KiB; quartiles 9.00 to 9.00, 3 repetitions.",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    // Entries of the ledger are one line each.
    let long = |line: &&str| line.starts_with('#') && line.chars().count() > 125;
    assert_eq!(text.lines().find(long), None);
}

#[test]
fn a_disturbed_measurement_says_so() {
    let mut machine = zen5();
    assert!(!write(&machine, &base(), "2026-11-23").contains("Others ran"));
    machine.processor_share = 0.3;
    assert!(write(&machine, &base(), "2026-11-23").contains("had 30 % of a processor"));
}

/// A design on the machine that is written so. Errors: what the design's parser says.
fn parse(text: &str) -> Result<Resolved, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("here.toml");
    std::fs::write(&path, text).unwrap();
    Library::embedded().design("native-4k", path.to_str(), &[]).map_err(|error| error.to_string())
}

#[test]
fn every_preset_can_be_extended() {
    for machine in Library::embedded().machine_names() {
        let base = base_of(machine.name.as_ref());
        for measured in [zen5(), with_two_nodes()] {
            let text = write(&measured, &base, "2026-11-23");
            let resolved = parse(&text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", base.name));
            assert!(resolved.design.tiers.len() >= measured.memory.len(), "{}", base.name);
        }
    }
}

/// Any time or rate, sensible or not.
fn any_spread() -> impl Strategy<Value = Spread> {
    let value = prop_oneof![
        8 => 0.01f64..2000.0,
        1 => Just(0.0),
        1 => -100.0f64..0.0,
        1 => 1e6f64..1e13,
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
    ];
    prop::collection::vec(value, 0..5).prop_map(Spread::of)
}

fn any_machine() -> impl Strategy<Value = Measured> {
    let caches = prop::collection::vec(
        (prop_oneof![Just(32u64), Just(1024), Just(22_528), 1u64..100_000], 0u32..40, any_spread()),
        0..5,
    );
    let curve = || prop::collection::vec(any_spread(), 0..45);
    let spreads = prop::collection::vec(any_spread(), 40);
    let nodes = prop::collection::vec((0u64..1 << 44, any_spread()), 1..5);
    (caches, curve(), curve(), spreads, nodes, any::<bool>(), 0usize..3000).prop_map(
        |(caches, small, large, spreads, nodes, is_whole, count)| {
            let mut spreads = spreads.into_iter().cycle();
            let mut next = || spreads.next().unwrap();
            let points = |extras: Vec<Spread>| {
                extras
                    .into_iter()
                    .enumerate()
                    .map(|(at, extra)| Point { pages: 16 + 200 * at as u64, extra, quiet: extra.low })
                    .collect()
            };
            let mut machine = with_two_nodes();
            machine.processor.count = count;
            machine.processor.caches = caches.iter().map(|(kib, ways, _)| cache(*kib, *ways, 1)).collect();
            machine.cache_latency = caches.iter().map(|one| one.2).collect();
            machine.cache_rates.truncate(caches.len());
            machine.last_level = (1..20).map(|at| (at * 3_000_000, next())).collect();
            machine.frequency = is_whole.then(&mut next);
            (machine.base_fault, machine.memory_interval) = (next(), next());
            (machine.huge_fault_held, machine.huge_fault) = (Some(next()), is_whole.then(&mut next));
            machine.base_translation = points(small);
            machine.huge_translation =
                if is_whole { Ok(points(large)) } else { Err("a \"reason\"".to_owned()) };
            machine.walks.iter_mut().for_each(|one| {
                (one.apart, one.dense) = (next(), next());
                one.quiet = (one.apart.low, one.dense.low);
            });
            machine.strides.iter_mut().for_each(|one| one.time = next());
            machine.memory.clear();
            for (id, (total, latency)) in nodes.into_iter().enumerate() {
                let mut memory = node(id as i32, id % 2, 1.0);
                (memory.node.total, memory.latency) = (total, latency);
                memory.rates.iter_mut().for_each(|one| one.rate = next());
                machine.memory.push(memory);
            }
            machine.copies[0].rate = next();
            (machine.protect_alone, machine.protect_beside) = (next(), is_whole.then(&mut next));
            if let Ok(calls) = &mut machine.moves {
                calls.iter_mut().for_each(|one| one.call = next());
            }
            machine
        },
    )
}

/// Number and unit of a value, of an entry of the spread as of a key.
fn number(text: &str) -> (f64, &str) {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    (number.parse().unwrap(), unit)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn whatever_is_measured_is_a_machine(machine in any_machine(), preset in 0usize..3) {
        let base = base_of(["zen4-cxl", "zen5-turin", "skylake-6140"][preset]);
        let text = write(&machine, &base, "2026-11-23");
        let resolved = parse(&text);
        prop_assert!(resolved.is_ok(), "{}\n{text}", resolved.unwrap_err());
        prop_assert!(resolved.unwrap().design.tiers.len() >= machine.memory.len());
        // Each value lies in its spread.
        let table: toml::Table = text.parse().unwrap();
        for entry in value(&table, "ledger.spread").as_array().unwrap() {
            let (key, range) = entry.as_str().unwrap().split_once(" = ").unwrap();
            let (low, high) = range.split_once(" .. ").unwrap();
            let (low, unit) = number(low);
            let (high, same) = number(high);
            prop_assert!(unit == same && low <= high, "{entry}");
            let mut here = &toml::Value::Table(table.clone());
            for part in key.split('.') {
                here = match here {
                    toml::Value::Array(entries) => entries
                        .iter()
                        .enumerate()
                        .find(|(at, one)| part.parse() == Ok(*at) || one.get("name").is_some_and(|name| name.as_str() == Some(part)))
                        .unwrap()
                        .1,
                    other => &other[part],
                };
            }
            let text = here.as_str().map_or_else(|| here.to_string(), str::to_owned);
            let (value, own) = number(&text);
            prop_assert!(own == unit && (low..=high).contains(&value), "{key} = {text}, not in {entry}");
        }
    }
}
