//! Shootdowns by interrupts, as Linux on x86 makes them.
//!
//! The core that changed entries drops its own translations, sends an interrupt to every other core that runs the process
//! and waits for all of them. Cores that ran it earlier compare generations when they come back to it, and drop then what
//! they hold, at no extra cost (`arch/x86/mm/tlb.c`: `switch_mm_irqs_off`, lazy mode).

use super::{Bill, Coherence, Entry, Invalidation};
use crate::os::KernelCosts;
use terrace_model::Time;

pub(super) const ENTRY: Entry = Entry::of_software("software", |costs| Box::new(Software::new(costs)));

/// More pages than this, and a core drops all of its translations instead of one after the other
/// (Linux, `arch/x86/mm/tlb.c`, `tlb_single_page_flush_ceiling`).
const FLUSH_ALL_ABOVE: u64 = 33;

#[derive(Debug)]
pub(super) struct Software {
    pub(super) send: Time,
    pub(super) per_core: Time,
    interrupt: Time,
    flush: Time,
}

impl Software {
    pub(super) fn new(costs: &KernelCosts) -> Software {
        Software {
            send: costs.shootdown,
            per_core: costs.shootdown_per_core,
            interrupt: costs.interrupt,
            flush: costs.flush,
        }
    }
}

impl Coherence for Software {
    fn bill(&self, what: &Invalidation) -> Bill {
        let flushes_space = what.whole || what.pages > FLUSH_ALL_ABOVE;
        let flushes = if !what.local {
            0
        } else if flushes_space {
            1
        } else {
            what.pages
        };
        let others = match what.targets {
            0 => Time::ZERO,
            targets => self.send + self.per_core.times(targets),
        };
        Bill {
            waits: self.flush.times(flushes) + others,
            interrupt: Some(self.interrupt),
            flushes_space,
            // `INVLPG` drops the paging-structure caches too.
            flushes_walk_cache: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_by_hand() {
        let ns = Time::from_nanos;
        let software = Software { send: ns(1000), per_core: ns(100), interrupt: ns(280), flush: ns(140) };
        let bill = |pages, targets, local| {
            let bill = software.bill(&Invalidation { pages, whole: false, targets, local });
            (bill.waits, bill.flushes_space)
        };
        assert_eq!(bill(1, 0, true), (ns(140), false), "nobody else runs it");
        assert_eq!(bill(1, 1, true), (ns(140 + 1100), false));
        assert_eq!(bill(33, 7, true), (ns(33 * 140 + 1700), false));
        assert_eq!(bill(34, 7, true), (ns(140 + 1700), true), "one more, and all go at once");
        assert_eq!(bill(34, 7, false), (ns(1700), true), "a kernel thread holds nothing of it");
        assert_eq!(bill(3, 0, false), (Time::ZERO, false));
        let fork = Invalidation { pages: 2, whole: true, targets: 0, local: true };
        assert_eq!(software.bill(&fork).waits, ns(140));
    }
}
