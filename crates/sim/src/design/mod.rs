//! Designs: what is being compared. A machine plus the choices of its operating system and translation hardware.
//!
//! Machines and designs are TOML files; [`Library`] joins them into a [`Design`]. `docs/src/reference/designs.md` lists
//! every key.

mod aged;
pub mod claims;
mod embedded;
mod error;
mod file;
mod guests;
mod layer;
mod ledger;
mod library;
mod read;
mod rules;
mod scale;
mod schema;
mod settings;
mod tree;
mod validate;
mod virtualization;
mod weights;

pub use error::{DesignError, Origin};
pub use file::FileKind;
pub use library::{DEFAULT_MACHINE, Library, Listed, Parameter, Resolved};
pub use scale::LARGEST_SCALE;
pub use schema::{Design, Ledger, TierParameters};
pub use virtualization::{GuestTierParameters, HostParameters, HypervisorParameters, VmParameters};

pub use crate::cache::{
    CacheHierarchyParameters, CacheParameters, PrefetcherParameters, Replacement, SetIndex,
};
pub use crate::coherence::{
    DirectorySize, DirectoryUpdates, FillNotices, FreedTables, Granularity, GuestChanges, HatricParameters,
    LocalStores, Ranges, SetNumbers, Synonyms, Tracking, TranslationEnergy, WalkCacheSets, WalkerStores,
};
pub use crate::core::{CoreGroup, CoreParameters, InOrderKeys, ModelParameters};
pub use crate::gpu::{
    ClientCacheParameters, Coalescing, CoherenceKind, GpuCoherenceParameters, GpuFaultParameters,
    GpuL1Parameters, GpuL2Parameters, GpuLinkParameters, GpuParameters, GpuTlbParameters, ReadOnlyParameters,
    RemoteDirectoryParameters, Uncoalesced, WriteAllocate,
};
pub use crate::memory::LinkParameters;
pub use crate::os::{
    Aging, FreeLists, KernelCosts, KernelData, KernelThreads, LARGEST_ORDER, MemoryParameters, OsParameters,
    PagePolicy, Placement, PolicyParameters, ZeroStores,
};
pub use crate::translate::schemes;
pub use crate::translate::schemes::colt::{CoalescedLevels, CoalescedParameters};
pub use crate::translate::schemes::direct_segment::SegmentParameters;
pub use crate::translate::schemes::rmm::RangeParameters;
pub use crate::translate::schemes::spot::SpotParameters;
pub use crate::translate::{
    Associativity, FullKeyword, L2TlbArrayParameters, L2TlbParameters, NestedParameters,
    PageWalkCacheParameters, SchemeParameters, TlbParameters, TranslationParameters, WalkCacheDimensions,
    WalkCacheTags,
};

#[cfg(test)]
mod range_tests;
#[cfg(test)]
mod tests;
