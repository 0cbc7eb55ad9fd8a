//! Pictures of a run: memory by frames, and memory over time.

use super::Part;
use crate::os::{FrameRun, MemoryFigures};

/// A memory by frames, twice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryMap {
    /// The parts of programs that frames are held by.
    pub parts: Vec<Part>,
    /// The tiers before the first event.
    pub before: Vec<TierMap>,
    /// The tiers at the end of the input, or before the process ended with whose end most memory was given back.
    pub after: Vec<TierMap>,
    /// Simulated seconds between the two.
    pub seconds: f64,
}

/// One tier.
#[derive(Clone, Debug, PartialEq)]
pub struct TierMap {
    /// The tier's name.
    pub name: String,
    /// The tier's frames, in runs by address.
    pub runs: Vec<FrameRun>,
    /// Amounts by holder, and how the free frames lie.
    pub figures: MemoryFigures,
}

/// A run by address and time: the first tier against all others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacementMap {
    /// The tiers' names.
    pub tiers: Vec<String>,
    /// Bytes of the first tier.
    pub first_capacity: u64,
    /// Bytes of a piece of the address space.
    pub piece_bytes: u64,
    /// The pieces that were ever resident, by process and address.
    pub pieces: Vec<(u32, u64)>,
    /// Simulated seconds of a column.
    pub column_seconds: f64,
    /// The columns.
    pub columns: Vec<PlacementColumn>,
}

/// A piece of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacementColumn {
    /// Base pages of each piece in the first tier and in others, at the column's end.
    pub resident: Vec<[u64; 2]>,
    /// Reads of each piece that reached memory, stores that fetch their line included.
    pub accesses: Vec<u64>,
    /// Reads of all pieces that reached memory, by where they found the page: in the first tier, in others.
    pub served: [u64; 2],
    /// Base pages that came to a faster and to a slower tier.
    pub moved: [u64; 2],
}
