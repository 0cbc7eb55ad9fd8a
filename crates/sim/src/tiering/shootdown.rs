//! Changes of page tables that kernel threads make, completed for a policy.

use super::State;
use crate::coherence::Cause;
use crate::machine::Machine;
use terrace_model::{PageSize, Time};
use terrace_policy::{Cost, PageId};

/// Completes what a kernel thread changed up to `now`. Returns the cost, and in it the time that the thread waits.
pub(super) fn complete(machine: &mut Machine, state: &mut State, cause: Cause, now: Time) -> (Cost, Time) {
    let done = machine.complete_of(state.system, cause, now);
    state.counters.shootdowns += u64::from(done.shootdown);
    state.counters.interrupts += done.targets;
    let cost = Cost {
        time: done.waits + done.interrupt.unwrap_or_default().times(done.targets),
        shootdowns: u64::from(done.shootdown),
        ..Cost::default()
    };
    (cost, done.waits)
}

/// Writes back what caches with virtual names hold of pages that are about to be copied or dropped. Returns the time of the
/// kernel thread that does it.
pub(super) fn flush(machine: &mut Machine, state: &State, pages: &[(PageId, PageSize)], now: Time) -> Time {
    state.costs.copy_line.at(state.cycle).times(machine.flush_pages(pages, now))
}
