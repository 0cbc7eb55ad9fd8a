//! The parameters of the interface.

use crate::translate::SchemeKeys;
use crate::vbi::SizeClass;
use serde::{Deserialize, Serialize};
use terrace_model::parameters::{Choice, Parameters};
use terrace_model::{Bytes, Cycles, Time};

/// Whether memory is set aside for whole blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum Reservation {
    /// No: 4 KiB at a time, anywhere.
    #[default]
    None,
    /// At a block's first allocation.
    Early,
}

/// What becomes a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum Gather {
    /// Each large allocation, and each mapped area for what else lies in it.
    #[default]
    Allocation,
    /// All large allocations of a call site in one block, and each mapped area for what else lies in it.
    Site,
    /// All large allocations of a size class in one block, and each mapped area for what else lies in it.
    Pool,
    /// Each mapped area.
    Area,
}

/// What a switch takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Choice)]
#[serde(rename_all = "kebab-case")]
pub enum Switching {
    /// The lines are read and written, and the access that needs the block waits until they are.
    #[default]
    Waits,
    /// The lines are read and written, and nobody waits.
    Behind,
    /// Nothing.
    Free,
}

/// Parameters of the interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[serde(default, deny_unknown_fields)]
pub struct VbiParameters {
    /// Delayed allocation: memory at the first dirty write-back, zeros until then.
    #[parameter(default = false)]
    pub delayed: bool,
    /// Whether memory is set aside for whole blocks.
    #[parameter(default = Reservation::None)]
    pub reservation: Reservation,
    /// The cost of replacing the structure by which a block's memory is found. The paper gives none.
    #[parameter(default = Switching::Waits)]
    pub switching: Switching,
    /// What becomes a block.
    #[parameter(default = Gather::Allocation)]
    pub blocks: Gather,
    /// Allocations of fewer bytes lie in the block of their area. Pages of an allocation are those whose middle byte it
    /// holds.
    #[parameter(default = "128 KiB", range = "8 KiB"..="8 TiB")]
    pub least: Bytes,
    /// The controller notes which lines of new memory are zero, 64 bits for each 4 KiB, instead of writing zeros.
    #[parameter(default = false)]
    pub notes_zeros: bool,
    /// Entries of the controller's cache of the tables of blocks, least recently used; 0 for none. The paper gives no size.
    #[parameter(default = 64, range = 0..=32_767)]
    pub vit_cache: u32,
    /// Time of the controller's own programs for each translation.
    #[parameter(default = "0 cycles", range = "0 cycles"..="1000000 cycles")]
    pub latency: Cycles,
    /// Whether the controller reads its tables through the last level; otherwise from memory.
    #[parameter(default = true)]
    pub walks_through_llc: bool,
    /// Free memory that only write-backs may take; with a backing store, that is kept free.
    #[parameter(default = "0 B", range = "0 B"..="8 TiB")]
    pub headroom: Bytes,
    /// A backing store for regions that memory has no room for; 0 for none. It is not used under a policy that moves pages,
    /// because the policy would not be notified.
    #[parameter(default = "0 B", range = "0 B"..="8 TiB", source = "VBI (ISCA 2020), sections 3.4 and 5.1")]
    pub swap: Bytes,
    /// Time until a region's contents are back from the store, the operating system's work with it included.
    #[parameter(default = "100 us", range = "0 ns"..="1 s", source = "ours, of the order of a flash drive; the paper has none")]
    pub swap_read: Time,
    /// Nodes with a controller each, a power of two. Core and tier `i` belong to node `i` modulo their number. A block is at
    /// home in the node whose core asks for it, and its memory lies there while there is room.
    #[parameter(default = 1, range = 1..=16, source = "VBI (ISCA 2020), section 6.2")]
    pub nodes: u32,
    /// Time to the controller of another node, and as much back. Half of what the link of `skylake-6140` adds to an access.
    #[parameter(default = "30 ns", range = "0 ns"..="1 ms")]
    pub hop: Time,
    /// A block moves to another node when that has read its memory so many times more often than all others, of late; 0 for
    /// never.
    #[parameter(default = 0, range = 0..=1_000_000_000)]
    pub migrate_after: u32,
    /// Virtual machines that the processes are in: the first in number 1, the next in number 2, and so on by turns; a fork
    /// stays in its parent's. 0 for none. A block's name has five bits for its virtual machine, and 0 is the host.
    #[parameter(default = 0, range = 0..=31, source = "VBI (ISCA 2020), section 6.1")]
    pub vms: u32,
}

impl SchemeKeys for VbiParameters {
    fn validate(&self) -> Result<(), (&'static str, String)> {
        match self.nodes.is_power_of_two() {
            true => Ok(()),
            false => Err((
                "nodes",
                format!("{}: a block's number has bits for its node, so a power of two", self.nodes),
            )),
        }
    }

    fn scale(&mut self, scale: u32) {
        self.least = Bytes((self.least.0 / u64::from(scale)).max(8192));
        self.headroom = Bytes(self.headroom.0 / u64::from(scale));
        self.swap = Bytes(self.swap.0 / u64::from(scale));
    }
}

/// Levels of the table of a block (sections 4.5.2 and 5.2): none for 4 KiB, one up to 4 MiB, else as many as 512 entries of
/// a node take to map it 4 KiB at a time.
pub(super) fn levels(class: SizeClass) -> u32 {
    match class.number() {
        0 => 0,
        1 | 2 => 1,
        _ => (class.offset_bits() - 12).div_ceil(9),
    }
}
