//! Accesses in a row that hit the level-1 TLB and change nothing there, where no caches are simulated: the core makes them
//! without looking elsewhere.

use super::site::{Own, Site};
use crate::core::{Hit, Hits};
use crate::translate::{TlbHit, Translation};
use terrace_model::{LINE_BYTES, SpaceId, Time};
use terrace_trace::{AccessKind, Batch};

/// Hits before the core looks for more of them: setting out costs as much as a few of them save.
pub(super) const HITS_IN_A_ROW: u32 = 3;

/// A batch's accesses as far as they are hits.
struct BatchHits<'a, T: Translation> {
    scheme: &'a mut T,
    space: SpaceId,
    addr: &'a [u64],
    size: &'a [u8],
    kind: &'a [AccessKind],
    depends_on: &'a [u8],
    instructions: &'a [u16],
    /// The page of the access answered last.
    page: Option<TlbHit>,
}

impl<T: Translation> Hits for BatchHits<'_, T> {
    #[inline(always)]
    fn get(&mut self, at: usize) -> Option<Hit> {
        let &addr = self.addr.get(at)?;
        // One line is part of one page.
        if (addr & (LINE_BYTES - 1)) + u64::from(self.size[at]) > LINE_BYTES {
            return None;
        }
        let write = self.kind[at] == AccessKind::Write;
        let page = self.scheme.recent(self.space, addr)?;
        if write && !page.entry.is_dirty() {
            return None;
        }
        self.page = Some(page);
        Some(Hit { instructions: u64::from(self.instructions[at]), depends_on: self.depends_on[at], write })
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
        let mut hits = BatchHits {
            scheme: &mut *own.scheme,
            space,
            addr: &batch.addr[..to],
            size: &batch.size[..to],
            kind: &batch.kind[..to],
            depends_on: &batch.depends_on[..to],
            instructions: &batch.instructions[..to],
            page: None,
        };
        self.core.pipeline.run_hits(&mut hits, from, horizon)
    }
}
