//! The keys of `os`: what an operating system does, and what that costs.

use super::memory::MemoryParameters;
use serde::{Deserialize, Serialize};
use terrace_model::parameters::{Choice, Parameters};
use terrace_model::{Bytes, BytesPerSec, Cycles, Time};
use terrace_policy::{Capability, Needs};

/// Which page size the kernel tries for anonymous memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, Choice)]
pub enum PagePolicy {
    /// 4 KiB only.
    #[serde(rename = "4k")]
    #[choice("4k")]
    Base,
    /// 2 MiB for every address (as if all memory were 2 MiB hugetlbfs).
    #[serde(rename = "2m")]
    #[choice("2m")]
    Huge,
    /// 1 GiB for every address.
    #[serde(rename = "1g")]
    #[choice("1g")]
    Giant,
    /// Transparent huge pages at the fault: 2 MiB where the aligned 2 MiB lie in one mapping, else 4 KiB.
    #[serde(rename = "thp")]
    #[choice("thp")]
    Thp,
}

/// Where a new page goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Placement {
    /// The first tier with room, in the machine's order (Linux's default with node distances).
    FirstTouch,
    /// Round robin over all tiers, page by page of 4 KiB (or the page's size where larger).
    Interleave,
    /// Round robin with weights, one per tier.
    WeightedInterleave {
        /// Pages per round, one number per tier, in the machine's order; `"bandwidth"` derives them from the tiers' read
        /// bandwidths.
        #[parameter(range = 0..=1_000_000)]
        weights: Vec<u32>,
    },
    /// Only this tier; when it is full the run fails.
    Bind {
        /// The tier's name.
        tier: String,
    },
    /// This tier, then the others in the machine's order.
    Preferred {
        /// The tier's name.
        tier: String,
    },
    /// The first so many of each group of consecutive virtual pages in the first tier, the rest in the second, as the IWB
    /// microbenchmark places its array (Marques 2021, section 3.2: the last 100 - N pages of each 100 go to DCPMM).
    Ratio {
        /// Pages of each group that go to the first tier.
        #[parameter(range = 0..=1_000_000)]
        first: u32,
        /// Pages in a group.
        #[parameter(range = 1..=1_000_000)]
        group: u32,
    },
}

/// Where a policy's work and its orders are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum KernelThreads {
    /// On processors beside the design's cores: they take none of the program's time.
    #[default]
    ExtraCores,
    /// On the design's cores: idle ones first, then those of the program, whose threads wait meanwhile; at another core with
    /// each time slice.
    MachineCores,
}

/// The stores with which the kernel zeroes new pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum ZeroStores {
    /// Stores that leave the zeros in caches, as Linux does (`clear_page`): a base page in L1 and L2, a larger page in the
    /// last level as far as it fits.
    #[default]
    Cached,
    /// Stores past the caches (`movnti`): all zeros go to memory at once.
    NonTemporal,
    /// None: the memory controller notes that the page is zero, and answers reads of a line so until it is written.
    Controller,
}

/// Where the data of a GPU's kernels is when they begin. Built-in kernels have no host that fills their buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum KernelData {
    /// Each page is placed at its first touch, on behalf of the agent that touches it.
    #[default]
    FirstTouch,
    /// The pages of data structures that nobody has touched are placed before a kernel, as if the host had filled them: as
    /// programs do that copy their input into buffers.
    Host,
    /// Pages are placed as for `host`, and before a kernel what lies in other tiers is copied to the first, while it has
    /// room, and the kernel waits: the legacy model of GPUs.
    Copied,
}

/// The operating system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct OsParameters {
    /// Page sizes.
    pub pages: PagePolicy,
    /// Placement.
    #[parameter(section)]
    pub placement: Placement,
    /// Tier of page-table pages; the first tier when absent.
    #[serde(default)]
    pub page_table_tier: Option<String>,
    /// Time of a minor fault on the faulting core, without the zeroing of the page: exception, look-up of the area,
    /// allocation, page-table update.
    #[parameter(range = "0 ns"..="1 s")]
    pub fault_cost: Time,
    /// Rate at which a core zeroes a base page, and the lines of a larger page that caches still hold.
    #[parameter(range = "1 kB/s"..="1000 TB/s")]
    pub zero_bandwidth: BytesPerSec,
    /// Rate at which a core zeroes the other lines of larger pages.
    #[parameter(range = "1 kB/s"..="1000 TB/s")]
    pub huge_zero_bandwidth: BytesPerSec,
    /// Whether zeros stay in caches.
    #[serde(default)]
    pub zero_stores: ZeroStores,
    /// Where the data of a GPU's kernels is when they begin.
    #[serde(default)]
    pub kernel_data: KernelData,
    /// Time of a context switch, when threads share a core.
    #[parameter(range = "0 ns"..="1 s")]
    pub context_switch_cost: Time,
    /// How long a thread runs before another waiting for its core may.
    #[parameter(range = "1 ns"..="3600 s")]
    pub timeslice: Time,
    /// Memory that the system keeps for itself in the first tier. What aging left to the kernel counts.
    #[parameter(range = "0 B"..="8 TiB")]
    pub reserved: Bytes,
    /// How frames are handed out, and what they went through before.
    #[parameter(section)]
    pub memory: MemoryParameters,
    /// Time between two samples of how contiguous programs' memory is (Translation Ranger: 5 s); none are taken when absent.
    #[parameter(range = "1 ns"..="3600 s")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_contiguity: Option<Time>,
    /// Where a policy's work and its orders are carried out.
    #[serde(default)]
    pub kernel_threads: KernelThreads,
    /// The policy that places and moves pages, if any; where it has no wish, `placement` decides.
    #[parameter(section)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyParameters>,
    /// What the mechanisms that policies use cost.
    #[parameter(section)]
    pub costs: KernelCosts,
}

/// A policy and its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
pub struct PolicyParameters {
    /// A name of `terrace policy list`.
    pub name: String,
    /// Seed of its random choices.
    #[serde(default = "first_seed")]
    pub seed: u64,
    /// The policy's own parameters, as `terrace policy show` lists them.
    #[parameter(skip)]
    #[serde(flatten)]
    pub parameters: toml::Table,
}

impl PolicyParameters {
    /// Whether the policy wants a first pass. One that refuses its parameters wants none: its run says why.
    pub fn needs_first_pass(&self) -> bool {
        self.needs().is_some_and(|needs| needs.first_pass)
    }

    fn needs(&self) -> Option<Needs> {
        terrace_policy::find(&self.name).and_then(|entry| entry.needs(&self.parameters)).ok()
    }

    /// Whether the policy wants each memory's bandwidth measured before it starts.
    pub fn needs_probe(&self) -> bool {
        self.needs().is_some_and(|needs| needs.probe)
    }

    /// Whether the first pass may be one over another input of the program: where the policy wants to know of its data
    /// structures, which have the same names there, and not of pages.
    pub fn takes_hints(&self) -> bool {
        self.needs().is_some_and(|needs| needs.first_pass && needs.capabilities.contains(Capability::Objects))
    }
}

fn first_seed() -> u64 {
    1
}

/// What the kernel's mechanisms for policies cost, in time of the core that carries them out. Copies cost nothing here:
/// their lines go through the memory devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[parameter(table)]
#[serde(deny_unknown_fields)]
pub struct KernelCosts {
    /// To look at one page-table entry, in a scan or to set a watch.
    #[parameter(range = "0 ns"..="1 s")]
    pub scan_entry: Time,
    /// A fault on a page under a hint watch, on the core that took it.
    #[parameter(range = "0 ns"..="1 s")]
    pub hint_fault: Time,
    /// A fault on a page whose walks are counted: unpoison, touch, poison again.
    #[parameter(range = "0 ns"..="1 s")]
    pub count_fault: Time,
    /// A hardware sample of an access, on the core that made it.
    #[parameter(range = "0 ns"..="1 s")]
    pub sample: Time,
    /// To send a TLB shootdown and wait for the acknowledgements.
    #[parameter(range = "0 ns"..="1 s")]
    pub shootdown: Time,
    /// What each further core adds to that.
    #[parameter(range = "0 ns"..="1 s")]
    pub shootdown_per_core: Time,
    /// The interrupt, on each core that receives it.
    #[parameter(range = "0 ns"..="1 s")]
    pub interrupt: Time,
    /// To drop one translation of the core's own, or all of a process together.
    #[parameter(range = "0 ns"..="1 s")]
    pub flush: Time,
    /// To begin an order of moves: the system call, and draining every core's lists of pages under way.
    #[parameter(range = "0 ns"..="1 s")]
    pub order: Time,
    /// To isolate a page and to find and take a frame for it.
    #[parameter(range = "0 ns"..="1 s")]
    pub allocate: Time,
    /// To put migration entries in place of a page's entry, without the shootdown.
    #[parameter(range = "0 ns"..="1 s")]
    pub unmap: Time,
    /// To map the page at its new frame.
    #[parameter(range = "0 ns"..="1 s")]
    pub map: Time,
    /// To free the old frame and put the page back on its list.
    #[parameter(range = "0 ns"..="1 s")]
    pub free: Time,
    /// To hand a part of a copy to another thread and to be notified that it is done.
    #[parameter(range = "0 ns"..="1 s")]
    pub copy_thread: Time,
    /// Core cycles in which a copying thread issues one line.
    #[parameter(range = "0 cycles"..="1000000 cycles")]
    pub copy_line: Cycles,
    /// To split a huge page in place.
    #[parameter(range = "0 ns"..="1 s")]
    pub split: Time,
    /// To collapse base pages into a huge page, without moving their bytes.
    #[parameter(range = "0 ns"..="1 s")]
    pub collapse: Time,
}
