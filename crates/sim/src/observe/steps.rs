//! The steps of one access while it is made.

use crate::cache::{CacheCounters, Served};
use crate::outcome::{AccessStep, Stage};
use terrace_model::Time;

/// Where a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    L1,
    L2,
    LastLevel,
    Memory,
}

impl Source {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Source::L1 => "L1",
            Source::L2 => "L2",
            Source::LastLevel => "last level",
            Source::Memory => "memory",
        }
    }

    /// Where a line came from that was looked up between two counts.
    pub fn between(before: &CacheCounters, after: &CacheCounters) -> Source {
        match () {
            () if after.llc.misses > before.llc.misses => Source::Memory,
            () if after.l2.misses > before.l2.misses => Source::LastLevel,
            () if after.l1.misses > before.l1.misses => Source::L2,
            () => Source::L1,
        }
    }
}

/// What is known of the access so far. Times are the machine's.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    steps: Vec<AccessStep>,
    /// How the caches served the data, and where they came from.
    pub served: Option<(Served, Source)>,
}

impl Steps {
    /// A step was taken.
    pub fn add(&mut self, stage: Stage, name: impl Into<String>, begin: Time, end: Time) {
        self.steps.push(AccessStep { stage, name: name.into(), begin, end });
    }

    /// An entry of a table was read.
    pub fn read_entry(&mut self, from: Source, begin: Time, end: Time) {
        self.add(Stage::Translation, format!("entry, from {}", from.name()), begin, end);
    }

    /// The entry that was read last is this one.
    pub fn name_entry(&mut self, name: &str) {
        if let Some(step) = self.steps.last_mut()
            && let Some(from) = step.name.strip_prefix("entry,")
        {
            step.name = format!("{name},{from}");
        }
    }

    /// When the last step of a stage ended.
    pub fn end_of(&self, stage: Stage) -> Option<Time> {
        self.steps.iter().filter(|step| step.stage == stage).map(|step| step.end).max()
    }

    /// All steps by their begins, which count from `begin` on.
    pub fn finish(self, begin: Time) -> Vec<AccessStep> {
        let mut steps = self.steps;
        for step in &mut steps {
            step.begin = step.begin.saturating_sub(begin);
            step.end = step.end.saturating_sub(begin).max(step.begin);
        }
        steps.sort_by_key(|step| step.begin);
        steps
    }
}
