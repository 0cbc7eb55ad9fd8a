//! What a first pass over the same program found, for policies in two passes (oracle, annotated placement).

use crate::PageId;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Accesses of one page or data structure that reached memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heat {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

impl Heat {
    /// Counts one more.
    pub const fn add(&mut self, write: bool) {
        if write {
            self.writes += 1;
        } else {
            self.reads += 1;
        }
    }

    /// Both.
    pub const fn total(&self) -> u64 {
        self.reads + self.writes
    }
}

/// A data structure as the first pass saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectProfile {
    /// The structure's size in bytes; the sum over all allocations of the site.
    pub bytes: u64,
    /// Accesses to the structure that reached memory.
    pub heat: Heat,
    /// All that were issued, those included that caches served: what a profiler counts that checks each load and store.
    pub issued: Heat,
    /// What its programmer says of it, whatever was counted.
    pub hint: Option<Hint>,
}

/// A hint for a data structure, by the names that the source gives them (Agarwal 2017, section 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// BO: to the tier that is optimised for bandwidth.
    Bandwidth,
    /// CO: to the tier that is optimised for capacity.
    Capacity,
    /// BW: to both, in proportion to their bandwidths.
    Both,
}

impl Hint {
    /// All.
    pub const ALL: [Hint; 3] = [Hint::Bandwidth, Hint::Capacity, Hint::Both];

    /// The hint's two letters.
    pub const fn name(self) -> &'static str {
        match self {
            Hint::Bandwidth => "BO",
            Hint::Capacity => "CO",
            Hint::Both => "BW",
        }
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Hint {
    type Err = String;

    fn from_str(text: &str) -> Result<Hint, String> {
        Hint::ALL.into_iter().find(|hint| hint.name() == text).ok_or_else(|| {
            format!(
                "\"{text}\" is no hint; there are BO (the fast tier), CO (the slow tier) and BW (both, by their bandwidths)"
            )
        })
    }
}

/// Where the pages of a data structure go, by the hints that a policy has made of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintedPages {
    /// So many of them to the fast tier, in the order in which they are touched, and the others to the slow one.
    Fast(u64),
    /// To the slow tier.
    Slow,
    /// To both, in proportion to their bandwidths.
    Both,
}

/// The number by which an allocation site is known in every run and for every input of a program: FNV-1a of its name.
pub fn site_number(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What is known before a run. A first pass counts exactly per base page, and per allocation site where allocations were
/// recorded; a probe measures the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Accesses by base page.
    pub pages: BTreeMap<PageId, Heat>,
    /// Data structures by [`crate::Object::site`].
    pub objects: BTreeMap<u64, ObjectProfile>,
    /// Names of these sites, where they are known.
    pub names: BTreeMap<u64, String>,
    /// When each page was accessed.
    pub order: Arc<AccessOrder>,
    /// The bandwidth of reads that a probe measured of each tier, in bytes per second; none without a probe.
    pub bandwidths: Vec<u64>,
}

/// The order of accesses, in steps of equally many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessOrder {
    /// A step has 2^`shift` accesses.
    pub shift: u32,
    /// The steps in which each base page was accessed, ascending, each once.
    pub steps: BTreeMap<PageId, Vec<u32>>,
}

impl AccessOrder {
    /// The order of these accesses, each a step of its own.
    pub fn of(accesses: impl IntoIterator<Item = PageId>) -> AccessOrder {
        let mut order = AccessOrder::default();
        for (step, page) in (0..).zip(accesses) {
            order.steps.entry(page).or_default().push(step);
        }
        order
    }

    /// The first access to `page` in a step that begins when `accesses` have passed, or later; none where there is none.
    /// Counted in accesses, and only as exact as a step is long.
    pub fn next_use(&self, page: PageId, accesses: u64) -> Option<u64> {
        let steps = self.steps.get(&page)?;
        let from = accesses.div_ceil(1 << self.shift);
        let at = steps.partition_point(|step| u64::from(*step) < from);
        steps.get(at).map(|step| u64::from(*step) << self.shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_use_is_found_by_whole_steps() {
        let page = |vpn| PageId::new(0, vpn);
        let mut order = AccessOrder::of([1, 2, 1, 3].map(page));
        let uses = |order: &AccessOrder, vpn| [0, 1, 2, 3].map(|at| order.next_use(page(vpn), at));
        assert_eq!(uses(&order, 1), [Some(0), Some(2), Some(2), None]);
        assert_eq!(uses(&order, 3), [Some(3); 4]);
        assert_eq!(uses(&order, 4), [None; 4]);
        // This order in steps of two.
        order = AccessOrder { shift: 1, steps: BTreeMap::from([(page(1), vec![0, 1]), (page(3), vec![1])]) };
        assert_eq!(uses(&order, 1), [Some(0), Some(2), Some(2), None]);
        assert_eq!(uses(&order, 3), [Some(2), Some(2), Some(2), None]);
    }
}
