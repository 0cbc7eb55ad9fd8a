//! Memory that is full: whose it is, and which keys of a design give it more.

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

    /// All memory that it has, in words.
    pub(super) fn every_tier(self) -> &'static str {
        match self {
            MemoryOf::Machine => "every tier",
            MemoryOf::Hypervisor => "every tier of the machine",
            MemoryOf::Guest => "the guest's memory",
            MemoryOf::GuestOfTiers => "every tier of the guest",
        }
    }
}
