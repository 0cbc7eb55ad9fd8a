//! A hash join: build a table from one relation, probe it with another.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};
use crate::random::{Permutation, Random, Zipf, hash, mix, scale};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "hashjoin",
    summary: "in-memory hash join, build and probe with bucket chains (Balkesen et al.)",
    description: "\
Two relations of 16-byte tuples. The build phase inserts every tuple of the smaller one into a chained hash table; the \
probe phase looks up every tuple of the larger one. Relations are read sequentially; a bucket's address follows from \
the tuple's key, an entry's from the bucket or from the entry before it.

Stands for the no-partitioning hash join studied by Balkesen et al., \"Main-memory hash joins on multi-core CPUs\", \
ICDE 2013, with primary keys in the build relation and, by `skew`, a Zipf distribution of the foreign keys. It \
differs: buckets are single pointers and entries are separate, without latches; with several threads each joins a \
partition of its own, so that the accesses are the same in every run.",
    parameters: declared::<Parameters>,
    exact: false,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Tuples of the build relation.
    #[parameter(default = "4e6", range = 1..=(1 << 36), unit = "tuples")]
    build: u64,
    /// Tuples of the probe relation.
    #[parameter(default = "6e6", range = 1..=(1 << 36), unit = "tuples")]
    probe: u64,
    /// Zipf exponent of the foreign keys; 0 is uniform.
    #[parameter(default = 0.0, range = 0.0..=4.0, unit = "exponent")]
    skew: f64,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

const TUPLE_BYTES: u64 = 16;
/// Key, payload, next entry, padded to half a line.
const ENTRY_BYTES: u64 = 32;
const NEXT: u64 = 16;

#[derive(Clone)]
pub(crate) struct HashJoin {
    build: u64,
    probe: u64,
    skew: f64,
    threads: u32,
    seed: u64,
    build_tuples: u64,
    probe_tuples: u64,
    entries: u64,
    /// Each thread's table has `buckets` buckets.
    buckets: u64,
    table: u64,
    layout: Layout,
}

impl Program for HashJoin {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Join;

    fn new(parameters: &Parameters) -> Result<HashJoin, Problem> {
        let threads = parameters.threads.count;
        let build = at_least("build", parameters.build, threads.into())?;
        let probe = at_least("probe", parameters.probe, threads.into())?;
        let buckets = build.div_ceil(threads.into()).next_power_of_two();
        let mut layout = Layout::new(parameters.start.init);
        let build_tuples = layout.array("build relation", build * TUPLE_BYTES);
        let probe_tuples = layout.array("probe relation", probe * TUPLE_BYTES);
        let inputs = layout.touched.clone();
        let table = layout.array("buckets", 8 * buckets * u64::from(threads));
        let entries = layout.array("entries", build * ENTRY_BYTES);
        // The table is touched first by the build, as in the join.
        layout.touched = inputs;
        Ok(HashJoin {
            build,
            probe,
            skew: parameters.skew,
            threads,
            seed: parameters.seed.number,
            build_tuples,
            probe_tuples,
            entries,
            buckets,
            table,
            layout,
        })
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Join {
        let build = share(self.build, index, self.threads);
        let probe = share(self.probe, index, self.threads);
        Join {
            at: build.start,
            build,
            probe,
            probing: false,
            table: self.table + 8 * self.buckets * u64::from(index),
            program: self.clone(),
        }
    }

    fn kernel_accesses(&self) -> u64 {
        // A probe compares the entries in front of its own and its own. Under uniform keys half the bucket's other
        // entries lie in front: half of (tuples - 1) / buckets.
        let per_thread = self.build as f64 / f64::from(self.threads);
        let chain = 1.0 + (per_thread - 1.0) / self.buckets as f64 / 2.0;
        5 * self.build + (self.probe as f64 * (2.0 * chain + 2.0)) as u64
    }

    fn needs_contents(&self) -> bool {
        true
    }

    fn prepare(&self, memory: &Backing) {
        for thread in 0..self.threads {
            let build = share(self.build, thread, self.threads);
            let keys = build.end - build.start;
            let order = Permutation::new(keys, hash(self.seed, thread.into()));
            for i in 0..keys {
                memory.write(self.build_tuples + (build.start + i) * TUPLE_BYTES, [order.apply(i) + 1, i]);
            }
            let zipf = (self.skew > 0.0).then(|| Zipf::new(keys, self.skew));
            let mut random = Random::of_thread(self.seed, thread);
            for i in share(self.probe, thread, self.threads) {
                let key = match &zipf {
                    Some(zipf) => order.apply(zipf.sample(&mut random)),
                    None => scale(random.next(), keys),
                };
                memory.write(self.probe_tuples + i * TUPLE_BYTES, [key + 1, i]);
            }
        }
    }
}

/// One thread's join.
pub(crate) struct Join {
    program: HashJoin,
    build: std::ops::Range<u64>,
    probe: std::ops::Range<u64>,
    probing: bool,
    at: u64,
    table: u64,
}

impl Join {
    #[inline(always)]
    fn bucket(&self, key: u64) -> u64 {
        self.table + 8 * (mix(key) & (self.program.buckets - 1))
    }

    #[inline(always)]
    fn insert<M: Memory>(&self, memory: &mut M, i: u64) {
        let tuple: [u64; 2] = memory.load(self.program.build_tuples + i * TUPLE_BYTES, 0, 3);
        let bucket = self.bucket(tuple[0]);
        let head: u64 = memory.load(bucket, 1, 8);
        let entry = self.program.entries + i * ENTRY_BYTES;
        memory.store(entry, tuple, 0, 1);
        memory.store(entry + NEXT, head, 0, 1);
        memory.store(bucket, entry, 2, 2);
    }

    #[inline(always)]
    fn look_up<M: Memory>(&self, memory: &mut M, i: u64) {
        let tuple: [u64; 2] = memory.load(self.program.probe_tuples + i * TUPLE_BYTES, 0, 3);
        let mut entry: u64 = memory.load(self.bucket(tuple[0]), 1, 8);
        let mut depends_on = 1;
        // Every foreign key has its primary key, so the chain never ends before the match.
        while entry != 0 {
            let key: u64 = memory.load(entry, depends_on, 3);
            if key == tuple[0] {
                memory.load_payload::<u64>(entry + 8, depends_on + 1, 3);
                return;
            }
            entry = memory.load(entry + NEXT, depends_on + 1, 2);
            depends_on = 1;
        }
    }
}

impl Kernel for Join {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if self.probing {
            let end = self.probe.end.min(self.at + 8);
            for i in self.at..end {
                self.look_up(memory, i);
            }
            self.at = end;
            return if end == self.probe.end { Progress::Done } else { Progress::Working };
        }
        let end = self.build.end.min(self.at + 32);
        for i in self.at..end {
            self.insert(memory, i);
        }
        self.at = end;
        if end < self.build.end {
            return Progress::Working;
        }
        (self.probing, self.at) = (true, self.probe.start);
        Progress::Barrier
    }
}
