//! The hypercall of Trident^PV: the hypervisor exchanges what it maps at pairs of guest-physical pages of 2 MiB.
//!
//! **What it does.** The guest writes up to 512 source and target addresses into two pages that both sides share, and calls.
//! The hypervisor exchanges the entries of each pair in the nested page table: the bytes of one now appear at the other, and
//! nothing was copied. It notes in the shared pages which pairs it could not exchange, drops stale translations once for
//! the whole call, and returns. The guest copies what was refused.
//!
//! **Source.** V. S. S. Ram, A. Panwar, A. Basu: "Trident: Harnessing architectural resources for all page sizes in x86
//! processors", MICRO 2021, section 6: pages, protocol, batch and the 300 ns of a hypercall. What is marked *released* is
//! the behaviour of the authors' code.
//!
//! **Left open, and chosen here.** *When a pair is refused*: one of the two is not mapped, or with base pages (released);
//! it is shared, watched by the hypervisor's policy or in the hands of one of its orders; the two belong to tiers of the
//! guest that are bound to different tiers of the machine. *1 GiB pages of the host* are split first, as the entries to be
//! exchanged are those of 2 MiB. *Time of a pair*: the host looks at two entries and maps two pages (`os.costs.scan_entry`,
//! `os.costs.map`), a split is `os.costs.split`; the flush is that of the scheme of translation coherence. *Accessed and
//! dirty bits* go with the bytes. *The list itself* is in caches and takes no time beside the call's.

use super::hypervisor::Hypervisor;
use super::parts::Machine;
use crate::coherence::Cause;
use crate::os::KernelCosts;
use terrace_model::{Frame, GuestPhysAddr, PageSize, Time};
use terrace_policy::PageId;

impl Hypervisor {
    /// The page of 2 MiB of its own that is to be exchanged. A larger one is split. Returns the time of that as well.
    fn exchangeable(&mut self, frame: Frame, costs: &KernelCosts) -> Option<(PageId, Time)> {
        let addr = GuestPhysAddr(frame.addr().0);
        let leaf = self.find(addr).filter(|leaf| leaf.size != PageSize::Base && leaf.pte.is_plain())?;
        let page = PageId::of(self.space_of(addr), addr.in_host_space());
        if self.os.is_shared(leaf.pte.frame()) {
            return None;
        }
        if leaf.size == PageSize::Huge {
            return Some((page, Time::ZERO));
        }
        self.os.split_page(page.space, page.aligned(leaf.size).addr(), PageSize::Huge).ok()?;
        Some((page, costs.split))
    }

    /// Exchanges what it maps at two blocks of 2 MiB of the guest's. Returns whether it did, and the time that took.
    fn exchange(&mut self, one: Frame, other: Frame, costs: &KernelCosts) -> (bool, Time) {
        let looked = costs.scan_entry.times(2);
        let tier = |frame: Frame| self.wish(GuestPhysAddr(frame.addr().0)).map(|wish| wish.tier);
        if tier(one) != tier(other) {
            return (false, looked);
        }
        let Some((one, split_one)) = self.exchangeable(one, costs) else { return (false, looked) };
        let Some((other, split_other)) = self.exchangeable(other, costs) else {
            return (false, looked + split_one);
        };
        self.os.exchange_contents(one, other);
        (true, looked + split_one + split_other + costs.map.times(2))
    }
}

impl Machine {
    /// A kernel thread of the guest calls the hypervisor at `now`, once for so many pairs of 2 MiB blocks. Returns which of
    /// them were exchanged, and how long the thread was away.
    pub fn exchange_in_host(
        &mut self,
        pairs: &[(Frame, Frame)],
        batch: usize,
        costs: &KernelCosts,
        now: Time,
    ) -> (Vec<bool>, Time) {
        let mut exchanged = Vec::with_capacity(pairs.len());
        let mut span = Time::ZERO;
        for call in pairs.chunks(batch) {
            let Some(hypervisor) = &mut self.shared.hypervisor else { break };
            let began = span;
            span += hypervisor.hypercall;
            let before = exchanged.len();
            for (one, other) in call {
                let (done, took) = hypervisor.exchange(*one, *other, costs);
                exchanged.push(done);
                span += took;
            }
            let done = exchanged[before..].iter().filter(|done| **done).count() as u64;
            span += self.complete_host(Cause::Migration, None, now + span).waits;
            if let Some(hypervisor) = &mut self.shared.hypervisor {
                let calls = &mut hypervisor.hypercalls;
                calls.calls += 1;
                calls.exchanged += done;
                calls.refused += call.len() as u64 - done;
                calls.time += span - began;
            }
        }
        exchanged.resize(pairs.len(), false);
        (exchanged, span)
    }
}
