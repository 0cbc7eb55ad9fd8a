//! Memories that have aged: made once, kept in files, and looked at.

use crate::Error;
use crate::designs::Changes;
use crate::memory_picture::{bytes, panel};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use terrace_model::text;
use terrace_report::MemoryPicture;
use terrace_sim::design::Aging;
use terrace_sim::{RegionFigures, Snapshot};

/// Ages the first tier's memory of a design as its `os.memory.aging` says. `scale` divides its capacity.
///
/// # Errors
/// A design that does not exist or ages nothing.
pub fn age(design: &str, changes: &Changes, scale: u32) -> Result<Snapshot, Error> {
    changes.check_names([design])?;
    let design = changes.resolve(design, None)?.design.design.scaled(scale).map_err(Error::request)?;
    if design.os.memory.aging == Aging::None {
        return Err(Error::request(
            "os.memory.aging: nothing ages this memory; add --set os.memory.aging.kind=page-cache or =builds",
        ));
    }
    design.aged_memory().map_err(Error::request)
}

/// What lies where in a saved memory.
///
/// # Errors
/// A file that contradicts itself.
pub fn picture(snapshot: &Snapshot, file: &Path) -> Result<MemoryPicture, Error> {
    let name = file.display();
    let fault = |problem: String| Error::request(format!("{name}: {problem}"));
    let (figures, runs) = (snapshot.figures().map_err(fault)?, snapshot.runs().map_err(fault)?);
    Ok(MemoryPicture {
        title: format!(
            "{name}: a memory of {}{}",
            bytes(figures.frames),
            of_machine(snapshot.machine(), snapshot.tier())
        ),
        rows: vec![vec![panel("as it was saved", &figures, &runs)]],
        ..MemoryPicture::default()
    })
}

/// The machine and the tier, to stand behind a memory's size; nothing where the file does not say.
fn of_machine(machine: &str, tier: &str) -> String {
    if machine.is_empty() { String::new() } else { format!(", tier {tier} of {machine}") }
}

/// How a saved memory is fragmented. Amounts are in frames.
#[derive(Clone, Debug, Serialize)]
pub struct AgedMemory {
    /// Where it lies.
    pub file: String,
    /// The machine whose memory it is; empty where the file does not say.
    pub machine: String,
    /// The machine's tier; empty where the file does not say.
    pub tier: String,
    /// All frames.
    pub frames: u64,
    /// Free frames.
    pub free: u64,
    /// Frames of the kernel.
    pub kernel: u64,
    /// Frames of the page cache.
    pub cached: u64,
    /// Free memory by the order of blocks.
    pub orders: Vec<Order>,
    /// Aligned regions by size.
    pub regions: Vec<Region>,
}

/// The free blocks of an order.
#[derive(Clone, Debug, Serialize)]
pub struct Order {
    /// Two to this power are the frames of a block.
    pub order: u32,
    /// How many there are.
    pub free_blocks: u64,
    /// The share of free memory in smaller blocks.
    pub fragmentation_index: f64,
}

/// The aligned regions of a size.
#[derive(Clone, Debug, Serialize)]
pub struct Region {
    /// Name of the size.
    pub size: &'static str,
    /// All regions.
    pub total: u64,
    /// Regions that compaction could empty.
    pub without_unmovable: u64,
    /// Regions that are free.
    pub free: u64,
}

impl AgedMemory {
    /// The figures of a memory that is kept in `file`.
    ///
    /// # Errors
    /// A file that contradicts itself.
    pub fn of(snapshot: &Snapshot, file: &Path) -> Result<AgedMemory, Error> {
        let file = file.display().to_string();
        let figures = snapshot.figures().map_err(|problem| Error::request(format!("{file}: {problem}")))?;
        let orders = figures.orders.iter().map(|order| Order {
            order: order.order,
            free_blocks: order.blocks,
            fragmentation_index: order.fragmentation,
        });
        let region = |size, region: RegionFigures| Region {
            size,
            total: region.total,
            without_unmovable: region.movable,
            free: region.free,
        };
        Ok(AgedMemory {
            file,
            machine: snapshot.machine().to_owned(),
            tier: if snapshot.machine().is_empty() { String::new() } else { snapshot.tier().to_owned() },
            frames: figures.frames,
            free: figures.free,
            kernel: figures.kernel,
            cached: figures.cached,
            orders: orders.collect(),
            regions: vec![region("1 GiB", figures.giant), region("2 MiB", figures.huge)],
        })
    }

    /// The figures as tables of 80 columns.
    pub fn to_text(&self) -> String {
        let share = |frames: u64| format!("{:.1}%", frames as f64 / self.frames.max(1) as f64 * 100.0);
        let of = of_machine(&self.machine, &self.tier);
        let mut out = text::hanging("", &format!("{}: {} of memory{of}", self.file, bytes(self.frames)), 78);
        out.push('\n');
        for (name, frames) in [("free", self.free), ("kernel", self.kernel), ("page cache", self.cached)] {
            let _ = writeln!(out, "{name:<12}{:>12}{:>8}", bytes(frames), share(frames));
        }
        out.push_str("\norder       block  free blocks    free memory     FMFI\n");
        for order in &self.orders {
            let _ = writeln!(
                out,
                "{:>5}{:>12}{:>13}{:>15}{:>9.3}",
                order.order,
                bytes(1 << order.order),
                order.free_blocks,
                bytes(order.free_blocks << order.order),
                order.fragmentation_index,
            );
        }
        out.push_str("\nregions       all   without unmovable    free\n");
        for region in &self.regions {
            let _ = writeln!(
                out,
                "{:<8}{:>9}{:>20}{:>8}",
                region.size, region.total, region.without_unmovable, region.free
            );
        }
        out + "\nFMFI: the share of free memory in blocks too small for a request of that order.\n\
               Without unmovable: compaction could empty them.\n"
    }
}
