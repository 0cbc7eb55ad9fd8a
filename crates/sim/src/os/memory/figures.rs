//! What one memory is worth to whoever wants large blocks of it, in figures.

use super::{Owner, TierMemory};
use terrace_model::PageSize;

/// Amounts of a memory by holder, and how its free frames lie.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryFigures {
    /// Frames in all.
    pub frames: u64,
    /// Free frames.
    pub free: u64,
    /// Frames that the kernel holds for good.
    pub kernel: u64,
    /// Frames of the page cache.
    pub cached: u64,
    /// Frames of page tables.
    pub tables: u64,
    /// Frames of programs.
    pub programs: u64,
    /// Each order from 0 to that of 1 GiB.
    pub orders: Vec<OrderFigures>,
    /// The whole 2 MiB regions.
    pub huge: RegionFigures,
    /// The whole 1 GiB regions.
    pub giant: RegionFigures,
}

/// Free blocks of one order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrderFigures {
    /// The order: blocks of `1 << order` frames.
    pub order: u32,
    /// Free blocks of exactly this order. Larger ones count as the largest that the allocator keeps.
    pub blocks: u64,
    /// Free-memory fragmentation index: the share of free memory that lies in blocks too small for this order.
    pub fragmentation: f64,
}

/// Aligned regions of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionFigures {
    /// Regions in all.
    pub total: u64,
    /// Regions without a frame that cannot move: compaction could empty them.
    pub movable: u64,
    /// Regions that are free.
    pub free: u64,
}

impl TierMemory {
    /// The figures as memory is now.
    pub fn figures(&self) -> MemoryFigures {
        let mut held = [0; 4];
        self.each_piece(|_, frames, block| {
            let Some((_, owner)) = block else { return };
            let kind = match owner {
                Owner::Kernel => 0,
                Owner::Cache(_) => 1,
                Owner::Table => 2,
                Owner::Taken | Owner::Page(_) => 3,
            };
            held[kind] += frames;
        });
        let [kernel, cached, tables, programs] = held;
        let mut blocks = [0; PageSize::Giant.order() as usize + 1];
        for (_, order) in self.buddy.blocks() {
            let counted = order.min(PageSize::Giant.order());
            blocks[counted as usize] += 1 << (order - counted);
        }
        let orders = (0..).zip(blocks).map(|(order, blocks)| OrderFigures {
            order,
            blocks,
            fragmentation: self.buddy.fragmentation_index(order),
        });
        MemoryFigures {
            frames: self.frames(),
            free: self.buddy.free_frames(),
            kernel,
            cached,
            tables,
            programs,
            orders: orders.collect(),
            huge: self.regions(PageSize::Huge),
            giant: self.regions(PageSize::Giant),
        }
    }

    fn regions(&self, size: PageSize) -> RegionFigures {
        let mut figures = RegionFigures::default();
        for region in 0..self.frames() / size.base_pages() {
            let (free, unmovable) = self.buddy.region(region * size.base_pages(), size.base_pages());
            figures.total += 1;
            figures.movable += u64::from(unmovable == 0);
            figures.free += u64::from(free == size.base_pages());
        }
        figures
    }
}
