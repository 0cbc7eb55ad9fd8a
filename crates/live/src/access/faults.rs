//! Accesses to watched pages of the shared memory of launched programs, by sampled minor faults: a thread of the program
//! takes a page's entry out (`crates/preload/dropper`), the next access faults, and Terrace answers the fault and knows page
//! and time ([`crate::kernel::Faults`]).
//!
//! For policies that count accesses or want hints. Unlike [`super::drop`] it shows when a page was accessed, so that rates
//! have no upper bound at one access per look; and it costs the program nothing for pages that nobody watches. The program
//! pays for each page that is taken out and accessed again, and no more are taken out than keeps that within a share of its
//! time.

use super::AccessSource;
use crate::engine::Allowance;
use crate::world::World;
use std::io;
use std::time::Duration;

/// Between two looks. A page is taken out again at the look after its access.
const PERIOD: Duration = Duration::from_millis(200);
/// What a page that is taken out and accessed again costs the program, by `examples/fault_cost.rs` (`docs/src/live.md` has
/// where that was measured).
const FAULT_COST: Duration = Duration::from_micros(20);
/// Share of a processor's time that it may cost.
const SHARE: f64 = 0.02;
/// What may be used at once, in seconds of that.
const BURST: f64 = 1.0;

/// The source.
#[derive(Debug)]
pub struct SampledFaults {
    allowance: Allowance,
    last: Option<Duration>,
}

impl SampledFaults {
    /// An access source that has taken out nothing yet.
    pub fn new() -> SampledFaults {
        SampledFaults { allowance: Allowance::new(SHARE, SHARE * BURST), last: None }
    }
}

impl Default for SampledFaults {
    fn default() -> SampledFaults {
        SampledFaults::new()
    }
}

impl AccessSource for SampledFaults {
    fn name(&self) -> String {
        let most = SHARE / FAULT_COST.as_secs_f64();
        format!("minor faults of watched pages, shared memory only, at most {most:.0} per second")
    }

    fn sees_all_pages(&self) -> bool {
        false
    }

    fn collect(&mut self, world: &mut World) -> io::Result<Duration> {
        let now = world.kernel().now();
        self.allowance.pass(now.saturating_sub(self.last.unwrap_or(now)));
        self.last = Some(now);
        let allowance = &mut self.allowance;
        world.sample_faults(&mut || {
            let may = allowance.wait().is_zero();
            if may {
                allowance.spend(FAULT_COST.as_secs_f64());
            }
            may
        });
        Ok(PERIOD)
    }

    fn stop(&mut self, _: &mut World) {
        // The threads that answer end with the processes' descriptors, and with those the registrations.
    }
}
