//! Look-ups in a tree of wide nodes on a GPU: a group searches one node with all its work-items.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, load_some, store_some};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array, Number};
use crate::parameters::*;
use crate::random::{hash, scale};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-btree",
    summary: "on a GPU: look-ups in a B+tree of order 256, a work-group for each",
    description: "\
A group looks for one key. On each level its 256 work-items compare the key with all keys of the node, each with its own and, where that is not \
larger, with the next; one of them reads which child to go to. All searches begin at the root.

Stands for Rodinia's b+tree (Che et al., IISWC 2009). It differs: keys are uniform, and nodes of a level lie side by side.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

/// Children of a node.
const ORDER: u64 = 256;
/// Bytes of a node: its place and whether it is a leaf, keys and children with one more of each.
const NODE: u64 = 8 + 8 * (ORDER + 1);

/// Nodes of a level; the root's is level 0.
fn nodes_of(keys: u64, levels: u64, level: u64) -> u64 {
    keys.div_ceil(ORDER.pow((levels - level) as u32))
}

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Keys in the tree.
    #[parameter(default = 1000000, range = 257..=1_000_000_000, unit = "keys")]
    keys: u64,
    /// Look-ups.
    #[parameter(default = 10000, range = 1..=100_000_000, unit = "look-ups")]
    lookups: u64,
    #[parameter(flatten)]
    seed: Seed,
}

#[derive(Clone)]
pub(crate) struct Work {
    keys: u64,
    lookups: u64,
    levels: u64,
    seed: u64,
    nodes: u64,
    current: u64,
    wanted: u64,
    answers: u64,
}

impl Work {
    /// The key of a look-up.
    fn key(&self, lookup: u64) -> u64 {
        scale(hash(self.seed, lookup), self.keys)
    }

    /// Keys below a node of a level.
    fn within(&self, level: u64) -> u64 {
        ORDER.pow((self.levels - level) as u32)
    }

    /// Which child of its node on a level a key lies below.
    fn child(&self, key: u64, level: u64) -> u64 {
        let within = self.within(level);
        key % within / (within / ORDER)
    }
}

impl OnGpu for Work {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Work, Problem> {
        let Parameters { keys, lookups, .. } = *parameters;
        let levels = (1..).find(|levels| ORDER.pow(*levels) >= keys).unwrap_or(1).into();
        let nodes = (0..levels).map(|level| nodes_of(keys, levels, level)).sum::<u64>();
        Ok(Work {
            keys,
            lookups,
            levels,
            seed: parameters.seed.number,
            nodes: layout.array("knodesD", NODE * nodes),
            current: layout.array("currKnodeD", 8 * lookups),
            wanted: layout.array("keysD", 4 * lookups),
            answers: layout.array("ansD", 4 * lookups),
        })
    }

    fn launches(&self) -> u64 {
        1
    }

    fn accesses(&self) -> u64 {
        // Keys up to that of the child are compared with the next as well.
        let second = |key| (0..self.levels).map(|level| self.child(key, level) + 1).sum::<u64>();
        let seconds = (0..self.lookups).map(|lookup| second(self.key(lookup))).sum::<u64>();
        self.lookups * (self.levels * (3 * WARPS * LANES + 2) + 1) + seconds
    }

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_btree.cl"));

    fn arguments(&self, _: u64) -> Vec<Argument> {
        let arrays = [self.nodes, self.current, self.wanted, self.answers].map(Array);
        [&arrays[..], &[Number(self.levels)]].concat()
    }

    fn fill(&self, memory: &Backing) {
        let mut before = 0;
        for level in 0..self.levels {
            let (nodes, within) = (nodes_of(self.keys, self.levels, level), self.within(level));
            // Children of the last level are the keys themselves.
            let below = if level + 1 == self.levels { 0 } else { before + nodes };
            for node in 0..nodes {
                let keys = self.nodes + NODE * (before + node) + 8;
                for at in 0..=ORDER {
                    let key = node * within + at * (within / ORDER);
                    memory.write(keys + 4 * at, key.min(u32::MAX.into()) as u32);
                    memory.write(keys + 4 * (ORDER + 1 + at), (below + node * ORDER + at) as u32);
                }
            }
            before += nodes;
        }
        for lookup in 0..self.lookups {
            memory.write(self.wanted + 4 * lookup, self.key(lookup) as u32);
        }
    }

    fn compute(&self, memory: &Backing) {
        for lookup in 0..self.lookups {
            memory.write(self.current + 8 * lookup, self.key(lookup));
            memory.write(self.answers + 4 * lookup, self.key(lookup) as u32);
        }
    }
}

impl Warps for Work {
    const PIECE: u64 = 4 * LANES + 2;

    fn name(&self, _: u64) -> &'static str {
        "findK"
    }

    fn groups(&self, _: u64) -> u64 {
        self.lookups
    }

    fn pieces(&self, _: u64) -> u64 {
        self.levels + 1
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { warp, piece, .. }: Place) {
        let (lookup, place) = (warp / WARPS, warp % WARPS * LANES);
        let key = self.key(lookup);
        let first = |lane: u64| place + lane == 0;
        if piece == self.levels {
            return store_some::<u32>(memory, first, |_| self.answers + 4 * lookup, 4);
        }
        let before = (0..piece).map(|level| nodes_of(self.keys, self.levels, level)).sum::<u64>();
        let node = self.nodes + NODE * (before + key / self.within(piece));
        let keys = |lane: u64| node + 8 + 4 * (place + lane);
        load_lanes::<u64>(memory, |_| self.current + 8 * lookup, piece > 0, 6);
        load_lanes::<u32>(memory, keys, true, 4);
        load_lanes::<u32>(memory, |_| self.wanted + 4 * lookup, false, 2);
        let child = self.child(key, piece);
        load_some::<u32>(memory, |lane| place + lane <= child, |lane| keys(lane) + 4, false, 2);
        // The one whose part the key lies in.
        let found = |lane: u64| place + lane == child;
        load_some::<u32>(memory, found, |_| node + 8 + 4 * (ORDER + 1) + 4 * child, true, 3);
        store_some::<u64>(memory, found, |_| self.current + 8 * lookup, 2);
    }
}
