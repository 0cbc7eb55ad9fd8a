//! The parts of the input's programs, and what is known of each.

use terrace_model::{Histogram, Time};

/// A part of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Part {
    /// The simulated process.
    pub process: u32,
    /// The data structure's or the area's name; what it is where it has none.
    pub name: String,
    /// The part is a data structure: its name is that of the site that allocates it.
    pub is_structure: bool,
}

impl Part {
    /// The pages of files that only the kernel maps. They are nobody's part: all that is known of them is what was copied.
    pub fn page_cache() -> Part {
        Part { process: 0, name: "page cache".to_owned(), is_structure: false }
    }
}

/// What is known of a part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartUse {
    /// The part.
    pub part: Part,
    /// Page walks for it, in the region of interest.
    pub walks: u64,
    /// Cycles that they took.
    pub walk_cycles: u64,
    /// Bytes resident, by the size of the page that holds them, when most memory was.
    pub resident: [u64; 3],
    /// Bytes of them in aligned 2 MiB that lie in one mapping.
    pub mappable_2m: u64,
    /// Bytes of them in aligned 1 GiB that lie in one mapping.
    pub mappable_1g: u64,
    /// Bytes not resident in aligned 2 MiB that lie in one mapping and of which something is: what pages of that size would
    /// hold beyond.
    pub bloat_2m: u64,
    /// Bytes not resident in aligned 1 GiB that lie in one mapping and of which something is: what pages of that size would
    /// hold beyond.
    pub bloat_1g: u64,
    /// What its page sizes cost, in the whole run.
    pub cost: PartCost,
}

/// What the pages of a part cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartCost {
    /// How long page faults took, those of the first store after a fork included, in nanoseconds.
    pub fault_latency: Histogram,
    /// The time that the program spent in them.
    pub fault_time: Time,
    /// Bytes of its pages that policies had copied: into larger pages, to other frames, to other tiers.
    pub copied_bytes: u64,
}
