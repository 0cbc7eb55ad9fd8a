//! Counts of the accesses that reach memory, by page: the first pass of policies in two passes.

use std::collections::HashMap;
use terrace_policy::{Heat, PageId, Profile};

/// Accesses by base page.
#[derive(Clone, Debug, Default)]
pub(super) struct ProfileCounter {
    pages: HashMap<PageId, Heat>,
}

impl ProfileCounter {
    /// One access reached memory.
    pub fn count(&mut self, space: u32, addr: u64, write: bool) {
        let heat = self.pages.entry(PageId::new(space, addr >> 12)).or_default();
        *(if write { &mut heat.writes } else { &mut heat.reads }) += 1;
    }

    /// What was counted, in page order.
    pub fn finish(&self) -> Profile {
        Profile {
            pages: self.pages.iter().map(|(page, heat)| (*page, *heat)).collect(),
            ..Profile::default()
        }
    }
}
