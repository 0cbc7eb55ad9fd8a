//! Breadth-first search on a Kronecker graph.

use crate::WorkloadInfo;
use crate::graph::{Graph, GraphParameters};
use crate::layout::Layout;
use crate::memory::{Backing, Memory};
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};
use crate::random::Random;
use std::collections::VecDeque;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "bfs",
    summary: "top-down breadth-first search on a Kronecker graph (Graph500)",
    description: "\
From a random root, each vertex in the queue has its edges read; every end's parent is looked up, and where it has none \
it gets one and joins the queue. Edges of a vertex are sequential, the parents random. When a search has reached \
everything it can, the parents are cleared and another root is drawn, until the given number of edges is examined.

Stands for kernel 2 of Graph500 (Murphy et al., 2010), on its Kronecker graph (A = 0.57, B = C = 0.19, scrambled labels, \
both directions, duplicates kept), compressed rows of 8-byte numbers. The benchmark's list of edges, 16 bytes for each \
undirected one, from which it builds the graph and against which it validates the result, lies before the graph where \
`list` says so; no search reads it. GAP frees what it built the graph with before the search allocates its arrays, \
which then find room where that lay: `first=search`. It differs: building the graph is not part of the \
stream; a run is bounded by edges, not by 64 searches; with several threads each has its own search, queue and parents \
over the shared graph, so that the accesses are the same in every run.",
    parameters: declared::<Parameters>,
    exact: false,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    #[parameter(flatten)]
    graph: GraphParameters,
    /// Directed edges examined, all threads together.
    #[parameter(default = "12e6", range = 1..=LARGEST_COUNT, unit = "edges")]
    edges: u64,
    /// Keep the generator's list of edges in memory, which no search reads.
    list: bool,
    /// What is touched first, and so finds fast memory.
    first: First,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    settle: Settle,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub(crate) enum First {
    /// The graph.
    #[default]
    Graph,
    /// Parents and queues.
    Search,
}

/// Bytes of an edge in the generator's list: both ends.
const LISTED_EDGE: u64 = 16;
/// Edges by which emission looks ahead for parents.
const AHEAD: u64 = 16;

#[derive(Clone)]
pub(crate) struct Bfs {
    graph: Graph,
    edges: u64,
    threads: u32,
    seed: u64,
    parents: Vec<u64>,
    queues: Vec<u64>,
    layout: Layout,
}

impl Program for Bfs {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Search;

    fn new(parameters: &Parameters) -> Result<Bfs, Problem> {
        let threads = parameters.threads.count;
        let mut layout = Layout::new(parameters.start.init).settling(parameters.settle.instructions);
        if parameters.list {
            layout.array("list", LISTED_EDGE * parameters.graph.edges());
        }
        let graph = Graph::new(&parameters.graph, parameters.seed.number, &mut layout)?;
        let mut vector =
            |name| -> Vec<u64> { (0..threads).map(|_| layout.array(name, 8 * graph.vertices)).collect() };
        let (parents, queues) = (vector("parents"), vector("queue"));
        if parameters.first == First::Search {
            layout.touched.rotate_right(parents.len() + queues.len());
        }
        let edges = at_least("edges", parameters.edges, threads.into())?;
        Ok(Bfs { graph, edges, threads, seed: parameters.seed.number, parents, queues, layout })
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Search {
        let own = share(self.edges, index, self.threads);
        Search {
            graph: self.graph.clone(),
            parents: self.parents[index as usize],
            queue: self.queues[index as usize],
            random: Random::of_thread(self.seed, index),
            left: own.end - own.start,
            head: 0,
            tail: 0,
            edge: 0,
            end: 0,
            vertex: 0,
            depends_on: 0,
            state: State::Root,
            shadow: Shadow::default(),
        }
    }

    fn kernel_accesses(&self) -> u64 {
        // Two loads per edge; per vertex three loads and two stores. The number of vertices reached is known only
        // afterwards: at the default size about one for every ten edges until all are reached.
        let searches = self.edges as f64 / self.graph.directed_edges as f64;
        let reached = (self.edges as f64 / 10.0).min(searches.max(1.0) * 0.65 * self.graph.vertices as f64);
        2 * self.edges + (reached * 4.0) as u64
    }

    fn needs_contents(&self) -> bool {
        !self.graph.implicit
    }

    fn prepare(&self, memory: &Backing) {
        self.graph.prepare(memory);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Draw roots until one has an edge.
    Root,
    /// Take vertices from the queue and read their edges.
    Search,
    /// Clear the parents from this byte offset on.
    Clear(u64),
}

/// What parents and queue hold, where memory holds nothing.
#[derive(Default)]
struct Shadow {
    visited: Vec<u64>,
    queue: VecDeque<u64>,
}

/// One thread's search.
pub(crate) struct Search {
    graph: Graph,
    parents: u64,
    queue: u64,
    random: Random,
    left: u64,
    head: u64,
    tail: u64,
    /// The vertex being expanded and its edges not yet read.
    vertex: u64,
    edge: u64,
    end: u64,
    /// Loads between the vertex's offset and its next edge, as far as it matters.
    depends_on: u8,
    state: State,
    shadow: Shadow,
}

impl Search {
    /// Loads whether `vertex` is visited.
    #[inline(always)]
    fn visited<M: Memory>(&mut self, memory: &mut M, vertex: u64, depends_on: u8) -> bool {
        let parent: u64 = memory.load(self.parents + 8 * vertex, depends_on, 2);
        if M::HOLDS_DATA {
            return parent != 0;
        }
        if self.shadow.visited.is_empty() {
            self.shadow.visited = vec![0; (self.graph.vertices as usize).div_ceil(64)];
        }
        self.shadow.visited[vertex as usize / 64] >> (vertex % 64) & 1 != 0
    }

    /// Stores the parent of `vertex` and appends it to the queue.
    #[inline(always)]
    fn visit<M: Memory>(&mut self, memory: &mut M, vertex: u64, parent: u64, depends_on: u8) {
        // 0 means none, so parents are stored one up.
        memory.store(self.parents + 8 * vertex, parent + 1, depends_on, 2);
        memory.store(self.queue + 8 * self.tail, vertex, 0, 2);
        self.tail += 1;
        if !M::HOLDS_DATA {
            self.shadow.visited[vertex as usize / 64] |= 1 << (vertex % 64);
            self.shadow.queue.push_back(vertex);
        }
    }

    fn draw_root<M: Memory>(&mut self, memory: &mut M) {
        let root = self.random.below(self.graph.vertices);
        let begin = self.graph.offset(memory, root, 0, 12);
        if self.graph.offset(memory, root + 1, 0, 2) > begin {
            (self.head, self.tail) = (0, 0);
            self.visited(memory, root, 0);
            self.visit(memory, root, root, 0);
            self.state = State::Search;
        }
    }

    #[inline(always)]
    fn next_vertex<M: Memory>(&mut self, memory: &mut M) {
        let read: u64 = memory.load(self.queue + 8 * self.head, 0, 3);
        self.head += 1;
        self.vertex = if M::HOLDS_DATA { read } else { self.shadow.queue.pop_front().unwrap_or(0) };
        self.edge = self.graph.offset(memory, self.vertex, 1, 1);
        self.end = self.graph.offset(memory, self.vertex + 1, 2, 2);
        self.depends_on = 2;
    }
}

impl Kernel for Search {
    #[inline]
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        match self.state {
            State::Root => {
                self.draw_root(memory);
                Progress::Working
            }
            State::Clear(from) => {
                let bytes = 8 * self.graph.vertices;
                let until = bytes.min(from + 32 * 128);
                for offset in (from..until).step_by(32) {
                    memory.store(self.parents + offset, [0u64; 4], 0, 2);
                }
                self.state = if until == bytes { State::Root } else { State::Clear(until) };
                Progress::Working
            }
            State::Search => {
                if self.edge == self.end {
                    if self.head == self.tail {
                        self.shadow.visited.clear();
                        self.state = State::Clear(0);
                        return Progress::Working;
                    }
                    self.next_vertex(memory);
                }
                let count = (self.end - self.edge).min(self.left).min(48);
                for edge in self.edge..self.edge + count {
                    if let Some(coming) = self.graph.coming_end(memory, edge + AHEAD) {
                        memory.prefetch(self.parents.wrapping_add(8u64.wrapping_mul(coming)));
                    }
                    let to = self.graph.end(memory, self.vertex, edge, self.depends_on, 2);
                    self.depends_on = 0;
                    if !self.visited(memory, to, 1) {
                        // The end's load lies two loads back, behind that of its parent.
                        self.visit(memory, to, self.vertex, 2);
                    }
                }
                self.edge += count;
                self.left -= count;
                if self.left == 0 { Progress::Done } else { Progress::Working }
            }
        }
    }
}
