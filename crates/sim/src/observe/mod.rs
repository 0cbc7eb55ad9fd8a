//! Observers of a run that are no part of it: profiles, maps, samples, requests. Watching changes nothing that is simulated.

mod contiguity;
mod memory;
mod objects;
mod parts;
mod placement;
mod profile;
mod requests;
mod series;
mod steps;
mod structures;

pub use contiguity::ContiguityWatch;
pub use memory::MapMaker;
pub use objects::Objects;
pub use parts::Parts;
pub use placement::PlacementMaker;
pub use profile::ProfileCounter;
pub use requests::Requests;
pub use series::Series;
pub use steps::{Source, Steps};
pub use structures::StructureCounter;

use crate::os::Os;
use crate::outcome::Options;
use std::ops::Range;
use terrace_model::{SpaceId, VirtAddr};
use terrace_trace::{AccessKind, Batch, Event};

/// The observers that are notified of single accesses, walks and faults.
#[derive(Debug, Default)]
pub struct Observers {
    /// Counts accesses that reach memory, for a later run.
    pub profile: Option<ProfileCounter>,
    /// Records where memory lies over time.
    pub placement: Option<Box<PlacementMaker>>,
    /// The parts of programs.
    pub parts: Option<Box<Parts>>,
    /// Which data structures reach which memory.
    pub structures: Option<Box<StructureCounter>>,
    /// The steps of the access that is made now, where that is watched.
    pub steps: Option<Box<Steps>>,
}

impl Observers {
    /// The observers that a run asks for.
    pub fn new(options: &Options) -> Observers {
        Observers {
            profile: options.count_accesses.then(ProfileCounter::default),
            placement: options.placement_map.then(PlacementMaker::new).map(Box::new),
            parts: (options.parts || options.memory_map).then(Box::default),
            structures: None,
            steps: None,
        }
    }

    /// Whether somebody wants to know of accesses that reach memory.
    pub fn want_accesses(&self) -> bool {
        self.profile.is_some() || self.placement.is_some() || self.structures.is_some()
    }

    /// An event of a process was applied.
    pub fn apply(&mut self, space: SpaceId, event: &Event) {
        if let Some(parts) = &mut self.parts {
            parts.apply(space, event);
        }
        if let Some(profile) = &mut self.profile {
            profile.apply(space, event);
        }
        if let Some(structures) = &mut self.structures {
            structures.apply(space, event);
        }
    }

    /// The program issued these accesses of a batch.
    pub fn issued(&mut self, space: SpaceId, batch: &Batch, rows: Range<usize>) {
        if let Some(profile) = &mut self.profile {
            rows.for_each(|at| {
                profile.issued(space, VirtAddr(batch.addr[at]), batch.kind[at] == AccessKind::Write)
            });
        }
    }

    /// A process was forked from another.
    pub fn forked(&mut self, parent: SpaceId, child: SpaceId) {
        if let Some(parts) = &mut self.parts {
            parts.forked(parent, child);
        }
        if let Some(profile) = &mut self.profile {
            profile.objects.forked(parent, child);
        }
        if let Some(structures) = &mut self.structures {
            structures.forked(parent, child);
        }
    }

    /// An access reached memory.
    pub fn reached_memory(&mut self, os: &Os, space: SpaceId, addr: VirtAddr, write: bool) {
        if let Some(profile) = &mut self.profile {
            profile.count_with_structure(space, addr, write);
        }
        if self.placement.is_none() && self.structures.is_none() {
            return;
        }
        let leaf = os.table(space).find(addr);
        let tier = leaf.map(|leaf| os.tier_of(leaf.pte.frame()));
        if let Some(placement) = &mut self.placement {
            placement.count(space, addr, tier == Some(os.first_tier_of(space)));
        }
        if let (Some(structures), Some(tier)) = (&mut self.structures, tier) {
            structures.count(space, addr, tier);
        }
    }
}
