//! Aged memory, as a design asks for it.

use super::{Design, LARGEST_SCALE};
use crate::os::Snapshot;

impl Design {
    /// The memory of the first tier after what the design says that it went through, before the system takes its own.
    ///
    /// # Errors
    /// Aging that does not reach what it is to reach, or a file that cannot be used.
    pub fn aged_memory(&self) -> Result<Snapshot, String> {
        let tier = self.tiers.first().ok_or("tier: a machine needs a memory tier")?;
        let aged = Snapshot::aged(&tier.name, tier.capacity, &self.os.memory)?;
        Ok(aged.on_machine(&self.machine))
    }

    /// Whether the file that the design ages its memory with is there, whole, and fits the design at some `--scale`. Designs
    /// without such a file are fine.
    ///
    /// # Errors
    /// What is wrong with the file, and what to do about it.
    pub fn check_aged_memory(&self) -> Result<(), String> {
        let Some(tier) = self.tiers.first() else { return Ok(()) };
        Snapshot::check(&tier.name, tier.capacity, &self.os.memory, LARGEST_SCALE)
    }
}
