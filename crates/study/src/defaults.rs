//! The built-in study: what is compared where no input or no design is named.
//!
//! Four inputs that differ in what limits them, and six designs that differ in what they do about it, on a machine
//! whose memory has two tiers. Sized to finish within a minute on two cores.

/// The machine of every design that names none.
pub const MACHINE: &str = terrace_sim::design::DEFAULT_MACHINE;

/// Random updates over more memory than any TLB reaches; a graph; a key-value store; a regular sweep.
pub const INPUTS: [&str; 4] =
    ["gups,bytes=1GiB,updates=1e6", "bfs,edges=3e6", "kv,requests=2e5", "stencil,side=192"];

/// The baseline first.
pub const DESIGNS: [&str; 6] =
    ["native-4k", "native-thp", "perfect-tlb", "vivt", "weighted-interleave", "all-slow"];
