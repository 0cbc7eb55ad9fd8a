//! TLB shootdowns: which cores are told, and what it costs whom.

use super::State;
use crate::machine::Machine;
use terrace_model::{AddressRange, PageSize, Time};
use terrace_policy::{Cost, PageId};

/// More pages than this, and a core drops all of its translations instead of one after the other
/// (Linux, `arch/x86/mm/tlb.c`, `tlb_single_page_flush_ceiling`).
const FLUSH_ALL_ABOVE: usize = 33;

/// Drops the translations of `pages` from all cores. Returns the cost, and in it the time that whoever asked for it
/// waits.
pub(super) fn shoot_down(
    machine: &mut Machine,
    state: &mut State,
    pages: &[(PageId, PageSize)],
) -> (Cost, Time) {
    if pages.is_empty() {
        return (Cost::default(), Time::ZERO);
    }
    let mut spaces: Vec<u32> = pages.iter().map(|(page, _)| page.space.0).collect();
    spaces.dedup();
    for (page, size) in pages {
        machine.scheme.forget(page.space.0, AddressRange::new(page.addr().0, size.bytes()));
    }
    let mut interrupted = 0;
    for (id, core) in machine.cores.iter_mut().enumerate() {
        // Other cores drop what they hold when they next run the process; that costs no interrupt.
        if core.space.is_some_and(|space| spaces.contains(&space)) {
            core.pipeline.kernel(state.costs.interrupt);
            interrupted += 1;
        }
        if pages.len() > FLUSH_ALL_ABOVE {
            for space in &spaces {
                machine.scheme.flush_space(id, *space);
            }
        } else {
            for (page, size) in pages {
                let range = AddressRange::new(page.addr().0, size.bytes());
                machine.scheme.invalidate(id, page.space.0, range);
            }
        }
        core.page_walk_cache.flush();
    }
    if pages.iter().any(|(_, size)| *size != PageSize::Base) {
        machine.shared.regions.flush();
    }
    let waits = state.costs.shootdown + state.costs.shootdown_per_core.times(interrupted);
    let cost =
        Cost { time: waits + state.costs.interrupt.times(interrupted), shootdowns: 1, ..Cost::default() };
    state.counters.shootdowns += 1;
    state.counters.interrupts += interrupted;
    (cost, waits)
}
