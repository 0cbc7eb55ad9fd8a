//! The preset: what was measured as a machine file, each value with its spread, the rest from the nearest preset.

use crate::analysis::steps;
use crate::measure::Measured;
use crate::spread::Spread;
use std::fmt::Write;
use std::path::PathBuf;

/// What the writer has to know of the preset that the machine extends.
#[derive(Clone, Debug, PartialEq)]
pub struct Base {
    /// The preset's name.
    pub name: String,
    /// The preset's first tier.
    pub tier: String,
    /// Nanoseconds of an idle read of that tier's device, from the controller on.
    pub device_ns: f64,
    /// Cycles of a look-up of the last level.
    pub llc_cycles: f64,
    /// Cycles per second of its cores.
    pub frequency: f64,
}

/// Where the preset of this machine lies: `$XDG_DATA_HOME/terrace/machines/here.toml`, where `$XDG_DATA_HOME` is
/// `~/.local/share` unless it is set. None without a home.
pub fn here() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")))?;
    Some(data.join("terrace/machines/here.toml"))
}

/// Nanoseconds of a load from a cache, `at` counted from the nearest. What disturbs a chase only makes it slower, and
/// no cache answers later than what lies behind it, so it is the least of its own median and theirs. `preset_llc` is
/// the latency of the last level of the preset, which stays where this machine reports fewer than three levels.
fn undisturbed(machine: &Measured, at: usize, preset_llc: f64) -> f64 {
    let behind = if machine.cache_latency.len() < 3 { preset_llc } else { machine.memory_latency.median };
    machine.cache_latency[at..].iter().map(|latency| latency.median).fold(behind, f64::min)
}

/// The comment that says how a value was had.
fn measured(spread: &Spread, factor: f64, unit: &str) -> String {
    let Spread { median, low, high, count } = spread.times(factor);
    format!("# Measured: {median:.2} {unit}, quartiles {low:.2} to {high:.2}, {count} repetitions.")
}

/// The machine file. `date` is the day of the measurement.
pub fn write(measured_machine: &Measured, base: &Base, date: &str) -> String {
    let machine = measured_machine;
    let mut text = String::new();
    let mut cited: Vec<String> = Vec::new();
    let mut spread: Vec<String> = Vec::new();
    let guest = if machine.processor.guest { ", a guest of a hypervisor" } else { "" };
    let processor = machine.processor.name.replace(['"', '\\'], "");
    // Writing to text cannot fail.
    let mut line = |of: String| {
        let _ = writeln!(text, "{of}");
    };
    line("kind = \"machine\"".to_owned());
    line(format!("summary = \"this machine: {processor}, {} processors{guest}\"", machine.processor.count));
    line(format!("extends = \"{}\"\n", base.name));
    line(format!(
        "# Written by `terrace calibrate` on {date}. What is not stated here is that of {}.\n",
        base.name
    ));

    if machine.is_disturbed() {
        line(format!(
            "# Others ran meanwhile: the measurement had {:.0} % of a processor. Measure again on an idle machine.\n",
            100.0 * machine.processor_share
        ));
    }
    line("[core]".to_owned());
    line(format!("count = {}", machine.processor.count));
    let mut hertz = base.frequency;
    if let Some(frequency) = &machine.frequency {
        hertz = frequency.median;
        line(measured(frequency, 1e-9, "GHz"));
        line(format!("frequency = \"{:.2} GHz\"\n", hertz / 1e9));
        cited.push("core.frequency".to_owned());
    }

    let mut llc_cycles = base.llc_cycles;
    let caches = machine.processor.caches.iter().zip(&machine.cache_latency);
    for (at, (level, ((capacity, ways), latency))) in ["l1", "l2", "llc"].into_iter().zip(caches).enumerate()
    {
        let nanos = undisturbed(machine, at, base.llc_cycles / hertz * 1e9);
        let cycles = nanos * hertz / 1e9;
        line(format!("[cache.{level}]"));
        line("# The kernel's description of the processor.".to_owned());
        line(format!("capacity = \"{} KiB\"\nways = {ways}", capacity >> 10));
        line(measured(latency, 1.0, "ns over half of it or four times the cache before, huge pages"));
        if nanos < latency.median {
            line(format!("# Something disturbed it: what lies behind answers in {nanos:.1} ns."));
        }
        line(format!("latency = \"{} cycles\"", cycles.round().max(1.0)));
        if level == "l1" {
            line(measured(&machine.memory_interval, 1.0, "ns per line from memory, as many chains as pay"));
            line(format!("outstanding = {}", machine.lines_in_flight().round().clamp(1.0, 64.0)));
            cited.push("cache.l1.outstanding".to_owned());
        }
        line(String::new());
        if level == "llc" {
            llc_cycles = cycles;
        }
        cited.push(format!("cache.{level}.latency"));
    }

    let path = machine.memory_latency.median - llc_cycles / hertz * 1e9 - base.device_ns;
    line(format!("[[tier]]\nname = \"{}\"", base.tier));
    line(measured(&machine.memory_latency, 1.0, "ns for a load from memory, huge pages"));
    line(format!(
        "# Less {:.1} ns of the last level and {:.1} ns of the device.",
        llc_cycles / hertz * 1e9,
        base.device_ns
    ));
    line(format!("path_latency = \"{:.1} ns\"\n", path.max(0.0)));
    cited.push(format!("tier.{}.path_latency", base.tier));

    line("[os]".to_owned());
    line(measured(&machine.base_fault, 1e-3, "us for the first store to a base page"));
    match (machine.faults(), &machine.huge_fault_held, &machine.huge_fault) {
        (Some(costs), Some(held), Some(cold)) => {
            line(measured(held, 1e-3, "us for that to a huge page whose frame the caches hold"));
            line(measured(cold, 1e-3, "us where they do not hold it"));
            line(format!("fault_cost = \"{:.0} ns\"", costs.path_ns));
            line(format!("zero_bandwidth = \"{:.1} GB/s\"", costs.zero / 1e9));
            line(format!("huge_zero_bandwidth = \"{:.1} GB/s\"\n", costs.huge_zero / 1e9));
            // A fault is mostly path on a base page and mostly zeroing on a huge one.
            let of = |key, value: f64, low: f64, high: f64, unit| {
                format!("os.{key} = {:.2} {unit} .. {:.2} {unit}", value * low, value * high)
            };
            let base = &machine.base_fault;
            let (low, high) = (base.low / base.median, base.high / base.median);
            spread.push(of("fault_cost", costs.path_ns, low, high, "ns"));
            for (key, rate, fault) in
                [("zero_bandwidth", costs.zero, held), ("huge_zero_bandwidth", costs.huge_zero, cold)]
            {
                let (slow, fast) = (fault.median / fault.high, fault.median / fault.low);
                spread.push(of(key, rate / 1e9, slow, fast, "GB/s"));
            }
            cited.push("os.fault_cost, os.zero_bandwidth, os.huge_zero_bandwidth".to_owned());
        }
        _ => {
            line("# No huge page was had, so the zeroing in it cannot be told apart: all of it counts as path.".to_owned());
            line(format!("fault_cost = \"{:.0} ns\"\n", machine.base_fault.median));
            cited.push("os.fault_cost".to_owned());
        }
    }
    if let Some(beside) = &machine.protect_beside {
        let shootdown = (beside.median - machine.protect_alone.median).max(0.0);
        line("[os.costs]".to_owned());
        line(measured(&machine.protect_alone, 1.0, "ns for two mprotect calls, alone"));
        line(measured(beside, 1.0, "ns beside threads on all other processors"));
        line(format!("shootdown = \"{shootdown:.0} ns\"\n"));
        cited.push("os.costs.shootdown".to_owned());
    }

    line("# Not in a key of the machine:".to_owned());
    for (kind, threads, rate) in &machine.bandwidth {
        line(measured(rate, 1e-9, &format!("GB/s, {kind:?}, {threads} threads")).to_owned());
    }
    let points: Vec<String> =
        machine.translation.iter().map(|(pages, extra)| format!("{pages}: {extra:.1}")).collect();
    line("# Measured: ns that a load on base pages takes longer than on huge ones, by the number of base pages:".to_owned());
    for part in points.chunks(8) {
        line(format!("#   {}", part.join(", ")));
    }
    // A TLB that still answers adds next to nothing, so the rise is seen over a nanosecond.
    let raised: Vec<(u64, f64)> =
        machine.translation.iter().map(|(pages, extra)| (*pages, 1.0 + extra.max(0.0))).collect();
    for step in steps(&raised, 3.0) {
        line(format!("# Up to {} pages about {:.1} ns.", step.until, step.level - 1.0));
    }
    line(String::new());
    line("[ledger]\ncited = [".to_owned());
    line(format!("    \"{}: measured by terrace calibrate on {date}\",", cited.join(", ")));
    line(format!("]\nassumed = [\n    \"all that is not measured: {}\",", base.name));
    line(
        "    \"compressed memory, moves of pages between nodes, tiers beyond the first: not measured\","
            .to_owned(),
    );
    line("]".to_owned());
    if !spread.is_empty() {
        line("# Quartiles of the repetitions.".to_owned());
        let entries: Vec<String> = spread.iter().map(|entry| format!("    \"{entry}\",")).collect();
        line(format!("spread = [\n{}\n]", entries.join("\n")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bandwidth::Kind;
    use crate::processor::Processor;

    fn exact(value: f64) -> Spread {
        Spread { median: value, low: value, high: value, count: 3 }
    }

    fn zen5() -> Measured {
        Measured {
            processor: Processor {
                vendor: "AuthenticAMD".to_owned(),
                name: "AMD \"EPYC\"".to_owned(),
                family: 26,
                count: 2,
                caches: vec![(48 << 10, 12), (1 << 20, 16), (32 << 20, 16)],
                guest: true,
            },
            processor_share: 1.0,
            frequency: Some(exact(4e9)),
            base_fault: exact(1300.0),
            huge_fault_held: Some(exact(28_200.0)),
            huge_fault: Some(exact(105_000.0)),
            cache_latency: vec![exact(1.0), exact(3.5), exact(14.0)],
            memory_latency: exact(176.0),
            memory_interval: exact(22.0),
            // Recorded on an EPYC of the Zen 5 generation, whose level-2 TLB has 4096 entries.
            translation: vec![
                (256, 0.0),
                (512, 0.0),
                (1024, 0.1),
                (2048, 0.3),
                (4096, 12.6),
                (8192, 14.1),
                (16_384, 17.8),
            ],
            bandwidth: vec![(Kind::Read, 1, exact(30e9))],
            protect_alone: exact(900.0),
            protect_beside: Some(exact(3400.0)),
        }
    }

    fn base() -> Base {
        Base {
            name: "zen5-turin".to_owned(),
            tier: "dram".to_owned(),
            device_ns: 56.0,
            llc_cycles: 50.0,
            frequency: 3.6e9,
        }
    }

    fn value<'a>(table: &'a toml::Table, path: &str) -> &'a toml::Value {
        let (first, rest) = path.split_once('.').unwrap_or((path, ""));
        let here = &table[first];
        if rest.is_empty() { here } else { value(here.as_table().unwrap(), rest) }
    }

    #[test]
    fn what_was_measured_becomes_keys() {
        let table: toml::Table = write(&zen5(), &base(), "2026-11-23").parse().unwrap();
        for (key, expected) in [
            ("extends", "zen5-turin"),
            ("core.frequency", "4.00 GHz"),
            ("cache.l1.latency", "4 cycles"),
            ("cache.l2.latency", "14 cycles"),
            ("cache.llc.latency", "56 cycles"),
            ("cache.llc.capacity", "32768 KiB"),
            ("os.fault_cost", "1247 ns"),
            ("os.zero_bandwidth", "77.8 GB/s"),
            ("os.huge_zero_bandwidth", "20.2 GB/s"),
            ("os.costs.shootdown", "2500 ns"),
        ] {
            assert_eq!(value(&table, key).as_str(), Some(expected), "{key}");
        }
        assert_eq!(value(&table, "cache.l1.outstanding").as_integer(), Some(8), "176 ns over 22 ns");
        let tier = value(&table, "tier").as_array().unwrap()[0].as_table().unwrap();
        // 176 ns less 14 ns of the last level and 56 ns of the device.
        assert_eq!((tier["name"].as_str(), tier["path_latency"].as_str()), (Some("dram"), Some("106.0 ns")));
    }

    #[test]
    fn no_cache_answers_later_than_what_lies_behind_it() {
        let mut machine = zen5();
        machine.cache_latency[1] = exact(61.0);
        let text = write(&machine, &base(), "2026-11-23");
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(value(&table, "cache.l2.latency").as_str(), Some("56 cycles"), "as the last level");
        assert!(text.contains("# Something disturbed it: what lies behind answers in 14.0 ns."), "{text}");
        assert_eq!(text.matches("disturbed").count(), 1);

        machine.cache_latency[2] = exact(500.0);
        let table: toml::Table = write(&machine, &base(), "2026-11-23").parse().unwrap();
        assert_eq!(value(&table, "cache.l2.latency").as_str(), Some("244 cycles"), "61 ns");
        assert_eq!(value(&table, "cache.llc.latency").as_str(), Some("704 cycles"), "as memory");

        machine.processor.caches.truncate(2);
        machine.cache_latency.truncate(2);
        let table: toml::Table = write(&machine, &base(), "2026-11-23").parse().unwrap();
        assert_eq!(
            value(&table, "cache.l2.latency").as_str(),
            Some("50 cycles"),
            "as the preset's last level"
        );
    }

    #[test]
    fn the_spread_of_what_was_measured_is_in_the_ledger() {
        let mut machine = zen5();
        machine.base_fault = Spread { median: 1300.0, low: 1170.0, high: 1430.0, count: 11 };
        machine.huge_fault = Some(Spread { median: 105_000.0, low: 100_000.0, high: 110_000.0, count: 11 });
        let table: toml::Table = write(&machine, &base(), "2026-11-23").parse().unwrap();
        let spread = value(&table, "ledger.spread").as_array().unwrap();
        let expected = [
            "os.fault_cost = 1122.62 ns .. 1372.09 ns",
            "os.zero_bandwidth = 77.81 GB/s .. 77.81 GB/s",
            "os.huge_zero_bandwidth = 19.27 GB/s .. 21.19 GB/s",
        ];
        assert_eq!(spread.iter().map(|entry| entry.as_str().unwrap()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_reach_of_the_tlb_is_reported() {
        let text = write(&zen5(), &base(), "2026-11-23");
        assert!(text.contains("# Up to 2048 pages about 0.1 ns."), "{text}");
        assert!(text.contains("# Up to 16384 pages about 14.1 ns."), "{text}");
    }

    #[test]
    fn a_disturbed_measurement_says_so() {
        let mut machine = zen5();
        assert!(!write(&machine, &base(), "2026-11-23").contains("Others ran"));
        machine.processor_share = 0.3;
        assert!(write(&machine, &base(), "2026-11-23").contains("had 30 % of a processor"));
    }

    #[test]
    fn without_huge_pages_the_rates_are_the_presets() {
        let mut machine = zen5();
        (machine.huge_fault_held, machine.huge_fault, machine.protect_beside) = (None, None, None);
        let table: toml::Table = write(&machine, &base(), "2026-11-23").parse().unwrap();
        assert_eq!(value(&table, "os.fault_cost").as_str(), Some("1300 ns"));
        let os = value(&table, "os").as_table().unwrap();
        assert!(!os.contains_key("zero_bandwidth") && !os.contains_key("costs"));
    }
}
