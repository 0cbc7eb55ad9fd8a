//! Pages under watch, and how watches end.

use super::State;
use crate::machine::Machine;
use terrace_model::{PageSize, Time};
use terrace_policy::{PageId, PageRange, Watch};

/// A page under watch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    pub how: Watch,
    pub since: Time,
    pub count: u64,
}

/// Ends the watches of the pages that begin in `range`, of those for which `ends` holds. TLBs may go on without them.
pub(super) fn unwatch(
    machine: &mut Machine,
    state: &mut State,
    range: PageRange,
    ends: impl Fn(PageId, PageSize) -> bool,
) {
    let end = PageId { vpn: range.end(), ..range.first };
    let watched: Vec<PageId> = state.watched.range(range.first..end).map(|(page, _)| *page).collect();
    for page in watched {
        let (addr, os) = (page.addr(), machine.shared.system_mut(state.system));
        let leaf = os.table(page.space).find(addr);
        if !ends(page, leaf.map_or(PageSize::Base, |leaf| leaf.size)) {
            continue;
        }
        if let Some(leaf) = leaf {
            os.set_traps(page.space, &leaf, addr, false, false);
        }
        state.watched.remove(&page);
    }
}
