//! Accesses of the program, as the test makes them.

use super::InMemory;
use terrace_model::Time;
use terrace_seam::{Agent, Cost, Fault, Initiator, PageId, Signal, SignalKind, Watch};

/// What a fault of a watched page costs the program.
const FAULT: Cost = Cost { time: Time::from_nanos(1000), copied: 0, shootdowns: 0, faults: 1 };

impl InMemory {
    /// One access by the first CPU. Returns the fault where no page is mapped; bring it in and touch again.
    #[must_use = "a page without memory is not mapped by its fault: bring it in, or there is nothing to place"]
    pub fn touch(&mut self, page: PageId, write: bool) -> Option<Fault> {
        self.touch_by(Agent::default(), page, write)
    }

    /// One access by `agent`. Returns the fault where no page is mapped; bring it in and touch again.
    ///
    /// # Panics
    /// No area is mapped there: a mistake of the test.
    #[must_use = "a page without memory is not mapped by its fault: bring it in, or there is nothing to place"]
    pub fn touch_by(&mut self, agent: Agent, page: PageId, write: bool) -> Option<Fault> {
        let Some(first) = self.find(page) else {
            if !write && self.zeros.contains(&page) {
                return None;
            }
            let area = *self.area_of(page).unwrap_or_else(|| panic!("no area at {page:?}"));
            return Some(Fault { page, write, at: self.now, agent, area });
        };
        let store_fault = write && self.pages[&first].watch == Watch::HintStore;
        if write {
            self.stored.insert(page);
        }
        let held = self.tlb.iter().any(|(held, dirty)| *held == first && (*dirty || !write));
        if !held || store_fault {
            self.walk(agent, first, write);
        }
        self.reach_memory(first, page, write);
        None
    }

    /// A page walk: bits are set, watches fire, the translation enters the TLB.
    fn walk(&mut self, agent: Agent, first: PageId, write: bool) {
        let was_held = self.tlb.iter().any(|(held, _)| *held == first);
        let Some(page) = self.pages.get_mut(&first) else { return };
        page.accessed = true;
        page.dirty |= write;
        match page.watch {
            Watch::Hint => {
                page.watch = Watch::Off;
                let latency = self.now.since(page.watched_since);
                self.signals.push(Signal::HintFault { page: first, write, at: self.now, latency, agent });
                self.spent += FAULT;
            }
            Watch::HintStore if write => {
                page.watch = Watch::Off;
                let latency = self.now.since(page.watched_since);
                self.signals.push(Signal::HintFault { page: first, write, at: self.now, latency, agent });
                self.spent += FAULT;
            }
            Watch::Count => {
                page.counted += 1;
                self.spent += FAULT;
            }
            Watch::Off | Watch::HintStore => {}
        }
        if !was_held && self.wanted.contains(SignalKind::TlbMiss) {
            self.signals.push(Signal::TlbMiss { page: first, agent });
        }
        if self.tlb_entries > 0 {
            let dirty = page.dirty;
            self.flush(first);
            if self.tlb.len() == self.tlb_entries {
                self.tlb.pop_front();
            }
            self.tlb.push_back((first, dirty));
        }
    }

    fn reach_memory(&mut self, first: PageId, page: PageId, write: bool) {
        let tier = self.pages[&first].tier.index();
        let traffic = &mut self.traffic[tier];
        if write {
            traffic.written[Initiator::Demand as usize] += 64;
        } else {
            traffic.read[Initiator::Demand as usize] += 64;
            traffic.reads += 1;
            traffic.read_nanos += self.topology.tiers[tier].read_latency.as_nanos() as u64;
        }
        if let Some(area) = self.area_of(page) {
            let block = area.object.map_or(area.range, |object| object.range).first;
            *self.block_counts.entry(block).or_default() += 1;
        }
        if self.sample_one_in == 0 {
            return;
        }
        self.until_sample = self.until_sample.saturating_sub(1);
        if self.until_sample > 0 {
            return;
        }
        self.until_sample = self.sample_one_in;
        match self.signals.last_mut() {
            Some(Signal::Access { page: last, write: kind, count }) if *last == page && *kind == write => {
                *count += 1;
            }
            _ => self.signals.push(Signal::Access { page, write, count: 1 }),
        }
    }
}
