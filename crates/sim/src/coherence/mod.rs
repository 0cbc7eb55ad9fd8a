//! Translation coherence: how cores lose translations whose page-table entries changed, and what that costs whom.
//!
//! A scheme is one file here and one line in [`SCHEMES`]. Entries change through one door ([`crate::os::Changes`]); the
//! machine makes the stores, asks the scheme for the bill, charges it, and drops what is stale (`machine/changes.rs`). Where
//! hardware does that by itself ([`Coherence::hardware`]), the stores drop it (`machine/probes.rs`).

mod cause;
mod hatric;
mod ideal;
mod probe;
mod software;
mod software_virtual;
mod unitd;

use crate::os::KernelCosts;
pub(crate) use cause::{Cause, Shootdowns};
pub(crate) use hatric::{Covers, EnergySums, Hardware, translation_energy};
pub use hatric::{
    DirectorySize, DirectoryUpdates, FillNotices, FreedTables, Granularity, GuestChanges, HatricParameters,
    LocalStores, Ranges, SetNumbers, Synonyms, Tracking, TranslationEnergy, WalkCacheSets, WalkerStores,
};
pub(crate) use probe::NOTHING;
pub use probe::{ProbeSets, Probed, RangeStore, RangesFound, Resolution, Structure, Target, TlbSets};
use std::fmt::Debug;
use terrace_model::Time;

/// What has to be dropped, and who holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Invalidation {
    /// Pages whose translations are stale.
    pub pages: u64,
    /// The whole of a process's memory changes: a fork, its end.
    pub whole: bool,
    /// Other cores that run one of the processes now.
    pub targets: u64,
    /// Whether the core that made the changes runs one of them.
    pub local: bool,
}

/// What that costs, and what goes with the stale translations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bill {
    /// Whoever made the changes waits so long until no core uses what was.
    pub waits: Time,
    /// Every target is interrupted, and held up so long; none where no core is interrupted.
    pub interrupt: Option<Time>,
    /// Cores drop all translations of the process instead of one page after the other.
    pub flushes_space: bool,
    /// Cores drop what their page-walk caches hold.
    pub flushes_walk_cache: bool,
}

/// A scheme of translation coherence.
pub(crate) trait Coherence: Debug {
    /// What an invalidation costs. Cores that do not run the process now drop what they hold of it before they run it
    /// again.
    fn bill(&self, what: &Invalidation) -> Bill;

    /// What an invalidation after a change of the hypervisor's page table costs: nothing by itself. Targets are the cores
    /// that run the virtual machine, `exit` is the time that leaving the guest takes.
    fn host_bill(&self, _what: &Invalidation, _exit: Time) -> Bill {
        Bill::default()
    }

    /// What hardware keeps coherent by the stores to entries. The bill is then for what stays with software.
    fn hardware(&self) -> Option<Covers> {
        None
    }
}

/// One scheme: its name in designs, what it is, and how it is made.
pub(crate) struct Entry {
    pub name: &'static str,
    pub new: fn(&KernelCosts) -> Box<dyn Coherence>,
    /// Whether the cache directory takes part. It knows cores of one hardware thread each, and has to know which entry each
    /// translation was made from.
    pub hardware: bool,
}

impl Entry {
    /// A scheme that works with any translation.
    const fn of_software(name: &'static str, new: fn(&KernelCosts) -> Box<dyn Coherence>) -> Entry {
        Entry { name, new, hardware: false }
    }

    /// A scheme of the cache directory.
    const fn of_hardware(name: &'static str, new: fn(&KernelCosts) -> Box<dyn Coherence>) -> Entry {
        Entry { name, new, hardware: true }
    }
}

/// All schemes.
pub(crate) const SCHEMES: &[Entry] =
    &[software::ENTRY, software_virtual::ENTRY, ideal::ENTRY, hatric::ENTRY, unitd::ENTRY];

/// The scheme of a name.
pub(crate) fn find(name: &str) -> Option<&'static Entry> {
    SCHEMES.iter().find(|entry| entry.name == name)
}

/// The schemes' names, for messages.
pub(crate) fn names() -> Vec<&'static str> {
    SCHEMES.iter().map(|entry| entry.name).collect()
}
