//! How the simulated kernel hands out frames, and what they went through before the program came.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use terrace_buddy::Shape;
use terrace_model::PageSize;
use terrace_model::parameters::{Choice, Parameters};

/// Order of the largest block that can be asked for: 2 GiB, the raised limit of Translation Ranger (Yan 2019, section
/// 4.4).
pub const LARGEST_ORDER: u32 = 19;

/// Which free block of a list goes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum FreeLists {
    /// The one with the lowest address.
    #[default]
    LowestFirst,
    /// The one that was freed last, as Linux does: after a while, neighbours are no longer handed out in turn.
    LastFreedFirst,
}

/// The page allocator, of every tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct MemoryParameters {
    /// Order of the largest free block: 10 as in Linux (4 MiB), 18 for 1 GiB, at most 19. Pages larger than that cannot be
    /// had.
    #[parameter(range = 9..=19)]
    pub max_order: u32,
    /// Which free block goes next.
    pub free_lists: FreeLists,
    /// Keep what moves and what does not in separate pageblocks, as Linux does.
    pub grouping: bool,
    /// Size of a pageblock: `2m` as in Linux, `1g` as in the released code of Trident.
    pub pageblock: PageSize,
    /// Share of a tier that stays free where the page cache can give it (Linux: `min_free_kbytes`). Eviction begins when
    /// less than that and a step is free, and goes on to two steps; a step is a quarter of it or a thousandth of the tier,
    /// whichever is more. Linux sets it to 11 pageblocks per zone and at most 0.05 once transparent huge pages are on, which
    /// is
    /// 0.05 with pageblocks of 1 GiB.
    #[parameter(range = 0.0..=0.5)]
    pub min_free: f64,
    /// What the first tier went through before the program came.
    #[parameter(section)]
    pub aging: Aging,
}

impl Default for MemoryParameters {
    /// A memory to which nothing ever happened: blocks up to 1 GiB, lowest address first.
    fn default() -> MemoryParameters {
        MemoryParameters {
            max_order: 18,
            free_lists: FreeLists::LowestFirst,
            grouping: false,
            pageblock: PageSize::Huge,
            min_free: 0.001,
            aging: Aging::None,
        }
    }
}

impl MemoryParameters {
    /// The parameters that an allocator is made of.
    pub fn shape(&self) -> Shape {
        Shape {
            max_order: self.max_order,
            last_freed_first: self.free_lists == FreeLists::LastFreedFirst,
            grouping: self.grouping,
            pageblock_order: self.pageblock.order(),
        }
    }
}

/// The life of memory before the program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Aging {
    /// All of it is free.
    #[default]
    None,
    /// Trident (Ram 2021), section 4: the page cache is filled with a file as large as memory, which is then read at random
    /// offsets. Memory stays full of pages that are evicted one by one, wherever they lie.
    PageCache {
        /// Random reads for each page of memory, at least; more until `fmfi` is reached.
        #[parameter(range = 0.0..=1000.0)]
        #[serde(default = "two")]
        reads: f64,
        /// Share of the page cache that is dropped at the end, the pages read longest ago first.
        #[parameter(range = 0.0..=1.0, unit = "share")]
        #[serde(default)]
        dropped: f64,
        /// What the kernel allocates for itself beside each page of the file, in pages. Default: 576 bytes of a radix-tree
        /// node for 64 pages, 0.0022.
        #[parameter(range = 0.0..=1.0, unit = "share")]
        #[serde(default = "tree_nodes")]
        kernel: f64,
        /// The fragmentation index for 2 MiB that is to be reached.
        #[parameter(range = 0.0..=1.0, unit = "share")]
        #[serde(default)]
        fmfi: Option<f64>,
        /// Seed of the random reads.
        #[parameter(range = 0..=u64::MAX)]
        #[serde(default = "one")]
        seed: u64,
    },
    /// Translation Ranger (Yan 2019), section 4.4: builds of a kernel (short processes, pages of files, kernel objects that
    /// stay), each followed by a program that touches all memory; at the end the page cache is dropped, but for `residents`.
    Builds {
        /// How many builds.
        #[parameter(range = 1..=1_000_000)]
        #[serde(default = "three")]
        rounds: u32,
        /// Memory that stays with the kernel at the end, as a share of the tier.
        #[parameter(range = 0.0..=1.0, unit = "share")]
        #[serde(default = "hundredth")]
        kernel: f64,
        /// Pages of files that are still in memory at the end, as a share of the tier: they lie anywhere, and can be moved.
        #[parameter(range = 0.0..=1.0, unit = "share")]
        #[serde(default)]
        residents: f64,
        /// The fragmentation index for 2 MiB that is to be reached, by more builds if need be.
        #[parameter(range = 0.0..=1.0, unit = "share")]
        #[serde(default)]
        fmfi: Option<f64>,
        /// Seed of all random choices.
        #[parameter(range = 0..=u64::MAX)]
        #[serde(default = "one")]
        seed: u64,
    },
    /// A memory that was aged before and saved.
    Snapshot {
        /// The file.
        file: PathBuf,
    },
}

fn one() -> u64 {
    1
}
fn two() -> f64 {
    2.0
}
fn three() -> u32 {
    3
}
fn tree_nodes() -> f64 {
    0.0022
}
fn hundredth() -> f64 {
    0.01
}
