//! One file per workload.

mod analytics;
mod bfs;
mod bt;
mod btree;
mod canneal;
mod cg;
mod chase;
mod churn;
mod ft;
mod growth;
mod gups;
mod hashjoin;
mod iwb;
mod kv;
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
mod svm;
mod tpcc;
mod xsbench;

use crate::program::open;
use crate::{Workload, WorkloadError, WorkloadInfo};

type Open = fn(&str) -> Result<Box<dyn Workload>, WorkloadError>;

/// All workloads, in the order of the documentation.
pub(crate) const ALL: [(&WorkloadInfo, Open); 27] = [
    (&gups::INFO, open::<gups::Gups>),
    (&chase::INFO, open::<chase::Chase>),
    (&stream::INFO, open::<stream::Triad>),
    (&kv::INFO, open::<kv::KeyValue>),
    (&slab::INFO, open::<slab::Slab>),
    (&btree::INFO, open::<btree::BTree>),
    (&bfs::INFO, open::<bfs::Bfs>),
    (&pagerank::INFO, open::<pagerank::PageRank>),
    (&xsbench::INFO, open::<xsbench::XsBench>),
    (&cg::INFO, open::<cg::ConjugateGradient>),
    (&svm::INFO, open::<svm::Classifier>),
    (&bt::INFO, open::<bt::BlockTridiagonal>),
    (&ft::INFO, open::<ft::Fourier>),
    (&mg::INFO, open::<mg::Multigrid>),
    (&stencil::INFO, open::<stencil::Stencil>),
    (&hashjoin::INFO, open::<hashjoin::HashJoin>),
    (&canneal::INFO, open::<canneal::Canneal>),
    (&iwb::INFO, open::<iwb::Iwb>),
    (&pb::INFO, open::<pb::Pb>),
    (&pmbench::INFO, open::<pmbench::PmBench>),
    (&service::INFO, open::<service::KeyValueService>),
    (&lsm::INFO, open::<lsm::ColumnStore>),
    (&tpcc::INFO, open::<tpcc::OrderProcessing>),
    (&analytics::INFO, open::<analytics::Analytics>),
    (&search::INFO, open::<search::Search>),
    (&growth::INFO, open::<growth::Growth>),
    (&churn::INFO, open::<churn::Churn>),
];
