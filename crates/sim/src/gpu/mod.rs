//! A GPU beside the CPU: both reach all tiers, in one address space.
//!
//! | file | what |
//! |---|---|
//! | `parameters.rs` | what a GPU is |
//! | `coalesce.rs` | instructions of warps, made into transactions |
//! | `sms.rs` | SMs and their warps: a throughput core |
//! | `paths.rs`, `around.rs` | TLB, caches and memory behind an SM, and the machine around them |
//! | `cache.rs` | a cache in sectors |
//! | `tlb.rs` | the TLB of an SM |
//! | `faults.rs` | faults that SMs have pending, and pages that the GPU touches first |
//! | `selective/` | coherence with the CPU's caches: by hardware, or by not caching |
//! | `coherent.rs` | the paths where those caches are coherent, and the CPU's requests |
//! | `state.rs` | a machine with a GPU: all that the files below work on |
//! | `manage.rs` | a policy at work beside kernels, shootdowns, the copy before a kernel |
//! | `thread.rs`, `host.rs` | the CPU's threads, and their accesses |
//! | `kernel.rs` | one kernel |
//! | `queues.rs`, `overlap.rs` | threads that go on while kernels run |
//! | `engine.rs` | the input, kernel by kernel, and the host between |
//! | `collect.rs` | statistics |
//!
//! Source: N. Agarwal, Paving the Path for Heterogeneous Memory Adoption in Production Systems (PhD, University of Michigan
//! 2017), chapters 3 to 5, Table 3.1. It simulated with GPGPU-Sim; its cores are not described beyond the table.
//!
//! Left open there, and chosen here: the host and the GPU take turns, unless the input says that threads go on while
//! kernels run; SMs' caches are empty when a kernel begins; without `coherence` neither side looks into the other's caches,
//! as programs of such machines share no lines while kernels run.

mod around;
mod cache;
mod coalesce;
mod coherent;
mod collect;
mod engine;
mod faults;
mod host;
mod kernel;
mod line;
mod manage;
mod overlap;
mod parameters;
mod paths;
mod pools;
mod queues;
mod selective;
mod sms;
mod state;
mod thread;
mod tlb;
mod watch;

pub(crate) use parameters::GPU_LINE;

pub use engine::simulate;
pub use parameters::{
    GpuFaultParameters, GpuL1Parameters, GpuL2Parameters, GpuParameters, GpuTlbParameters, WriteAllocate,
};
pub use selective::{
    ClientCacheParameters, Coalescing, CoherenceKind, GpuCoherenceParameters, GpuLinkParameters,
    ReadOnlyParameters, RemoteDirectoryParameters, Uncoalesced,
};
