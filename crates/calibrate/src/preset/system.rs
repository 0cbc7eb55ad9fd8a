//! What the operating system takes.

use super::base::Base;
use super::sheet::{Form, Sheet};
use crate::compression::ALGORITHM;
use crate::measure::Measured;
use crate::region::{BASE, HUGE};
use crate::spread::Spread;

pub fn faults(sheet: &mut Sheet, machine: &Measured, preset: &Base) {
    let base = &machine.base_fault;
    sheet.line("[os]");
    sheet.assume(
        "os.zero_stores, os.kernel_data, os.kernel_threads",
        "what the kernel does by itself is not seen from a program",
    );
    let total = machine.memory.first().map_or(0, |memory| memory.node.total >> 20 << 20);
    // Where the kernel tells nothing, 1 GiB is assumed.
    let total = if total == 0 { 1 << 30 } else { total };
    if preset.reserved > total / 2 {
        sheet.line(format!("reserved = \"{} KiB\"", (total / 8) >> 10));
        sheet.comment(format!("Assumed: an eighth. {} has more than half of this memory.", preset.name));
    } else {
        sheet.assume("os.reserved, os.memory", "what the kernel holds is that of an idle server");
    }
    sheet.measured(&base.times(1e-3), 1.0, "us for the first store to a base page");
    let (Some(costs), Some(held), Some(cold)) =
        (machine.faults(), machine.huge_fault_held, machine.huge_fault)
    else {
        sheet.comment(
            "No huge page was had, so the zeroing in it cannot be told apart: all of it counts as path.",
        );
        sheet.key("os", "fault_cost", *base, &Form::NANOSECONDS);
        sheet.assume(
            "os.zero_bandwidth, os.huge_zero_bandwidth",
            "the system gave no huge page, or one that took no longer than a base page",
        );
        sheet.line("");
        return;
    };
    sheet.measured(&held.times(1e-3), 1.0, "us for that to a huge page whose frame the caches hold");
    sheet.measured(&cold.times(1e-3), 1.0, "us where they do not hold it");
    // Nanoseconds per byte, never less than a tenth of the median.
    let per_byte = |fault: Spread| {
        let spread = fault.minus(*base).times(1.0 / (HUGE - BASE) as f64);
        spread.clamp(spread.median / 10.0, f64::MAX)
    };
    let zero = per_byte(held);
    let path = Spread { median: costs.path_ns, ..base.minus(zero.times(BASE as f64)) };
    sheet.key("os", "fault_cost", path, &Form::NANOSECONDS);
    let one = Spread { median: 1e9, low: 1e9, high: 1e9, count: usize::MAX };
    sheet.key("os", "zero_bandwidth", one.over(zero), &Form::RATE);
    sheet.key("os", "huge_zero_bandwidth", one.over(per_byte(cold)), &Form::RATE);
    sheet.line("");
}

pub fn costs(sheet: &mut Sheet, machine: &Measured) {
    sheet.line("[os.costs]");
    sheet.measured(&machine.protect_alone, 1.0, "ns for two mprotect calls, alone");
    match &machine.protect_beside {
        Some(beside) => {
            sheet.measured(beside, 1.0, "ns beside threads on all other processors");
            let more = beside.minus(machine.protect_alone);
            match more.median > 0.0 {
                true => sheet.key("os.costs", "shootdown", more, &Form::NANOSECONDS),
                false => sheet.assume(
                    "os.costs.shootdown",
                    "the calls took no longer beside other threads than alone: the times contradict each other",
                ),
            }
        }
        None => sheet.assume("os.costs.shootdown", "there is one processor, which interrupts nobody"),
    }
    sheet.assume(
        "os.costs.shootdown_per_core, os.costs.interrupt, os.costs.flush",
        "they are parts of the times of the calls",
    );
    moves(sheet, machine);
    sheet.assume(
        "os.costs.scan_entry, os.costs.hint_fault, os.costs.count_fault, os.costs.sample, os.costs.copy_thread, os.costs.copy_line, os.costs.split, os.costs.collapse",
        "a program does not see them by itself",
    );
    sheet.assume("os.context_switch_cost, os.timeslice", "the scheduler's doing beside other programs");
    sheet.line("");
}

fn moves(sheet: &mut Sheet, machine: &Measured) {
    const KEYS: [&str; 4] = ["allocate", "unmap", "map", "free"];
    let calls = match &machine.moves {
        Ok(calls) if calls.len() > 1 => calls,
        Ok(_) => return,
        Err(reason) => {
            let keys = KEYS.map(|key| format!("os.costs.{key}")).join(", ");
            sheet.assume(&format!("os.costs.order, {keys}"), reason);
            return;
        }
    };
    for one in calls {
        let s = if one.pages == 1 { "" } else { "s" };
        sheet.measured(
            &one.call.times(1e-3),
            1.0,
            &format!("us for move_pages of {} base page{s}", one.pages),
        );
    }
    let (first, before, last) = (calls[0], calls[calls.len() - 2], calls[calls.len() - 1]);
    let each = last.call.minus(before.call).times(1.0 / (last.pages - before.pages).max(1) as f64);
    let each = each.clamp(0.0, 1e9);
    sheet.measured(&each, 1.0, "ns for each further page");
    sheet.comment("The rest of a call of one page begins the order.");
    sheet.key("os.costs", "order", first.call.minus(each.times(first.pages as f64)), &Form::NANOSECONDS);
    // A copy reads and writes the page. The simulated machine makes it itself.
    let rate = machine.copies.first().map_or(1e9, |one| one.rate.median).max(1e6);
    let copied = 2.0 * BASE as f64 / rate * 1e9;
    let copy = Spread { median: copied, low: copied, high: copied, count: usize::MAX };
    sheet.comment(format!(
        "Of a further page the copy is taken to be {copied:.0} ns, by the bandwidth of copies. Each of the four steps is taken to \
         take the same of the rest."
    ));
    for key in KEYS {
        sheet.key("os.costs", key, each.minus(copy).times(0.25), &Form::NANOSECONDS);
    }
}

pub fn compression(sheet: &mut Sheet, machine: &Measured) {
    match &machine.compression {
        Ok(found) => {
            sheet.comment(format!(
                "Compressed memory ({ALGORITHM}). Not in a key: no simulated machine has a compressed tier."
            ));
            sheet.measured(&found.compress.times(1e-3), 1.0, "us to compress a page of 4 KiB");
            sheet.measured(&found.decompress.times(1e-3), 1.0, "us to decompress it");
            let ratio = found.ratio;
            sheet.comment(format!(
                "Measured: pages of code and of records shrink by {:.2}; quartiles {:.2} to {:.2}, {} pages.",
                ratio.median, ratio.low, ratio.high, ratio.count
            ));
        }
        Err(reason) => sheet.comment(format!("Compressed memory was not measured: {reason}.")),
    }
    sheet.line("");
}
