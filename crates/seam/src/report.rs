//! What a policy says about itself at the end of a run.

use terrace_model::{ContiguityPoint, Stats, Unit};

/// A policy's own figures and remarks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Figures, under the policy's name: `demoted`, `rounds`.
    pub stats: Stats,
    /// What a reader of the run must know, in sentences.
    pub notes: Vec<String>,
    /// How contiguous memory was over time, of a policy that samples that.
    pub contiguity: Vec<ContiguityPoint>,
}

impl Report {
    /// Adds a count.
    pub fn count(&mut self, name: &str, value: u64) {
        self.stats.count(name, value, Unit::Count);
    }

    /// Adds how many there are, or were at most.
    pub fn level(&mut self, name: &str, value: u64) {
        self.stats.level(name, value, Unit::Count);
    }

    /// Adds how many base pages there are, or were at most.
    pub fn level_pages(&mut self, name: &str, value: u64) {
        self.stats.level(name, value, Unit::Pages);
    }

    /// Adds a number of base pages that something happened to.
    pub fn pages(&mut self, name: &str, value: u64) {
        self.stats.count(name, value, Unit::Pages);
    }

    /// Adds an amount of memory.
    pub fn bytes(&mut self, name: &str, value: u64) {
        self.stats.count(name, value, Unit::Bytes);
    }

    /// Adds a share or another number without unit.
    pub fn ratio(&mut self, name: &str, value: f64) {
        self.stats.real(name, value, Unit::Ratio);
    }

    /// Adds a remark.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}
