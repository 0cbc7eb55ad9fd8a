//! The range of every numeric key of machines and designs, in one table. Ranges of a policy's keys stand beside their
//! declaration in `crates/policy`.
//!
//! Upper bounds are far beyond any machine that was built, and low enough that whatever lies within can be built here: a
//! wrong digit is an error that names key, value and range. Rules between several keys are in `validate.rs`.

use super::read::leaves;
use super::schema::Design;
use super::validate::Fault;
use terrace_model::{Bytes, BytesPerSec, Cycles, Energy, Frequency, Time};

/// Key, lowest and highest value. `*` stands for one part of a key; the first row counts that matches in key and unit.
const RANGES: &[(&str, &str, &str)] = &[
    // The most cores that the directory of the caches can name.
    ("core.count", "1", "1024"),
    ("core.frequency", "1 MHz", "1000 GHz"),
    ("core.dispatch_width", "1", "1024"),
    ("core.reorder_buffer", "1", "16384"),
    ("core.store_buffer", "1", "16384"),
    ("core.base_cpi", "0.0001", "100000"),
    ("core.model.*", "0", "1048576"),
    ("core.groups.*.count", "1", "1024"),
    ("core.groups.*.frequency", "1 MHz", "1000 GHz"),
    ("core.groups.*.dispatch_width", "1", "1024"),
    ("core.groups.*.reorder_buffer", "1", "16384"),
    ("core.groups.*.store_buffer", "1", "16384"),
    ("core.groups.*.base_cpi", "0.0001", "100000"),
    ("core.groups.*.model.*", "0", "1048576"),
    ("translation.levels", "4", "5"),
    ("translation.l1d.*.entries", "0", "262144"),
    ("translation.l1d.*.ways", "1", "262144"),
    ("translation.l2.array.*.entries", "0", "262144"),
    ("translation.l2.array.*.ways", "1", "262144"),
    ("translation.l2.latency", "0 cycles", "1000000 cycles"),
    ("translation.page_walk_cache.entries", "0", "32767"),
    ("translation.page_walk_cache.ways", "1", "32767"),
    ("translation.page_walk_cache.latency", "0 cycles", "1000000 cycles"),
    ("translation.walkers", "1", "1024"),
    ("translation.nested.tlb.entries", "0", "262144"),
    ("translation.nested.tlb.ways", "1", "262144"),
    ("translation.nested.tlb.latency", "0 cycles", "1000000 cycles"),
    ("translation.nested.*", "0", "262144"),
    ("translation.nested.*", "0 cycles", "1000000 cycles"),
    ("translation.scheme.*", "0", "1048576"),
    ("translation.scheme.*", "0 B", "8 TiB"),
    ("translation.scheme.*", "0 ns", "3600 s"),
    ("translation.scheme.*", "0 cycles", "1000000 cycles"),
    ("cache.*.capacity", "64 B", "4 GiB"),
    ("cache.*.ways", "1", "256"),
    ("cache.*.latency", "0 cycles", "1000000 cycles"),
    ("cache.*.outstanding", "1", "16384"),
    ("cache.cache_to_cache", "0 cycles", "1000000 cycles"),
    ("cache.prefetcher.streams", "0", "4096"),
    ("cache.prefetcher.degree", "0", "1024"),
    // Frames have numbers of 32 bits.
    ("tier.*.capacity", "4 KiB", "8 TiB"),
    ("tier.*.path_latency", "0 ns", "1 s"),
    ("tier.*.link.latency", "0 ns", "1 s"),
    ("tier.*.link.read_bandwidth", "1 kB/s", "1000 TB/s"),
    ("tier.*.link.write_bandwidth", "1 kB/s", "1000 TB/s"),
    ("tier.*.link.packet_overhead", "0 B", "4 KiB"),
    ("device.*.channels", "1", "64"),
    ("device.*.channel_interleave", "64 B", "1 GiB"),
    ("device.*.clock", "1 kHz", "1000 GHz"),
    ("device.*.bus_bandwidth", "1 MB/s", "1000 TB/s"),
    ("device.*.controller_latency", "0 ns", "1 s"),
    ("device.*.write_queue", "1", "4096"),
    ("device.*.bank.ranks", "1", "64"),
    ("device.*.bank.banks", "1", "64"),
    ("device.*.bank.row", "64 B", "1 GiB"),
    ("device.*.bank.bank_interleave", "64 B", "1 GiB"),
    ("device.*.bank.drain_high", "0", "4096"),
    ("device.*.bank.drain_low", "0", "4096"),
    ("device.*.bank.*", "0 ns", "1 s"),
    ("device.*.bank.*", "0 cycles", "1000000 cycles"),
    ("device.*.bank.segments.*.end", "64 B", "8 TiB"),
    ("device.*.bank.segments.*.*", "0 ns", "1 s"),
    ("device.*.bank.segments.*.*", "0 cycles", "1000000 cycles"),
    ("device.*.media.block", "64 B", "4 KiB"),
    ("device.*.media.buffer_blocks", "4", "65536"),
    ("device.*.media.*", "0 ns", "1 s"),
    ("device.*.energy.*", "0 pJ", "1000 J"),
    ("os.placement.weights", "0", "1000000"),
    ("os.placement.first", "0", "1000000"),
    ("os.placement.group", "1", "1000000"),
    ("os.fault_cost", "0 ns", "1 s"),
    ("os.context_switch_cost", "0 ns", "1 s"),
    ("os.timeslice", "1 ns", "3600 s"),
    ("os.sample_contiguity", "1 ns", "3600 s"),
    ("os.zero_bandwidth", "1 kB/s", "1000 TB/s"),
    ("os.huge_zero_bandwidth", "1 kB/s", "1000 TB/s"),
    ("os.reserved", "0 B", "8 TiB"),
    ("os.costs.*", "0 ns", "1 s"),
    ("os.costs.*", "0 cycles", "1000000 cycles"),
    ("os.memory.max_order", "9", "19"),
    ("os.memory.min_free", "0", "0.5"),
    ("os.memory.aging.reads", "0", "1000"),
    ("os.memory.aging.dropped", "0", "1"),
    ("os.memory.aging.kernel", "0", "1"),
    ("os.memory.aging.fmfi", "0", "1"),
    ("os.memory.aging.rounds", "1", "1000000"),
    ("os.memory.aging.seed", "0", "18446744073709551615"),
];

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dimension {
    Plain,
    Bytes,
    Time,
    Cycles,
    Frequency,
    Bandwidth,
    Energy,
}

/// The number that a leaf holds, in the base unit of its dimension; nothing for words.
fn number(text: &str) -> Option<(Dimension, f64)> {
    let quantity = |dimension, value: Option<f64>| value.map(|value| (dimension, value));
    quantity(Dimension::Plain, text.parse().ok())
        .or_else(|| quantity(Dimension::Bytes, text.parse::<Bytes>().ok().map(|bytes| bytes.0 as f64)))
        .or_else(|| quantity(Dimension::Time, text.parse::<Time>().ok().map(|time| time.0 as f64)))
        .or_else(|| quantity(Dimension::Cycles, text.parse::<Cycles>().ok().map(|cycles| cycles.0)))
        .or_else(|| quantity(Dimension::Frequency, text.parse::<Frequency>().ok().map(|clock| clock.0)))
        .or_else(|| quantity(Dimension::Bandwidth, text.parse::<BytesPerSec>().ok().map(|rate| rate.0)))
        .or_else(|| quantity(Dimension::Energy, text.parse::<Energy>().ok().map(|energy| energy.0)))
}

fn matches(pattern: &str, key: &str) -> bool {
    let (pattern, key) = (pattern.split('.'), key.split('.'));
    pattern.clone().count() == key.clone().count()
        && pattern.zip(key).all(|(part, found)| part == "*" || part == found)
}

/// The range of a key whose values have this dimension.
fn range_of(key: &str, dimension: Dimension) -> Option<(&'static str, &'static str)> {
    let mut rows = RANGES.iter().filter(|(pattern, _, _)| matches(pattern, key));
    rows.find(|(_, low, _)| number(low).is_some_and(|(of, _)| of == dimension))
        .map(|&(_, low, high)| (low, high))
}

/// Numbers of a leaf: itself, or the elements of a list.
fn numbers(text: &str) -> impl Iterator<Item = (&str, Dimension, f64)> {
    let list = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let parts = list.unwrap_or(text).split(move |letter| list.is_some() && letter == ',');
    parts.filter_map(|part| {
        let part = part.trim();
        number(part).map(|(dimension, value)| (part, dimension, value))
    })
}

/// Whether a key's values are checked elsewhere: words that may look like numbers, and what policies declare.
fn is_left_out(key: &str) -> bool {
    let words = ["name", "summary", "machine"];
    words.contains(&key)
        || ["os.policy.", "ledger."].iter().any(|above| key.starts_with(above))
        || ["source", "assumed", "calibrated", "name", "tier", "device", "file", "kind", "sizes"]
            .iter()
            .any(|last| key.rsplit('.').next() == Some(last))
}

/// The first number of a design that lies outside the range of its key.
pub(super) fn check(design: &Design) -> Result<(), Fault> {
    let tree = toml::Value::try_from(design).map_err(|problem| (String::new(), problem.to_string()))?;
    for (key, text) in leaves(&tree).iter().filter(|(key, _)| !is_left_out(key)) {
        for (part, dimension, value) in numbers(text) {
            let Some((low, high)) = range_of(key, dimension) else { continue };
            let bound = |text| number(text).map_or(f64::NAN, |(_, bound)| bound);
            if !(bound(low)..=bound(high)).contains(&value) {
                return Err((key.clone(), format!("{part} is not between {low} and {high}")));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::design::Library;
    use crate::machine::Machine;
    use std::collections::BTreeSet;

    /// Every numeric key of every machine and design that comes along, with a design that has it and its unit.
    fn numeric_keys() -> Vec<(String, String, String)> {
        let library = Library::embedded();
        let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
        for listed in library.design_names().iter().chain(&library.machine_names()) {
            let design = library.design(&listed.name, None, &[]).unwrap();
            for parameter in design.parameters {
                let (key, value) = (parameter.key, parameter.value);
                if !is_left_out(&key) && numbers(&value).next().is_some() && seen.insert(key.clone()) {
                    found.push((listed.name.clone(), key, value));
                }
            }
        }
        found
    }

    #[test]
    fn the_directory_names_as_many_cores_as_there_may_be() {
        let most = crate::cache::MAX_CORES.to_string();
        assert_eq!(range_of("core.count", Dimension::Plain), Some(("1", most.as_str())));
    }

    #[test]
    fn every_numeric_key_has_a_range() {
        let keys = numeric_keys();
        assert!(keys.len() > 150, "{}", keys.len());
        for (_, key, value) in keys {
            let (_, dimension, _) = numbers(&value).next().unwrap();
            assert!(range_of(&key, dimension).is_some(), "{key} = {value}: no row of RANGES");
        }
    }

    #[test]
    fn absurd_values_are_refused_by_name_or_make_a_machine() {
        let library = Library::embedded();
        for (name, key, value) in numeric_keys() {
            let (part, dimension, _) = numbers(&value).next().unwrap();
            let unit = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
            let high = range_of(&key, dimension).unwrap().1;
            let absurd = ["0", "-1", "4294967295", "18446744073709551615", "1e30", "56000000"];
            let absurd = absurd.iter().map(|number| format!("{number}{unit}")).chain([high.to_owned()]);
            for text in absurd {
                let text = if value.starts_with('[') { format!("[{text}]") } else { text };
                // One core, so that many machines are built soon.
                let one_core = ("core.count".to_owned(), "1".to_owned());
                let sets = [one_core, (key.clone(), text.clone())];
                match library.design(&name, None, &sets) {
                    Err(error) => {
                        // Another key may not fit this one any more; then the message has the value.
                        let (said, last) = (error.to_string(), key.rsplit('.').next().unwrap());
                        assert!(said.contains(last) || said.contains(&text), "{name}: {key}={text}: {said}");
                    }
                    // What the host has no memory for is refused by the key as well.
                    Ok(resolved) => {
                        if let Err(said) = Machine::new(&resolved.design, &Options::default()) {
                            assert!(said.contains(key.split('.').next().unwrap()), "{key}={text}: {said}");
                        }
                    }
                }
            }
        }
    }
}
