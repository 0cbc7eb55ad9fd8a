//! Memory that is full: whose it is, and which keys of a design give it more.

use super::paging::{Os, OsError, PlacementState};

/// The owner of the memory that an operating system manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOf {
    /// The machine's, without a virtual machine on it.
    Machine,
    /// The machine's, under virtual machines.
    Hypervisor,
    /// That of a guest with one tier.
    Guest,
    /// That of a guest with tiers of its own.
    GuestOfTiers,
}

impl MemoryOf {
    /// What to raise or to choose.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            MemoryOf::Machine => {
                "tier.<name>.capacity, allow more tiers (os.placement), or choose smaller pages (os.pages)"
            }
            MemoryOf::Hypervisor => {
                "tier.<name>.capacity, allow more tiers (host.placement), or choose smaller pages (host.pages)"
            }
            MemoryOf::Guest => {
                "vm.memory or, where the design does not give it, tier.<name>.capacity, or choose smaller pages (os.pages)"
            }
            MemoryOf::GuestOfTiers => {
                "vm.tier.<name>.capacity, allow more tiers (os.placement), or choose smaller pages (os.pages)"
            }
        }
    }

    fn every_tier(self) -> &'static str {
        match self {
            MemoryOf::Machine => "every tier",
            MemoryOf::Hypervisor => "every tier of the machine",
            MemoryOf::Guest => "the guest's memory",
            MemoryOf::GuestOfTiers => "every tier of the guest",
        }
    }
}

impl Os {
    /// The error of memory that is full: a tier, or all that the placement allows.
    pub fn out_of_memory(&self, tier: Option<usize>) -> OsError {
        let tiers = match (&self.placement[0], tier) {
            (_, Some(tier)) => self.tiers[tier].name.clone(),
            (PlacementState::Only(tier), None) => self.tiers[*tier].name.clone(),
            _ => self.whose.every_tier().to_owned(),
        };
        OsError::OutOfMemory { resident: self.resident.iter().sum::<u64>() >> 8, tiers, whose: self.whose }
    }
}
