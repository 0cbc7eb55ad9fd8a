//! What the writer has to know of the preset that the machine extends.

/// A tier of the preset.
#[derive(Clone, Debug, PartialEq)]
pub struct BaseTier {
    /// The tier's name.
    pub name: String,
    /// Nanoseconds of the path to its device.
    pub path_ns: f64,
    /// Nanoseconds of an idle read of its device, from the controller on.
    pub device_ns: f64,
    /// Bytes per second that its device reads at most.
    pub peak_read: f64,
}

/// An array of the level-2 TLB.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Page sizes that share it: `4k`, `2m`, `1g`.
    pub sizes: Vec<String>,
    /// Number of entries.
    pub entries: u32,
    /// Number of ways; none where it is fully associative.
    pub ways: Option<u32>,
}

/// The preset.
#[derive(Clone, Debug, PartialEq)]
pub struct Base {
    /// The preset's name.
    pub name: String,
    /// The preset's tiers, at least one.
    pub tiers: Vec<BaseTier>,
    /// A tier of the device `ddr5-4800` with four channels, for a node that the preset has no tier for.
    pub spare: BaseTier,
    /// Bytes that the kernel keeps of the first tier.
    pub reserved: u64,
    /// Cycles of a look-up of each cache, nearest first.
    pub cache_cycles: [f64; 3],
    /// Cycles per second of its cores.
    pub frequency: f64,
    /// Hardware threads of a core.
    pub threads: u32,
    /// Whether its cores come in groups, each of which has a number of its own.
    pub has_groups: bool,
    /// Level-1 TLBs, each of one page size.
    pub first_tlbs: Vec<Array>,
    /// Level-2 TLBs.
    pub second_tlbs: Vec<Array>,
    /// Page walks at once.
    pub walkers: u32,
    /// Whether its prefetcher has streams and fetches lines, be it enabled or not.
    pub has_streams: bool,
}
