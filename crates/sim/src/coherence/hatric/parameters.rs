//! The keys of hardware translation coherence in a design: the table `translation.hatric`.

use serde::{Deserialize, Serialize};
use terrace_model::parameters::{Choice, Parameters};
use terrace_model::{Cycles, Energy};

/// How HATRIC is built, where its source leaves a choice or compares several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[serde(default, deny_unknown_fields)]
pub struct HatricParameters {
    /// Bytes of a co-tag: 1, 2 or 3, or 8 for the whole address. Two bytes keep bits 18 to 3 (section 2.4.1).
    #[parameter(default = 2, range = 1..=8, source = "Yan 2019, section 2.4.1")]
    pub co_tag_bytes: u32,
    /// What a store takes with it.
    #[parameter(default = Granularity::Line, source = "Yan 2019, section 2.4.3")]
    pub granularity: Granularity,
    /// How the core that stores loses its own translations.
    #[parameter(default = LocalStores::Probe)]
    pub local_stores: LocalStores,
    /// What the directory is notified of when a fill's walk found its line in the private caches.
    #[parameter(default = FillNotices::Message)]
    pub fill_notices: FillNotices,
    /// What the directory keeps of the TLB sets of an entry.
    #[parameter(default = SetNumbers::Whole, source = "Yan 2019, section 2.4.3")]
    pub set_numbers: SetNumbers,
    /// What happens when one entry is held in two sets.
    #[parameter(default = Synonyms::SearchAll)]
    pub synonyms: Synonyms,
    /// Which sets of the page-walk cache a probe searches.
    #[parameter(default = WalkCacheSets::Derived, source = "Yan 2019, section 2.4.3")]
    pub walk_cache_sets: WalkCacheSets,
    /// How changes of a guest's own page table reach cores that hold what was made by them, in a virtual machine.
    #[parameter(default = GuestChanges::Software, source = "Yan 2019, section 2.2.2")]
    pub guest_changes: GuestChanges,
    /// How the tables of a process that ends are given up.
    #[parameter(default = FreedTables::Stores)]
    pub freed_tables: FreedTables,
    /// What the accessed and dirty bits that walkers set do to the translations of other cores.
    #[parameter(default = WalkerStores::Invalidate, source = "Yan 2019, section 2.4.5")]
    pub walker_stores: WalkerStores,
    /// When a core that holds nothing of a line any more leaves its sharers.
    #[parameter(default = DirectoryUpdates::Lazy, source = "Yan 2019, section 2.4.3")]
    pub directory_updates: DirectoryUpdates,
    /// What the directory knows of where a core holds translations.
    #[parameter(default = Tracking::Shared, source = "Yan 2019, section 2.4.3")]
    pub tracking: Tracking,
    /// Whether directory entries have to go for others.
    #[parameter(default = DirectorySize::Bounded, source = "Yan 2019, section 2.4.3")]
    pub directory_size: DirectorySize,
    /// What range TLBs lose when a page-table entry within a range is stored to.
    #[parameter(default = Ranges::RangeCover, source = "ours")]
    pub ranges: Ranges,
    /// Time to compare the co-tags of one set. Assumed: a lookup of a small array takes a cycle; the source gives none.
    #[parameter(default = "1 cycles", range = "0 cycles"..="1000000 cycles", source = "assumed")]
    pub probe_latency: Cycles,
}

/// What a store to an entry takes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum Granularity {
    /// The translations of all eight entries of the line, by one co-tag that ignores bits 5 to 3 (section 2.4.3).
    Line,
    /// The translations of all eight entries by eight probes, one for each entry, each with all bits that a co-tag has.
    EightEntries,
    /// The translations of the entries stored to. A line of which others keep translations is not left writable.
    Entry,
}

/// How the core that stores loses its own translations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum LocalStores {
    /// The core's stores probe its own structures.
    Probe,
    /// By instructions of the kernel, page by page (`os.costs.flush`).
    Software,
}

/// What the directory is notified of when a fill's walk found its line in the private caches, and so sent no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum FillNotices {
    /// A message with the set numbers. Nobody waits for it.
    Message,
    /// Only that the line has translations, once; set numbers are not kept, and probes search all sets.
    SearchAll,
}

/// What the directory keeps of the TLB sets of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum SetNumbers {
    /// Both set numbers, 11 bits, in two entries beside the line's (the source's second option, and its choice).
    Whole,
    /// Six bits in one entry: the lowest of the page number, so that several sets may be meant (its first option).
    SixBits,
}

/// What happens when one entry is held in two sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum Synonyms {
    /// A bit says that all sets have to be searched.
    SearchAll,
    /// Both are kept where they are, by a list that has no bound.
    ListAll,
}

/// Which sets of the page-walk cache a probe searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum WalkCacheSets {
    /// The sets that follow from the entry's place in its table (section 2.4.3, figure 2.7).
    Derived,
    /// All sets.
    SearchAll,
}

/// How changes of a guest's own page table reach cores that hold what was made by them: co-tags are those of the
/// hypervisor's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum GuestChanges {
    /// By the guest's interrupts, as natively without the hardware.
    Software,
    /// At once and for nothing: the most that the software techniques can give to which the source leaves such changes.
    Free,
}

/// How the tables of a process that ends are given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum FreedTables {
    /// The kernel clears every entry, and the stores do the rest.
    Stores,
    /// No entry is stored to: the kernel drops the process's translations by interrupts, as without the hardware.
    Flush,
}

/// What the accessed and dirty bits that walkers set do to the translations of other cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum WalkerStores {
    /// What any store does (section 2.4.5: "picked up by the standard cache coherence protocol").
    Invalidate,
    /// Requests of such stores are marked, and only the line is invalidated; it is not left writable.
    Ignore,
}

/// When a core that holds nothing of a line any more leaves its sharers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum DirectoryUpdates {
    /// When it answers a message with that.
    Lazy,
    /// When the line or its last translation leaves the core, which has to look for that (EGR-dir-update, section 2.6).
    Eager,
}

/// What the directory knows of where a core holds translations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum Tracking {
    /// Nothing: messages go to the caches and to all structures.
    Shared,
    /// In which structures it filled some (FG-tracking, section 2.6).
    Fine,
}

/// What range TLBs lose when a page-table entry within a range is stored to. The stores go to all cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum Ranges {
    /// Ranges have no co-tag, so that nothing tells which of them an entry belongs to: all go, with what level 1 has of
    /// them.
    SearchAll,
    /// A range keeps the addresses of its first and its last entry, and ends where their table ends. A store between the two
    /// drops the range.
    RangeCover,
    /// A store between the first and the last entry cuts the range at the pages stored to. The longer part stays; the other
    /// one where there is room.
    Split,
}

/// Whether directory entries have to go for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum DirectorySize {
    /// Yes, and what they spoke of leaves caches and translation structures.
    Bounded,
    /// No (No-back-inv, section 2.6).
    Boundless,
}

fn nothing() -> Energy {
    Energy(0.0)
}

/// What the parts of translation hardware take of energy. Nothing is published for this machine; `hatric-sw` has what is
/// published of the nearest structures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct TranslationEnergy {
    /// A lookup of all level-1 TLBs.
    #[parameter(range = "0 pJ"..="1000 J")]
    pub l1_lookup: Energy,
    /// A lookup of the level-2 TLB.
    #[parameter(range = "0 pJ"..="1000 J")]
    pub l2_lookup: Energy,
    /// A lookup of the page-walk cache.
    #[parameter(range = "0 pJ"..="1000 J")]
    pub walk_cache_lookup: Energy,
    /// A lookup of the nested TLB.
    #[parameter(range = "0 pJ"..="1000 J")]
    #[serde(default = "nothing")]
    pub nested_tlb_lookup: Energy,
    /// A walk's fill of the TLBs and the page-walk cache.
    #[parameter(range = "0 pJ"..="1000 J")]
    pub fill: Energy,
    /// A page-table entry that a walk fetches.
    #[parameter(range = "0 pJ"..="1000 J")]
    pub walk_reference: Energy,
    /// One byte of one co-tag that is compared.
    #[parameter(range = "0 pJ"..="1000 J")]
    pub co_tag_byte: Energy,
    /// One co-tag that is written, by byte.
    #[parameter(range = "0 pJ"..="1000 J")]
    pub co_tag_fill_byte: Energy,
    /// A message between a core and the directory.
    #[parameter(range = "0 pJ"..="1000 J")]
    pub message: Energy,
    /// One byte of the directory's entries that is read or written for translations.
    #[parameter(range = "0 pJ"..="1000 J")]
    #[serde(default = "nothing")]
    pub directory_byte: Energy,
    /// A processor interrupted for a shootdown.
    #[parameter(range = "0 pJ"..="1000 J")]
    pub interrupt: Energy,
}
