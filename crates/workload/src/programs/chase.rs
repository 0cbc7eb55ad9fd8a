//! A dependent pointer chase: one miss at a time.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};
use crate::random::{Permutation, hash};
use terrace_model::Bytes;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "chase",
    summary: "dependent pointer chase over a random cycle (lmbench lat_mem_rd)",
    description: "\
An array of nodes is linked into one random cycle; each load gives the address of the next, so nothing overlaps and \
the time per access is the latency of memory and of translation. Every node is visited once per lap.

Stands for lat_mem_rd of lmbench (McVoy and Staelin, 1996) with a random order. It differs: the cycle is a computed \
permutation, so a simulation needs no memory for it and a footprint of hundreds of gigabytes costs nothing; a native \
run writes the pointers first and really follows them. Each thread has its own slice of the array and its own cycle.",
    parameters: declared::<Parameters>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Size of the array.
    #[parameter(default = "1 GiB", range = "4 KiB"..="32 TiB")]
    bytes: Bytes,
    /// Distance of the nodes: a multiple of 8 bytes.
    #[parameter(default = "64 B", range = "8 B"..="32 TiB")]
    node: Bytes,
    /// Loads, all threads together.
    #[parameter(default = "20e6", range = 1..=LARGEST_COUNT, unit = "accesses")]
    accesses: u64,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

#[derive(Clone)]
pub(crate) struct Chase {
    node: u64,
    nodes: u64,
    accesses: u64,
    threads: u32,
    seed: u64,
    array: u64,
    layout: Layout,
}

impl Chase {
    fn cycle(&self, thread: u32) -> Cycle {
        let own = share(self.nodes, thread, self.threads);
        let nodes = own.end - own.start;
        let order = Permutation::new(nodes, hash(self.seed, thread.into()));
        Cycle { order, nodes, node: self.node, base: self.array + own.start * self.node }
    }
}

impl Program for Chase {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Walk;

    fn new(parameters: &Parameters) -> Result<Chase, Problem> {
        let node = parameters.node.0;
        if !node.is_multiple_of(8) {
            return Err(Problem::new("node", "a multiple of 8 B"));
        }
        let threads = parameters.threads.count;
        let nodes = parameters.bytes.0 / node;
        if nodes < u64::from(threads) {
            return Err(Problem::new("bytes", "room for at least one node per thread"));
        }
        let mut layout = Layout::new(parameters.start.init);
        let array = layout.array("nodes", nodes * node);
        let accesses = parameters.accesses;
        Ok(Chase { node, nodes, accesses, threads, seed: parameters.seed.number, array, layout })
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Walk {
        let own = share(self.accesses, index, self.threads);
        let cycle = self.cycle(index);
        let at = cycle.address(0);
        Walk { cycle, position: 0, at, left: own.end - own.start, depends_on: 0 }
    }

    fn kernel_accesses(&self) -> u64 {
        self.accesses
    }

    fn prepare(&self, memory: &Backing) {
        for cycle in (0..self.threads).map(|thread| self.cycle(thread)) {
            for position in 0..cycle.nodes {
                memory.write(cycle.address(position), cycle.address(cycle.after(position)));
            }
        }
    }
}

/// The nodes of one thread in the order of visit.
struct Cycle {
    order: Permutation,
    nodes: u64,
    node: u64,
    base: u64,
}

impl Cycle {
    #[inline(always)]
    fn address(&self, position: u64) -> u64 {
        self.base + self.order.apply(position) * self.node
    }

    #[inline(always)]
    fn after(&self, position: u64) -> u64 {
        if position + 1 == self.nodes { 0 } else { position + 1 }
    }
}

/// One thread's chase.
pub(crate) struct Walk {
    cycle: Cycle,
    position: u64,
    at: u64,
    left: u64,
    depends_on: u8,
}

impl Kernel for Walk {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        let count = self.left.min(128);
        for _ in 0..count {
            // Load, count, branch.
            let next: u64 = memory.load(self.at, self.depends_on, 3);
            self.depends_on = 1;
            self.at = if M::HOLDS_DATA {
                next
            } else {
                self.position = self.cycle.after(self.position);
                self.cycle.address(self.position)
            };
        }
        self.left -= count;
        if self.left == 0 { Progress::Done } else { Progress::Working }
    }
}
