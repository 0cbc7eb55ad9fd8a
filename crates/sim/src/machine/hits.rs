//! Accesses in a row that hit the level-1 TLB and change nothing there, where no caches are simulated: the core makes them
//! without looking elsewhere.

use super::columns::Columns;
use super::site::{Own, Site};
use crate::core::{Hit, Hits};
use crate::translate::{TlbHit, Translation};
use terrace_model::{LINE_BYTES, SpaceId, Time, VirtAddr};
use terrace_trace::{AccessKind, Batch};

/// Hits before the core looks for more of them: setting out costs as much as a few of them save.
pub(super) const HITS_IN_A_ROW: u32 = 3;

/// A batch's accesses as far as they are hits.
struct BatchHits<'a, T: Translation> {
    scheme: &'a mut T,
    space: SpaceId,
    accesses: Columns<'a>,
    /// The page of the access answered last.
    page: Option<TlbHit>,
}

impl<T: Translation> Hits for BatchHits<'_, T> {
    #[inline(always)]
    fn get(&mut self, at: usize) -> Option<Hit> {
        let accesses = &self.accesses;
        let addr = VirtAddr(*accesses.addr.get(at)?);
        // One line is part of one page.
        if addr.line_offset() + u64::from(accesses.size[at]) > LINE_BYTES {
            return None;
        }
        let write = accesses.kind[at] == AccessKind::Write;
        let page = self.scheme.recent(self.space, addr)?;
        if write && !page.entry.is_dirty() {
            return None;
        }
        self.page = Some(page);
        let (instructions, depends_on) = (u64::from(accesses.instructions[at]), accesses.depends_on[at]);
        Some(Hit { instructions, depends_on, write })
    }

    #[inline(always)]
    fn count(&mut self) {
        if let Some(page) = self.page {
            self.scheme.count_hit(page);
        }
    }
}

impl<const F: u8> Site<'_, F> {
    /// Makes the hits of a batch from access `from` on, as [`Site::run`] does one by one. Returns how far it came.
    #[inline(always)]
    pub(super) fn run_hits<T: Translation>(
        &mut self,
        own: &mut Own<'_, T>,
        space: SpaceId,
        batch: &Batch,
        from: usize,
        to: usize,
        horizon: Time,
    ) -> usize {
        let accesses = Columns::of(batch, 0..to);
        let mut hits = BatchHits { scheme: &mut *own.scheme, space, accesses, page: None };
        self.core.pipeline.run_hits(&mut hits, from, horizon)
    }
}
