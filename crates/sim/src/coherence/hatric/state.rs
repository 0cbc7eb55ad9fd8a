//! What the hardware of HATRIC and UNITD++ holds beside caches and TLBs, and what it counts.

use super::parameters::{
    DirectorySize, DirectoryUpdates, FillNotices, Granularity, GuestChanges, HatricParameters, LocalStores,
    SetNumbers, Tracking, WalkCacheSets, WalkerStores,
};
use super::sets::LineSets;
use crate::cache::Reason;
use crate::coherence::{ProbeSets, Probed, RangeStore, RangesFound, Resolution, Target, TlbSets};
use std::collections::HashMap;
use terrace_model::{CoreId, LINE_BYTES, Line, PhysAddr, Stats, Time, Unit};

/// The structures that take part beside the TLBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Covers {
    /// The page-walk cache, and the nested TLB where there is one.
    pub walk_cache: bool,
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HardwareCounters {
    /// Answers to messages because of a store, or because a directory entry had to go.
    pub acknowledgements: u64,
    /// Answers that there was nothing of the line, neither itself nor a translation.
    pub demotions: u64,
    /// Stores of a core that probed its own structures.
    pub local_probes: u64,
    /// Notices of fills to the directory.
    pub fill_notices: u64,
    /// Questions whether translations of a line are left (eager updates), and cores that left the sharers by them.
    pub eager_lookups: u64,
    pub eager_updates: u64,
    /// What the probes came to.
    pub probed: Probed,
    /// Co-tags that fills wrote.
    pub co_tag_fills: u64,
    /// Ranges: messages to other cores, ranges dropped, ranges cut, addresses compared.
    pub range_messages: u64,
    pub ranges_dropped: u64,
    pub ranges_cut: u64,
    pub range_addresses: u64,
    /// Fills that the directory was notified of, by the walk's request or by a notice.
    pub noted_fills: u64,
}

/// Bytes of a directory entry: the source's 48 bits.
const ENTRY_BYTES: u64 = 6;
/// Structures that fine tracking tells apart.
const STRUCTURES: u64 = 2;

/// What hardware did that takes energy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HardwareWork {
    /// Bytes of co-tags that probes compared.
    pub compared: u64,
    /// Bytes of co-tags that fills wrote.
    pub written: u64,
    /// Messages between cores and the directory.
    pub messages: u64,
    /// Bytes of the directory that were read or written for translations.
    pub directory: u64,
}

/// A core has made translations of a line in these structures: one bit for TLBs, one for the page-walk cache.
const IN_TLBS: u8 = 1;
const IN_WALK_CACHE: u8 = 2;

/// The state of the scheme.
#[derive(Debug)]
pub(crate) struct Hardware {
    pub keys: HatricParameters,
    pub covers: Covers,
    /// Time for a request to the directory, from there to a sharer, and back.
    pub round_trip: Time,
    /// To compare the co-tags of one set.
    pub probe: Time,
    pub counters: HardwareCounters,
    /// Whether the page tables that it follows are a hypervisor's.
    pub in_vm: bool,
    /// Co-tags of entries that had to go during a walk, for eager updates.
    pub evicted: Vec<PhysAddr>,
    /// Whether cores have ranges, which stores have to reach.
    pub has_ranges: bool,
    /// Stores of a core that the ranges of the others have not handled.
    pub unhandled: Vec<(CoreId, RangeStore)>,
    sets: LineSets,
    /// Where cores made translations, by line and core, if the directory knows.
    structures: HashMap<(Line, CoreId), u8>,
    /// Entries stored to whose messages are under way, by line.
    written: Vec<(Line, u8)>,
}

impl Hardware {
    /// Without the page-walk cache (UNITD++) addresses are whole and all sets are searched.
    pub fn new(keys: &HatricParameters, covers: Covers, round_trip: Time, cycle: Time) -> Hardware {
        let mut keys = keys.clone();
        if !covers.walk_cache {
            keys.co_tag_bytes = 8;
            keys.fill_notices = FillNotices::SearchAll;
            keys.set_numbers = SetNumbers::Whole;
        }
        Hardware {
            probe: keys.probe_latency.at(cycle),
            keys,
            covers,
            round_trip,
            counters: HardwareCounters::default(),
            in_vm: false,
            evicted: Vec::new(),
            has_ranges: false,
            unhandled: Vec::new(),
            sets: LineSets::default(),
            structures: HashMap::new(),
            written: Vec::new(),
        }
    }

    /// Which bits of addresses are compared.
    pub fn resolution(&self) -> Resolution {
        Resolution::new(self.keys.co_tag_bytes, self.keys.granularity == Granularity::Line)
    }

    /// Whether the directory is notified at once of what leaves a core.
    pub fn is_eager(&self) -> bool {
        self.keys.directory_updates == DirectoryUpdates::Eager
    }

    /// Whether directory entries never have to go.
    pub fn is_boundless(&self) -> bool {
        self.keys.directory_size == DirectorySize::Boundless
    }

    /// Whether changes of a guest's own page table cost nothing.
    pub fn guest_changes_are_free(&self) -> bool {
        self.in_vm && self.keys.guest_changes == GuestChanges::Free
    }

    /// Whether the bits that walkers set leave other cores' translations alone.
    pub fn ignores_walkers(&self) -> bool {
        self.keys.walker_stores == WalkerStores::Ignore
    }

    /// Whether a probe of the page-walk cache searches all sets.
    pub fn searches_walk_cache(&self) -> bool {
        self.keys.walk_cache_sets == WalkCacheSets::SearchAll
    }

    /// A core's walker made a translation of the page-table entry at `entry`: of a page, which then stands in these sets
    /// of TLBs, or one of the page-walk cache. `marked`: whether a request reached the directory, and whether the
    /// directory knew nothing of the line before.
    pub fn filled(&mut self, core: CoreId, entry: PhysAddr, tlb_sets: Option<TlbSets>, marked: (bool, bool)) {
        let (line, index) = (entry.line(), (entry.0 % LINE_BYTES / 8) as usize);
        let (by_request, new) = marked;
        let needs_notice = match self.keys.fill_notices {
            FillNotices::Message => true,
            FillNotices::SearchAll => new,
        };
        self.counters.fill_notices += u64::from(needs_notice && !by_request);
        self.counters.noted_fills += u64::from(needs_notice || by_request);
        self.counters.co_tag_fills += 1;
        if let Some(tlb_sets) = tlb_sets
            && self.keys.fill_notices == FillNotices::Message
        {
            self.sets.note(&self.keys, line, index, tlb_sets);
        }
        if self.keys.tracking == Tracking::Fine {
            let bit = if tlb_sets.is_some() { IN_TLBS } else { IN_WALK_CACHE };
            *self.structures.entry((line, core)).or_default() |= bit;
        }
    }

    /// Entries of a line are stored to; messages about it follow.
    pub fn stores(&mut self, line: Line, entries: u8) {
        match self.written.iter_mut().find(|(known, _)| *known == line) {
            Some((_, known)) => *known |= entries,
            None => self.written.push((line, entries)),
        }
    }

    /// The store to a line's entries that range TLBs are notified of.
    pub fn store_to_ranges(&self, line: Line, entries: u8) -> RangeStore {
        let entries = if self.keys.granularity == Granularity::Entry { entries } else { u8::MAX };
        RangeStore { line: line.addr(), entries, resolution: self.resolution() }
    }

    /// A core looked for ranges that were made from a line. `by_message`: by a message, which it answers.
    pub fn looked_for_ranges(&mut self, found: &RangesFound, by_message: bool) {
        let own = &mut self.counters;
        own.range_messages += u64::from(by_message);
        own.ranges_dropped += found.dropped;
        own.ranges_cut += found.cut;
        own.range_addresses += found.addresses;
        own.probed.add(&found.in_tlbs);
    }

    /// All messages were handled.
    pub fn all_handled(&mut self) {
        self.written.clear();
    }

    /// What a core looks for when it gets a message of a line: in TLBs, and whether in the page-walk cache.
    pub fn targets(&self, core: CoreId, line: Line, reason: Option<Reason>) -> (Vec<Target>, bool) {
        let written = self.written.iter().find(|(known, _)| *known == line).map_or(u8::MAX, |known| known.1);
        let written = if reason == Some(Reason::BackInvalidation) { u8::MAX } else { written };
        let mut walk_cache = self.covers.walk_cache;
        let mut tlbs = true;
        if self.keys.tracking == Tracking::Fine {
            let known = self.structures.get(&(line, core)).copied().unwrap_or(0);
            tlbs = known & IN_TLBS != 0;
            walk_cache &= known & IN_WALK_CACHE != 0;
        }
        if !tlbs && !walk_cache {
            return (Vec::new(), false);
        }
        let searches_all = self.keys.fill_notices == FillNotices::SearchAll;
        let mut targets = self.sets.targets(&self.keys, line, written, searches_all);
        if !tlbs {
            for target in &mut targets {
                target.l1 = ProbeSets::Listed(Vec::new());
                target.l2 = target.l1.clone();
            }
        }
        (targets, walk_cache)
    }

    /// A core holds no translation of a line any more.
    pub fn emptied(&mut self, core: CoreId, line: Line) {
        if self.keys.tracking == Tracking::Fine {
            self.structures.remove(&(line, core));
        }
    }

    /// No core holds one.
    pub fn forget(&mut self, line: Line) {
        self.sets.forget(line);
    }

    /// Whether a store whose messages are all handled leaves nobody with translations of the line.
    pub fn stores_leave_nothing(&self) -> bool {
        self.keys.granularity != Granularity::Entry && self.keys.local_stores == LocalStores::Probe
    }

    /// A core answered a message.
    pub fn answered(&mut self, reason: Reason, cached: bool, probed: &Probed) {
        if reason == Reason::Departure {
            return;
        }
        self.counters.acknowledgements += 1;
        self.counters.demotions += u64::from(!cached && !probed.found());
        self.counters.probed.add(probed);
    }

    /// Adds what it counted to the statistics of a run. `sent`: messages because of stores, and because of directory
    /// entries that had to go.
    pub fn count_into(&self, sent: [u64; 2], stats: &mut Stats) {
        let own = &self.counters;
        let [l1, l2, walk_cache, nested_tlb] = own.probed.sets;
        for (name, value) in [
            ("messages.invalidations", sent[0]),
            ("messages.back_invalidations", sent[1]),
            ("messages.acknowledgements", own.acknowledgements),
            ("messages.demotions", own.demotions),
            ("messages.fill_notices", own.fill_notices),
            ("messages.eager_updates", own.eager_updates),
            ("probes.local", own.local_probes),
            ("probes.eager", own.eager_lookups),
            ("probes.sets.l1_tlb", l1),
            ("probes.sets.l2_tlb", l2),
            ("probes.sets.page_walk_cache", walk_cache),
            ("probes.compared", own.probed.compared),
            ("dropped.matched", own.probed.dropped),
            ("dropped.aliases", own.probed.aliases),
        ] {
            stats.count(format!("translation_coherence.{name}"), value, Unit::Count);
        }
        if self.has_ranges {
            for (name, value) in [
                ("messages", own.range_messages),
                ("dropped", own.ranges_dropped),
                ("cut", own.ranges_cut),
                ("compared", own.range_addresses),
            ] {
                stats.count(format!("translation_coherence.ranges.{name}"), value, Unit::Count);
            }
        }
        if self.in_vm {
            stats.count("translation_coherence.probes.sets.nested_tlb", nested_tlb, Unit::Count);
        }
    }

    /// What takes energy, on a machine of so many cores.
    pub fn work(&self, cores: u64) -> HardwareWork {
        let own = &self.counters;
        let bytes = u64::from(self.keys.co_tag_bytes);
        HardwareWork {
            compared: own.probed.compared * bytes + own.range_addresses * 8,
            written: own.co_tag_fills * bytes,
            // Each acknowledgement answers a message.
            messages: 2 * (own.acknowledgements + own.range_messages) + own.fill_notices + own.eager_updates,
            directory: (own.noted_fills + own.acknowledgements + own.eager_updates)
                * self.directory_bytes(cores),
        }
    }

    /// Bytes of the directory that an access for translations reads or writes: the line's entry and those of its set
    /// numbers, of 48 bits each (section 2.4.3), and with fine tracking a bit for each core and structure.
    fn directory_bytes(&self, cores: u64) -> u64 {
        let beside = match (self.keys.fill_notices, self.keys.set_numbers) {
            (FillNotices::SearchAll, _) => 0,
            (FillNotices::Message, SetNumbers::SixBits) => 1,
            (FillNotices::Message, SetNumbers::Whole) => 2,
        };
        let fine = if self.keys.tracking == Tracking::Fine { STRUCTURES * cores.div_ceil(8) } else { 0 };
        ENTRY_BYTES * (1 + beside) + fine
    }
}
