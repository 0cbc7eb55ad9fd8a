//! Coherence between the caches of a CPU and those of a GPU: Selective Caching, and hardware coherence as its bound.
//!
//! **What it does.** The CPU may cache everything. The GPU never caches lines of the CPU's memory, and lines of its own
//! memory only while the CPU does not hold them. So no message of a coherence protocol goes to the GPU's caches but the
//! CPU's own requests, and none of hundreds of caches takes part in the CPU's protocol.
//!
//! | file | what |
//! |---|---|
//! | `parameters.rs` | the keys of `coherence` |
//! | `path.rs` | what the GPU may cache, and where the rest comes from |
//! | `remote_directory.rs`, `cuckoo.rs` | which lines of the GPU's memory the CPU may hold |
//! | `requests.rs` | loads that join others under way |
//! | `link.rs` | packets of flits |
//! | `cpu_side.rs` | memory, caches and client cache of the CPU |
//! | `read_only.rs` | pages that the GPU may cache until one is written |
//! | `collect.rs` | statistics |
//!
//! **Source.** N. Agarwal, Paving the Path for Heterogeneous Memory Adoption in Production Systems (PhD, University of
//! Michigan 2017), chapter 5; N. Agarwal et al., Selective GPU Caches to Eliminate CPU-GPU HW Cache Coherence (HPCA 2016).
//!
//! **Left open there, and chosen here.** Each request finds what the other side's caches hold when its turn comes, in the
//! order of time; a load that joins one under way does not look again. Where hardware keeps the caches coherent, a line
//! lies on one side only, and its directory knows everything and takes no time. Files name further choices.

mod collect;
mod cpu_side;
mod cuckoo;
mod link;
mod parameters;
mod path;
mod read_only;
mod remote_directory;
mod requests;
#[cfg(test)]
mod tests;

pub use collect::Counts;
pub(super) use link::Towards;
pub use parameters::{
    ClientCacheParameters, Coalescing, CoherenceKind, GpuCoherenceParameters, GpuLinkParameters,
    ReadOnlyParameters, RemoteDirectoryParameters, Uncoalesced,
};
pub use path::Request;

use super::line::GpuLine;
use super::parameters::GpuParameters;
use crate::machine::TieredMemory;
use crate::observe::Series;
use cpu_side::CpuSide;
use read_only::ReadOnly;
use remote_directory::RemoteDirectory;
use requests::InFlight;
use terrace_model::{NodeId, Time};

/// Whether a line of the GPU lies in its own memory.
pub(super) fn is_own(memory: &TieredMemory, line: GpuLine) -> bool {
    memory.home_of_line(line.half(0)) == NodeId::GPU
}

/// Loads, stores and atomic operations that no cache of the GPU may serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Uncached {
    pub loads: u64,
    pub stores: u64,
    pub atomics: u64,
    /// Loads that joined others of their SM, and of another.
    pub joined: [u64; 2],
    /// Bytes that loads asked the CPU's memory for.
    asked: u64,
}

/// What keeps both sides coherent.
#[derive(Debug)]
pub struct Coherence {
    pub(super) kind: CoherenceKind,
    pub(super) coalescing: Coalescing,
    pub(super) uncoalesced: Uncoalesced,
    variable: bool,
    pub(super) cpu: CpuSide,
    pub(super) directory: RemoteDirectory,
    pub(super) in_sms: Vec<InFlight>,
    pub(super) in_slices: Vec<InFlight>,
    pub(super) read_only: Option<ReadOnly>,
    pub(super) uncached: Uncached,
    /// Lines of 128 bytes that left the GPU's caches for the CPU.
    pub(super) dropped: u64,
    /// Counts when the kernel that runs began, and those of all kernels.
    before: Counts,
    of_kernels: Counts,
}

impl Coherence {
    /// The state in which nothing is cached anywhere.
    pub fn new(parameters: &GpuCoherenceParameters, gpu: &GpuParameters, slices: usize) -> Coherence {
        let read_only = &parameters.read_only;
        Coherence {
            kind: parameters.kind,
            coalescing: parameters.coalescing,
            uncoalesced: parameters.uncoalesced,
            variable: parameters.variable_transfers,
            cpu: CpuSide::new(parameters, gpu.frequency.period()),
            directory: RemoteDirectory::new(&parameters.remote_directory),
            in_sms: vec![InFlight::default(); gpu.sms as usize],
            in_slices: vec![InFlight::default(); slices],
            read_only: read_only.enabled.then(|| ReadOnly::new(read_only, gpu.sms)),
            uncached: Uncached::default(),
            dropped: 0,
            before: Counts::default(),
            of_kernels: Counts::default(),
        }
    }

    /// What the link carries over time, towards the CPU and towards the GPU.
    pub fn link_series(&mut self) -> &mut Series {
        &mut self.cpu.link.series
    }

    /// A kernel begins.
    pub fn begin_kernel(&mut self, now: Time) {
        self.before = self.counts();
        if let Some(pages) = &mut self.read_only {
            pages.begin_kernel(now);
        }
    }

    /// The kernel is over.
    pub fn end_kernel(&mut self) {
        self.of_kernels.add_since(&self.before, &self.counts());
    }

    /// Until when an SM issues nothing.
    pub fn blocked_until(&self, sm: usize) -> Time {
        self.read_only.as_ref().map_or(Time::ZERO, |pages| pages.blocked_until(sm))
    }

    /// The CPU is to give up the GPU's lines, at this cost, before its next access.
    pub fn wants_flush(&self) -> Option<Time> {
        (self.kind == CoherenceKind::Selective).then(|| self.directory.wants_flush()).flatten()
    }

    /// The CPU has given up the GPU's lines.
    pub fn flushed(&mut self) {
        self.directory.reset();
    }
}
