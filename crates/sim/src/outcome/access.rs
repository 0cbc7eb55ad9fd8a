//! One access of a program, step by step.

use terrace_model::{Time, VirtAddr};

/// Which part of the machine takes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The right to the data, and where they lie.
    Translation,
    /// Caches.
    Cache,
    /// Memory and its controller.
    Memory,
    /// The operating system.
    Kernel,
}

/// A step of an access. Times count from the access's begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessStep {
    /// The part of the machine that takes the step.
    pub stage: Stage,
    /// What is looked up or read, and what comes of it.
    pub name: String,
    /// When it begins.
    pub begin: Time,
    /// When its answer is there.
    pub end: Time,
}

/// An access that was watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessPath {
    /// The simulated process.
    pub process: u32,
    /// The access's virtual address.
    pub addr: VirtAddr,
    /// A store.
    pub write: bool,
    /// The core's cycle.
    pub cycle: Time,
    /// In the order of their begins.
    pub steps: Vec<AccessStep>,
    /// When its data are there.
    pub done: Time,
}
