//! The page-fault path alone, for a benchmark of the simulator itself.

use super::{Os, OsParameters};
use terrace_model::{AddressRange, Frame, SpaceId, VirtAddr};
use terrace_trace::{MapKind, Protection};

/// A kernel with one process whose memory is one area.
#[derive(Debug)]
pub struct FaultBench {
    os: Os,
    bytes: u64,
}

impl FaultBench {
    /// As the parameters say, with so many levels of page tables, on one tier with room for `bytes` and its page tables.
    ///
    /// # Errors
    /// Parameters that cannot be built.
    pub fn new(parameters: &OsParameters, levels: u32, bytes: u64) -> Result<FaultBench, String> {
        let frames = (bytes + bytes / 256 + (2 << 30)) >> 12;
        let mut os = Os::new(parameters, levels, &[("dram".to_owned(), Frame(0), frames)])?;
        os.new_space().map_err(|problem| problem.to_string())?;
        let area = AddressRange::new(1 << 40, bytes);
        os.map(SpaceId(0), area, MapKind::Anonymous, Protection::READ_WRITE)
            .map_err(|problem| problem.to_string())?;
        Ok(FaultBench { os, bytes })
    }

    /// Touches every page of the area for the first time. Returns how many faults that took.
    ///
    /// # Errors
    /// Memory is full.
    pub fn touch_all(&mut self) -> Result<u64, String> {
        let mut faults = 0;
        let mut at = 0;
        while at < self.bytes {
            let fault = self
                .os
                .fault(SpaceId(0), VirtAddr((1 << 40) + at), &[])
                .map_err(|problem| problem.to_string())?;
            at += fault.size.bytes();
            faults += 1;
        }
        Ok(faults)
    }
}
