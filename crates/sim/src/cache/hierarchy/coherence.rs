//! Coherence of the private levels (MESI): who holds a line, who may write it, and who has to give it up.
//!
//! While only one core has ever run, nobody else can hold a line and the directory is not consulted.

use super::super::directory::{Directory, Sharers};
use super::super::level::Slot;
use super::private::Recent;
use super::{Below, Hierarchy, Served};
use terrace_model::Time;

impl Hierarchy {
    /// Tells the hierarchy that `core` runs now. The first core is free; with the second, coherence begins.
    pub fn activate(&mut self, core: usize) {
        match self.only_core {
            None if self.directory.is_none() => self.only_core = Some(core),
            Some(first) if first != core => {
                let lines: usize = self.private.iter().map(|p| p.l1.lines() + p.l2.lines()).sum();
                let mut directory = Directory::new(lines);
                let sole = Sharers { mask: 1 << first, exclusive: true };
                let first = &self.private[first];
                for line in first.l2.resident().chain(first.l1.resident()) {
                    // Twice the room of all private lines: nothing of one core's share can be pushed out by itself.
                    directory.record(line, sole);
                }
                self.directory = Some(directory);
                self.only_core = None;
            }
            _ => {}
        }
    }

    /// A store to a shared line in L1: owns it by asking the directory, at the last level's distance.
    #[inline(never)]
    pub(super) fn own<B: Below>(
        &mut self,
        core: usize,
        line: u64,
        slot: Slot,
        now: Time,
        below: &mut B,
    ) -> Served {
        self.counters.l1.hits += 1;
        self.invalidate_others(core, line, now, below);
        let private = &mut self.private[core];
        private.l1.set_writable(slot);
        private.l1.set_dirty(slot);
        if let Some(held) = private.l2.peek(private.l2.home(line)) {
            private.l2.set_writable(held.slot);
        }
        let ready = private.l1_ready[private.l1.slot_index(slot)];
        private.remember(Recent { line, ready, owned: true });
        let done = ready.max(now + self.llc_latency);
        Served { done, cache_start: now, cache_end: done }
    }

    /// Asks the directory who holds `line` and makes room for `core`. Returns whether another core supplied the data,
    /// and whether `core` owns the line now.
    #[inline(never)]
    pub(super) fn consult_directory<B: Below>(
        &mut self,
        core: usize,
        line: u64,
        write: bool,
        now: Time,
        below: &mut B,
    ) -> (bool, bool) {
        let directory = self.directory.as_ref().expect("called with a directory");
        let held = directory.sharers(line);
        let others = held.mask & !(1 << core);
        let mut supplied = false;
        if others != 0 {
            if write {
                supplied = held.exclusive;
                self.invalidate_others(core, line, now, below);
            } else if held.exclusive {
                supplied = true;
                let owner = others.trailing_zeros() as usize;
                self.downgrade(owner, line, now, below);
            }
        }
        if supplied {
            self.counters.cache_to_cache += 1;
        }
        let sharers = if write || others == 0 {
            Sharers { mask: 1 << core, exclusive: true }
        } else {
            Sharers { mask: others | 1 << core, exclusive: false }
        };
        let evicted = self.directory.as_mut().and_then(|d| d.record(line, sharers));
        if let Some((old_line, old)) = evicted {
            self.back_invalidate(old_line, old.mask, now, below);
        }
        (supplied, sharers.exclusive)
    }

    /// The owner keeps a shared copy; what it had modified goes to the last level.
    pub(super) fn downgrade<B: Below>(&mut self, owner: usize, line: u64, now: Time, below: &mut B) {
        let private = &mut self.private[owner];
        private.forget(line);
        let mut dirty = false;
        for level in [&mut private.l1, &mut private.l2] {
            if let Some(held) = level.peek(level.home(line)) {
                dirty |= held.dirty;
                level.set_shared(held.slot);
            }
        }
        if dirty {
            self.counters.l2.writebacks += 1;
            self.write_to_llc(line, now, below);
        }
    }

    /// Takes `line` from every core but `core`. Modified data passes to `core`'s copy through the last level.
    pub(super) fn invalidate_others<B: Below>(&mut self, core: usize, line: u64, now: Time, below: &mut B) {
        let Some(directory) = self.directory.as_mut() else { return };
        let held = directory.sharers(line);
        let evicted = directory.record(line, Sharers { mask: 1 << core, exclusive: true });
        let mut others = held.mask & !(1 << core);
        let mut dirty = false;
        while others != 0 {
            let other = others.trailing_zeros() as usize;
            others &= others - 1;
            self.counters.invalidations += 1;
            dirty |= self.drop_private(other, line);
        }
        if dirty {
            self.counters.l2.writebacks += 1;
            self.write_to_llc(line, now, below);
        }
        if let Some((old_line, old)) = evicted {
            self.back_invalidate(old_line, old.mask, now, below);
        }
    }

    /// Removes a line from all private caches named by `mask`: its directory entry or last-level line is gone.
    pub(super) fn back_invalidate<B: Below>(&mut self, line: u64, mut mask: u64, now: Time, below: &mut B) {
        let mut dirty = false;
        while mask != 0 {
            let core = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            self.counters.back_invalidations += 1;
            dirty |= self.drop_private(core, line);
        }
        if dirty {
            self.counters.l2.writebacks += 1;
            self.write_to_llc(line, now, below);
        }
    }

    pub(super) fn drop_private(&mut self, core: usize, line: u64) -> bool {
        let private = &mut self.private[core];
        private.forget(line);
        let l1 = private.l1.invalidate(private.l1.home(line)) == Some(true);
        let l2 = private.l2.invalidate(private.l2.home(line)) == Some(true);
        l1 | l2
    }

    /// One bit per core whose private caches may hold a line.
    pub(super) fn holders(&self, line: u64) -> u64 {
        match (&self.directory, self.only_core) {
            (Some(directory), _) => directory.sharers(line).mask,
            (None, Some(core)) => 1 << core,
            (None, None) => 0,
        }
    }

    /// The inclusive last level gave up a line: it leaves the private caches too. Returns whether one had modified it.
    pub(super) fn evict_from_private(&mut self, line: u64) -> bool {
        let mut mask = self.holders(line);
        let mut dirty = false;
        while mask != 0 {
            let core = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            let private = &mut self.private[core];
            private.forget(line);
            let l1 = private.l1.invalidate(private.l1.home(line));
            let l2 = private.l2.invalidate(private.l2.home(line));
            if l1.is_some() || l2.is_some() {
                self.counters.back_invalidations += 1;
            }
            dirty |= l1 == Some(true) || l2 == Some(true);
            if let Some(directory) = &mut self.directory {
                directory.remove(line, core as u32);
            }
        }
        dirty
    }
}
