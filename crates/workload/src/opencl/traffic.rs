//! What a workload's stream asks memory for, lane by lane and line by line.

use terrace_trace::{AccessKind, Event, EventSource, Item, SourceError};

/// Bytes of a line of a GPU's caches.
const LINE: u64 = 128;

/// Loads and stores of single lanes, and the lines that the instructions of warps touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneTraffic {
    /// Loads of single lanes.
    pub loads: u64,
    /// Stores of single lanes.
    pub stores: u64,
    /// Bytes that lanes load and store.
    pub bytes: u64,
    /// Lines of 128 bytes: each counts once for each instruction of a warp that touches it.
    pub lines: u64,
}

impl LaneTraffic {
    /// The traffic of a whole stream.
    ///
    /// # Errors
    /// The stream's own.
    pub fn of(source: &mut dyn EventSource) -> Result<LaneTraffic, SourceError> {
        let mut traffic = LaneTraffic::default();
        let mut lines = Vec::new();
        while let Some(batch) = source.next_batch()? {
            for item in batch.items() {
                match item {
                    Item::Access(access) => {
                        // The first lane of an instruction brings its instructions.
                        if access.instructions > 0 {
                            traffic.end_instruction(&mut lines);
                        }
                        match access.kind {
                            AccessKind::Write => traffic.stores += 1,
                            _ => traffic.loads += 1,
                        }
                        traffic.bytes += u64::from(access.size);
                        let last = access.addr + u64::from(access.size).max(1) - 1;
                        lines.extend(access.addr / LINE..=last / LINE);
                    }
                    Item::Event(event) if matches!(event.event, Event::Compute { .. }) => {}
                    Item::Event(_) => traffic.end_instruction(&mut lines),
                }
            }
        }
        traffic.end_instruction(&mut lines);
        Ok(traffic)
    }

    /// Bytes of the lines.
    pub fn line_bytes(&self) -> u64 {
        self.lines * LINE
    }

    fn end_instruction(&mut self, lines: &mut Vec<u64>) {
        lines.sort_unstable();
        lines.dedup();
        self.lines += lines.len() as u64;
        lines.clear();
    }
}
