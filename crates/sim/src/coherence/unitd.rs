//! UNITD++: TLBs take part in cache coherence, other translation structures do not.
//!
//! **What it does.** Each TLB has a content-addressed memory of the whole physical addresses of the page-table entries that
//! its translations were made from; messages of the coherence directory search all of it. Page-walk caches and nested TLBs
//! are left to software: when an entry above the leaves changes, the kernel interrupts the cores that run the process, and
//! they drop theirs.
//!
//! **Source.** Romanescu, Lebeck, Sorin, Bracy, "UNITD: Unified Instruction/Translation/Data Coherence", HPCA 2010, as Yan's
//! thesis (Rutgers, section 2.6) extends it to directories and calls it UNITD++.
//!
//! **Left open, and chosen here.** How software drops what UNITD++ leaves out: by the shootdown of the scheme `software`, to
//! the same cores, at the same costs. In a virtual machine nested TLBs hold the pages that the hypervisor maps, so that each
//! of its changes takes a remote flush as in `software-virtual`, which leaves the TLBs as they are. Everything else is as in
//! HATRIC, whose keys that concern co-tags and sets have no meaning here: addresses are whole, and every message searches
//! every entry.

use super::hatric::Covers;
use super::software::Software;
use super::software_virtual::remote_flush;
use super::{Bill, Coherence, Entry, Invalidation};
use terrace_model::Time;

pub(super) const ENTRY: Entry =
    Entry::of_hardware("unitd", |costs| Box::new(Unitd { software: Software::new(costs) }));

#[derive(Debug)]
struct Unitd {
    /// For page-walk caches, and what stays with software.
    software: Software,
}

impl Coherence for Unitd {
    fn bill(&self, what: &Invalidation) -> Bill {
        self.software.bill(what)
    }

    fn host_bill(&self, what: &Invalidation, exit: Time) -> Bill {
        remote_flush(&self.software, what, exit)
    }

    fn hardware(&self) -> Option<Covers> {
        Some(Covers { walk_cache: false })
    }
}
