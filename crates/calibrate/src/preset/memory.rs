//! Tiers, one for each memory node.

use super::base::{Base, BaseTier};
use super::hardware::rates;
use super::sheet::{Form, Sheet};
use crate::bandwidth::Kind;
use crate::measure::{Measured, NodeMemory};
use crate::spread::Spread;

/// Bytes that a simulated machine may have.
pub const MOST_MEMORY: u64 = 8 << 40;

/// `last_level` is the latency of the last level.
pub fn tiers(sheet: &mut Sheet, machine: &Measured, base: &Base, last_level: Spread) {
    let Some(home) = machine.memory.first() else { return };
    let left_for_path = home.latency.minus(last_level).minus(exact(base.tiers[0].device_ns));
    let path = left_for_path.clamp(0.0, 1e9);
    let mut left = MOST_MEMORY;
    for (at, memory) in machine.memory.iter().enumerate() {
        let new = BaseTier { name: format!("node{}", memory.node.id.max(0)), ..base.spare.clone() };
        let tier = base.tiers.get(at).unwrap_or(&new);
        let table = format!("tier.{}", tier.name);
        sheet.line(format!("[[tier]]\nname = \"{}\"", tier.name));
        if machine.memory.len() > 1 || !machine.skipped.is_empty() {
            let where_ = match memory.node.processors.len() {
                0 => "without processors".to_owned(),
                processors => format!("with {processors} processors"),
            };
            sheet.comment(format!(
                "Node {}, {where_}, from the processors of node {}.",
                memory.node.id, home.node.id
            ));
        }
        if at >= base.tiers.len() {
            sheet.line(format!("device = \"{}\"", tier.name));
        }
        left -= capacity(sheet, &table, memory.node.total, left);
        sheet.measured(&memory.latency, 1.0, "ns for a load from it, huge pages");
        sheet.comment(format!(
            "{} {:.1} ns of the last level and {:.1} ns of the device.",
            if at == 0 { "Less" } else { "Of them" },
            last_level.median,
            tier.device_ns
        ));
        if left_for_path.median < 0.0 {
            let late = -left_for_path.median;
            sheet.comment(format!(
                "They are {late:.1} ns more than the load: a simulated one takes that much too long."
            ));
        }
        sheet.key(&table, "path_latency", path, &Form::NANOSECONDS);
        rates(sheet, &memory.rates);
        if at == 0 {
            sheet.comment(format!(
                "The device of {} reads {:.1} GB/s at most. The model has no key for a memory's bandwidth: channels give it.",
                base.name,
                tier.peak_read / 1e9
            ));
            sheet.line("");
            continue;
        }
        sheet.line("");
        let rest = memory.latency.median - last_level.median - tier.device_ns - path.median;
        let beyond = memory.latency.minus(home.latency);
        let latency = Spread {
            median: rest,
            low: rest - (beyond.median - beyond.low),
            high: rest + (beyond.high - beyond.median),
            count: beyond.count,
        };
        link(sheet, &table, memory, latency);
        if at >= base.tiers.len() {
            sheet.line(format!("[device.{}]\npreset = \"ddr5-4800\"\nchannels = 4\n", tier.name));
        }
    }
    for (node, reason) in &machine.skipped {
        sheet.comment(format!("Node {node} was not measured: {reason}."));
    }
    let names = |tiers: &[BaseTier]| {
        tiers.iter().map(|tier| format!("tier.{}", tier.name)).collect::<Vec<_>>().join(", ")
    };
    if let Some(rest @ [_, ..]) = base.tiers.get(machine.memory.len()..) {
        let why = match machine.memory.len() {
            1 => "one memory node could be measured here".to_owned(),
            count => format!("{count} memory nodes could be measured here"),
        };
        sheet.assume(&names(rest), &why);
        for tier in rest {
            farther(sheet, tier, path, base.tiers[0].path_ns);
        }
    }
    sheet.assume("device.*", "banks and channels cannot be told from the times of loads");
    sheet.line("");
}

/// A tier of the preset that was not measured stays as far behind the first as it is there: the path of the first is
/// `path`, and takes `of_preset` nanoseconds in the preset.
fn farther(sheet: &mut Sheet, tier: &BaseTier, path: Spread, of_preset: f64) {
    let path = (tier.path_ns + path.median - of_preset).max(0.0);
    sheet.line(format!("[[tier]]\nname = \"{}\"", tier.name));
    sheet.comment("As much farther away than the first tier as in the preset.");
    sheet.line(format!("path_latency = \"{path:.1} ns\""));
}

fn exact(value: f64) -> Spread {
    Spread { median: value, low: value, high: value, count: usize::MAX }
}

/// Returns the bytes of it.
fn capacity(sheet: &mut Sheet, table: &str, total: u64, left: u64) -> u64 {
    let mib = total.min(left) >> 20;
    if mib == 0 {
        sheet.line("capacity = \"1 GiB\"");
        sheet.assume(
            &format!("{table}.capacity"),
            "the kernel does not tell it, or others have all that can be simulated",
        );
        return left.min(1 << 30);
    }
    sheet.comment(match total <= left {
        true => "The kernel's MemTotal of the node.",
        false => "Of the kernel's MemTotal of the node what can be simulated.",
    });
    sheet.line(format!("capacity = \"{mib} MiB\""));
    sheet.reported(&format!("{table}.capacity"));
    mib << 20
}

/// What lies between the first node and this one.
fn link(sheet: &mut Sheet, table: &str, memory: &NodeMemory, latency: Spread) {
    let link = format!("{table}.link");
    sheet.line("[tier.link]");
    sheet.comment("What is left of the latency.");
    sheet.key(&link, "latency", latency, &Form::NANOSECONDS);
    sheet.comment("What all threads together reached, of which no byte is header.");
    for (kind, key) in [(Kind::Read, "read_bandwidth"), (Kind::Write, "write_bandwidth")] {
        let all = memory.rates.iter().filter(|one| one.kind == kind).max_by_key(|one| one.threads);
        let rate = all.map_or(exact(1e9), |one| one.rate);
        sheet.key(&link, key, rate, &Form::RATE);
    }
    sheet.line("packet_overhead = \"0 B\"\n");
    sheet.cite(&format!("{link}.packet_overhead"), latency.count);
}

pub fn copies(sheet: &mut Sheet, machine: &Measured) {
    sheet.comment("Copies, each thread in the memory of its own node. Not in a key: the simulated copies go through the devices.");
    rates(sheet, &machine.copies);
    let held = machine.processor.last_level();
    if held as usize > machine.bandwidth_bytes / 4 {
        sheet.comment(format!(
            "The last-level caches of all processors hold {} MiB of the {} MiB that bandwidths were measured over.",
            held >> 20,
            machine.bandwidth_bytes >> 20
        ));
    }
    sheet.line("");
}
