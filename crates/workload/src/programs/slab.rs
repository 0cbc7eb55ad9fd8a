//! A slab-allocated object cache with LRU lists, as Memcached keeps one.

use crate::WorkloadInfo;
use crate::layout::{Layout, map};
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};
use crate::random::{Permutation, Random, Zipf, hash, mix, scale};
use crate::requests::{Pace, StoreRequests, Think};
use terrace_model::{AddressRange, Bytes};
use terrace_trace::{Event, MapKind};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "slab",
    summary: "Zipf requests to a bounded cache with slab classes and LRU lists (Memcached)",
    description: "\
Items of many sizes live in slab classes, each 1.25 times the one before; a class takes memory in pages of 1 MiB until \
the limit is reached, then evicts its least recently used item. A GET finds the item by its hash chain, reads the value \
and moves the item to the head of its class's list, which writes to its neighbours in the list too; a GET that misses \
stores the item. Keys are drawn by a Zipf distribution; value sizes are spread evenly over powers of two.

Stands for Memcached under the read-mostly loads of Atikoglu et al., \"Workload analysis of a large-scale key-value \
store\", SIGMETRICS 2012. It differs: no network and no expiry; one list per class instead of the segmented LRU; an item \
moves on every hit instead of once a minute; the hash table has its final size from the start; each thread is a cache \
of its own with its share of memory and keys. Initialisation stores the share `preload` of the keys.",
    parameters: declared::<Parameters>,
    exact: false,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Memory for items, all threads together.
    #[parameter(default = "256 MiB", range = "1 MiB"..="32 TiB")]
    bytes: Bytes,
    /// Smallest value.
    #[parameter(default = "64 B", range = Bytes(1)..=Bytes(LARGEST_VALUE))]
    smallest: Bytes,
    /// Largest value.
    #[parameter(default = "2 KiB", range = Bytes(1)..=Bytes(LARGEST_VALUE))]
    largest: Bytes,
    #[parameter(flatten, default = StoreRequests { requests: 800_000, reads: 0.97, ..StoreRequests::default() })]
    store: StoreRequests,
    #[parameter(flatten, default = Pace { think: Think { instructions: 0 }, ..Pace::default() })]
    pace: Pace,
    #[parameter(flatten)]
    settle: Settle,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

/// Item header: next and previous in the list, next in the hash chain, key, length; then the value.
const PREVIOUS: u64 = 8;
const CHAIN: u64 = 16;
const KEY: u64 = 24;
const HEADER_BYTES: u64 = 48;
const VECTOR_BYTES: u64 = 32;
const LARGEST_VALUE: u64 = 4096;
const SLAB_PAGE: u64 = 1 << 20;
/// Memcached's defaults: the smallest chunk and the growth of the classes.
const SMALLEST_CHUNK: u64 = 96;
/// A class's record: head and tail of its list, each class in a line of its own.
const CLASS_BYTES: u64 = 64;
const TAIL: u64 = 8;

#[derive(Clone)]
pub(crate) struct Slab {
    bytes: u64,
    keys: u64,
    smallest: u64,
    largest: u64,
    requests: u64,
    reads: f64,
    zipf: f64,
    preload: f64,
    pace: Pace,
    threads: u32,
    seed: u64,
    /// Chunk size of each class.
    chunks: Vec<u64>,
    /// Per thread: hash table, class records, room for slab pages.
    tables: Vec<[u64; 3]>,
    buckets: u64,
    site: u32,
    layout: Layout,
}

impl Slab {
    /// Bytes of the value of a key: a power of two between the bounds, and a random part of the step to the next.
    fn value_bytes(&self, key: u64) -> u64 {
        let word = hash(self.seed, key);
        let doublings = (self.largest / self.smallest).ilog2();
        let low = self.smallest << scale(word, u64::from(doublings) + 1);
        let high = (2 * low).min(self.largest + 1).max(low + 1);
        low + scale(mix(word), high - low)
    }

    /// Slab pages that one thread may take.
    fn page_limit(&self) -> u64 {
        self.bytes / SLAB_PAGE / u64::from(self.threads)
    }
}

impl Program for Slab {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Cache;

    fn new(parameters: &Parameters) -> Result<Slab, Problem> {
        let threads = parameters.threads.count;
        let mut chunks = vec![SMALLEST_CHUNK];
        while let Some(last) = chunks.last()
            && *last < HEADER_BYTES + LARGEST_VALUE
        {
            chunks.push((last + last / 4).next_multiple_of(8));
        }
        // Every class can get at least one page.
        let minimum = chunks.len() as u64 * SLAB_PAGE * u64::from(threads);
        let keys = at_least("keys", parameters.store.keys, threads.into())?;
        let mut program = Slab {
            bytes: at_least("bytes", parameters.bytes, Bytes(minimum))?.0,
            keys,
            smallest: parameters.smallest.0,
            largest: parameters.largest.0,
            requests: parameters.store.requests,
            reads: parameters.store.reads,
            zipf: parameters.store.zipf,
            preload: parameters.store.preload,
            pace: parameters.pace,
            threads,
            seed: parameters.seed.number,
            chunks,
            tables: Vec::new(),
            buckets: keys.div_ceil(threads.into()).next_power_of_two(),
            site: 0,
            layout: Layout::new(Init::None).settling(parameters.settle.instructions),
        };
        if program.smallest > program.largest {
            return Err(Problem::new("smallest", "at most the largest value"));
        }
        for _ in 0..threads {
            let table = program.layout.array("hash table", 8 * program.buckets);
            let classes = program.layout.array("slab classes", CLASS_BYTES * program.chunks.len() as u64);
            let room = program.page_limit() * SLAB_PAGE;
            let pages = program.layout.reserve(room, room);
            program.tables.push([table, classes, pages]);
        }
        program.site = program.layout.site("slab page");
        Ok(program)
    }

    fn populates(&self) -> bool {
        true
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Cache {
        let keys = share(self.keys, index, self.threads);
        let keys = keys.end - keys.start;
        let requests = share(self.requests, index, self.threads);
        let [table, classes, pages] = self.tables[index as usize];
        Cache {
            table,
            classes,
            pages,
            pages_used: 0,
            fresh: vec![(0, 0); self.chunks.len()],
            object: (u64::from(index) + 1) << 40,
            random: Random::of_thread(self.seed, index),
            zipf: Zipf::new(keys, self.zipf),
            order: Permutation::new(keys, hash(self.seed, index.into())),
            loaded: 0,
            to_load: (keys as f64 * self.preload) as u64,
            running: false,
            left: requests.end - requests.start,
            program: self.clone(),
        }
    }

    fn kernel_accesses(&self) -> u64 {
        let sample = 1000.min(self.keys);
        let vectors: u64 = (1..=sample).map(|key| self.value_bytes(key).div_ceil(VECTOR_BYTES)).sum();
        let vectors = vectors as f64 / sample as f64;
        // A store: bucket and chain, header, list head and links. A hit: bucket, key, list links.
        let store = self.keys as f64 * self.preload * (10.0 + vectors);
        (store + self.requests as f64 * (13.0 + vectors)) as u64
    }

    fn needs_contents(&self) -> bool {
        true
    }
}

/// One thread's cache.
pub(crate) struct Cache {
    program: Slab,
    table: u64,
    classes: u64,
    pages: u64,
    pages_used: u64,
    /// Per class: next unused chunk of its newest page, and the page's end.
    fresh: Vec<(u64, u64)>,
    object: u64,
    random: Random,
    zipf: Zipf,
    order: Permutation,
    loaded: u64,
    to_load: u64,
    running: bool,
    left: u64,
}

impl Cache {
    #[inline(always)]
    fn bucket(&self, key: u64) -> u64 {
        self.table + 8 * (mix(key) & (self.program.buckets - 1))
    }

    fn class_of(&self, value_bytes: u64) -> usize {
        self.program
            .chunks
            .partition_point(|chunk| *chunk < HEADER_BYTES + value_bytes.next_multiple_of(VECTOR_BYTES))
    }

    /// The item of `key`, or 0.
    #[inline(always)]
    fn find<M: Memory>(&mut self, memory: &mut M, key: u64) -> u64 {
        // Command dispatch and hashing come before the first load.
        let mut item: u64 = memory.load(self.bucket(key), 0, 150);
        let mut depends_on = 1;
        while item != 0 {
            let found: u64 = memory.load(item + KEY, depends_on, 4);
            if found == key {
                return item;
            }
            item = memory.load(item + CHAIN, depends_on + 1, 2);
            depends_on = 1;
        }
        0
    }

    /// Takes an item out of its class's list.
    fn unlink<M: Memory>(&self, memory: &mut M, class: u64, item: u64) {
        let next: u64 = memory.load(item, 0, 2);
        let previous: u64 = memory.load(item + PREVIOUS, 0, 1);
        if previous == 0 {
            memory.store(class, next, 0, 2)
        } else {
            memory.store(previous, next, 1, 2)
        }
        if next == 0 {
            memory.store(class + TAIL, previous, 0, 2);
        } else {
            memory.store(next + PREVIOUS, previous, 2, 2);
        }
    }

    /// Puts an item at the head of its class's list.
    fn push_front<M: Memory>(&self, memory: &mut M, class: u64, item: u64) {
        let head: u64 = memory.load(class, 0, 2);
        memory.store(item, head, 0, 1);
        memory.store(item + PREVIOUS, 0u64, 0, 1);
        if head == 0 {
            memory.store(class + TAIL, item, 0, 2);
        } else {
            memory.store(head + PREVIOUS, item, 1, 2);
        }
        memory.store(class, item, 0, 1);
    }

    /// A chunk of the class: unused, from a new page, or that of the least recently used item. 0 where the class has
    /// no page and can get none.
    fn allocate<M: Memory>(&mut self, memory: &mut M, index: usize, class: u64) -> u64 {
        let chunk = self.program.chunks[index];
        let (next, end) = self.fresh[index];
        if next + chunk <= end {
            self.fresh[index].0 = next + chunk;
            return next;
        }
        if self.pages_used < self.program.page_limit() {
            let page = AddressRange::new(self.pages + self.pages_used * SLAB_PAGE, SLAB_PAGE);
            self.pages_used += 1;
            map(memory, page, MapKind::Anonymous);
            self.object += 1;
            if M::WANTS_EVENTS {
                memory.event(Event::Alloc { object: self.object, site: self.program.site, range: page });
            }
            self.fresh[index] = (page.start.0 + chunk, page.end().0);
            return page.start.0;
        }
        let victim: u64 = memory.load(class + TAIL, 0, 4);
        if victim != 0 {
            self.unlink(memory, class, victim);
            self.unchain(memory, victim);
        }
        victim
    }

    /// Takes an item out of its hash chain.
    fn unchain<M: Memory>(&self, memory: &mut M, item: u64) {
        let key: u64 = memory.load(item + KEY, 0, 2);
        let mut link = self.bucket(key);
        let mut depends_on = 1;
        loop {
            let at: u64 = memory.load(link, depends_on, 30);
            if at == item {
                break;
            }
            link = at + CHAIN;
            depends_on = 1;
        }
        let next: u64 = memory.load(item + CHAIN, 1, 1);
        memory.store(link, next, 0, 2);
    }

    fn insert<M: Memory>(&mut self, memory: &mut M, key: u64) {
        let bytes = self.program.value_bytes(key);
        let index = self.class_of(bytes);
        let class = self.classes + CLASS_BYTES * index as u64;
        let item = self.allocate(memory, index, class);
        if item == 0 {
            return;
        }
        memory.store(item + KEY, [key, bytes], 0, 10);
        self.write_value(memory, item, bytes);
        let bucket = self.bucket(key);
        let head: u64 = memory.load(bucket, 0, 3);
        memory.store(item + CHAIN, head, 0, 1);
        memory.store(bucket, item, 0, 1);
        self.push_front(memory, class, item);
    }

    #[inline(always)]
    fn write_value<M: Memory>(&self, memory: &mut M, item: u64, bytes: u64) {
        for i in 0..bytes.div_ceil(VECTOR_BYTES) {
            memory.store_payload(item + HEADER_BYTES + i * VECTOR_BYTES, [i + 1; 4], 0, 2);
        }
    }

    #[inline(always)]
    fn request<M: Memory>(&mut self, memory: &mut M, key: u64, get: bool) {
        let item = self.find(memory, key);
        if item == 0 {
            self.insert(memory, key);
            return;
        }
        let bytes: u64 = memory.load(item + KEY + 8, 2, 3);
        if get {
            for i in 0..bytes.div_ceil(VECTOR_BYTES) {
                // The load that gave the item lies behind its key, its length and the vectors so far.
                let depends_on = (3 + i).min(255) as u8;
                memory.load_payload::<[u64; 4]>(item + HEADER_BYTES + i * VECTOR_BYTES, depends_on, 2);
            }
        } else {
            self.write_value(memory, item, bytes);
        }
        let class = self.classes + CLASS_BYTES * self.class_of(bytes) as u64;
        let head: u64 = memory.load(class, 0, 3);
        if head != item {
            self.unlink(memory, class, item);
            self.push_front(memory, class, item);
        }
    }
}

impl Kernel for Cache {
    #[inline]
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if self.loaded < self.to_load {
            self.request(memory, self.loaded + 1, false);
            self.loaded += 1;
            return Progress::Working;
        }
        if !std::mem::replace(&mut self.running, true) {
            self.program.pace.open(memory);
            return Progress::Run;
        }
        if self.left == 0 {
            return Progress::Done;
        }
        self.left -= 1;
        let key = self.order.apply(self.zipf.sample(&mut self.random)) + 1;
        let get = self.random.unit() < self.program.reads;
        self.program.pace.begin(memory);
        self.request(memory, key, get);
        self.program.pace.end(memory);
        Progress::Working
    }
}
