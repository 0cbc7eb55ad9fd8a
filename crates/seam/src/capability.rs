//! What a world offers and what a policy needs of it.

use std::collections::BTreeMap;
use std::fmt;
use terrace_model::PageSize;

macro_rules! set_of {
    ($(#[$doc:meta])* $set:ident of $item:ident: $name:literal => { $($(#[doc = $text:literal])+ $variant:ident = $word:literal,)+ }) => {
        #[doc = $name]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $item { $($(#[doc = $text])+ $variant,)+ }

        impl $item {
            /// All of them.
            pub const ALL: &'static [$item] = &[$($item::$variant),+];

            /// The word for it in messages and documents.
            pub const fn name(self) -> &'static str {
                match self { $($item::$variant => $word,)+ }
            }

            /// What it means, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $($item::$variant => concat!($($text),+).trim_ascii(),)+ }
            }
        }

        impl fmt::Display for $item {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(self.name()) }
        }

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $set(u32);

        impl $set {
            /// None.
            pub const NONE: $set = $set(0);

            /// The set of the items listed.
            pub const fn of(items: &[$item]) -> $set {
                let mut bits = 0;
                let mut at = 0;
                while at < items.len() {
                    bits |= 1 << items[at] as u32;
                    at += 1;
                }
                $set(bits)
            }

            /// Whether `item` is in it.
            #[inline]
            pub const fn contains(self, item: $item) -> bool { self.0 & 1 << item as u32 != 0 }

            /// With `item`.
            pub const fn with(self, item: $item) -> $set { $set(self.0 | 1 << item as u32) }

            /// With `item` where `wanted`.
            pub const fn with_if(self, wanted: bool, item: $item) -> $set {
                if wanted { self.with(item) } else { self }
            }

            /// Without `item`.
            pub const fn without(self, item: $item) -> $set { $set(self.0 & !(1 << item as u32)) }

            /// The items in the set, in the order of [`Self::of`]'s type.
            pub fn iter(self) -> impl Iterator<Item = $item> {
                $item::ALL.iter().copied().filter(move |item| self.contains(*item))
            }
        }
    };
}

set_of! {
    /// A set of [`Capability`].
    CapabilitySet of Capability: "Something that a world may offer to policies." => {
        /// Scans tell which pages were referenced since the bit was cleared.
        AccessedBits = "accessed-bits",
        /// Scans tell which pages were stored to since the bit was cleared.
        DirtyBits = "dirty-bits",
        /// Clearing those bits can drop the translations that TLBs hold, so that the next access sets them again.
        FlushOnClear = "flush-on-clear",
        /// A chosen page can be made to fault at its next access, once.
        HintFaults = "hint-faults",
        /// A chosen page can be made to fault at its next store, once.
        WriteFaults = "write-faults",
        /// Accesses to chosen pages are counted, about one per TLB miss, by faults that leave the page armed (BadgerTrap).
        CountedFaults = "counted-faults",
        /// One in N accesses that reach memory is reported with its page (PEBS, IBS).
        AccessSamples = "access-samples",
        /// Every access that reaches memory is reported with its page, in order.
        ExactAccesses = "exact-accesses",
        /// Accesses that reach memory are counted by block, as a memory controller that knows blocks can (VBI).
        BlockCounts = "block-counts",
        /// Pages whose translation missed in an agent's TLB are reported.
        TlbMisses = "tlb-misses",
        /// Traffic of each tier in bytes, reads and writes apart.
        Traffic = "traffic",
        /// The mean time that reads of each tier take under load.
        LoadedLatency = "loaded-latency",
        /// Pages move between tiers.
        Migration = "migration",
        /// Huge pages move without being split.
        WholeHugePages = "whole-huge-pages",
        /// Two pages swap places without a third, free one.
        Exchange = "exchange",
        /// The copy of one move is shared by several threads.
        ParallelCopy = "parallel-copy",
        /// Huge pages are split into base pages.
        Split = "split",
        /// Base pages are joined into a huge page.
        Collapse = "collapse",
        /// Frames can be looked at and chosen: the physical view.
        Frames = "frames",
        /// The sizes of new pages are chosen at their first fault.
        FaultSizes = "fault-sizes",
        /// A fault can wait while memory is compacted for it, or report that it would have.
        StalledFaults = "stalled-faults",
        /// Pages exchange their frames by rewriting a lower level of translation, without a copy.
        CopylessExchange = "copyless-exchange",
        /// Base pages that hold only zeros are found and given back.
        ZeroPages = "zero-pages",
        /// The program's data structures are known at faults and by area.
        Objects = "objects",
        /// One tier serves as a hardware cache of the next.
        HardwareCache = "hardware-cache",
    }
}

set_of! {
    /// A set of [`SignalKind`].
    SignalSet of SignalKind: "Signals that come only to policies that ask for them." => {
        /// A page was brought in by a fault.
        Allocated = "allocated",
        /// Pages were unmapped, or their process ended.
        Unmapped = "unmapped",
        /// Translations missed in TLBs.
        TlbMiss = "tlb-miss",
    }
}

/// What a world offers, and for what it does not offer, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    offered: CapabilitySet,
    reasons: BTreeMap<Capability, String>,
    /// The largest page that faults, splits and collapses know.
    pub largest_page: PageSize,
    /// Most threads that can share a copy.
    pub copy_threads: u16,
}

impl Capabilities {
    /// A world that offers these, pages up to `largest_page`, and one copying thread.
    pub fn new(offered: CapabilitySet, largest_page: PageSize) -> Capabilities {
        Capabilities { offered, reasons: BTreeMap::new(), largest_page, copy_threads: 1 }
    }

    /// Without one, for a reason that a user can act upon.
    pub fn without(mut self, missing: Capability, reason: impl Into<String>) -> Capabilities {
        self.offered = self.offered.without(missing);
        self.reasons.insert(missing, reason.into());
        self
    }

    /// And with one more.
    pub fn with(mut self, offered: Capability) -> Capabilities {
        self.offered = self.offered.with(offered);
        self.reasons.remove(&offered);
        self
    }

    /// Whether `capability` is offered.
    pub fn has(&self, capability: Capability) -> bool {
        self.offered.contains(capability)
    }

    /// The first of `needed` that is not offered, with what it means and why it is missing.
    pub fn lacks(&self, needed: CapabilitySet) -> Option<Lack> {
        needed.iter().find(|capability| !self.has(*capability)).map(|capability| {
            let reason = self.reasons.get(&capability);
            Lack {
                capability,
                reason: reason.cloned().unwrap_or_else(|| "it is not available here".to_owned()),
            }
        })
    }
}

/// A capability that is needed and not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// Which one.
    pub capability: Capability,
    /// Why, and what would help.
    pub reason: String,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meaning = self.capability.meaning().trim_end_matches('.');
        write!(f, "{} ({meaning}): {}", self.capability, self.reason)
    }
}

/// What a policy needs to run, and the signals it wants besides those it causes itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Without all of these the policy refuses to start.
    pub capabilities: CapabilitySet,
    /// Signals that the policy gets; none is sent that is not here.
    pub signals: SignalSet,
    /// The policy is built from a [`crate::Profile`]: whoever runs it makes a first pass over the same input.
    pub first_pass: bool,
    /// Bandwidths of the topology that it is built for are measured: whoever runs it reads each memory by itself before.
    pub probe: bool,
}

impl Needs {
    /// Needs these capabilities and no further signals.
    pub const fn of(capabilities: &[Capability]) -> Needs {
        let capabilities = CapabilitySet::of(capabilities);
        Needs { capabilities, signals: SignalSet::NONE, first_pass: false, probe: false }
    }

    /// And wants these signals.
    pub const fn and_signals(self, signals: &[SignalKind]) -> Needs {
        Needs { signals: SignalSet::of(signals), ..self }
    }
}

impl Capability {
    /// What sampling one of `one_in` accesses takes.
    pub const fn of_sampling(one_in: u64) -> Capability {
        if one_in == 1 { Capability::ExactAccesses } else { Capability::AccessSamples }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_names_meaning_and_reason() {
        let offered = CapabilitySet::of(&[Capability::AccessedBits, Capability::Migration]);
        let world = Capabilities::new(offered, PageSize::Huge)
            .without(Capability::CountedFaults, "build the kernel with BadgerTrap");
        let needed = CapabilitySet::of(&[Capability::Migration, Capability::CountedFaults]);
        let lack = world.lacks(needed).unwrap().to_string();
        assert!(lack.starts_with("counted-faults (Accesses to chosen pages are counted"), "{lack}");
        assert!(lack.ends_with("): build the kernel with BadgerTrap"), "{lack}");
        assert_eq!(world.lacks(offered), None);
    }

    #[test]
    fn sets_hold_what_was_put_in() {
        let set = CapabilitySet::of(&[Capability::Split]).with(Capability::Collapse);
        assert_eq!(set.iter().collect::<Vec<_>>(), [Capability::Split, Capability::Collapse]);
        assert_eq!(set.without(Capability::Split).with_if(false, Capability::Frames).iter().count(), 1);
        assert!(Capability::ALL.len() <= 32);
    }
}
