//! What accesses to the slow tier really take, where the world reports it.
//!
//! The source emulates slow memory by the faults that it counts, so that an access takes what a fault takes. Memory that
//! is slow by itself takes its time with every line that is read, and only the first of several in a page may be
//! counted, or none where the TLB holds the page.

use crate::support::Rates;
use crate::{Capability, Initiator, MemorySystem, Moment, TierTraffic};
use terrace_model::{LINE_BYTES, TierId, Time};

/// The time of a counted access, as of the last interval.
#[derive(Clone, Debug)]
pub struct SlowTime {
    stated: f64,
    per_access: f64,
    rates: Rates,
}

impl SlowTime {
    /// An access takes `stated` until more is known, and at least that much.
    pub fn new(stated: Time) -> SlowTime {
        SlowTime { stated: stated.as_secs(), per_access: stated.as_secs(), rates: Rates::default() }
    }

    /// Seconds that a counted access takes.
    pub fn per_access(&self) -> f64 {
        self.per_access
    }

    /// An interval is over in which `counted` accesses were counted. Returns the share of it by which reads of the slow tier
    /// took longer than those of the fast one; 0 where nobody knows.
    pub fn interval(
        &mut self,
        now: Moment,
        counted: u64,
        (fast, slow): (TierId, TierId),
        memory: &mut dyn MemorySystem,
    ) -> f64 {
        let capabilities = memory.capabilities();
        if !capabilities.has(Capability::Traffic) || !capabilities.has(Capability::LoadedLatency) {
            return 0.0;
        }
        let idle = memory.topology().tier(fast).read_latency.as_secs();
        let (added, seconds) = self.rates.since_last(now, memory);
        let extra = extra_seconds(&added[fast.index()], &added[slow.index()], idle);
        if counted > 0 {
            self.per_access = self.stated.max(extra / counted as f64);
        }
        if seconds > 0.0 { extra / seconds } else { 0.0 }
    }
}

/// The extra seconds that the program's reads of the slow tier, walks included, took over as many of the fast tier. `idle`:
/// the time of a read of the fast tier where there were none.
fn extra_seconds(fast: &TierTraffic, slow: &TierTraffic, idle: f64) -> f64 {
    let mean =
        |tier: &TierTraffic| (tier.reads > 0).then(|| tier.read_nanos as f64 * 1e-9 / tier.reads as f64);
    let Some(slow_mean) = mean(slow) else { return 0.0 };
    let bytes = slow.read[Initiator::Demand as usize] + slow.read[Initiator::Walk as usize];
    (slow_mean - mean(fast).unwrap_or(idle)).max(0.0) * (bytes / LINE_BYTES) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(demand_lines: u64, copied_lines: u64, nanos_each: u64) -> TierTraffic {
        let mut traffic = TierTraffic::default();
        traffic.read[Initiator::Demand as usize] = demand_lines * LINE_BYTES;
        traffic.read[Initiator::Copy as usize] = copied_lines * LINE_BYTES;
        traffic.reads = demand_lines + copied_lines;
        traffic.read_nanos = traffic.reads * nanos_each;
        traffic
    }

    #[test]
    fn lines_that_the_program_reads_count_by_what_they_take_more() {
        let fast = traffic(1000, 0, 100);
        let extra = |slow| extra_seconds(&fast, &slow, 1.0);
        assert!((extra(traffic(50, 0, 1100)) - 50e-6).abs() < 1e-12);
        assert!((extra(traffic(50, 950, 1100)) - 50e-6).abs() < 1e-12, "copies are not the program's");
        assert_eq!(extra(traffic(50, 0, 90)), 0.0, "no slower");
        assert_eq!(extra(TierTraffic::default()), 0.0);
        let without = extra_seconds(&TierTraffic::default(), &traffic(50, 0, 1100), 100e-9);
        assert!((without - 50e-6).abs() < 1e-12, "idle latency where the fast tier read nothing");
    }
}
