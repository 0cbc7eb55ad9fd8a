//! Matches of short texts in a long one on a GPU: walks down a tree of suffixes.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, store_lanes};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array, Number};
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

/// The first node of a level, each of which has four times as many as the one above.
fn begin(level: u64) -> u64 {
    (4u64.pow(level as u32) - 1) / 3
}

impl Work {
    /// Levels that a walk goes down; of the tree two thirds are reached.
    fn levels(&self) -> u64 {
        u64::from((self.nodes * 2 / 3).ilog2() / 2)
    }

    /// The letters of a walk, two bits each, the first lowest.
    fn path(&self, text: u64, walk: u64) -> u64 {
        hash(self.seed, text * 1024 + walk)
    }

    /// The node that a place of a text is compared with.
    fn node(&self, text: u64, place: u64) -> u64 {
        let (level, walk) = (place % self.levels(), place / self.levels());
        begin(level) + self.path(text, walk) % 4u64.pow(level as u32)
    }

    /// The letter there, which leads on from the node.
    fn letter(&self, text: u64, place: u64) -> u8 {
        let (level, walk) = (place % self.levels(), place / self.levels());
        (self.path(text, walk) >> (2 * level) & 3) as u8
    }
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

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_mummer.cl"));

    fn arguments(&self, _: u64) -> Vec<Argument> {
        let arrays = [self.tree, self.children, self.texts, self.matches].map(Array);
        [&arrays[..], &[Number(self.letters), Number(self.levels())]].concat()
    }

    fn fill(&self, memory: &Backing) {
        for level in 0..self.levels() {
            // A node's children are as far apart as its level has nodes.
            for (at, node) in (begin(level)..begin(level + 1)).enumerate() {
                memory.write(
                    self.children + 32 * node,
                    begin(level + 1) + at as u64 + (4u64.pow(level as u32) << 32),
                );
                memory.write(self.tree + 32 * node, hash(1, node));
            }
        }
        for text in 0..self.groups * WARPS * LANES {
            for place in 0..self.letters {
                memory.write(self.texts + text * (self.letters + 1) + place, self.letter(text, place));
            }
        }
    }

    fn compute(&self, memory: &Backing) {
        for text in 0..self.groups * WARPS * LANES {
            for place in 0..self.letters {
                let found = hash(1, self.node(text, place)).wrapping_add(self.letter(text, place).into());
                memory.write(self.matches + 8 * (text * self.letters + place), found);
            }
        }
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
        let node = |lane: u64| self.node(text(lane), piece);
        let letter = |lane: u64| self.texts + text(lane) * (self.letters + 1) + piece;
        load_lanes::<u8>(memory, letter, false, 8);
        load_lanes::<u64>(memory, |lane| self.children + 32 * node(lane), true, 6);
        load_lanes::<u64>(memory, |lane| self.tree + 32 * node(lane), true, 6);
        store_lanes::<u64>(memory, |lane| self.matches + 8 * (text(lane) * self.letters + piece), 4);
    }
}
