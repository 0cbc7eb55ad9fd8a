//! Remote flushes of a hypervisor, as KVM makes them; the guest's own shootdowns are those of `software`.
//!
//! **What it does.** The hypervisor changed an entry of the table that maps a guest's memory. No instruction drops the
//! translations of one guest-physical page, so it sets a request in every virtual CPU and interrupts each core that runs
//! one. The interrupt takes the core out of the guest; the hypervisor waits until all have left. Before a virtual CPU
//! enters the guest again it drops all TLBs, page-walk caches and nested TLBs. Virtual CPUs that do not run find the request
//! when they enter, for nothing more; cores that never ran one are left alone.
//!
//! **Source.** Yan 2019, section 2.2 and figure 2.3; Linux, `virt/kvm/kvm_main.c` (`kvm_flush_remote_tlbs`).
//!
//! **Left open, and chosen here.** Sending the interrupts costs what it costs Linux natively. A target pays for its exit
//! (`host.vm_exit`), of which the interrupt is a part: the source measured an exit at 1300 cycles and an interrupt that
//! causes none at 640 (section 2.1). The initiator waits for one exit, since the targets leave side by side. The guest's own
//! interrupts are delivered without an exit (posted interrupts).

use super::software::Software;
use super::{Bill, Coherence, Entry, Invalidation};
use terrace_model::Time;

pub(super) const ENTRY: Entry =
    Entry::of_software("software-virtual", |costs| Box::new(SoftwareVirtual(Software::new(costs))));

#[derive(Debug)]
struct SoftwareVirtual(Software);

impl Coherence for SoftwareVirtual {
    fn bill(&self, what: &Invalidation) -> Bill {
        self.0.bill(what)
    }

    fn host_bill(&self, what: &Invalidation, exit: Time) -> Bill {
        remote_flush(&self.0, what, exit)
    }
}

/// What a remote flush costs.
pub(super) fn remote_flush(software: &Software, what: &Invalidation, exit: Time) -> Bill {
    let waits = match what.targets {
        0 => Time::ZERO,
        targets => software.send + software.per_core.times(targets) + exit,
    };
    Bill { waits, interrupt: Some(exit), flushes_space: true, flushes_walk_cache: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::Library;

    #[test]
    fn a_remote_flush_by_hand() {
        let mut costs = Library::embedded().design("native-4k", None, &[]).unwrap().design.os.costs;
        let ns = Time::from_nanos;
        (costs.shootdown, costs.shootdown_per_core) = (ns(1000), ns(100));
        let scheme = SoftwareVirtual(Software::new(&costs));
        let bill = |targets| {
            let what = Invalidation { pages: 1, whole: false, targets, local: false };
            let bill = scheme.host_bill(&what, ns(1300));
            assert!(bill.flushes_space && bill.flushes_walk_cache, "no entry is dropped alone");
            (bill.waits, bill.interrupt.unwrap())
        };
        assert_eq!(bill(0), (ns(0), ns(1300)), "no virtual CPU runs");
        assert_eq!(bill(1), (ns(1000 + 100 + 1300), ns(1300)));
        assert_eq!(bill(8), (ns(1000 + 800 + 1300), ns(1300)), "they leave side by side");
    }
}
