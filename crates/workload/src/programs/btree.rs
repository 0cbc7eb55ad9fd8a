//! Lookups in a B+ tree.

use crate::WorkloadInfo;
use crate::layout::{Heap, Layout};
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};
use crate::random::{Permutation, Random, Zipf};
use terrace_model::Bytes;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "btree",
    summary: "point lookups in a bulk-loaded B+ tree that grew node by node",
    description: "\
Initialisation loads sorted keys into a B+ tree: the rightmost leaf is filled, then a new node is allocated and its \
separator goes to its parent, so the heap grows as the tree does. The run looks up keys: from the root down, a binary \
search in each node, each probe dependent on the one before it.

Stands for the BTree index lookups used in translation studies (for one Mitosis, Achermann et al., ASPLOS 2020), and \
for the access path of in-memory database indexes. It differs: the tree is bulk-loaded with full nodes and is not \
changed afterwards; nodes are pages of `node` bytes with key and pointer side by side. The first thread loads, all \
threads look up.",
    parameters: declared::<Parameters>,
    exact: false,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Keys in the tree, 16 bytes each in a leaf.
    #[parameter(default = "12e6", range = 1..=(1 << 40), unit = "keys")]
    keys: u64,
    /// Size of a node: a multiple of 64 B.
    #[parameter(default = "4 KiB", range = "64 B"..="1 MiB")]
    node: Bytes,
    /// Lookups, all threads together.
    #[parameter(default = "600e3", range = 1..=LARGEST_COUNT, unit = "lookups")]
    lookups: u64,
    /// Zipf exponent of the keys looked up; 0 is uniform.
    #[parameter(default = 0.0, range = 0.0..=4.0, unit = "exponent")]
    zipf: f64,
    #[parameter(flatten)]
    settle: Settle,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

/// A node's header holds the number of its entries.
const HEADER_BYTES: u64 = 16;
const ENTRY_BYTES: u64 = 16;

#[derive(Clone)]
pub(crate) struct BTree {
    keys: u64,
    node: u64,
    lookups: u64,
    zipf: f64,
    threads: u32,
    seed: u64,
    heap: u64,
    heap_bytes: u64,
    handle: u64,
    site: u32,
    layout: Layout,
}

impl BTree {
    fn fanout(&self) -> u64 {
        (self.node - HEADER_BYTES) / ENTRY_BYTES
    }

    /// Nodes on each level, from the leaves to the root.
    fn levels(&self) -> Vec<u64> {
        let mut levels = vec![self.keys.div_ceil(self.fanout())];
        while let Some(&count) = levels.last()
            && count > 1
        {
            levels.push(count.div_ceil(self.fanout()));
        }
        levels
    }
}

impl Program for BTree {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Tree;

    fn new(parameters: &Parameters) -> Result<BTree, Problem> {
        let node = parameters.node.0;
        if !node.is_multiple_of(64) {
            return Err(Problem::new("node", "a multiple of 64 B"));
        }
        let mut tree = BTree {
            keys: parameters.keys,
            node,
            lookups: parameters.lookups,
            zipf: parameters.zipf,
            threads: parameters.threads.count,
            seed: parameters.seed.number,
            heap: 0,
            heap_bytes: 0,
            handle: 0,
            site: 0,
            layout: Layout::new(Init::None).settling(parameters.settle.instructions),
        };
        let used = tree.levels().iter().sum::<u64>() * node;
        tree.heap_bytes = used + (1 << 20);
        tree.heap = tree.layout.reserve(tree.heap_bytes, used);
        tree.handle = tree.layout.array("tree", 64);
        tree.site = tree.layout.site("node");
        Ok(tree)
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

    fn thread(&self, index: u32) -> Tree {
        let own = share(self.lookups, index, self.threads);
        Tree {
            heap: Heap::new(self.heap, self.heap_bytes, 0),
            open: Vec::new(),
            loaded: if index == 0 { 0 } else { self.keys },
            running: false,
            handle: self.handle,
            height: self.levels().len(),
            random: Random::of_thread(self.seed, index),
            zipf: (self.zipf > 0.0).then(|| Zipf::new(self.keys, self.zipf)),
            order: Permutation::new(self.keys, self.seed),
            left: own.end - own.start,
            last_key: 0,
            program: self.clone(),
        }
    }

    fn kernel_accesses(&self) -> u64 {
        let levels = self.levels();
        let nodes: u64 = levels.iter().sum();
        // One store per entry (the root is nobody's entry) and one per node for its count.
        let load = self.keys + nodes - 1 + nodes + 1;
        let mut entries = self.keys;
        let mut probes = 0.0;
        for count in levels {
            // Each level costs the count and about log2 of the entries of its average node.
            probes += 1.0 + (entries as f64 / count as f64).log2().max(0.0);
            entries = count;
        }
        load + (self.lookups as f64 * (probes + 2.0)) as u64
    }

    fn needs_contents(&self) -> bool {
        true
    }
}

/// The rightmost node of a level while the tree is loaded.
struct Open {
    address: u64,
    first_key: u64,
    entries: u64,
}

/// One thread's view of the tree.
pub(crate) struct Tree {
    program: BTree,
    heap: Heap,
    open: Vec<Open>,
    loaded: u64,
    running: bool,
    /// Where the root's address is kept.
    handle: u64,
    height: usize,
    random: Random,
    zipf: Option<Zipf>,
    order: Permutation,
    left: u64,
    /// Loads since that of the last key that was compared; 0 before the first lookup. How many a node's search compares
    /// is not to be foreseen, so that the processor goes on behind a lookup only when the last key is known. Measured:
    /// docs/src/page-sizes-measured.md.
    last_key: u8,
}

impl Tree {
    /// Appends an entry to the rightmost node of `level`. A full node is closed and entered into its parent.
    fn append<M: Memory>(&mut self, memory: &mut M, level: usize, key: u64, pointer: u64) {
        let full = self.open.get(level).is_some_and(|open| open.entries == self.program.fanout());
        if full {
            self.close(memory, level);
        }
        if full || level == self.open.len() {
            let address = self.heap.allocate(memory, self.program.node, Some(self.program.site));
            let open = Open { address, first_key: key, entries: 0 };
            if full { self.open[level] = open } else { self.open.push(open) }
        }
        let open = &mut self.open[level];
        let at = open.address + HEADER_BYTES + open.entries * ENTRY_BYTES;
        open.entries += 1;
        memory.store(at, [key, pointer], 0, 6);
    }

    /// Writes the count of the rightmost node of `level` and enters it into its parent.
    fn close<M: Memory>(&mut self, memory: &mut M, level: usize) {
        let Open { address, first_key, entries } = self.open[level];
        memory.store(address, entries, 0, 3);
        self.append(memory, level + 1, first_key, address);
    }

    /// Closes the rightmost node of every level up to the root, which alone has no parent.
    fn finish<M: Memory>(&mut self, memory: &mut M) {
        let mut level = 0;
        while level + 1 < self.height {
            self.close(memory, level);
            level += 1;
        }
        let Open { address, entries, .. } = self.open[level];
        memory.store(address, entries, 0, 3);
        memory.store(self.handle, address, 0, 2);
    }

    fn look_up<M: Memory>(&self, memory: &mut M, key: u64) {
        let mut node: u64 = memory.load(self.handle, self.last_key, 10);
        for level in (0..self.height).rev() {
            let count: u64 = memory.load(node, 1, 4);
            // Loads since the one that gave the node's address: the count comes in between.
            let mut depends = 2;
            let (mut low, mut high) = (0, count);
            let mut probes = 0u8;
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                let at: u64 = memory.load(node + HEADER_BYTES + middle * ENTRY_BYTES, depends, 6);
                if at > key {
                    high = middle
                } else {
                    low = middle
                }
                depends = 1;
                probes += 1;
            }
            let pointer = node + HEADER_BYTES + low * ENTRY_BYTES + 8;
            if level == 0 {
                memory.load_payload::<u64>(pointer, if probes > 0 { 1 } else { depends }, 4);
                return;
            }
            node = memory.load(pointer, if probes > 0 { 1 } else { depends }, 3);
        }
    }
}

impl Kernel for Tree {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if !self.running {
            let end = self.program.keys.min(self.loaded + 128);
            let last = self.loaded < end && end == self.program.keys;
            for key in self.loaded..end {
                self.append(memory, 0, key, !key);
            }
            self.loaded = end;
            if last {
                self.finish(memory);
            }
            self.running = end == self.program.keys;
            return if self.running { Progress::Run } else { Progress::Working };
        }
        if self.left == 0 {
            return Progress::Done;
        }
        self.left -= 1;
        let key = match &self.zipf {
            Some(zipf) => self.order.apply(zipf.sample(&mut self.random)),
            None => self.random.below(self.program.keys),
        };
        self.look_up(memory, key);
        // Behind it only that of the value.
        self.last_key = 2;
        Progress::Working
    }
}
