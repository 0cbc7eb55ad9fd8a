//! A key-value store under Zipf requests, as Redis keeps one.

use crate::WorkloadInfo;
use crate::layout::{Heap, Layout, map};
use crate::memory::{Memory, prefetch};
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};
use crate::random::{Permutation, Random, Zipf, hash, mix};
use crate::requests::{Pace, StoreRequests, Think};
use std::collections::VecDeque;
use terrace_model::{AddressRange, Bytes};
use terrace_trace::{Event, MapKind};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "kv",
    summary: "Zipf requests to a hash table that grows as it is filled (Redis under YCSB)",
    description: "\
A hash table of chained entries; an entry points to its key and to its value. GET finds the entry and reads the value, \
SET overwrites it; a GET that misses and a SET of a new key insert. Keys are drawn by a Zipf distribution and \
scattered over the key space. Nothing is allocated beforehand: entries, keys and values come from a heap that grows \
by `brk`; when there are as many entries as buckets, a table of twice the size is mapped and every request moves one \
bucket until the old table can be unmapped. Bucket, entry, key and value are loads each dependent on the one before.

Stands for Redis (its dict, with incremental rehashing) under the core workloads of YCSB (Cooper et al., 2010), whose \
Zipf exponent is 0.99. It differs: no network, no command parsing beyond its instruction count, no expiry; keys are \
16 bytes; the heap is a bump allocator; the table begins with 512 buckets. Each thread is a store of its own with its \
share of the keys, as a Redis cluster on one host. Initialisation inserts the share `preload` of the keys in order.",
    parameters: declared::<Parameters>,
    exact: false,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    #[parameter(flatten)]
    store: StoreRequests,
    /// Size of a value.
    #[parameter(default = "512 B", range = Bytes(1)..=Bytes(LARGEST_VALUE))]
    value: Bytes,
    #[parameter(flatten, default = Pace { think: Think { instructions: 0 }, ..Pace::default() })]
    pace: Pace,
    #[parameter(flatten)]
    settle: Settle,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

const FIRST_BUCKETS: u64 = 512;
/// Entry: pointer to the key, pointer to the value, next entry.
const ENTRY_BYTES: u64 = 32;
const ENTRY_VALUE: u64 = 8;
const ENTRY_NEXT: u64 = 16;
const KEY_BYTES: u64 = 32;
/// Value: a header with its length, then the bytes.
const VALUE_HEADER: u64 = 16;
/// Values are copied with vector registers of 32 bytes.
const VECTOR_BYTES: u64 = 32;
/// Requests drawn ahead of the one that is served, so that emission can look ahead.
const DRAWN_AHEAD: usize = 12;
/// Where in that queue a bucket's first entry is looked for.
const ENTRY_AHEAD: usize = 6;

/// Largest value: a request stays within what one step may issue.
const LARGEST_VALUE: u64 = 4096;

#[derive(Clone)]
pub(crate) struct KeyValue {
    keys: u64,
    value: u64,
    requests: u64,
    reads: f64,
    zipf: f64,
    preload: f64,
    pace: Pace,
    threads: u32,
    seed: u64,
    /// Room for the heap and for the tables of each thread.
    heaps: Vec<AddressRange>,
    tables: Vec<u64>,
    sites: [u32; 3],
    layout: Layout,
}

impl KeyValue {
    fn vectors(&self) -> u64 {
        self.value.div_ceil(VECTOR_BYTES)
    }

    /// Bytes of an entry with its key and its value.
    fn object(&self) -> u64 {
        ENTRY_BYTES + KEY_BYTES + VALUE_HEADER + self.vectors() * VECTOR_BYTES
    }
}

impl Program for KeyValue {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Store;

    fn new(parameters: &Parameters) -> Result<KeyValue, Problem> {
        let threads = parameters.threads.count;
        let value = parameters.value.0;
        let mut program = KeyValue {
            keys: at_least("keys", parameters.store.keys, threads.into())?,
            value,
            requests: parameters.store.requests,
            reads: parameters.store.reads,
            zipf: parameters.store.zipf,
            preload: parameters.store.preload,
            pace: parameters.pace,
            threads,
            seed: parameters.seed.number,
            heaps: Vec::new(),
            tables: Vec::new(),
            sites: [0; 3],
            layout: Layout::new(Init::None).settling(parameters.settle.instructions),
        };
        let object = program.object();
        for thread in 0..threads {
            let own = share(program.keys, thread, threads);
            let used = (own.end - own.start) * object;
            let room = used + (1 << 20);
            program.heaps.push(AddressRange::new(program.layout.reserve(room, used), room));
            // The table of s bytes lies at offset s, so that sizes up to the last fit side by side.
            let last = 8 * (own.end - own.start).next_power_of_two().max(FIRST_BUCKETS);
            program.tables.push(program.layout.reserve(2 * last, last));
        }
        program.sites = ["bucket table", "entry and key", "value"].map(|name| program.layout.site(name));
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

    fn thread(&self, index: u32) -> Store {
        let keys = share(self.keys, index, self.threads);
        let keys = keys.end - keys.start;
        let requests = share(self.requests, index, self.threads);
        let room = self.heaps[index as usize];
        Store {
            heap: Heap::new(room.start.0, room.bytes, index),
            first_entry: room.start.0,
            tables: self.tables[index as usize],
            table: Table { address: 0, buckets: 0, object: 0 },
            old: None,
            rehashed: 0,
            entries: 0,
            random: Random::of_thread(self.seed, index),
            zipf: Zipf::new(keys, self.zipf),
            order: Permutation::new(keys, hash(self.seed, index.into())),
            loaded: 0,
            to_load: (keys as f64 * self.preload) as u64,
            running: false,
            left: requests.end - requests.start,
            drawn: VecDeque::with_capacity(DRAWN_AHEAD + 1),
            shadow: Shadow::default(),
            program: self.clone(),
        }
    }

    fn kernel_accesses(&self) -> u64 {
        let value = self.vectors() as f64;
        // Finding an entry: bucket, then about one and a half entries of two loads and a next pointer each.
        let find = 4.5;
        let insert = 9.0 + value;
        let preloaded = self.keys as f64 * self.preload;
        // What a growing table adds per entry: the old bucket, the move of four accesses.
        let rehash = 6.0;
        let run = self.requests as f64 * (find + 2.0 + value);
        (preloaded * (3.0 + insert + rehash) + run) as u64
    }
}

#[derive(Clone, Copy)]
struct Table {
    address: u64,
    buckets: u64,
    object: u64,
}

impl Table {
    #[inline(always)]
    fn bucket(&self, hash: u64) -> u64 {
        hash & (self.buckets - 1)
    }

    #[inline(always)]
    fn address_of(&self, bucket: u64) -> u64 {
        self.address + 8 * bucket
    }
}

/// What the tables and entries hold, where memory holds nothing: 16 bytes per entry, whatever the size of a value.
#[derive(Default)]
struct Shadow {
    /// First entry of each bucket: of the table, and of the old one.
    heads: Vec<u64>,
    old_heads: Vec<u64>,
    /// Key and next entry, in the order of their addresses.
    entries: Vec<(u64, u64)>,
}

/// One thread's store.
pub(crate) struct Store {
    program: KeyValue,
    heap: Heap,
    /// Address of the first entry.
    first_entry: u64,
    tables: u64,
    table: Table,
    /// The table that is being emptied into `table`.
    old: Option<Table>,
    rehashed: u64,
    entries: u64,
    random: Random,
    zipf: Zipf,
    order: Permutation,
    loaded: u64,
    to_load: u64,
    running: bool,
    /// Requests neither drawn nor served.
    left: u64,
    /// Requests drawn: key, and whether it is a GET.
    drawn: VecDeque<(u64, bool)>,
    shadow: Shadow,
}

impl Store {
    /// The next request, while there is one; others are drawn ahead of it.
    fn next_request(&mut self) -> Option<(u64, bool)> {
        while self.left > 0 && self.drawn.len() <= DRAWN_AHEAD {
            self.left -= 1;
            // Keys count from 1, popular ones are scattered.
            let key = self.order.apply(self.zipf.sample(&mut self.random)) + 1;
            let get = self.random.unit() < self.program.reads;
            prefetch(&self.shadow.heads, self.table.bucket(mix(key)));
            self.drawn.push_back((key, get));
        }
        if let Some((key, _)) = self.drawn.get(ENTRY_AHEAD) {
            let head = self.shadow.heads.get(self.table.bucket(mix(*key)) as usize);
            self.look_for_entry(head.copied());
        }
        self.drawn.pop_front()
    }

    /// Asks the host's memory for an entry of the shadow, ahead of its use.
    fn look_for_entry(&self, entry: Option<u64>) {
        if let Some(entry) = entry
            && entry != 0
        {
            prefetch(&self.shadow.entries, self.number(entry));
        }
    }

    /// Which entry lies at an address: entry, key and value of one are followed by those of the next.
    #[inline(always)]
    fn number(&self, entry: u64) -> u64 {
        (entry - self.first_entry) / self.program.object()
    }

    /// Key of an entry in the shadow.
    #[inline(always)]
    fn shadow_key(&self, entry: u64) -> u64 {
        self.shadow.entries[self.number(entry) as usize].0
    }

    /// Next of an entry in the shadow.
    #[inline(always)]
    fn shadow_next(&self, entry: u64) -> u64 {
        self.shadow.entries[self.number(entry) as usize].1
    }

    /// Maps a table of `buckets` buckets.
    fn new_table<M: Memory>(&mut self, memory: &mut M, buckets: u64) -> Table {
        let range = AddressRange::new(self.tables + 8 * buckets, 8 * buckets);
        map(memory, range, MapKind::Anonymous);
        let object = self.heap.announce(memory, self.program.sites[0], range);
        if !M::HOLDS_DATA {
            let heads = vec![0; buckets as usize];
            self.shadow.old_heads = std::mem::replace(&mut self.shadow.heads, heads);
        }
        Table { address: range.start.0, buckets, object }
    }

    /// Moves one bucket of the old table into the new one, passing up to ten empty ones.
    fn rehash<M: Memory>(&mut self, memory: &mut M) {
        let Some(old) = self.old else { return };
        for _ in 0..10 {
            if self.rehashed == old.buckets {
                if M::WANTS_EVENTS {
                    memory.event(Event::Free { object: old.object });
                    memory.event(Event::Unmap { range: AddressRange::new(old.address, 8 * old.buckets) });
                }
                self.old = None;
                self.shadow.old_heads = Vec::new();
                return;
            }
            let bucket = self.rehashed;
            let at = old.address_of(bucket);
            self.rehashed += 1;
            self.look_for_entry(self.shadow.old_heads.get(bucket as usize + 4).copied());
            let read: u64 = memory.load(at, 0, 5);
            let mut entry = if M::HOLDS_DATA { read } else { self.shadow.old_heads[bucket as usize] };
            if entry == 0 {
                continue;
            }
            let mut depends_on = 1;
            while entry != 0 {
                let read: u64 = memory.load(entry + ENTRY_NEXT, depends_on, 2);
                let next = if M::HOLDS_DATA { read } else { self.shadow_next(entry) };
                let read: u64 = memory.load(entry, depends_on + 1, 1);
                let key_at = if M::HOLDS_DATA { read } else { entry + ENTRY_BYTES };
                let read: [u64; 2] = memory.load(key_at, 1, 2);
                let key = if M::HOLDS_DATA { read[0] } else { self.shadow_key(entry) };
                let target = self.table.bucket(mix(key));
                // Hashing a 16-byte key costs about forty instructions (SipHash-1-2).
                let read: u64 = memory.load(self.table.address_of(target), 1, 40);
                let head = if M::HOLDS_DATA { read } else { self.shadow.heads[target as usize] };
                memory.store(entry + ENTRY_NEXT, head, depends_on + 4, 1);
                memory.store(self.table.address_of(target), entry, 2, 1);
                if !M::HOLDS_DATA {
                    let number = self.number(entry);
                    self.shadow.entries[number as usize].1 = head;
                    self.shadow.heads[target as usize] = entry;
                }
                entry = next;
                // The next pointer's load lies before those of the key pointer, the key and the head.
                depends_on = 4;
            }
            memory.store(at, 0u64, 0, 3);
            if !M::HOLDS_DATA {
                self.shadow.old_heads[bucket as usize] = 0;
            }
            return;
        }
    }

    /// The entry of `key`, or 0. The load of its value pointer depends on one three loads back.
    #[inline(always)]
    fn find<M: Memory>(&mut self, memory: &mut M, key: u64, hash: u64) -> u64 {
        for (table, heads) in [(self.old, &self.shadow.old_heads), (Some(self.table), &self.shadow.heads)] {
            let Some(table) = table else { continue };
            let bucket = table.bucket(hash);
            // Command dispatch and hashing come before the first load.
            let read: u64 = memory.load(table.address_of(bucket), 0, 120);
            let mut entry = if M::HOLDS_DATA { read } else { heads[bucket as usize] };
            let mut depends_on = 1;
            while entry != 0 {
                let read: u64 = memory.load(entry, depends_on, 3);
                let key_at = if M::HOLDS_DATA { read } else { entry + ENTRY_BYTES };
                let read: [u64; 2] = memory.load(key_at, 1, 8);
                if key == if M::HOLDS_DATA { read[0] } else { self.shadow_key(entry) } {
                    return entry;
                }
                let read: u64 = memory.load(entry + ENTRY_NEXT, depends_on + 2, 2);
                entry = if M::HOLDS_DATA { read } else { self.shadow_next(entry) };
                depends_on = 1;
            }
        }
        0
    }

    fn insert<M: Memory>(&mut self, memory: &mut M, key: u64, hash: u64) {
        if self.old.is_none() && self.entries >= self.table.buckets {
            let table = self.new_table(memory, 2 * self.table.buckets);
            self.old = Some(std::mem::replace(&mut self.table, table));
            self.rehashed = 0;
        }
        let [_, entry_site, value_site] = self.program.sites;
        let entry = self.heap.allocate(memory, ENTRY_BYTES + KEY_BYTES, Some(entry_site));
        let bytes = VALUE_HEADER + self.program.vectors() * VECTOR_BYTES;
        let value = self.heap.allocate(memory, bytes, Some(value_site));
        let key_at = entry + ENTRY_BYTES;
        // Two calls of malloc, about fifty instructions each.
        memory.store(key_at, [key, key], 0, 50);
        memory.store_payload(value, [self.program.value, 0], 0, 50);
        self.write_value(memory, value, 0);
        let bucket = self.table.bucket(hash);
        let read: u64 = memory.load(self.table.address_of(bucket), 0, 3);
        let head = if M::HOLDS_DATA { read } else { self.shadow.heads[bucket as usize] };
        memory.store(entry, key_at, 0, 1);
        memory.store(entry + ENTRY_VALUE, value, 0, 1);
        memory.store(entry + ENTRY_NEXT, head, 0, 1);
        memory.store(self.table.address_of(bucket), entry, 0, 2);
        if !M::HOLDS_DATA {
            debug_assert_eq!(self.number(entry), self.shadow.entries.len() as u64);
            self.shadow.entries.push((key, head));
            self.shadow.heads[bucket as usize] = entry;
        }
        self.entries += 1;
    }

    #[inline(always)]
    fn write_value<M: Memory>(&self, memory: &mut M, value: u64, depends_on: u8) {
        for i in 0..self.program.vectors() {
            memory.store_payload(value + VALUE_HEADER + i * VECTOR_BYTES, [i + 1; 4], depends_on, 2);
        }
    }

    #[inline(always)]
    fn request<M: Memory>(&mut self, memory: &mut M, key: u64, get: bool) {
        self.rehash(memory);
        let hash = mix(key);
        let entry = self.find(memory, key, hash);
        if entry == 0 {
            self.insert(memory, key, hash);
            return;
        }
        let read: u64 = memory.load(entry + ENTRY_VALUE, 3, 4);
        let value = if M::HOLDS_DATA { read } else { entry + ENTRY_BYTES + KEY_BYTES };
        memory.load_payload::<[u64; 2]>(value, 1, 3);
        if get {
            for i in 0..self.program.vectors() {
                // The value's pointer lies behind its header and the vectors read so far.
                let depends_on = (2 + i).min(255) as u8;
                memory.load_payload::<[u64; 4]>(value + VALUE_HEADER + i * VECTOR_BYTES, depends_on, 2);
            }
        } else {
            self.write_value(memory, value, 2);
        }
    }
}

impl Kernel for Store {
    #[inline]
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if self.table.buckets == 0 {
            self.table = self.new_table(memory, FIRST_BUCKETS);
        }
        if self.loaded < self.to_load {
            prefetch(&self.shadow.heads, self.table.bucket(mix(self.loaded + 1 + DRAWN_AHEAD as u64)));
            self.request(memory, self.loaded + 1, false);
            self.loaded += 1;
            return Progress::Working;
        }
        if !std::mem::replace(&mut self.running, true) {
            self.program.pace.open(memory);
            return Progress::Run;
        }
        match self.next_request() {
            Some((key, get)) => {
                self.program.pace.begin(memory);
                self.request(memory, key, get);
                self.program.pace.end(memory);
                Progress::Working
            }
            None => Progress::Done,
        }
    }
}
