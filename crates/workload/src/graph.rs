//! Kronecker graphs in compressed rows, stored or implicit.

use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::parameters::{Parameters, Problem};
use crate::random::{Permutation, hash};

/// The parameters of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Parameters)]
pub(crate) struct GraphParameters {
    /// The graph has 2^scale vertices.
    #[parameter(default = 20, range = 4..=36, unit = "log2 vertices")]
    pub scale: u32,
    /// Undirected edges per vertex; each is stored in both directions.
    #[parameter(default = 16, range = 1..=1024, unit = "edges per vertex")]
    pub edgefactor: u64,
    /// Compute edges by a hash instead of storing them: a graph of hundreds of gigabytes needs no memory for its edges in a
    /// simulation. Every vertex then has the same number of edges; their ends keep the skew.
    pub implicit: bool,
}

impl GraphParameters {
    /// Undirected edges of the graph.
    pub fn edges(&self) -> u64 {
        self.edgefactor << self.scale
    }
}

/// Initiator probabilities of the Graph500 Kronecker generator: A = 0.57, B = 0.19, C = 0.19, D = 0.05, as cumulative
/// thresholds of 16 random bits.
const A: u64 = 37_356;
const A_B: u64 = 49_807;
const A_B_C: u64 = 62_259;
/// Probability that a bit of an edge's end is set: B + D.
const END_BIT: u64 = 15_729;

/// A graph of 2^scale vertices with `2 * edgefactor` directed edges per vertex: offsets of 8 bytes, ends of 8 bytes.
#[derive(Clone)]
pub(crate) struct Graph {
    pub vertices: u64,
    pub directed_edges: u64,
    pub implicit: bool,
    scale: u32,
    degree: u64,
    seed: u64,
    offsets: u64,
    ends: u64,
    labels: Permutation,
}

impl Graph {
    /// Lays the graph's two arrays out.
    pub fn new(parameters: &GraphParameters, seed: u64, layout: &mut Layout) -> Result<Graph, Problem> {
        let GraphParameters { scale, edgefactor, implicit } = *parameters;
        let degree = 2 * edgefactor;
        let vertices = 1u64 << scale;
        if vertices.saturating_mul(degree * 8) > 32 << 40 {
            return Err(Problem::new("scale", "a graph of at most 32 TiB"));
        }
        Ok(Graph {
            vertices,
            directed_edges: vertices * degree,
            implicit,
            scale,
            degree,
            seed,
            offsets: layout.array("offsets", 8 * (vertices + 1)),
            ends: layout.array("edges", 8 * vertices * degree),
            labels: Permutation::new(vertices, hash(seed, u64::MAX)),
        })
    }

    /// Draws edge `edge` of the generator, with scrambled labels as in Graph500.
    fn draw(&self, edge: u64) -> (u64, u64) {
        let (mut from, mut to) = (0, 0);
        let mut bits = 0;
        for level in 0..self.scale {
            // Four levels from one random word, 16 bits each: probabilities are exact to 2^-16.
            if level % 4 == 0 {
                bits = hash(self.seed, edge * 16 + u64::from(level / 4));
            }
            let r = bits & 0xffff;
            bits >>= 16;
            from = from << 1 | u64::from(r >= A_B);
            to = to << 1 | u64::from((A..A_B).contains(&r) || r >= A_B_C);
        }
        (self.labels.apply(from), self.labels.apply(to))
    }

    /// End `k` of vertex `vertex` where edges are implicit.
    #[inline(always)]
    fn implicit_end(&self, vertex: u64, k: u64) -> u64 {
        let edge = vertex * self.degree + k;
        let (mut to, mut bits) = (0, 0);
        for level in 0..self.scale {
            if level % 4 == 0 {
                bits = hash(self.seed, edge * 16 + u64::from(level / 4));
            }
            to = to << 1 | u64::from(bits & 0xffff < END_BIT);
            bits >>= 16;
        }
        self.labels.apply(to)
    }

    /// Builds the stored graph: counts degrees, sums them up, then drops every edge in its two places.
    pub fn prepare(&self, memory: &Backing) {
        if self.implicit {
            for vertex in 0..=self.vertices {
                memory.write(self.offsets + 8 * vertex, vertex * self.degree);
            }
            for vertex in 0..self.vertices {
                for k in 0..self.degree {
                    let at = self.ends + 8 * (vertex * self.degree + k);
                    memory.write(at, self.implicit_end(vertex, k));
                }
            }
            return;
        }
        let edges: Vec<(u64, u64)> = (0..self.directed_edges / 2).map(|edge| self.draw(edge)).collect();
        let mut next = vec![0u64; self.vertices as usize];
        for (from, to) in &edges {
            next[*from as usize] += 1;
            next[*to as usize] += 1;
        }
        let mut sum = 0;
        for (vertex, next) in next.iter_mut().enumerate() {
            memory.write(self.offsets + 8 * vertex as u64, sum);
            sum += std::mem::replace(next, sum);
        }
        memory.write(self.offsets + 8 * self.vertices, sum);
        for (from, to) in edges {
            for (a, b) in [(from, to), (to, from)] {
                memory.write(self.ends + 8 * next[a as usize], b);
                next[a as usize] += 1;
            }
        }
    }

    /// Loads where the edges of `vertex` begin.
    #[inline(always)]
    pub fn offset<M: Memory>(&self, memory: &mut M, vertex: u64, depends_on: u8, instructions: u16) -> u64 {
        let read: u64 = memory.load(self.offsets + 8 * vertex, depends_on, instructions);
        if self.implicit { vertex * self.degree } else { read }
    }

    /// The end of an edge that will be loaded soon, where emission can know it; any number will do.
    #[inline(always)]
    pub fn coming_end<M: Memory>(&self, memory: &M, edge: u64) -> Option<u64> {
        memory.glance(self.ends + 8 * edge)
    }

    /// Loads the end of an edge of `vertex`.
    #[inline(always)]
    pub fn end<M: Memory>(
        &self,
        memory: &mut M,
        vertex: u64,
        edge: u64,
        depends_on: u8,
        instructions: u16,
    ) -> u64 {
        let read: u64 = memory.load(self.ends + 8 * edge, depends_on, instructions);
        if self.implicit && !M::HOLDS_DATA {
            self.implicit_end(vertex, edge - vertex * self.degree)
        } else {
            read
        }
    }
}
