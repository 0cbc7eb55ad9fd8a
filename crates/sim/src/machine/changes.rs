//! Changes of page-table entries are completed here: the stores go through the caches, and all that is stale is dropped.
//!
//! Whoever changes entries completes the change before the program goes on: an event of the program, an order or a scan by
//! [`Machine::complete`], a fault or a trap by [`Site::complete`]. A fault sees its own core only; what the other cores have
//! to drop waits in [`Shared::pending`] until the engine calls [`Machine::drop_stale`], and none of them runs before that.

use super::access::timeline;
use super::behind::Behind;
use super::build::{Machine, Shared};
use super::site::{FULL, Own, Site};
use crate::cache::Served;
use crate::coherence::{Bill, Cause, Invalidation};
use crate::memory::Initiator;
use crate::os::{Changes, StalePages};
use crate::translate::{KernelState, Translation};
use terrace_model::{AddressRange, LINE_BYTES, Time};

/// What a change came to for whoever made it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Completed {
    /// Translations were dropped.
    pub shootdown: bool,
    /// Whoever made the change waits so long.
    pub waits: Time,
    /// Cores that were interrupted.
    pub targets: u64,
    /// How long each of them was held up.
    pub interrupt: Time,
}

/// Translations that cores have to drop before they run again.
#[derive(Debug)]
pub(crate) struct Pending {
    stale: Vec<StalePages>,
    spaces: Vec<u32>,
    bill: Bill,
    /// Page-walk caches have to be dropped.
    reshaped: bool,
    /// Cores that are interrupted.
    targets: Vec<usize>,
    /// The core that has dropped them already.
    done: Option<usize>,
}

impl Machine {
    /// Completes what changed in page tables. `core` made the changes; without one a kernel thread did, on a processor of
    /// its own at `now`, and whoever calls charges it. A core is charged here.
    pub fn complete(&mut self, cause: Cause, core: Option<usize>, now: Time) -> Completed {
        if self.shared.os.changes.is_empty() {
            return Completed::default();
        }
        let changes = std::mem::take(&mut self.shared.os.changes);
        self.shared.count_stores(cause, core.is_some(), &changes);
        if self.shared.has_caches && cause.stores_entries() {
            self.store_entries(cause, core, now, &changes);
        }
        let completed = self.shared.invalidate(cause, core, changes, false);
        self.drop_stale();
        if let Some(core) = core
            && completed.waits > Time::ZERO
        {
            let pipeline = &mut self.cores[core].pipeline;
            pipeline.drain();
            pipeline.kernel(completed.waits);
        }
        completed
    }

    fn store_entries(&mut self, cause: Cause, core: Option<usize>, now: Time, changes: &Changes) {
        let Machine { cores, shared, scheme, .. } = self;
        let kernel = scheme.has_virtual_caches().then(|| scheme.kernel());
        for line in changes.stored_lines() {
            let Some(id) = core else {
                shared.store_from_outside(kernel, line, now);
                continue;
            };
            let pipeline = &mut cores[id].pipeline;
            if !cause.pays_for_stores() {
                shared.store_entry(kernel, id, line, pipeline.now);
                continue;
            }
            let now = pipeline.now;
            let served = shared.store_entry(kernel, id, line, now);
            pipeline.access(true, timeline(now, now, served));
        }
    }

    /// Every core drops what is stale.
    pub fn drop_stale(&mut self) {
        for pending in std::mem::take(&mut self.shared.pending) {
            // A core that has dropped its own has told the kernel too.
            if pending.done.is_none() {
                for pages in &pending.stale {
                    self.scheme.forget(pages.space, pages.range());
                }
            }
            for (id, core) in self.cores.iter_mut().enumerate() {
                if pending.targets.contains(&id) {
                    core.pipeline.kernel(pending.bill.interrupt);
                }
                if pending.done == Some(id) {
                    continue;
                }
                if pending.bill.flushes_space {
                    pending.spaces.iter().for_each(|space| self.scheme.flush_space(id, *space));
                } else {
                    for pages in &pending.stale {
                        self.scheme.invalidate(id, pages.space, pages.range());
                    }
                }
                if pending.bill.flushes_walk_cache || pending.reshaped {
                    core.page_walk_cache.flush();
                }
            }
        }
    }

    /// Drops the virtually named lines of a range from the caches, where names are virtual: the addresses may be
    /// backed by other memory next. Dirty lines of freed memory need no writeback.
    pub fn discard_lines(&mut self, space: u32, range: AddressRange) {
        for (page, size, _) in self.shared.os.table(space).pages_in(range) {
            for line in 0..size.bytes() / LINE_BYTES {
                if let Some(line) = self.scheme.virtual_line(space, page + line * LINE_BYTES) {
                    self.shared.caches.discard(line);
                }
            }
        }
    }
}

impl<const F: u8> Site<'_, F> {
    /// Completes what a fault or a trap on this core changed. The core waits here.
    pub(super) fn complete<T: Translation>(&mut self, own: &mut Own<'_, T>, cause: Cause) {
        if self.shared.os.changes.is_empty() {
            return;
        }
        let changes = std::mem::take(&mut self.shared.os.changes);
        self.shared.count_stores(cause, true, &changes);
        if F == FULL && cause.stores_entries() {
            let kernel = T::VIRTUAL_CACHES.then_some(&*own.kernel);
            for line in changes.stored_lines() {
                self.shared.store_entry(kernel, self.id, line, self.core.pipeline.now);
            }
        }
        if changes.stale.is_empty() && !changes.reshaped {
            return;
        }
        let completed = self.shared.invalidate(cause, Some(self.id), changes, true);
        let Some(pending) = self.shared.pending.last().filter(|_| completed.shootdown) else { return };
        for pages in &pending.stale {
            own.kernel.forget(pages.space, pages.range());
            own.scheme.invalidate(pages.space, pages.range());
        }
        if pending.bill.flushes_walk_cache || pending.reshaped {
            self.core.page_walk_cache.flush();
        }
        self.core.pipeline.kernel(completed.waits);
    }
}

impl Shared {
    fn count_stores(&mut self, cause: Cause, by_core: bool, changes: &Changes) {
        if cause.stores_entries() {
            self.table_stores[usize::from(by_core)] += changes.stored_lines().count() as u64;
        }
    }

    /// Finds out who has to drop what, counts it, and leaves it to be dropped.
    fn invalidate(
        &mut self,
        cause: Cause,
        core: Option<usize>,
        changes: Changes,
        dropped_by_core: bool,
    ) -> Completed {
        if changes.reshaped {
            self.regions.flush();
        }
        if changes.stale.is_empty() {
            return Completed::default();
        }
        let mut spaces: Vec<u32> = changes.stale.iter().map(|pages| pages.space).collect();
        spaces.sort_unstable();
        spaces.dedup();
        let runs = |id: usize| self.running[id].is_some_and(|space| spaces.contains(&space));
        let targets: Vec<usize> =
            (0..self.running.len()).filter(|id| Some(*id) != core && runs(*id)).collect();
        let bill = self.coherence.bill(&Invalidation {
            pages: changes.stale_pages(),
            whole: cause.is_whole(),
            targets: targets.len() as u64,
            local: core.is_some_and(runs),
        });
        let completed = Completed {
            shootdown: true,
            waits: bill.waits,
            targets: targets.len() as u64,
            interrupt: bill.interrupt,
        };
        self.shootdowns.add(cause, completed.targets, bill.waits);
        self.pending.push(Pending {
            stale: changes.stale,
            spaces,
            bill,
            reshaped: changes.reshaped,
            targets,
            done: core.filter(|_| dropped_by_core),
        });
        completed
    }

    /// A core stores to a line of a page table. `kernel`: where caches are virtually tagged.
    fn store_entry<K: KernelState + ?Sized>(
        &mut self,
        kernel: Option<&K>,
        core: usize,
        line: u64,
        now: Time,
    ) -> Served {
        let by = Initiator::Kernel;
        let Some(kernel) = kernel else {
            return self.caches.access(core, line, true, now, by, &mut self.memory);
        };
        let mut below = Behind { kernel, os: &self.os, memory: &mut self.memory, translated: Time::ZERO };
        self.caches.access(core, kernel.physical_line(line), true, now, by, &mut below)
    }

    /// The same by a processor that is none of the design's cores.
    fn store_from_outside<K: KernelState + ?Sized>(&mut self, kernel: Option<&K>, line: u64, now: Time) {
        let Some(kernel) = kernel else {
            return self.caches.store_from_outside(line, now, &mut self.memory);
        };
        let mut below = Behind { kernel, os: &self.os, memory: &mut self.memory, translated: Time::ZERO };
        self.caches.store_from_outside(kernel.physical_line(line), now, &mut below);
    }
}
