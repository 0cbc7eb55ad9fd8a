//! Hardware that turns contiguity into fewer or shorter page walks: its parameters, with defaults and sources.
//!
//! What the mechanisms do, and what their sources leave open, is told in `translate/contiguity`.

use serde::{Deserialize, Serialize};
use terrace_model::{Bytes, Cycles, PageSize, Time};

/// Which mechanism stands beside the TLBs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ContiguityParameters {
    /// Coalesced TLBs: one entry covers a run of pages of an aligned group.
    Coalesced(CoalescedParameters),
    /// A range TLB beside the level-2 TLB, filled from a range table.
    Range(RangeParameters),
    /// One segment per process that bypasses the TLBs.
    DirectSegment(SegmentParameters),
    /// Predicted translations that hide walks.
    Spot(SpotParameters),
}

/// Parameters of coalesced TLBs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoalescedParameters {
    /// Pages of an aligned group that one entry may cover: 2, 4, 8 or 16. Eight page-table entries share a cache line;
    /// for 16 the walker fetches the line beside it too.
    pub pages: u32,
    /// Levels whose entries coalesce.
    pub levels: CoalescedLevels,
    /// Page sizes whose entries coalesce.
    pub sizes: Vec<PageSize>,
}

/// Levels of TLB that coalesce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CoalescedLevels {
    /// Level 1 and level 2.
    #[default]
    Both,
    /// Level 1 only.
    L1,
    /// Level 2 only.
    L2,
}

/// Parameters of the range TLB and the range table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RangeParameters {
    /// Entries of the fully associative range TLB.
    pub entries: u32,
    /// Shortest run of pages that the kernel keeps in the range table.
    pub least: Bytes,
}

/// Parameters of the direct segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SegmentParameters {
    /// Shortest run of pages that becomes a segment.
    pub least: Bytes,
    /// How often the kernel looks for a process's longest run.
    pub period: Time,
}

/// Parameters of predicted translations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SpotParameters {
    /// Entries of the prediction table.
    pub entries: u32,
    /// Its ways.
    pub ways: u32,
    /// Value of an entry's 2-bit counter from which it predicts.
    pub confidence: u32,
    /// Shortest run of pages that is marked contiguous, so that the table learns from it.
    pub least: Bytes,
    /// What a wrong prediction costs beyond the walk.
    pub flush: Cycles,
    /// Where the input has no instruction addresses, the aligned region of this size that holds the data's address
    /// stands for the instruction.
    pub substitute_region: Bytes,
}

impl Default for CoalescedParameters {
    fn default() -> CoalescedParameters {
        CoalescedParameters { pages: 8, levels: CoalescedLevels::Both, sizes: vec![PageSize::Base] }
    }
}

impl Default for RangeParameters {
    fn default() -> RangeParameters {
        RangeParameters { entries: 32, least: Bytes::kib(32) }
    }
}

impl Default for SegmentParameters {
    fn default() -> SegmentParameters {
        SegmentParameters { least: Bytes::mib(1), period: Time::from_nanos(1_000_000) }
    }
}

impl Default for SpotParameters {
    fn default() -> SpotParameters {
        SpotParameters {
            entries: 32,
            ways: 4,
            confidence: 2,
            least: Bytes::kib(128),
            flush: Cycles(20.0),
            substitute_region: Bytes::gib(1),
        }
    }
}
