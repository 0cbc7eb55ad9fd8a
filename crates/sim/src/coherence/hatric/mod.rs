//! HATRIC: co-tags in translation structures, and cache coherence keeps them coherent.
//!
//! **What it does.** Each entry of a TLB and of the page-walk cache carries a co-tag: a part of the address of the
//! page-table entry that it was made from, set by the page walker. The coherence directory marks lines that translations
//! were made from, and counts a core as a sharer while it may hold the line or such translations. A kernel that changes a
//! page table makes an ordinary store. The store's request takes the line from every sharer and drops the translations whose
//! co-tags match. There is no interrupt and no flush; who stores waits for the acknowledgements.
//!
//! **Source.** Yan, PhD thesis (Rutgers), chapter 2: HATRIC, hardware translation invalidation and coherence.
//!
//! **Left open, and chosen here.** *Granularity*: co-tags drop three bits "because coherence tracks groups of eight", which
//! are the bytes of an entry; eight entries take three more. A store drops all eight (`granularity`). *Local stores* to a
//! line that a core owns send no message, so they probe the core's own structures (`local_stores`). *Walks that hit in the
//! private caches* send no request, yet the directory needs the mark and the set numbers: the walker sends a notice
//! (`fill_notices`). *Two sets for one entry* exceed the eleven bits: a bit says that all sets are searched (`synonyms`).
//! *Page-walk caches looked up by virtual address*: on a native machine the derived sets are right for them too
//! (`walk_cache_sets`). *Tables that are freed* without a store to their entries leave translations behind: the kernel
//! stores to each entry (`freed_tables`); a split or a collapse stores to the entries that it replaces in any case.
//! *In a virtual machine* co-tags are those of the hypervisor's entries (`machine/nested_tags.rs`), so that the guest's own
//! changes are left to its software (`guest_changes`); where the page-walk cache knows tables by guest-virtual addresses,
//! probes search all of it. *Ranges* (`rmm`) are made from many entries, and a walk reads one: the directory cannot know
//! who has some, so that each store of the kernel to a page table goes to the range TLBs of all cores (`ranges`).
//! *Walkers* that set accessed and dirty bits store as anybody does (`walker_stores`). *Who stores
//! waits* until all acknowledgements are there, since the kernel goes on to use the page; the request takes the time of a
//! transfer from one cache to another, and a probe that of the sets it searches (`probe_latency`).

mod energy;
mod parameters;
mod sets;
mod state;

pub(crate) use energy::{EnergySums, translation_energy};
pub use parameters::*;
pub(crate) use state::{Covers, Hardware};

use super::software::Software;
use super::{Bill, Coherence, Entry, Invalidation};
use crate::os::KernelCosts;

pub(super) const ENTRY: Entry = Entry::of_hardware("hatric", |costs| Box::new(Hatric::new(costs)));

#[derive(Debug)]
struct Hatric {
    /// For what stays with software.
    software: Software,
}

impl Hatric {
    fn new(costs: &KernelCosts) -> Hatric {
        Hatric { software: Software::new(costs) }
    }
}

impl Coherence for Hatric {
    fn bill(&self, what: &Invalidation) -> Bill {
        self.software.bill(what)
    }

    fn hardware(&self) -> Option<Covers> {
        Some(Covers { walk_cache: true })
    }
}
