//! Traffic since the last look.

use crate::{MemorySystem, Moment, TierTraffic};

/// Remembers each tier's traffic and returns what was added.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    before: Vec<TierTraffic>,
    at: Moment,
}

impl Rates {
    /// What went through each tier since the last call (since the start for the first), and the seconds between.
    pub fn since_last(&mut self, now: Moment, memory: &mut dyn MemorySystem) -> (Vec<TierTraffic>, f64) {
        let current = memory.traffic();
        self.before.resize(current.len(), TierTraffic::default());
        let added = current.iter().zip(&self.before).map(|(now, before)| now.since(before)).collect();
        self.before.copy_from_slice(current);
        let seconds = now.seconds_since(self.at);
        self.at = now;
        (added, seconds)
    }
}
