//! Coherence of the private levels (MESI): who holds a line, who may write it, and who has to give it up.
//!
//! While only one core has ever run, nobody else can hold a line and the directory is not consulted.

use super::super::directory::{AnyDirectory, Directory, InDirectory, Sharers};
use super::super::level::Slot;
use super::super::sharers::{SharerSet, WideSet};
use super::private::{Private, Recent};
use super::translations::Reason;
use super::{Below, Hierarchy, Served};
use terrace_model::{CacheLine, CoreId, Time};

impl Hierarchy {
    /// Tells the hierarchy that `core` runs now. The first core is free; with the second, coherence begins.
    pub fn activate(&mut self, core: CoreId) {
        let core = self.caches_of(core);
        match self.only_core {
            None if !self.directory.is_some() => self.only_core = Some(core),
            Some(first) if first != core => {
                let lines: usize = self.private.iter().map(|p| p.l1.lines() + p.l2.lines()).sum();
                self.directory = AnyDirectory::new(self.private.len(), lines);
                match &mut self.directory {
                    AnyDirectory::None => {}
                    AnyDirectory::Narrow(directory) => enter(directory, &self.private[first.index()], first),
                    AnyDirectory::Wide(directory) => enter(directory, &self.private[first.index()], first),
                }
                self.only_core = None;
            }
            _ => {}
        }
    }

    /// A store to a shared line in L1: owns it by asking the directory, at the last level's distance.
    #[inline(never)]
    pub(super) fn own<B: Below>(
        &mut self,
        core: CoreId,
        line: CacheLine,
        slot: Slot,
        now: Time,
        below: &mut B,
    ) -> Served {
        self.counters.l1.hits += 1;
        self.invalidate_others(core, line, now, below);
        let private = &mut self.private[core.index()];
        private.l1.set_writable(slot);
        private.l1.set_dirty(slot);
        if let Some(held) = private.l2.peek(private.l2.home(line)) {
            private.l2.set_writable(held.slot);
        }
        let arrival = private.l1_arrival(slot, now);
        private.remember(Recent { line, arrival, owned: true });
        let done = arrival.ready.max(now + self.llc_latency);
        Served { done, cache_start: now, cache_end: done }
    }

    /// Asks the directory who holds `line` and makes room for `core`. Returns whether another core supplied the data,
    /// and whether `core` owns the line now.
    #[inline(always)]
    pub(super) fn consult_directory<B: Below>(
        &mut self,
        core: CoreId,
        line: CacheLine,
        write: bool,
        now: Time,
        below: &mut B,
    ) -> (bool, bool) {
        match self.directory {
            AnyDirectory::None => (false, true),
            AnyDirectory::Narrow(_) => self.consult::<u64, B>(core, line, write, now, below),
            AnyDirectory::Wide(_) => self.consult::<WideSet, B>(core, line, write, now, below),
        }
    }

    #[inline(never)]
    fn consult<S: InDirectory, B: Below>(
        &mut self,
        core: CoreId,
        line: CacheLine,
        write: bool,
        now: Time,
        below: &mut B,
    ) -> (bool, bool) {
        let Some(directory) = S::of(&mut self.directory) else { return (false, true) };
        let Sharers { cores: mut others, exclusive, translates } = directory.sharers(line);
        others.remove(core);
        let alone = others.is_empty();
        let mut supplied = !alone && exclusive;
        if let Some(messages) = &mut self.translations {
            messages.requested(core, line);
            // What is left of the owner's may be translations only.
            if translates && supplied {
                supplied = others.clone().pop().is_some_and(|owner| self.in_private(owner, line));
            }
        }
        if !alone {
            if write {
                self.invalidate_all_but::<S, B>(core, line, now, below);
            } else if let Some(owner) = others.clone().pop().filter(|_| supplied) {
                self.downgrade(owner, line, now, below);
            }
        }
        if supplied {
            self.counters.cache_to_cache += 1;
        }
        let sharers = if write || alone {
            Sharers { translates, ..Sharers::sole(core) }
        } else {
            others.insert(core);
            Sharers { cores: others, exclusive: false, translates }
        };
        let owned = sharers.exclusive;
        self.record(line, sharers, now, below);
        (supplied, owned)
    }

    /// Notes who holds a line now. A line whose entry has to go for it leaves all private caches.
    #[inline(always)]
    pub(super) fn record<S: InDirectory, B: Below>(
        &mut self,
        line: CacheLine,
        sharers: Sharers<S>,
        now: Time,
        below: &mut B,
    ) {
        let evicted = S::of(&mut self.directory).and_then(|directory| directory.record(line, sharers));
        if let Some((old_line, old)) = evicted {
            self.back_invalidate(old_line, old, now, below);
        }
    }

    /// Notes that `core` alone holds a line.
    pub(super) fn record_sole<B: Below>(&mut self, core: CoreId, line: CacheLine, now: Time, below: &mut B) {
        match self.directory {
            AnyDirectory::None => {}
            AnyDirectory::Narrow(_) => self.record(line, Sharers::<u64>::sole(core), now, below),
            AnyDirectory::Wide(_) => self.record(line, Sharers::<WideSet>::sole(core), now, below),
        }
    }

    /// The owner keeps a shared copy; what it had modified goes to the last level.
    pub(super) fn downgrade<B: Below>(&mut self, owner: CoreId, line: CacheLine, now: Time, below: &mut B) {
        let private = &mut self.private[owner.index()];
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
    pub(super) fn invalidate_others<B: Below>(
        &mut self,
        core: CoreId,
        line: CacheLine,
        now: Time,
        below: &mut B,
    ) {
        match self.directory {
            AnyDirectory::None => {}
            AnyDirectory::Narrow(_) => self.invalidate_all_but::<u64, B>(core, line, now, below),
            AnyDirectory::Wide(_) => self.invalidate_all_but::<WideSet, B>(core, line, now, below),
        }
    }

    fn invalidate_all_but<S: InDirectory, B: Below>(
        &mut self,
        core: CoreId,
        line: CacheLine,
        now: Time,
        below: &mut B,
    ) {
        let Some(directory) = S::of(&mut self.directory) else { return };
        let Sharers { cores: mut others, translates, .. } = directory.sharers(line);
        let evicted = directory.record(line, Sharers { translates, ..Sharers::sole(core) });
        others.remove(core);
        let mut dirty = false;
        while let Some(other) = others.pop() {
            let dropped = self.drop_private(other, line);
            dirty |= dropped == Some(true);
            // A sharer for its translations alone has no copy to lose.
            self.counters.invalidations += u64::from(!translates || dropped.is_some());
            if translates {
                self.notify(other, line, Reason::Store, dropped.is_some());
            }
        }
        if dirty {
            self.counters.l2.writebacks += 1;
            self.write_to_llc(line, now, below);
        }
        if let Some((old_line, old)) = evicted {
            self.back_invalidate(old_line, old, now, below);
        }
    }

    /// Removes a line from the private caches of its sharers: its directory entry is gone.
    fn back_invalidate<S: SharerSet, B: Below>(
        &mut self,
        line: CacheLine,
        mut sharers: Sharers<S>,
        now: Time,
        below: &mut B,
    ) {
        let mut dirty = false;
        while let Some(core) = sharers.cores.pop() {
            let dropped = self.drop_private(core, line);
            dirty |= dropped == Some(true);
            self.counters.back_invalidations += u64::from(!sharers.translates || dropped.is_some());
            if sharers.translates {
                self.notify(core, line, Reason::BackInvalidation, dropped.is_some());
            }
        }
        if dirty {
            self.counters.l2.writebacks += 1;
            self.write_to_llc(line, now, below);
        }
    }

    /// Removes a line from a core's private caches. Says whether it was dirty there, if it was there.
    pub(super) fn drop_private(&mut self, core: CoreId, line: CacheLine) -> Option<bool> {
        let private = &mut self.private[core.index()];
        private.forget(line);
        let l1 = private.l1.invalidate(private.l1.home(line));
        let l2 = private.l2.invalidate(private.l2.home(line));
        (l1.is_some() || l2.is_some()).then_some(l1 == Some(true) || l2 == Some(true))
    }

    /// Removes a line from all private caches. Returns how many cores held it, and whether one had modified it.
    pub(super) fn drop_everywhere(&mut self, line: CacheLine) -> (u64, bool) {
        match self.directory {
            AnyDirectory::None => {
                let held = self.only_core.and_then(|core| self.drop_private(core, line));
                (u64::from(held.is_some()), held == Some(true))
            }
            AnyDirectory::Narrow(_) => self.drop_from_sharers::<u64>(line),
            AnyDirectory::Wide(_) => self.drop_from_sharers::<WideSet>(line),
        }
    }

    fn drop_from_sharers<S: InDirectory>(&mut self, line: CacheLine) -> (u64, bool) {
        let Some(directory) = S::of(&mut self.directory) else { return (0, false) };
        let mut sharers = directory.sharers(line).cores;
        let (mut holders, mut dirty) = (0, false);
        while let Some(core) = sharers.pop() {
            if let Some(modified) = self.drop_private(core, line) {
                holders += 1;
                dirty |= modified;
            }
            self.depart(core, line);
        }
        (holders, dirty)
    }

    /// The inclusive last level gave up a line: it leaves the private caches too. Returns whether one had modified it.
    pub(super) fn evict_from_private(&mut self, line: CacheLine) -> bool {
        let (holders, dirty) = self.drop_everywhere(line);
        self.counters.back_invalidations += holders;
        dirty
    }
}

/// Enters the lines that the only core so far holds.
fn enter<S: SharerSet>(directory: &mut Directory<S>, private: &Private, core: CoreId) {
    for line in private.l2.resident().chain(private.l1.resident()) {
        // Twice the room of all private lines: nothing of one core's share can be pushed out by itself.
        directory.record(line, Sharers::sole(core));
    }
}
