//! Where a line of a tier lies in its device, and lines that move between tiers of one device without a bus: TL-DRAM's
//! segments.

use super::tiers::{Tier, TieredMemory};
use crate::memory::{DeviceLine, MemoryRequest};
use terrace_model::{Line, Time};

impl Tier {
    /// Where a line of the tier lies in its device.
    #[inline(always)]
    pub(super) fn place_of(&self, line: Line) -> DeviceLine {
        self.device_line + (line - self.base_line)
    }
}

impl TieredMemory {
    /// Moves a line to another place within its device, past the bus, where the device can: when it is there.
    pub fn transfer(&mut self, request: MemoryRequest, to: Line) -> Option<Time> {
        let MemoryRequest { line, at, by, .. } = request;
        let (one, other) = (self.tier_of_line(line).index(), self.tier_of_line(to).index());
        let (source, target) = (&self.tiers[one], &self.tiers[other]);
        if one == other || source.device != target.device || self.hardware_cache.is_some() {
            return None;
        }
        let (from, into) = (source.place_of(line), target.place_of(to));
        let done = self.devices[source.device].transfer(from, into, at, by)?;
        self.zeros.remove(to);
        self.tiers[one].traffic.reads[by as usize] += 1;
        self.tiers[other].traffic.writes[by as usize] += 1;
        if let Some(watch) = &mut self.watch {
            watch.read(one as u8, request, done, done);
            watch.write(other as u8, request.for_line(to), done, done);
        }
        Some(done)
    }
}
