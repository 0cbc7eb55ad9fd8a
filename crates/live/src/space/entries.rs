//! Which pages of shared memory have a page-table entry again since theirs was taken out: those that were accessed.

use super::pages::CHUNK;
use super::refresh::all_runs;
use super::{Mapping, Space};
use crate::kernel::{IN_MEMORY, Kernel, PageRun, PageScan, category};
use std::io;
use std::ops::Range;

/// What a look at entries has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Page numbers of what was accessed since its entries were last taken out.
    pub accessed: Vec<Range<u64>>,
    /// Bytes of the pages that were found written, by the tier they lie in.
    pub written: Vec<u64>,
    /// Base pages whose entries are taken out now.
    pub dropped: u64,
}

/// Runs per call: a piece of 2 MiB has no more.
const RUNS: usize = CHUNK as usize;

impl Space {
    /// Looks which of the pages whose entries were taken out have one again. With `drop` all that have one lose it.
    ///
    /// # Errors
    /// The process has ended, or may not be looked into.
    pub fn look_at_entries(&mut self, kernel: &dyn Kernel, drop_entries: bool) -> io::Result<Looked> {
        let mut looked = Looked { written: vec![0; self.resident.len()], ..Looked::default() };
        let Some(dropper) = &mut self.dropper else { return Ok(looked) };
        if dropper.poll().and_then(|_| dropper.ask()).is_err() {
            // The thread ends with the process, and when the process executes another program.
            self.dropper = None;
            self.covered = Some(Vec::new());
            return Ok(looked);
        }
        self.covered = Some(dropper.areas().to_vec());
        let mut drops = drop_entries;
        for mapping in self.mappings.clone() {
            for piece in self.populated(&mapping) {
                self.stores(kernel, &piece, &mut looked)?;
                if let Some(present) = self.entries(kernel, &piece, drops, &mut looked)?
                    && let Some(dropper) = &mut self.dropper
                {
                    // A thread that is behind with its work has its next chance in the next round.
                    drops &= dropper.drop_entries(present).unwrap_or(false);
                }
            }
        }
        Ok(looked)
    }

    /// The parts of a mapping, by 2 MiB of address space, in which there are pages.
    fn populated(&mut self, mapping: &Mapping) -> Vec<Range<u64>> {
        let mut parts: Vec<Range<u64>> = Vec::new();
        self.pages.visit_mut(mapping.first..mapping.end, |at, _| {
            // In order, so almost all lie in the last part.
            let mut vpn = at.vpn.max(parts.last().map_or(mapping.first, |part| part.end));
            while vpn < mapping.end.min(at.vpn + at.size.base_pages()) {
                let chunk = vpn / CHUNK * CHUNK;
                parts.push(mapping.first.max(chunk)..mapping.end.min(chunk + CHUNK));
                vpn = chunk + CHUNK;
            }
            true
        });
        parts
    }

    /// Takes over which pages were written and protects them again, before their entries go: an entry that is protected when
    /// it is taken out leaves a mark that its successor will be, too.
    ///
    /// What is written between this and the drop shows as written when it is next accessed.
    fn stores(&mut self, kernel: &dyn Kernel, piece: &Range<u64>, looked: &mut Looked) -> io::Result<()> {
        let scan = PageScan {
            all_of: category::WRITE_TRACKED | category::WRITTEN,
            tell: category::WRITTEN,
            protect: true,
            ..scan_of(piece)
        };
        let pages = &mut self.pages;
        all_runs(kernel, &self.process, scan, &mut [PageRun::default(); RUNS], |run| {
            pages.visit_mut(run.start >> 12..run.end >> 12, |at, state| {
                state.set_dirty(true);
                if let Some(bytes) = looked.written.get_mut(state.tier().index()) {
                    *bytes += at.size.bytes();
                }
                true
            });
        })
    }

    /// Takes over which pages have entries. Returns what is to lose them: from the first to the last.
    fn entries(
        &mut self,
        kernel: &dyn Kernel,
        piece: &Range<u64>,
        drop_entries: bool,
        looked: &mut Looked,
    ) -> io::Result<Option<Range<u64>>> {
        let scan = PageScan {
            all_of: category::PRESENT,
            tell: category::PRESENT | category::WRITE_TRACKED,
            ..scan_of(piece)
        };
        let (pages, ours) = (&mut self.pages, &mut self.ours);
        let mut out: Option<Range<u64>> = None;
        all_runs(kernel, &self.process, scan, &mut [PageRun::default(); RUNS], |run| {
            let range = run.start >> 12..run.end >> 12;
            // Elsewhere entries come with those of neighbours, and one that is there proves nothing. Unknown counts as
            // accessed.
            let exact = run.categories & category::WRITE_TRACKED != 0;
            pages.visit_mut(range.clone(), |at, state| {
                let page = at.vpn..at.vpn + at.size.base_pages();
                let is_ours = ours.contains(&at.vpn) && exact;
                if drop_entries && exact {
                    ours.remove(&at.vpn);
                }
                state.set_entry_dropped(drop_entries && exact);
                if !is_ours {
                    match looked.accessed.last_mut() {
                        Some(last) if last.end == page.start => last.end = page.end,
                        Some(last) if last.end >= page.end => {}
                        _ => looked.accessed.push(page),
                    }
                }
                true
            });
            if drop_entries && exact {
                looked.dropped += range.end - range.start;
                out = Some(out.as_ref().map_or(range.start, |out| out.start)..range.end);
            }
        })?;
        Ok(out)
    }

    /// Marks pages without an entry as found, where the mapping still shows the same of the same file as before.
    pub(super) fn see_dropped(&mut self, before: &[Mapping]) {
        for mapping in &self.mappings {
            let same = before.iter().filter(|one| one.shows == mapping.shows);
            for part in same.map(|one| one.first.max(mapping.first)..one.end.min(mapping.end)) {
                if part.is_empty() {
                    continue;
                }
                self.pages.visit_mut(part, |_, state| {
                    if state.is_entry_dropped() {
                        state.set_seen(true);
                    }
                    true
                });
            }
        }
    }

    /// Puts back entries of pages that are to be moved, which the kernel does not find without.
    pub(crate) fn put_back(&mut self, kernel: &dyn Kernel, addresses: &[u64]) {
        if self.covered.is_none() {
            return;
        }
        let is_out = |vpn: u64| {
            let dropped = self.pages.get(vpn).is_some_and(|(_, state)| state.is_entry_dropped());
            let mut entry = [0];
            dropped && kernel.pagemap(&self.process, vpn, &mut entry).is_ok() && entry[0] & IN_MEMORY == 0
        };
        let out: Vec<u64> = addresses.iter().copied().filter(|address| is_out(address >> 12)).collect();
        // What cannot be put back does not move either, and is answered so.
        if !out.is_empty() && kernel.touch(&self.process, &out).is_ok() && !self.is_sampled {
            self.ours.extend(out.iter().map(|address| address >> 12));
        }
    }
}

fn scan_of(pages: &Range<u64>) -> PageScan {
    PageScan { start: pages.start << 12, end: pages.end << 12, ..PageScan::default() }
}
