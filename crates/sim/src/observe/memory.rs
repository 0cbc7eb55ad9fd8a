//! Pictures of physical memory: what lies where before the input begins, and when its programs are done.

use super::parts::Parts;
use crate::os::Os;
use crate::outcome::{MemoryMap, TierMap};
use terrace_model::Time;

/// Takes the pictures.
#[derive(Debug, Default)]
pub struct MapMaker {
    map: MemoryMap,
    /// Resident pages in the later picture.
    resident: u64,
}

impl MapMaker {
    /// Takes the first picture.
    pub fn new(os: &Os, parts: &mut Parts) -> MapMaker {
        let mut maker = MapMaker::default();
        maker.map.before = tiers(os, parts);
        maker
    }

    /// A process is about to end, or the run has: the picture is taken again where more is resident than in the last.
    pub fn look(&mut self, os: &Os, parts: &mut Parts, now: Time, over: bool) {
        let resident: u64 = os.resident().iter().sum();
        let worth_it = resident > self.resident + self.resident / 64;
        if worth_it || self.map.after.is_empty() && over {
            self.resident = resident;
            self.map.after = tiers(os, parts);
            self.map.seconds = now.as_secs();
        }
    }

    /// The finished pictures.
    pub fn finish(&self, parts: &Parts) -> MemoryMap {
        MemoryMap { parts: parts.list().to_vec(), ..self.map.clone() }
    }
}

fn tiers(os: &Os, parts: &mut Parts) -> Vec<TierMap> {
    os.tiers_of_memory()
        .map(|memory| TierMap {
            name: memory.name.clone(),
            runs: memory.runs(|page| parts.part_of(page)),
            figures: memory.figures(),
        })
        .collect()
}
