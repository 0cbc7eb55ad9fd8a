//! Look-ups in a tree of wide nodes on a GPU: a group searches one node with all its work-items.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, load_some, store_some};
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::random::{hash, scale};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-btree",
    summary: "on a GPU: look-ups in a B+tree of order 256, a work-group for each",
    description: "\
A group looks for one key. On each level its 256 work-items compare the key with all keys of the node, each with its own and the next; one \
of them reads which child to go to. All searches begin at the root.

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
        self.lookups * (self.levels * (4 * WARPS * LANES + 2) + 1)
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
        let key = scale(hash(self.seed, lookup), self.keys);
        let first = |lane: u64| place + lane == 0;
        if piece == self.levels {
            return store_some::<u32>(memory, first, |_| self.answers + 4 * lookup, 4);
        }
        let before = (0..piece).map(|level| nodes_of(self.keys, self.levels, level)).sum::<u64>();
        let within = ORDER.pow((self.levels - piece) as u32);
        let node = self.nodes + NODE * (before + key / within);
        let keys = |lane: u64| node + 8 + 4 * (place + lane);
        load_lanes::<u64>(memory, |_| self.current + 8 * lookup, piece > 0, 6);
        load_lanes::<u32>(memory, keys, true, 4);
        load_lanes::<u32>(memory, |_| self.wanted + 4 * lookup, false, 2);
        load_lanes::<u32>(memory, |lane| keys(lane) + 4, false, 2);
        // The one whose part the key lies in.
        let child = key / (within / ORDER).max(1) % ORDER;
        let found = |lane: u64| place + lane == child;
        load_some::<u32>(memory, found, |_| node + 8 + 4 * (ORDER + 1) + 4 * child, true, 3);
        store_some::<u64>(memory, found, |_| self.current + 8 * lookup, 2);
    }
}
