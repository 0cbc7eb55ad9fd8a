//! Matches of short texts in a long one on a GPU: walks down a tree of suffixes.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, store_lanes};
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::random::hash;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-mummer",
    summary: "on a GPU: short texts are matched in a tree of suffixes",
    description: "\
Each work-item has a text. It follows the text's letters from the root of a tree of suffixes: a letter is read, then the node that it \
leads to, and after some letters the walk ends and begins anew at another place of the tree. Few nodes near the root are read most; the part \
of the tree that no text leads to is never read.

Stands for MUMmerGPU (Schatz et al., BMC Bioinformatics 2007). It differs: where a walk leads is drawn by chance, and walks are all \
equally long.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Nodes of the tree.
    #[parameter(default = 250000, range = 1024..=1_000_000_000, unit = "nodes")]
    nodes: u64,
    /// Texts, rounded up to whole groups.
    #[parameter(default = 20000, range = 1..=1_000_000_000, unit = "texts")]
    texts: u64,
    /// Letters of a text.
    #[parameter(default = 25, range = 1..=1000, unit = "letters")]
    letters: u64,
    #[parameter(flatten)]
    seed: Seed,
}

#[derive(Clone)]
pub(crate) struct Work {
    nodes: u64,
    groups: u64,
    letters: u64,
    seed: u64,
    tree: u64,
    children: u64,
    texts: u64,
    matches: u64,
}

impl OnGpu for Work {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Work, Problem> {
        let Parameters { nodes, letters, .. } = *parameters;
        let groups = parameters.texts.div_ceil(WARPS * LANES);
        let texts = groups * WARPS * LANES;
        Ok(Work {
            nodes,
            groups,
            letters,
            seed: parameters.seed.number,
            tree: layout.array("nodetex", 32 * nodes),
            children: layout.array("childrentex", 32 * nodes),
            texts: layout.array("queries", texts * (letters + 1)),
            matches: layout.array("match_coords", 8 * texts * letters),
        })
    }

    fn launches(&self) -> u64 {
        1
    }

    fn accesses(&self) -> u64 {
        self.groups * WARPS * LANES * 4 * self.letters
    }
}

impl Warps for Work {
    const PIECE: u64 = 4 * LANES;

    fn name(&self, _: u64) -> &'static str {
        "mummergpuKernel"
    }

    fn groups(&self, _: u64) -> u64 {
        self.groups
    }

    fn pieces(&self, _: u64) -> u64 {
        self.letters
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { warp, piece, .. }: Place) {
        let text = |lane: u64| warp * LANES + lane;
        // A walk goes down so many levels, each of which has four times as many nodes; of the tree two thirds are reached.
        let levels = u64::from((self.nodes * 2 / 3).ilog2() / 2);
        let node = |lane: u64| {
            let (level, walk) = (piece % levels, piece / levels);
            let path = hash(self.seed, text(lane) * 1024 + walk);
            let begin = (4u64.pow(level as u32) - 1) / 3;
            begin + path % 4u64.pow(level as u32)
        };
        let letter = |lane: u64| self.texts + text(lane) * (self.letters + 1) + piece;
        load_lanes::<u8>(memory, letter, false, 8);
        load_lanes::<u64>(memory, |lane| self.children + 32 * node(lane), true, 6);
        load_lanes::<u64>(memory, |lane| self.tree + 32 * node(lane), true, 6);
        store_lanes::<u64>(memory, |lane| self.matches + 8 * (text(lane) * self.letters + piece), 4);
    }
}
