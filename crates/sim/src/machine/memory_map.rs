//! Pictures of physical memory: what lies where before the input begins, and when its programs are done.

use super::engine::Engine;
use super::parts::{Part, Parts};
use crate::os::{FrameRun, MemoryFigures, Os};
use terrace_model::Time;

/// A memory by frames, twice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryMap {
    /// The parts of programs that frames are held by.
    pub parts: Vec<Part>,
    /// The tiers before the first event.
    pub before: Vec<TierMap>,
    /// The tiers at the end of the input, or before the process ended with whose end most memory was given back.
    pub after: Vec<TierMap>,
    /// Simulated seconds between the two.
    pub seconds: f64,
}

/// One tier.
#[derive(Clone, Debug, PartialEq)]
pub struct TierMap {
    /// Its name.
    pub name: String,
    /// Its frames, in runs by address.
    pub runs: Vec<FrameRun>,
    /// Who holds how much, and how the free frames lie.
    pub figures: MemoryFigures,
}

/// Takes the pictures.
#[derive(Debug, Default)]
pub(super) struct MapMaker {
    map: MemoryMap,
    /// Resident pages in the later picture.
    resident: u64,
}

impl MapMaker {
    pub fn new(os: &Os, parts: &mut Parts) -> MapMaker {
        let mut maker = MapMaker::default();
        maker.map.before = tiers(os, parts);
        maker
    }

    /// A process is about to end, or the run has: the picture is taken again where more is resident than in the last.
    fn look(&mut self, os: &Os, parts: &mut Parts, now: Time, over: bool) {
        let resident: u64 = os.resident().iter().sum();
        let worth_it = resident > self.resident + self.resident / 64;
        if worth_it || self.map.after.is_empty() && over {
            self.resident = resident;
            self.map.after = tiers(os, parts);
            self.map.seconds = now.as_secs();
        }
    }

    fn finish(&self, parts: &Parts) -> MemoryMap {
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

impl Engine<'_> {
    /// Memory is about to be given back: by a whole process or by a part of one.
    pub(super) fn look_at_memory(&mut self, process_ends: bool, over: bool) {
        let shared = &mut self.machine.shared;
        let Some(parts) = &mut shared.parts else { return };
        parts.look(&shared.os, over);
        if let Some(maker) = self.map_maker.as_mut().filter(|_| process_ends || over) {
            let now = self.machine.cores.iter().map(|core| core.pipeline.now).max().unwrap_or_default();
            maker.look(&shared.os, parts, now, over);
        }
    }

    /// The finished pictures, where they were asked for.
    pub(super) fn memory_map(&self) -> Option<MemoryMap> {
        Some(self.map_maker.as_ref()?.finish(self.machine.shared.parts.as_ref()?))
    }
}
