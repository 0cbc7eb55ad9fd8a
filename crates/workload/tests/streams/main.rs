//! The workloads' streams: what all of them promise, and what each does.

mod beside;
mod kernels;
mod native;
mod parameters;
mod promises;
mod services;

use terrace_model::{AddressRange, VirtAddr};
use terrace_trace::{Access, AccessKind, Batch, Event, Item, MarkKind};
use terrace_workload::{NativePages, all, open};

/// Small versions, with at most a few million accesses. The slab cache is small enough to evict.
const SMALL: [&str; 51] = [
    "gups,bytes=8 MiB,updates=1e5",
    "chase,bytes=1 MiB,accesses=1e5",
    "stream,bytes=3 MiB",
    "kv,keys=4000,requests=8e3",
    "slab,bytes=64 MiB,keys=200e3,requests=8e3",
    "btree,keys=2e5,lookups=5e3",
    "bfs,scale=12,edges=2e5,list=true",
    "pagerank,scale=12,edgefactor=8",
    "tunkrank,scale=12,edges=2e5",
    "xsbench,gridpoints=200,lookups=2000",
    "cg,rows=10000,nonzeros=7,iterations=2",
    "svm,rows=20e3,features=5e3,nonzeros=20,updates=3e3",
    "bt,bytes=2 MiB,planes=6,iterations=2",
    "ft,bytes=1 MiB,iterations=2",
    "mg,bytes=2 MiB,planes=9,iterations=2",
    "stencil,side=32,iterations=2",
    "facesim,side=12,visits=15e3",
    "lbm,side=20,iterations=2",
    "su3,side=6,iterations=2",
    "astar,side=256,expansions=6e4",
    "hashjoin,build=3e4,probe=5e4",
    "canneal,elements=5e4,moves=5e3",
    "iwb,bytes=16 MiB,threads=1,passes=3,warmup=1",
    "pb,bytes=16 MiB,threads=1",
    "pmbench,bytes=9 MiB,accesses=5e4",
    "service,bytes=8 MiB,requests=5e3,hot=0.01,traffic=0.5,zipf=0.9,chain=2,think=100",
    "lsm,bytes=8 MiB,requests=3e3,reads=0.5,think=100",
    "tpcc,bytes=8 MiB,requests=2e3,think=100",
    "analytics,bytes=1 MiB,think=100",
    "search,bytes=8 MiB,requests=1e3,think=100",
    "growth,bytes=8 MiB,apart=0.1,chunk=512 KiB,accesses=1e4,compute=1e6",
    "churn,bytes=4 MiB,smallest=64 KiB,largest=1 MiB,allocations=40,uses=500",
    "gpu-stream,bytes=3 MiB",
    "gpu-kmeans,points=2048,features=5",
    "gpu-xsbench,gridpoints=200,lookups=2048",
    "gpu-backprop,inputs=2000",
    "gpu-bfs,nodes=4000",
    "gpu-btree,keys=1e5,lookups=200",
    "gpu-cns,side=32,iterations=1",
    "gpu-comd,side=4",
    "gpu-minife,side=32,iterations=1",
    "gpu-mummer,nodes=5000,texts=1000,letters=9",
    "gpu-needle,letters=100",
    "gpu-pathfinder,columns=1000,rows=20",
    "gpu-sgemm,rows=64",
    "gpu-srad,side=64",
    "gpu-hotspot,side=60",
    "gpu-lbm,side=32",
    "gpu-spmv,rows=2000",
    "gpu-stencil,side=64,planes=5",
    "gpu-streamcluster,points=2048,dimensions=9",
];

fn with_threads(spec: &str, threads: u32) -> String {
    // A GPU is one stream; threads of a CPU beside it have tests of their own.
    if spec.starts_with("gpu-") {
        return spec.to_owned();
    }
    format!("{},threads={threads}", spec.replace(",threads=1", ""))
}

fn batches(spec: &str) -> Vec<Batch> {
    let workload = open(spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
    let mut source = workload.source();
    let mut batches = Vec::new();
    while let Some(batch) = source.next_batch().unwrap() {
        batches.push((*batch).clone());
    }
    batches
}

/// Whether a workload's stream differs from these batches; it is opened up to the first difference.
fn differs(base: &[Batch], spec: &str) -> bool {
    let workload = open(spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
    let (mut source, mut base) = (workload.source(), base.iter());
    loop {
        match (base.next(), source.next_batch().unwrap()) {
            (None, None) => return false,
            (Some(base), Some(batch)) if *base == *batch => {}
            _ => return true,
        }
    }
}

/// Accesses after the mark that begins the run, of one stream.
fn run_accesses(spec: &str) -> Vec<Access> {
    run_accesses_of(&batches(spec))
}

fn run_accesses_of(batches: &[Batch]) -> Vec<Access> {
    let mut running = false;
    let mut accesses = Vec::new();
    for batch in batches {
        for item in batch.items() {
            match item {
                Item::Access(access) if running => accesses.push(access),
                Item::Access(_) => {}
                Item::Event(e) => {
                    if let Event::Mark { kind: MarkKind::Phase, name, .. } = &e.event {
                        running = name == "run";
                    }
                }
            }
        }
    }
    accesses
}

/// Bytes that the run reads and writes, by the structure they lie in.
fn traffic(spec: &str) -> std::collections::HashMap<String, (u64, u64)> {
    let mut sites = Vec::new();
    let mut structures = Vec::new();
    for event in batches(spec).iter().flat_map(|batch| &batch.events) {
        match &event.event {
            Event::Site { name, .. } => sites.push(name.clone()),
            Event::Alloc { site, range, .. } => structures.push((*range, *site)),
            _ => {}
        }
    }
    structures.sort_by_key(|(range, _)| range.start.0);
    let mut traffic = std::collections::HashMap::new();
    for access in run_accesses(spec) {
        let after = structures.partition_point(|(range, _)| range.start.0 <= access.addr);
        let (range, site) = structures[after - 1];
        assert!(range.contains(VirtAddr(access.addr)), "{spec}: {:x} is in no structure", access.addr);
        let (read, written): &mut (u64, u64) = traffic.entry(sites[site as usize].clone()).or_default();
        *(if access.kind == AccessKind::Read { read } else { written }) += u64::from(access.size);
    }
    traffic
}

/// Accesses of the run to each piece of `bytes` of the structures called `name`, untouched pieces included.
fn pieces(spec: &str, name: &str, bytes: u64) -> Vec<u64> {
    let mut site = u32::MAX;
    let mut counts = std::collections::BTreeMap::new();
    for event in batches(spec).iter().flat_map(|batch| &batch.events) {
        match &event.event {
            Event::Site { site: number, name: found } if found == name => site = *number,
            Event::Alloc { site: of, range, .. } if *of == site => {
                counts.extend((range.start.0 / bytes..range.end().0 / bytes).map(|piece| (piece, 0u64)));
            }
            _ => {}
        }
    }
    for access in run_accesses(spec) {
        if let Some(count) = counts.get_mut(&(access.addr / bytes)) {
            *count += 1;
        }
    }
    counts.into_values().collect()
}
