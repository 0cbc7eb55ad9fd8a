//! The backing store: what it holds, and whose turn it is to go there.
//!
//! The controller goes over the regions that have memory as a clock does: one that was read from memory since the hand came
//! by stays for another round.

use super::layer::Layer;
use crate::os::{Leaf, Os, OsError};
use std::collections::{HashSet, VecDeque};
use terrace_model::{Bytes, Line, SpaceId, VirtAddr};

/// A region with memory, by block and offset; its process and address; and the entry that maps it.
type Mapped = ((u32, u64), (SpaceId, VirtAddr), Leaf);

/// Frames that can be taken. Pages of files that nobody maps go on demand.
pub fn free_frames(os: &Os) -> u64 {
    os.tiers_of_memory().map(|tier| tier.buddy().free_frames() + tier.cached()).sum()
}

/// What the backing store holds, and who goes there next.
#[derive(Clone, Debug, Default)]
pub struct Swap {
    /// Regions that it holds.
    size: u64,
    /// Regions that it has room for still. Clones may take more than there is.
    pub room: i64,
    /// Regions with memory, by block and offset.
    pub clock: VecDeque<(u32, u64)>,
    /// Regions that were read from memory since the hand came by.
    used: HashSet<(u32, u64)>,
    /// First lines of memory whose contents went there, and was not read yet.
    pub written_out: Vec<Line>,
    /// Regions that went there.
    pub out: u64,
    /// Regions that came back.
    pub back: u64,
}

impl Swap {
    /// A store for so many regions.
    pub fn new(regions: u64) -> Swap {
        Swap { size: regions, room: regions as i64, ..Swap::default() }
    }

    /// Whether there is a store.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.size > 0
    }

    /// A region got memory.
    pub fn given(&mut self, block: u32, offset: u64) {
        if self.is_used() {
            self.clock.push_back((block, offset & !4095));
        }
    }

    /// A region was read from memory.
    pub fn read(&mut self, block: u32, offset: u64) {
        if self.is_used() {
            self.used.insert((block, offset & !4095));
        }
    }

    /// Contents of so many regions are no longer on the store: they came back, or are gone.
    pub fn left(&mut self, regions: i64) {
        self.room += regions;
    }

    /// Says of memory that is full whether the store is full too.
    pub fn explain(&self, error: OsError) -> OsError {
        match error {
            OsError::OutOfMemory { resident, tiers, .. } if self.is_used() && self.room <= 0 => {
                OsError::StoreFull { resident, tiers, store: Bytes(self.size << 12) }
            }
            error => error,
        }
    }

    /// The region whose turn it is. None where none may go.
    pub fn next(&mut self, layer: &Layer, os: &Os) -> Option<Mapped> {
        for _ in 0..2 * self.clock.len() {
            let region = self.clock.pop_front()?;
            // Regions of blocks that are gone leave the clock.
            let Some((space, addr)) = layer.address_of(region.0, region.1) else { continue };
            let Some(leaf) = os.table(space).find(addr) else { continue };
            let stays = leaf.pte.is_held() || os.is_shared(leaf.pte.frame());
            if stays || self.used.remove(&region) {
                self.clock.push_back(region);
                continue;
            }
            return Some((region, (space, addr), leaf));
        }
        None
    }
}
