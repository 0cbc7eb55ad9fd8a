//! No dead knobs: every parameter of a memory device changes what the device does, every key of a translation scheme a run.
//!
//! Each parameter is set to other values within its range, and every preset plays the same reads and writes. If no value
//! changes a completion time, a counter or an energy, the test fails. Keys of schemes likewise change a statistic of a run.

#[path = "machine_support/mod.rs"]
mod support;

use support::{run_with, workload};
use terrace_model::parameters::{Declared, Kind, ParameterInfo};
use terrace_model::{Bytes, BytesPerSec, Cycles, Energy, Frequency, Random, Time};
use terrace_sim::Options;
use terrace_sim::design::{Library, schemes};
use terrace_sim::memory::{Device, DeviceParameters, Initiator, preset_names, preset_table};

/// Other values of a parameter: the other words, numbers below and above, and both ends of its range.
fn others(parameter: &ParameterInfo, value: &str) -> Vec<String> {
    let scaled = |by: f64| -> Option<String> {
        let number = value.parse::<f64>().ok().map(|number| number * by);
        let quantity =
            value.parse::<Bytes>().map(|bytes| Bytes((bytes.0 as f64 * by) as u64).to_string()).ok();
        let quantity = quantity
            .or_else(|| Some(Time((value.parse::<Time>().ok()?.0 as f64 * by) as u64).to_string()))
            .or_else(|| Some(Cycles((value.parse::<Cycles>().ok()?.0 * by).round()).to_string()))
            .or_else(|| Some(Frequency(value.parse::<Frequency>().ok()?.0 * by).to_string()))
            .or_else(|| Some(BytesPerSec(value.parse::<BytesPerSec>().ok()?.0 * by).to_string()))
            .or_else(|| Some(Energy(value.parse::<Energy>().ok()?.0 * by).to_string()));
        match parameter.kind {
            Kind::Count => number.map(|number| format!("{}", number.round() as u64)),
            Kind::Number => number.map(|number| format!("{number:?}")),
            _ => quantity,
        }
    };
    let mut others: Vec<String> = match parameter.kind {
        Kind::Switch => vec![(value != "true").to_string()],
        Kind::Choice => parameter.choices.iter().map(|choice| choice.name.clone()).collect(),
        _ => [2.0, 0.5, 4.0, 0.25, 16.0, 0.0625].into_iter().filter_map(scaled).collect(),
    };
    let ends = parameter.range.iter().flat_map(|range| [range.low.clone(), range.high.clone()]);
    others.extend(ends.filter(|end| !end.contains(" or ")));
    if value.starts_with('[') {
        others = others.into_iter().map(|other| format!("[\"{other}\"]")).collect();
    }
    others.retain(|other| other != value);
    others
}

/// A table of a device, changed as the lines of `changes` say.
fn device(preset: &str, changes: &str) -> toml::Table {
    let mut table: toml::Table = preset_table(preset).unwrap().parse().unwrap();
    let changes: toml::Table = changes.parse().unwrap();
    for (key, value) in changes {
        match (table.get_mut(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => below.extend(above),
            (_, value) => drop(table.insert(key, value)),
        }
    }
    table
}

/// The value at a key; the first element stands for all of a list.
fn at<'a>(table: &'a mut toml::Table, key: &str) -> Option<&'a mut toml::Value> {
    let mut parts = key.split('.');
    let mut value = table.get_mut(parts.next()?)?;
    for part in parts {
        value = if part == "*" { value.as_array_mut()?.first_mut()? } else { value.get_mut(part)? };
    }
    Some(value)
}

/// What a device does with reads and writes, alone, in bursts and after pauses.
fn run_device(table: &toml::Table) -> Option<String> {
    let parameters: DeviceParameters = table.clone().try_into().ok()?;
    parameters.check().ok()?;
    let mut device = Device::new(&parameters).ok()?;
    let (mut random, mut now) = (Random::new(1), Time::ZERO);
    let mut done = String::new();
    for step in 0..6_000u64 {
        // Lines in a row, lines of the same few rows, and lines anywhere in 64 MiB.
        let line = match step / 500 % 3 {
            0 => step,
            1 => (step % 4) * 4096 + step % 7,
            _ => random.below(1 << 20),
        };
        let burst = step % 1000 < 600;
        let write = if step % 2000 < 1000 { step % 3 == 0 } else { burst };
        let end = match write {
            true => device.write(line, now, Initiator::Writeback),
            false => device.read(line, now, Initiator::Demand),
        };
        done += &format!("{} ", end.0);
        if step % 512 == 0 {
            // From the last lines to the first ones, where rows move between segments.
            done += &format!("{:?} ", device.transfer((1 << 20) - step, step, now, Initiator::Copy));
        }
        // A read waits now and then; a pause is long enough for rows to close.
        now = match step % 16 {
            15 if !burst => end.max(now) + Time::from_nanos(900),
            7 => end.max(now),
            _ => now + Time::from_nanos(2),
        };
    }
    let device = device.settled(now + Time::from_nanos(100_000));
    Some(format!("{done}{:?}{:?}", device.counters(), device.energy(now)))
}

#[test]
fn every_parameter_of_a_device_changes_what_it_does() {
    let segments = "[bank]\nclose_after = \"300 ns\"\nt_rp_dirty = \"40 ns\"\nt_rrd_precharge = \"20 ns\"\n\
         random_access_interval = \"9 ns\"\nrandom_write_interval = \"12 ns\"\n\
         t_transfer = \"4 ns\"\n[[bank.segments]]\nend = \"1 MiB\"\nt_rcd = \"8 ns\"\nt_rp = \"8 ns\"\nt_ras = \"18 ns\"\nt_wr = \"9 ns\"\n";
    let mut devices: Vec<toml::Table> = preset_names().map(|preset| device(preset, "")).collect();
    devices.push(device("ddr4-2400", segments));
    let before: Vec<_> = devices.iter().map(|table| run_device(table).unwrap()).collect();
    let notes = ["source", "assumed", "calibrated"];
    let has_effect = |parameter: &ParameterInfo| {
        devices.iter().zip(&before).any(|(table, before)| {
            let mut table = table.clone();
            let Some(value) = at(&mut table, &parameter.name).cloned() else { return false };
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            others(parameter, &text).iter().any(|other| {
                let other = match other.parse::<i64>() {
                    Ok(number) => toml::Value::Integer(number),
                    Err(_) => other.parse().map_or_else(|_| other.as_str().into(), toml::Value::Boolean),
                };
                *at(&mut table, &parameter.name).unwrap() = other;
                run_device(&table).is_some_and(|after| after != *before)
            })
        })
    };
    let declared = DeviceParameters::declared();
    let dead = declared.iter().filter(|one| !notes.contains(&one.name.as_str()));
    let dead = dead.filter(|one| !has_effect(one));
    let dead: Vec<&str> = dead.map(|one| one.name.as_str()).collect();
    assert!(dead.is_empty(), "no value of these changes anything: {dead:?}");
}

/// Programs that differ in what they ask of translation: random accesses, a key-value store, allocations beside frees by two
/// threads, and growth in pieces.
const PROGRAMS: [&str; 4] = [
    "gups,bytes=16 MiB,updates=6e3,threads=2",
    "kv,keys=6e3,requests=6e3",
    "churn,bytes=8 MiB,smallest=64 KiB,largest=1 MiB,allocations=30,uses=200,threads=2",
    "growth,bytes=16 MiB,chunk=1 MiB,accesses=6e3,compute=1e5",
];

/// What runs under a scheme's keys gave: none where the keys make no sense together. Small TLBs and caches, so that little
/// input fills them; with small and with large pages, once on fresh memory and once on little, fragmented memory.
fn run_scheme(scheme: &str, keys: &[(String, String)]) -> Option<String> {
    let kind = format!("\"{scheme}\"");
    let mut sets: Vec<(String, String)> = [
        ("core.count", "2"),
        ("cache.l2.capacity", "64 KiB"),
        ("cache.llc.capacity", "256 KiB"),
        ("translation.l1d.2m.entries", "1"),
        ("translation.l2.array.0.entries", "4"),
        ("translation.scheme.kind", &kind),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .to_vec();
    sets.extend(keys.iter().map(|(key, value)| (format!("translation.scheme.{key}"), value.clone())));
    let aged = [
        ("tier.dram.capacity", "40 MiB"),
        ("os.reserved", "0 B"),
        ("os.memory.free_lists", "last-freed-first"),
        ("os.memory.aging.kind", "page-cache"),
    ];
    let mut seen = String::new();
    for pages in ["4k", "2m"] {
        for memory in [&[][..], &aged] {
            let mut sets = sets.clone();
            sets.push(("os.pages".to_owned(), pages.to_owned()));
            sets.extend(memory.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
            let Ok(design) = Library::embedded().design("native-4k", Some("vbi-table1"), &sets) else {
                continue;
            };
            for program in PROGRAMS {
                let options = Options { whole: true, ..Options::default() };
                match run_with(&design.design, &mut *workload(program), options) {
                    Ok(outcome) => seen += &format!("{}{:?}", outcome.cycles, outcome.stats),
                    Err(error) => seen += &error.to_string(),
                }
            }
        }
    }
    (!seen.is_empty()).then_some(seen)
}

#[test]
fn every_key_of_a_translation_scheme_changes_a_run() {
    let mut dead = Vec::new();
    for scheme in schemes::ALL {
        let declared = scheme.keys();
        // What a key decides may need another: delayed allocation and early reservation are those of the full interface.
        let words = |of: &[(&str, &str)]| {
            of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<Vec<_>>()
        };
        let contexts: Vec<Vec<(String, String)>> = match scheme.name {
            "vbi" => vec![
                words(&[]),
                words(&[("delayed", "true"), ("reservation", "early"), ("headroom", "8 TiB")]),
                // Memory is always short, so that regions go to the backing store and come back.
                words(&[("delayed", "true"), ("headroom", "8 TiB"), ("swap", "1 GiB")]),
                words(&[("nodes", "2"), ("migrate_after", "20")]),
            ],
            // Workloads have no instruction addresses: small regions stand for many instructions.
            "spot" => vec![words(&[("entries", "4"), ("ways", "4"), ("substitute_region", "512 KiB")])],
            _ => vec![words(&[])],
        };
        let before: Vec<_> = contexts.iter().map(|context| run_scheme(scheme.name, context)).collect();
        assert!(before.iter().any(Option::is_some) || declared.is_empty(), "{} never runs", scheme.name);
        for parameter in &declared {
            let value = &parameter.default;
            let has_effect = contexts.iter().zip(&before).any(|(context, before)| {
                others(parameter, value).into_iter().any(|other| {
                    let mut keys = context.clone();
                    keys.retain(|(key, _)| *key != parameter.name);
                    keys.push((parameter.name.clone(), other));
                    run_scheme(scheme.name, &keys).is_some_and(|after| Some(after) != *before)
                })
            });
            if !has_effect {
                dead.push(format!("{}.{}", scheme.name, parameter.name));
            }
        }
    }
    assert!(dead.is_empty(), "no value of these changes anything: {dead:?}");
}
