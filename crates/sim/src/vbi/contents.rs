//! A memory layer that holds bytes and nothing else: what loads and stores mean, whatever the hardware does to be fast.
//!
//! Memory is given in regions of 4 KiB on the first store, and a region without memory reads as zero (section 5.1). Cloned
//! blocks share regions until one of them is stored to. What is on the way in caches is not modelled: a flush has nothing to
//! do.

use super::address::Vbuid;
use super::layer::MemoryLayer;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a region.
const REGION: u64 = 4096;

type Region = [u8; REGION as usize];

/// The regions of a block that have memory.
pub type Regions = BTreeMap<u64, Arc<Region>>;

/// The layer, and what it was asked.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// Blocks whose lines were dropped from caches.
    pub invalidated: Vec<Vbuid>,
    /// Blocks whose lines were written back.
    pub flushed: Vec<Vbuid>,
}

impl Contents {
    /// A byte of a block.
    pub fn load(regions: &Regions, offset: u64) -> u8 {
        regions.get(&(offset / REGION)).map_or(0, |region| region[(offset % REGION) as usize])
    }

    /// Stores a byte of a block; its region gets memory, or memory of its own.
    pub fn store(regions: &mut Regions, offset: u64, byte: u8) {
        let region = regions.entry(offset / REGION).or_insert_with(|| Arc::new([0; REGION as usize]));
        Arc::make_mut(region)[(offset % REGION) as usize] = byte;
    }
}

impl MemoryLayer for Contents {
    type Structure = Regions;

    fn disable(&mut self, _block: Vbuid, _structure: Regions) {}

    fn invalidate_lines(&mut self, block: Vbuid) {
        self.invalidated.push(block);
    }

    fn flush_lines(&mut self, block: Vbuid, _structure: &mut Regions) {
        self.flushed.push(block);
    }

    fn clone_structure(&mut self, from: &mut Regions, to: &mut Regions) {
        to.clone_from(from);
    }

    fn promote(&mut self, from: Regions, to: &mut Regions) {
        *to = from;
    }
}
