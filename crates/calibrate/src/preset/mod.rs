//! The preset: what was measured as a machine file, each value with its spread, the rest from the nearest preset.

mod base;
mod hardware;
mod memory;
mod sheet;
mod system;
#[cfg(test)]
mod tests;

pub use base::{Array, Base, BaseTier};

use crate::measure::Measured;
use sheet::Sheet;
use std::path::PathBuf;

/// Where the preset of this machine lies: `$XDG_DATA_HOME/terrace/machines/here.toml`, where `$XDG_DATA_HOME` is
/// `~/.local/share` unless it is set. None without a home.
pub fn here() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let data = set("XDG_DATA_HOME").or_else(|| Some(set("HOME")?.join(".local/share")))?;
    Some(data.join("terrace/machines/here.toml"))
}

/// The machine file. `date` is the day of the measurement.
pub fn write(machine: &Measured, base: &Base, date: &str) -> String {
    let mut sheet = Sheet::new(&base.name, date);
    let guest = if machine.processor.guest { ", a guest of a hypervisor" } else { "" };
    let name = machine.processor.name.replace(|c: char| c.is_control() || c == '"' || c == '\\', "");
    let count = machine.processor.count;
    sheet.line("kind = \"machine\"");
    sheet.line(format!("summary = \"this machine: {name}, {count} processors{guest}\""));
    sheet.line(format!("extends = \"{}\"\n", base.name));
    sheet.comment(format!(
        "Written by `terrace calibrate` on {date}. What is not stated here is that of {}; the ledger at the end says why.",
        base.name
    ));
    if machine.is_disturbed() {
        sheet.comment(format!(
            "Others ran meanwhile: the measurement had {:.0} % of a processor. Measure again on an idle machine.",
            100.0 * machine.processor_share
        ));
    }
    sheet.line("");
    let clock = hardware::core(&mut sheet, machine, base);
    hardware::translation(&mut sheet, machine, base, clock);
    hardware::hypervisor(&mut sheet, machine);
    let last_level = hardware::caches(&mut sheet, machine, base, clock);
    hardware::prefetcher(&mut sheet, machine, base);
    memory::tiers(&mut sheet, machine, base, last_level);
    memory::copies(&mut sheet, machine);
    system::faults(&mut sheet, machine, base);
    system::costs(&mut sheet, machine);
    system::compression(&mut sheet, machine);
    sheet.finish()
}
