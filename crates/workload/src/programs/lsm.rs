//! A wide-column store: memtables that grow, sorted tables, files nobody reads again.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Program, share};
use crate::random::{Permutation, Random, Zipf, hash, scale};
use crate::requests::{Client, Extents, Pace, Plan, Service, VECTOR_BYTES, WarmupRequests, expected};
use std::collections::HashMap;
use terrace_model::{AddressRange, Bytes};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "lsm",
    summary: "memtable inserts and Zipf reads of sorted tables (Cassandra under YCSB)",
    description: "\
Rows lie in sorted tables that were loaded beforehand. A write appends to the commit log, searches the skip list of \
its thread's memtable and appends a new cell there, which grows by extents of 1 MiB. A read searches the skip list and \
reads the newest cell where the row has one, probes a Bloom filter at three places, and goes through the partition \
index to the row, which it reads whole. Keys follow a Zipf distribution, scattered over the tables.

Stands for Cassandra as Thermostat (Agarwal, PhD thesis, 2017, sections 6.4 and 6.5) runs it: YCSB, 5 million keys of \
20 fields, 8 GB and 4 GB of file pages, reads=0.95 or reads=0.05, 21,000 and 45,000 requests a second, of which 40 to \
50 % is found cold. Cold here are the share `old` of the memory, files that the load has left in memory and that \
nothing reads again, the commit log behind its end and the cells that newer ones replace; the tail of the Zipf \
distribution is lukewarm. threads=8,think=1.7e6 gives the rate of the first, think=8e5 of the second, at 2.3 GHz and \
two instructions a cycle; with less memory the same `think` keeps the share of it that a budget of accesses a second \
admits. It differs: the memtable is not flushed within a run, as it was not in that evaluation, and no garbage \
collector moves the heap; a skip list is searched as a binary tree of 64-byte nodes; every thread has a memtable and a \
commit log of its own and a share of the keys.",
    parameters: declared::<Parameters>,
    exact: false,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Memory at the start: rows, index, filter, old files.
    #[parameter(default = "256 MiB", range = "1 MiB"..="32 TiB")]
    bytes: Bytes,
    /// Size of a row.
    #[parameter(default = "2 KiB", range = Bytes(VECTOR_BYTES)..=Bytes(LARGEST_ROW))]
    row: Bytes,
    /// What a write changes, at most a row.
    #[parameter(default = "128 B", range = Bytes(1)..=Bytes(LARGEST_ROW))]
    field: Bytes,
    /// Share of `bytes` in files that nothing reads again.
    #[parameter(default = 0.35, range = 0.0..=0.9, unit = "share")]
    old: f64,
    /// Zipf exponent of the keys' popularity.
    #[parameter(default = 0.99, range = 0.01..=4.0, unit = "exponent")]
    zipf: f64,
    /// Share of reads among the requests.
    #[parameter(default = 0.95, range = 0.0..=1.0, unit = "share")]
    reads: f64,
    /// Requests, all threads together.
    #[parameter(default = "100e3", range = 1..=LARGEST_COUNT, unit = "requests")]
    requests: u64,
    #[parameter(flatten)]
    warmup: WarmupRequests,
    #[parameter(flatten)]
    pace: Pace,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

const NODE_BYTES: u64 = 64;
const INDEX_BYTES: u64 = 32;
/// A Bloom filter of ten bits for each key, rounded up, probed at three places.
const FILTER_BYTES: u64 = 2;
const PROBES: u64 = 3;
/// One entry of the index summary for this many of the index: Cassandra's default.
const SUMMARY_INTERVAL: u64 = 128;
/// Header of a cell: name, time stamp, object headers.
const CELL_HEADER: u64 = 64;
const LARGEST_ROW: u64 = 16 << 10;
/// Regions of Cassandra's slab allocator.
const EXTENT: u64 = 1 << 20;

#[derive(Clone)]
pub(crate) struct ColumnStore {
    keys: u64,
    row: u64,
    field: u64,
    zipf: f64,
    reads: f64,
    requests: u64,
    warmup: WarmupRequests,
    pace: Pace,
    rows: u64,
    index: u64,
    summary: u64,
    filter: u64,
    /// For each thread: its skip list, its memtable's cells, its commit log.
    nodes: Vec<u64>,
    cells: Vec<AddressRange>,
    logs: Vec<AddressRange>,
    sites: [u32; 2],
    threads: u32,
    seed: u64,
    layout: Layout,
}

impl ColumnStore {
    fn cell(&self) -> u64 {
        CELL_HEADER + self.field
    }

    fn requests_of(&self, thread: u32) -> u64 {
        let own = share(self.requests, thread, self.threads);
        own.end - own.start
    }
}

impl Program for ColumnStore {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Client<ColumnStore>;

    fn new(parameters: &Parameters) -> Result<ColumnStore, Problem> {
        let threads = parameters.threads.count;
        let row = parameters.row.0.next_multiple_of(VECTOR_BYTES);
        let field = parameters.field.0.next_multiple_of(VECTOR_BYTES);
        if field > row {
            return Err(Problem::new("field", format!("at most a row, {row} B")));
        }
        let per_key = row + INDEX_BYTES + FILTER_BYTES + VECTOR_BYTES / SUMMARY_INTERVAL;
        let least = per_key * (u64::from(threads) + SUMMARY_INTERVAL);
        let old = parameters.old;
        let minimum = ((least as f64 / (1.0 - old)) as u64).next_multiple_of(1 << 20);
        let bytes = at_least("bytes", parameters.bytes, Bytes(minimum))?.0;
        let old_bytes = (bytes as f64 * old) as u64 / 4096 * 4096;
        let keys = (bytes - old_bytes) / per_key;
        let reads = parameters.reads;
        let mut layout = Layout::new(parameters.start.init);
        if old_bytes > 0 {
            layout.array("old files", old_bytes);
        }
        let mut program = ColumnStore {
            keys,
            row,
            field,
            zipf: parameters.zipf,
            reads,
            requests: at_least("requests", parameters.requests, threads.into())?,
            warmup: parameters.warmup.of(parameters.requests, parameters.threads.count)?,
            pace: parameters.pace,
            rows: layout.array("sorted tables", keys * row),
            index: layout.array("partition index", keys * INDEX_BYTES),
            summary: layout.array("index summary", (keys / SUMMARY_INTERVAL + 1) * VECTOR_BYTES),
            filter: layout.array("bloom filter", keys * FILTER_BYTES),
            nodes: Vec::new(),
            cells: Vec::new(),
            logs: Vec::new(),
            sites: ["memtable", "commit log"].map(|name| layout.site(name)),
            threads,
            seed: parameters.seed.number,
            layout,
        };
        for thread in 0..threads {
            let most = program.requests_of(thread);
            let writes = (most as f64 * (1.0 - reads)) as u64;
            program
                .nodes
                .push(program.layout.array("skip list", NODE_BYTES * 2 * (most + 1).next_power_of_two()));
            // The skip list fills from its beginning, like the memtable: initialisation leaves it alone.
            program.layout.touched.pop();
            let mut reserve = |bytes: u64| {
                let room = Extents::room(most * bytes, EXTENT);
                AddressRange::new(program.layout.reserve(room, writes * bytes), room)
            };
            let (cell, logged) = (CELL_HEADER + field, VECTOR_BYTES + field);
            program.cells.push(reserve(cell));
            program.logs.push(reserve(logged));
        }
        Ok(program)
    }

    fn populates(&self) -> bool {
        self.warmup.requests > 0
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Client<ColumnStore> {
        let warmup = self.warmup.share(index, self.threads);
        Client::new(self, index, self.requests_of(index), warmup, self.pace)
    }

    fn kernel_accesses(&self) -> u64 {
        // The search of the skip list, a level deeper for each doubling, is shorter in the sample than in the run.
        let deeper = (self.requests_of(0) as f64 / 512.0 * 0.5).max(1.0).log2();
        expected(self, self.requests) + (self.requests as f64 * deeper) as u64
    }
}

/// One thread's memtable.
pub(crate) struct Memtable {
    thread: u32,
    keys: std::ops::Range<u64>,
    random: Random,
    zipf: Zipf,
    order: Permutation,
    cells: Extents,
    log: Extents,
    /// Newest cell of each row that has one.
    newest: HashMap<u64, u64>,
}

impl ColumnStore {
    /// Searches the skip list for a row: from the top, one node a level.
    fn search(&self, memtable: &Memtable, plan: &mut Plan, row: u64) -> u64 {
        let word = hash(self.seed, row);
        let levels = (memtable.newest.len() as u64 + 1).ilog2() + 1;
        let nodes = self.nodes[memtable.thread as usize];
        let mut node = nodes + NODE_BYTES;
        plan.enter(node, 200);
        for level in 1..levels {
            node = nodes + NODE_BYTES * ((1 << level) + (word >> (64 - level)));
            plan.follow(node, 12);
        }
        node
    }
}

impl Service for ColumnStore {
    type State = Memtable;

    fn state(&self, thread: u32) -> Memtable {
        let keys = share(self.keys, thread, self.threads);
        let count = keys.end - keys.start;
        let extents =
            |room, which: u64| Extents::new(room, EXTENT, self.sites[which as usize], thread, which);
        Memtable {
            thread,
            keys,
            random: Random::of_thread(self.seed, thread),
            zipf: Zipf::new(count, self.zipf),
            order: Permutation::new(count, hash(self.seed, thread.into())),
            cells: extents(self.cells[thread as usize], 0),
            log: extents(self.logs[thread as usize], 1),
            newest: HashMap::new(),
        }
    }

    fn plan<M: Memory>(&self, memtable: &mut Memtable, plan: &mut Plan, memory: &mut M) {
        let row = memtable.keys.start + memtable.order.apply(memtable.zipf.sample(&mut memtable.random));
        if memtable.random.unit() < self.reads {
            self.search(memtable, plan, row);
            if let Some(cell) = memtable.newest.get(&row) {
                plan.follow(*cell, 10);
                plan.read(cell + VECTOR_BYTES, self.cell() - VECTOR_BYTES);
            }
            for probe in 0..PROBES {
                let word = scale(hash(row, probe), self.keys * FILTER_BYTES / 8);
                plan.enter(self.filter + 8 * word, 15);
            }
            plan.enter(self.summary + VECTOR_BYTES * (row / SUMMARY_INTERVAL), 40);
            plan.follow(self.index + INDEX_BYTES * row, 60);
            plan.read(self.rows + row * self.row, self.row);
        } else {
            let logged = VECTOR_BYTES + self.field;
            plan.write(memtable.log.allocate(memory, logged), logged);
            let node = self.search(memtable, plan, row);
            let cell = memtable.cells.allocate(memory, self.cell());
            plan.independent();
            plan.write(cell + VECTOR_BYTES, self.cell() - VECTOR_BYTES);
            // The node's key and its links lie behind its first word.
            plan.write(node + VECTOR_BYTES, VECTOR_BYTES);
            memtable.newest.insert(row, cell);
        }
    }
}
