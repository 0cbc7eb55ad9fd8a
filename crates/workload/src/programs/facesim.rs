//! Conjugate gradient on a mesh of tetrahedra.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};
use crate::random::{Permutation, hash};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "facesim",
    summary: "conjugate gradient on a mesh of tetrahedra, element by element (PARSEC facesim)",
    description: "\
Flesh is a mesh of tetrahedra. Each iteration visits all of them: it reads the numbers of the four nodes and the \
stiffness of the tetrahedron, gathers how far the nodes moved, and adds a force to each. Then it takes a dot product \
and updates three vectors over the nodes. Tetrahedra are read in order, and their nodes lie near those of their \
neighbours.

Stands for facesim of PARSEC (Bienia et al., 2008), whose time is spent in the conjugate gradient of its quasi-static \
solver. It differs: the mesh is a cube of cells of five tetrahedra each instead of a face, with the nodes' numbers \
shuffled in blocks of 512, and computed, so that a simulation needs no memory for it; numbers have 8 bytes, and those \
of a node are padded to 32; scalars and stiffnesses are constants, so the numbers do not converge to anything; a run is \
bounded by visits; where these are not whole iterations it ends in the middle of the mesh. Threads take contiguous \
tetrahedra and nodes, and add to the nodes on the border between two threads without a lock.",
    parameters: declared::<Parameters>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Cells along each edge of the mesh.
    #[parameter(default = 64, range = 4..=1600, unit = "cells")]
    side: u64,
    /// Tetrahedra visited, all threads together; an iteration visits five for each cell.
    #[parameter(default = "1.3e6", range = 1..=LARGEST_COUNT, unit = "visits")]
    visits: u64,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    settle: Settle,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

/// Numbers of one node: three coordinates, and one to fill up.
const LANES: usize = 4;
const NODE_BYTES: u64 = 8 * LANES as u64;
/// Four nodes' numbers of 4 bytes.
const CORNERS_BYTES: u64 = 16;
/// Pieces of 32 bytes that the stiffness of a tetrahedron has: two matrices of nine numbers and one of six.
const STIFFNESS_PIECES: u64 = 6;
const STIFFNESS_BYTES: u64 = STIFFNESS_PIECES * NODE_BYTES;
/// Nodes whose numbers are shuffled among themselves.
const BLOCK: u64 = 512;
const VISIT_ACCESSES: u64 = 1 + 4 + STIFFNESS_PIECES + 8;
const VECTOR_ACCESSES: u64 = 2 + 6 + 4;
/// Tetrahedra of a cell.
const PARTS: u64 = 5;
/// Corners of the tetrahedra, as corners of the cell: one bit for each direction. The cells beside it have the mirror image,
/// so that faces meet.
const CORNERS: [[u64; 4]; PARTS as usize] =
    [[0, 3, 5, 6], [1, 0, 3, 5], [2, 0, 3, 6], [4, 0, 5, 6], [7, 3, 5, 6]];

#[derive(Clone)]
pub(crate) struct Flesh {
    side: u64,
    nodes: u64,
    tetrahedra: u64,
    visits: u64,
    threads: u32,
    order: Permutation,
    corners: u64,
    stiffness: u64,
    /// p, q, r, x.
    vectors: [u64; 4],
    layout: Layout,
}

impl Flesh {
    /// The nodes of a tetrahedron.
    #[inline(always)]
    fn corners(&self, tetrahedron: u64) -> [u32; 4] {
        let (cell, part) = (tetrahedron / PARTS, tetrahedron % PARTS);
        let (x, y, z) = (cell % self.side, cell / self.side % self.side, cell / (self.side * self.side));
        let mirrored = (x + y + z) & 1;
        let along = self.side + 1;
        CORNERS[part as usize].map(|corner| {
            let corner = corner ^ mirrored;
            let (x, y, z) = (x + (corner & 1), y + (corner >> 1 & 1), z + (corner >> 2));
            let node = (z * along + y) * along + x;
            (node / BLOCK * BLOCK + self.order.apply(node % BLOCK)) as u32
        })
    }

    /// Whole iterations, and how many of the tetrahedra `own` are visited after them.
    fn rounds(&self, own: &std::ops::Range<u64>) -> (u64, u64) {
        let rest = self.visits % self.tetrahedra;
        let own = u128::from(own.end - own.start) * u128::from(rest) / u128::from(self.tetrahedra);
        (self.visits / self.tetrahedra, own as u64)
    }
}

impl Program for Flesh {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Solver;

    fn new(parameters: &Parameters) -> Result<Flesh, Problem> {
        let side = parameters.side;
        let (nodes, tetrahedra) = ((side + 1).pow(3).next_multiple_of(BLOCK), PARTS * side.pow(3));
        let mut layout = Layout::new(parameters.start.init).settling(parameters.settle.instructions);
        let corners = layout.array("corners", CORNERS_BYTES * tetrahedra);
        let stiffness = layout.array("stiffness", STIFFNESS_BYTES * tetrahedra);
        let vectors = ["p", "q", "r", "x"].map(|name| layout.array(name, NODE_BYTES * nodes));
        Ok(Flesh {
            side,
            nodes,
            tetrahedra,
            visits: at_least("visits", parameters.visits, parameters.threads.count.into())?,
            threads: parameters.threads.count,
            order: Permutation::new(BLOCK, hash(parameters.seed.number, 0)),
            corners,
            stiffness,
            vectors,
            layout,
        })
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Solver {
        let tetrahedra = share(self.tetrahedra, index, self.threads);
        Solver {
            phase: Phase::Forces,
            at: tetrahedra.start,
            rounds: self.rounds(&tetrahedra),
            tetrahedra,
            nodes: share(self.nodes, index, self.threads),
            program: self.clone(),
        }
    }

    fn kernel_accesses(&self) -> u64 {
        let last = (0..self.threads).map(|index| self.rounds(&share(self.tetrahedra, index, self.threads)).1);
        let whole = self.visits / self.tetrahedra;
        whole * (self.tetrahedra * VISIT_ACCESSES + self.nodes * VECTOR_ACCESSES)
            + last.sum::<u64>() * VISIT_ACCESSES
    }

    fn prepare(&self, memory: &Backing) {
        for tetrahedron in 0..self.tetrahedra {
            for (at, node) in self.corners(tetrahedron).into_iter().enumerate() {
                memory.write(self.corners + CORNERS_BYTES * tetrahedron + 4 * at as u64, node);
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Phase {
    /// q = K p, tetrahedron by tetrahedron.
    Forces,
    /// p · q
    Dot,
    /// x += alpha p, r -= alpha q, r · r
    Update,
    /// p = r + beta p, q = 0
    Direction,
}

/// One thread's part of the mesh.
pub(crate) struct Solver {
    program: Flesh,
    tetrahedra: std::ops::Range<u64>,
    nodes: std::ops::Range<u64>,
    /// Iterations left, and tetrahedra to visit after them.
    rounds: (u64, u64),
    phase: Phase,
    at: u64,
}

impl Solver {
    /// Adds the forces of a tetrahedron to its nodes.
    #[inline(always)]
    fn visit<M: Memory>(&self, memory: &mut M, tetrahedron: u64) {
        let Flesh { corners, stiffness, vectors: [p, q, ..], .. } = self.program;
        let read: [u64; 2] = memory.load(corners + CORNERS_BYTES * tetrahedron, 0, 3);
        let nodes = match M::HOLDS_DATA {
            true => [read[0] as u32, (read[0] >> 32) as u32, read[1] as u32, (read[1] >> 32) as u32],
            false => self.program.corners(tetrahedron),
        }
        .map(|node| NODE_BYTES * u64::from(node));
        let mut moved = [0.0; LANES];
        for (back, node) in nodes.into_iter().enumerate() {
            // A difference with the first node for each coordinate.
            let values: [u64; LANES] = memory.load(p + node, back as u8 + 1, 3);
            for (moved, value) in moved.iter_mut().zip(values) {
                *moved += f64::from_bits(value);
            }
        }
        let mut force = [0.0; LANES];
        for piece in 0..STIFFNESS_PIECES {
            let at = stiffness + STIFFNESS_BYTES * tetrahedron + NODE_BYTES * piece;
            // Four numbers of a matrix with three coordinates.
            let values: [u64; LANES] = memory.load(at, 0, 12);
            for lane in 0..LANES {
                force[lane] += f64::from_bits(values[lane]) * moved[lane];
            }
        }
        for (nth, node) in nodes.into_iter().enumerate() {
            // What the corners' load lies back.
            let back = (5 + STIFFNESS_PIECES) as u8 + nth as u8;
            let values: [u64; LANES] = memory.load(q + node, back, 1);
            let sum = std::array::from_fn::<u64, LANES, _>(|lane| {
                (f64::from_bits(values[lane]) + force[lane]).to_bits()
            });
            memory.store(q + node, sum, back + 1, 4);
        }
    }

    /// target = target + 0.5 other, for one node.
    #[inline(always)]
    fn update<M: Memory>(memory: &mut M, target: u64, other: u64) {
        let x: [u64; LANES] = memory.load(other, 0, 1);
        let y: [u64; LANES] = memory.load(target, 0, 1);
        let sum = |i: usize| f64::from_bits(y[i]) + 0.5 * f64::from_bits(x[i]);
        memory.store(target, std::array::from_fn::<u64, LANES, _>(|i| sum(i).to_bits()), 0, 2);
    }

    fn vector<M: Memory>(&self, memory: &mut M, node: u64) {
        let [p, q, r, x] = self.program.vectors.map(|vector| vector + NODE_BYTES * node);
        match self.phase {
            Phase::Forces => {}
            Phase::Dot => {
                let _: [u64; LANES] = memory.load(p, 0, 1);
                let _: [u64; LANES] = memory.load(q, 0, 2);
            }
            Phase::Update => {
                Self::update(memory, x, p);
                Self::update(memory, r, q);
            }
            Phase::Direction => {
                Self::update(memory, p, r);
                memory.store(q, [0u64; LANES], 0, 1);
            }
        }
    }
}

impl Kernel for Solver {
    #[inline]
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        let (whole, last) = self.rounds;
        let (end, count) = match self.phase {
            Phase::Forces if whole == 0 => (self.tetrahedra.start + last, 12),
            Phase::Forces => (self.tetrahedra.end, 12),
            _ => (self.nodes.end, 32),
        };
        let until = end.min(self.at + count);
        for at in self.at..until {
            match self.phase {
                Phase::Forces => self.visit(memory, at),
                _ => self.vector(memory, at),
            }
        }
        self.at = until;
        if self.at < end {
            return Progress::Working;
        }
        self.at = self.nodes.start;
        self.phase = match self.phase {
            Phase::Forces if whole == 0 => return Progress::Done,
            Phase::Forces => Phase::Dot,
            Phase::Dot => Phase::Update,
            Phase::Update => Phase::Direction,
            Phase::Direction => {
                self.at = self.tetrahedra.start;
                self.rounds.0 -= 1;
                Phase::Forces
            }
        };
        Progress::Barrier
    }
}
