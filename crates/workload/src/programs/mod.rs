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
mod facesim;
mod ft;
mod gpu_backprop;
mod gpu_bfs;
mod gpu_btree;
mod gpu_cns;
mod gpu_comd;
mod gpu_hotspot;
mod gpu_kmeans;
mod gpu_lbm;
mod gpu_minife;
mod gpu_mummer;
mod gpu_needle;
mod gpu_pathfinder;
mod gpu_sgemm;
mod gpu_spmv;
mod gpu_srad;
mod gpu_stencil;
mod gpu_stream;
mod gpu_streamcluster;
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
mod tunkrank;
mod xsbench;

use crate::gpu_program::GpuProgram;
use crate::program::Program;
use crate::runner::open;
use crate::{Workload, WorkloadError, WorkloadInfo};

/// A workload as it is found by its name.
pub(crate) struct Entry {
    pub info: &'static WorkloadInfo,
    pub open: fn(&str) -> Result<Box<dyn Workload>, WorkloadError>,
    /// Whether it has kernels in OpenCL C.
    pub in_opencl: bool,
}

const fn entry<P: Program>() -> Entry {
    Entry { info: P::INFO, open: open::<P>, in_opencl: P::IN_OPENCL }
}

/// All workloads, in the order of the documentation.
pub(crate) const ALL: [Entry; 51] = [
    entry::<gups::Gups>(),
    entry::<chase::Chase>(),
    entry::<stream::Triad>(),
    entry::<kv::KeyValue>(),
    entry::<slab::Slab>(),
    entry::<btree::BTree>(),
    entry::<bfs::Bfs>(),
    entry::<pagerank::PageRank>(),
    entry::<tunkrank::TunkRank>(),
    entry::<xsbench::XsBench>(),
    entry::<cg::ConjugateGradient>(),
    entry::<svm::Classifier>(),
    entry::<bt::BlockTridiagonal>(),
    entry::<ft::Fourier>(),
    entry::<mg::Multigrid>(),
    entry::<stencil::Stencil>(),
    entry::<facesim::Flesh>(),
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
    entry::<GpuProgram<gpu_stream::Triad>>(),
    entry::<GpuProgram<gpu_kmeans::Distances>>(),
    entry::<GpuProgram<gpu_xsbench::Lookups>>(),
    entry::<GpuProgram<gpu_backprop::Work>>(),
    entry::<GpuProgram<gpu_bfs::Work>>(),
    entry::<GpuProgram<gpu_btree::Work>>(),
    entry::<GpuProgram<gpu_cns::Work>>(),
    entry::<GpuProgram<gpu_comd::Work>>(),
    entry::<GpuProgram<gpu_minife::Work>>(),
    entry::<GpuProgram<gpu_mummer::Work>>(),
    entry::<GpuProgram<gpu_needle::Work>>(),
    entry::<GpuProgram<gpu_pathfinder::Work>>(),
    entry::<GpuProgram<gpu_sgemm::Work>>(),
    entry::<GpuProgram<gpu_srad::Work>>(),
    entry::<GpuProgram<gpu_hotspot::Work>>(),
    entry::<GpuProgram<gpu_lbm::Work>>(),
    entry::<GpuProgram<gpu_spmv::Work>>(),
    entry::<GpuProgram<gpu_stencil::Work>>(),
    entry::<GpuProgram<gpu_streamcluster::Work>>(),
];
