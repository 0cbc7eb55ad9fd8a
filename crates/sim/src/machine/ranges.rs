//! Stores to page tables reach the range TLBs of all cores, where hardware keeps translations coherent.
//!
//! A range was made from many page-table entries, of which its core's walker read one. The directory cannot know who holds
//! ranges of a line, so that the store goes to every other core, and each looks.

use super::parts::Machine;
use super::site::{Own, Site};
use crate::coherence::LocalStores;
use crate::translate::Translation;
use terrace_model::{CoreId, Line};

impl Machine {
    /// Entries of a line were stored to, by a core or from beside. Returns whether another core got a message, and the most
    /// sets of a structure that were searched.
    pub(super) fn notify_ranges(&mut self, by: Option<CoreId>, line: Line, entries: u8) -> (bool, u64) {
        let Machine { cores, shared, scheme, .. } = self;
        let Some(hardware) = shared.hardware.as_mut().filter(|hardware| hardware.has_ranges) else {
            return (false, 0);
        };
        let store = hardware.store_to_ranges(line, entries);
        let in_software = hardware.keys.local_stores == LocalStores::Software;
        let (mut sent, mut longest) = (false, 0);
        for core in CoreId::first(cores.len()) {
            let is_own = by == Some(core);
            if is_own && in_software {
                continue;
            }
            let found = scheme.probe_ranges(core, &store);
            hardware.looked_for_ranges(&found, !is_own);
            longest = longest.max(found.in_tlbs.longest);
            sent |= !is_own;
        }
        (sent, longest)
    }

    /// Cores handle the stores that others made since the last time.
    pub(super) fn notify_ranges_of_others(&mut self) {
        let Machine { cores, shared, scheme, .. } = self;
        let Some(hardware) = &mut shared.hardware else { return };
        for (by, store) in std::mem::take(&mut hardware.unhandled) {
            for core in CoreId::first(cores.len()).filter(|core| *core != by) {
                hardware.looked_for_ranges(&scheme.probe_ranges(core, &store), true);
            }
        }
    }
}

impl<const F: u8> Site<'_, F> {
    /// Notifies the other cores of a store by a fault or a trap on this core: they handle it before they run again.
    pub(super) fn notify_ranges<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        line: Line,
        entries: u8,
    ) -> (bool, u64) {
        let Some(hardware) = self.shared.hardware.as_mut().filter(|hardware| hardware.has_ranges) else {
            return (false, 0);
        };
        let store = hardware.store_to_ranges(line, entries);
        let mut longest = 0;
        if hardware.keys.local_stores == LocalStores::Probe {
            // Other cores search the same sets.
            let found = own.scheme.probe_ranges(&store);
            hardware.looked_for_ranges(&found, false);
            longest = found.in_tlbs.longest;
        }
        hardware.unhandled.push((self.id, store));
        (self.shared.running.len() > 1, longest)
    }
}
