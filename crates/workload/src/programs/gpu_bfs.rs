//! Breadth-first search of a graph on a GPU: a level in two kernels, few lanes at work, neighbours anywhere.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, load_some, store_some};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array};
use crate::parameters::*;
use crate::random::{hash, scale};
use std::sync::Arc;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-bfs",
    summary: "on a GPU: breadth-first search, level by level",
    description: "\
A graph of nodes with equally many edges to nodes drawn by chance. For each level a first kernel has a work-item for every node, of which \
those of the level read their edges and, of each neighbour, whether it was visited; if not they write its cost and mark it. A second \
kernel makes the marked nodes the next level.

Stands for Rodinia's bfs (Che et al., IISWC 2009), with its six data structures. It differs: every node has equally many edges.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

/// Level of nodes that the search does not reach, and the most levels.
const NEVER: u8 = u8::MAX;

/// Where an edge leads.
fn neighbour(seed: u64, edge: u64, nodes: u64) -> u64 {
    scale(hash(seed, edge), nodes)
}

/// The level of every node, and how many levels there are.
fn search(nodes: u64, degree: u64, seed: u64) -> (Vec<u8>, u64) {
    let mut level = vec![NEVER; nodes as usize];
    let (mut border, mut levels) = (vec![0], 0);
    level[0] = 0;
    while !border.is_empty() && levels < NEVER - 1 {
        levels += 1;
        let mut next = Vec::new();
        for node in border {
            for edge in 0..degree {
                let other = neighbour(seed, node * degree + edge, nodes);
                if level[other as usize] == NEVER {
                    level[other as usize] = levels;
                    next.push(other);
                }
            }
        }
        border = next;
    }
    (level, levels.into())
}

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Nodes, rounded up to whole groups.
    #[parameter(default = 262144, range = 256..=16_777_216, unit = "nodes")]
    nodes: u64,
    /// Edges of a node.
    #[parameter(default = 6, range = 1..=256, unit = "edges")]
    degree: u64,
    #[parameter(flatten)]
    seed: Seed,
}

#[derive(Clone)]
pub(crate) struct Work {
    nodes: u64,
    degree: u64,
    seed: u64,
    /// Level of each node; [`NEVER`] where the search does not come.
    level: Arc<[u8]>,
    levels: u64,
    accesses: u64,
    graph: u64,
    edges: u64,
    mask: u64,
    marked: u64,
    visited: u64,
    cost: u64,
}

impl OnGpu for Work {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Work, Problem> {
        let nodes = parameters.nodes.next_multiple_of(WARPS * LANES);
        let (degree, seed) = (parameters.degree, parameters.seed.number);
        let (level, levels) = search(nodes, degree, seed);
        let mut work = Work {
            nodes,
            degree,
            seed,
            level: level.into(),
            levels,
            accesses: 0,
            graph: layout.array("d_graph_nodes", 8 * nodes),
            edges: layout.array("d_graph_edges", 4 * nodes * degree),
            mask: layout.array("d_graph_mask", nodes),
            marked: layout.array("d_updating_graph_mask", nodes),
            visited: layout.array("d_graph_visited", nodes),
            cost: layout.array("d_cost", 4 * nodes),
        };
        work.accesses = work.counted();
        Ok(work)
    }

    fn launches(&self) -> u64 {
        2 * self.levels
    }

    fn accesses(&self) -> u64 {
        self.accesses
    }

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_bfs.cl"));

    fn arguments(&self, launch: u64) -> Vec<Argument> {
        let all = [self.graph, self.edges, self.mask, self.marked, self.visited, self.cost].map(Array);
        if launch.is_multiple_of(2) { all.to_vec() } else { all[2..5].to_vec() }
    }

    fn fill(&self, memory: &Backing) {
        for node in 0..self.nodes {
            memory.write(self.graph + 8 * node, (node * self.degree) as u32);
            memory.write(self.graph + 8 * node + 4, self.degree as u32);
        }
        for edge in 0..self.nodes * self.degree {
            memory.write(self.edges + 4 * edge, neighbour(self.seed, edge, self.nodes) as u32);
        }
        memory.write(self.mask, 1u8);
        memory.write(self.visited, 1u8);
    }

    fn compute(&self, memory: &Backing) {
        memory.write(self.mask, 0u8);
        for node in (1..self.nodes).filter(|node| self.level[*node as usize] != NEVER) {
            let level = self.level[node as usize];
            memory.write(self.cost + 4 * node, u32::from(level));
            memory.write(self.visited + node, 1u8);
            // The mask has the nodes of the level that would be next, where the search was cut off.
            memory.write(self.mask + node, u8::from(u64::from(level) == self.levels));
        }
    }
}

impl Work {
    /// Accesses of all kernels.
    fn counted(&self) -> u64 {
        let new = |node: usize| {
            let of = |edge: u64| neighbour(self.seed, node as u64 * self.degree + edge, self.nodes);
            (0..self.degree).filter(|edge| self.level[of(*edge) as usize] > self.level[node]).count() as u64
        };
        let each = |node: usize| 3 + 2 * self.degree + 2 * new(node);
        let reached = (0..self.nodes as usize).filter(|node| self.level[*node] != NEVER);
        let active: u64 = reached.clone().map(each).sum();
        // The first node is nobody's next.
        2 * self.levels * self.nodes + active + 3 * (reached.count() as u64 - 1)
    }
}

impl Warps for Work {
    const PIECE: u64 = 5 * LANES;

    fn name(&self, launch: u64) -> &'static str {
        if launch.is_multiple_of(2) { "Kernel" } else { "Kernel2" }
    }

    fn groups(&self, _: u64) -> u64 {
        self.nodes / (WARPS * LANES)
    }

    fn pieces(&self, launch: u64) -> u64 {
        if launch.is_multiple_of(2) { self.degree + 1 } else { 1 }
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { launch, warp, piece }: Place) {
        let (node, level) = (|lane: u64| warp * LANES + lane, launch / 2);
        let is_at = |lane: u64, level: u64| u64::from(self.level[node(lane) as usize]) == level;
        if launch % 2 == 1 {
            let next = |lane: u64| is_at(lane, level + 1);
            load_lanes::<u8>(memory, |lane| self.marked + node(lane), false, 6);
            store_some::<u8>(memory, next, |lane| self.mask + node(lane), 2);
            store_some::<u8>(memory, next, |lane| self.visited + node(lane), 2);
            return store_some::<u8>(memory, next, |lane| self.marked + node(lane), 2);
        }
        let active = |lane: u64| is_at(lane, level);
        if piece == 0 {
            load_lanes::<u8>(memory, |lane| self.mask + node(lane), false, 6);
            store_some::<u8>(memory, active, |lane| self.mask + node(lane), 2);
            load_some::<u64>(memory, active, |lane| self.graph + 8 * node(lane), false, 2);
            return load_some::<u32>(memory, active, |lane| self.cost + 4 * node(lane), false, 2);
        }
        let edge = |lane: u64| node(lane) * self.degree + piece - 1;
        let other = |lane: u64| neighbour(self.seed, edge(lane), self.nodes);
        load_some::<u32>(memory, active, |lane| self.edges + 4 * edge(lane), true, 4);
        load_some::<u8>(memory, active, |lane| self.visited + other(lane), true, 3);
        let new = |lane: u64| active(lane) && u64::from(self.level[other(lane) as usize]) > level;
        store_some::<u32>(memory, new, |lane| self.cost + 4 * other(lane), 3);
        store_some::<u8>(memory, new, |lane| self.marked + other(lane), 2);
    }
}
