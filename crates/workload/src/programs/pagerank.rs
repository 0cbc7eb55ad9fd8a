//! PageRank on a Kronecker graph.

use crate::WorkloadInfo;
use crate::graph::{Graph, GraphParameters};
use crate::layout::Layout;
use crate::memory::{Backing, Memory};
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "pagerank",
    summary: "pull-direction PageRank on a Kronecker graph (GAP)",
    description: "\
Each iteration first divides every vertex's score by its number of edges, then gives every vertex the damped sum of \
its neighbours' shares. Edges and scores are read in order, the neighbours' shares at random.

Stands for PageRank of the GAP benchmark suite (Beamer et al., 2015), pull direction, on the Kronecker graph of Graph500. \
It differs: vertices are numbered by 8 bytes; the number of iterations is fixed instead of a bound on the error; \
building the graph is not part of the stream. Threads take contiguous vertices instead of dynamic blocks.",
    parameters: declared::<Parameters>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    #[parameter(flatten, default = GraphParameters { edgefactor: 8, ..GraphParameters::default() })]
    graph: GraphParameters,
    /// Iterations over the graph.
    #[parameter(default = 1, range = 1..=LARGEST_COUNT, unit = "iterations")]
    iterations: u64,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

#[derive(Clone)]
pub(crate) struct PageRank {
    graph: Graph,
    iterations: u64,
    threads: u32,
    scores: u64,
    shares: u64,
    layout: Layout,
}

impl Program for PageRank {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Ranks;

    fn new(parameters: &Parameters) -> Result<PageRank, Problem> {
        let mut layout = Layout::new(parameters.start.init);
        let graph = Graph::new(&parameters.graph, parameters.seed.number, &mut layout)?;
        let scores = layout.array("scores", 8 * graph.vertices);
        let shares = layout.array("outgoing contributions", 8 * graph.vertices);
        let iterations = parameters.iterations;
        Ok(PageRank { graph, iterations, threads: parameters.threads.count, scores, shares, layout })
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Ranks {
        let own = share(self.graph.vertices, index, self.threads);
        Ranks {
            program: self.clone(),
            vertex: own.start,
            own,
            pulling: false,
            entered: false,
            edge: 0,
            end: 0,
            depends_on: 0,
            sum: 0.0,
            iteration: 0,
        }
    }

    fn kernel_accesses(&self) -> u64 {
        let threads = u64::from(self.threads).min(self.graph.vertices);
        // Per vertex four accesses to divide, with the first offset of each thread read once more in both phases.
        self.iterations * (self.graph.vertices * 5 + 2 * threads + 2 * self.graph.directed_edges)
    }

    fn needs_contents(&self) -> bool {
        !self.graph.implicit
    }

    fn prepare(&self, memory: &Backing) {
        self.graph.prepare(memory);
    }
}

/// One thread's vertices.
pub(crate) struct Ranks {
    program: PageRank,
    own: std::ops::Range<u64>,
    vertex: u64,
    /// Second phase of an iteration.
    pulling: bool,
    /// The first offset of the phase is read.
    entered: bool,
    edge: u64,
    end: u64,
    depends_on: u8,
    sum: f64,
    iteration: u64,
}

impl Ranks {
    /// Divides the score of some vertices among their edges.
    fn divide<M: Memory>(&mut self, memory: &mut M) {
        let PageRank { scores, shares, ref graph, .. } = self.program;
        let until = self.own.end.min(self.vertex + 64);
        for vertex in self.vertex..until {
            let end = graph.offset(memory, vertex + 1, 0, 1);
            let score: u64 = memory.load(scores + 8 * vertex, 0, 2);
            let degree = (end - self.edge).max(1) as f64;
            self.edge = end;
            // Subtract, convert, divide, store, loop.
            memory.store(shares + 8 * vertex, (f64::from_bits(score) / degree).to_bits(), 0, 5);
        }
        self.vertex = until;
    }

    /// Sums up the shares of a vertex's neighbours, or some of them.
    #[inline(always)]
    fn pull<M: Memory>(&mut self, memory: &mut M) {
        let PageRank { scores, shares, ref graph, .. } = self.program;
        let mut budget = 64;
        while budget > 0 && self.vertex < self.own.end {
            if self.end == 0 {
                // One up, so that 0 means that it is not read yet.
                self.end = graph.offset(memory, self.vertex + 1, 0, 2) + 1;
            }
            let count = (self.end - 1 - self.edge).min(budget);
            for edge in self.edge..self.edge + count {
                let from = graph.end(memory, self.vertex, edge, self.depends_on, 1);
                self.depends_on = 0;
                let share: u64 = memory.load(shares + 8 * from, 1, 3);
                self.sum += f64::from_bits(share);
            }
            self.edge += count;
            budget -= count;
            if self.edge == self.end - 1 {
                let score = 0.15 / graph.vertices as f64 + 0.85 * self.sum;
                memory.store(scores + 8 * self.vertex, score.to_bits(), 0, 4);
                (self.sum, self.end) = (0.0, 0);
                self.vertex += 1;
                budget = budget.saturating_sub(1);
            }
        }
    }
}

impl Kernel for Ranks {
    #[inline]
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if !self.own.is_empty() {
            if !std::mem::replace(&mut self.entered, true) {
                self.edge = self.program.graph.offset(memory, self.vertex, 0, 4);
            }
            if self.pulling {
                self.pull(memory)
            } else {
                self.divide(memory)
            }
            if self.vertex < self.own.end {
                return Progress::Working;
            }
        }
        self.vertex = self.own.start;
        self.entered = false;
        self.pulling = !self.pulling;
        if !self.pulling {
            self.iteration += 1;
            if self.iteration == self.program.iterations {
                return Progress::Done;
            }
        }
        Progress::Barrier
    }
}
