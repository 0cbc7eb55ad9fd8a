//! One file per workload.

mod analytics;
mod astar;
mod bfs;
mod bt;
mod btree;
mod canneal;
mod cg;
mod chase;
mod churn;
mod ft;
mod gpu_kmeans;
mod gpu_stream;
mod gpu_xsbench;
mod growth;
mod gups;
mod hashjoin;
mod iwb;
mod kv;
mod lbm;
mod lsm;
mod mg;
mod pagerank;
mod pb;
mod pmbench;
mod search;
mod service;
mod slab;
mod stencil;
mod stream;
mod su3;
mod svm;
mod tpcc;
mod xsbench;

use crate::program::{Program, open};
use crate::{Workload, WorkloadError, WorkloadInfo};

type Open = fn(&str) -> Result<Box<dyn Workload>, WorkloadError>;

const fn entry<P: Program>() -> (&'static WorkloadInfo, Open) {
    (P::INFO, open::<P>)
}

/// All workloads, in the order of the documentation.
pub(crate) const ALL: [(&WorkloadInfo, Open); 33] = [
    entry::<gups::Gups>(),
    entry::<chase::Chase>(),
    entry::<stream::Triad>(),
    entry::<kv::KeyValue>(),
    entry::<slab::Slab>(),
    entry::<btree::BTree>(),
    entry::<bfs::Bfs>(),
    entry::<pagerank::PageRank>(),
    entry::<xsbench::XsBench>(),
    entry::<cg::ConjugateGradient>(),
    entry::<svm::Classifier>(),
    entry::<bt::BlockTridiagonal>(),
    entry::<ft::Fourier>(),
    entry::<mg::Multigrid>(),
    entry::<stencil::Stencil>(),
    entry::<lbm::Boltzmann>(),
    entry::<su3::Lattice>(),
    entry::<astar::Ways>(),
    entry::<hashjoin::HashJoin>(),
    entry::<canneal::Canneal>(),
    entry::<iwb::Iwb>(),
    entry::<pb::Pb>(),
    entry::<pmbench::PmBench>(),
    entry::<service::KeyValueService>(),
    entry::<lsm::ColumnStore>(),
    entry::<tpcc::OrderProcessing>(),
    entry::<analytics::Analytics>(),
    entry::<search::Search>(),
    entry::<growth::Growth>(),
    entry::<churn::Churn>(),
    entry::<gpu_stream::GpuStream>(),
    entry::<gpu_kmeans::GpuKmeans>(),
    entry::<gpu_xsbench::GpuXsBench>(),
];
