//! The lattice Boltzmann method in three dimensions.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "lbm",
    summary: "lattice Boltzmann steps of a fluid, 19 directions (SPEC CPU 470.lbm)",
    description: "\
Two cubic lattices of cells with 19 distributions and a flag, 160 bytes each, one after the other. A step reads a whole cell of \
one lattice, computes its collision, and writes one distribution into each of 19 cells of the other: itself, the six beside it \
and the twelve across an edge. Then the lattices change roles. Cells along z are a plane apart, so each step writes into \
three planes at once.

Stands for 470.lbm of SPEC CPU 2006 and 519.lbm and 619.lbm of 2017 (Pohl et al., 2003), whose lattice is 100 by 100 by 130. It \
differs: the lattice is a cube, there are no obstacles, and the outermost cells stay as they are. Threads take contiguous planes.",
    parameters: declared::<Parameters>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Cells along each edge.
    #[parameter(default = 109, range = 3..=8192, unit = "cells")]
    side: u64,
    /// Steps of the fluid.
    #[parameter(default = 1, range = 1..=LARGEST_COUNT, unit = "steps")]
    iterations: u64,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    threads: Threads,
}

const CELL_BYTES: u64 = 160;
const DIRECTIONS: usize = 19;
/// The directions: none, along one axis, and along two.
const TOWARDS: [[i64; 3]; DIRECTIONS] = [
    [0, 0, 0],
    [0, 1, 0],
    [0, -1, 0],
    [1, 0, 0],
    [-1, 0, 0],
    [0, 0, 1],
    [0, 0, -1],
    [1, 1, 0],
    [-1, 1, 0],
    [1, -1, 0],
    [-1, -1, 0],
    [0, 1, 1],
    [0, 1, -1],
    [0, -1, 1],
    [0, -1, -1],
    [1, 0, 1],
    [1, 0, -1],
    [-1, 0, 1],
    [-1, 0, -1],
];
/// Instructions of a collision: some 230 operations on numbers and as many moves among registers as the compiler needs, of
/// which the loads and stores carry a share each.
const PER_STORE: u16 = 14;

#[derive(Clone)]
pub(crate) struct Boltzmann {
    side: u64,
    iterations: u64,
    threads: u32,
    lattices: [u64; 2],
    layout: Layout,
}

impl Program for Boltzmann {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Planes;

    fn new(parameters: &Parameters) -> Result<Boltzmann, Problem> {
        let (side, iterations, threads) = (parameters.side, parameters.iterations, parameters.threads.count);
        let mut layout = Layout::new(parameters.start.init);
        let lattices =
            ["lattice", "next lattice"].map(|name| layout.array(name, side * side * side * CELL_BYTES));
        Ok(Boltzmann { side, iterations, threads, lattices, layout })
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Planes {
        let planes = share(self.side - 2, index, self.threads);
        let planes = planes.start + 1..planes.end + 1;
        let row = self.side as i64 * CELL_BYTES as i64;
        let offsets = std::array::from_fn(|direction| {
            let [x, y, z] = TOWARDS[direction];
            // Each direction has its own place in a cell.
            x * CELL_BYTES as i64 + y * row + z * row * self.side as i64 + 8 * direction as i64
        });
        Planes { x: 1, y: 1, z: planes.start, step: 0, planes, offsets, program: self.clone() }
    }

    fn kernel_accesses(&self) -> u64 {
        self.iterations * (self.side - 2).pow(3) * (2 * DIRECTIONS as u64 + 1)
    }
}

/// One thread's planes.
pub(crate) struct Planes {
    program: Boltzmann,
    planes: std::ops::Range<u64>,
    /// From a cell to where each direction's distribution goes.
    offsets: [i64; DIRECTIONS],
    x: u64,
    y: u64,
    z: u64,
    step: u64,
}

impl Planes {
    /// One cell: its flag and distributions are read, relaxed towards their mean, and sent on.
    #[inline(always)]
    fn cell<M: Memory>(&self, memory: &mut M) {
        let side = self.program.side;
        let offset = ((self.z * side + self.y) * side + self.x) * CELL_BYTES;
        let parity = (self.step & 1) as usize;
        let (from, to) = (self.program.lattices[parity] + offset, self.program.lattices[1 - parity] + offset);
        // A test of the flag comes first.
        let _: u64 = memory.load(from + 8 * DIRECTIONS as u64, 0, 3);
        let mut values = [0.0f64; DIRECTIONS];
        for (direction, value) in values.iter_mut().enumerate() {
            let bits: u64 = memory.load(from + 8 * direction as u64, 0, 2);
            *value = f64::from_bits(bits);
        }
        let mean = values.iter().sum::<f64>() / DIRECTIONS as f64;
        for (value, offset) in values.iter().zip(self.offsets) {
            let relaxed = value + 1.95 * (mean - value);
            memory.store(to.wrapping_add_signed(offset), relaxed.to_bits(), 0, PER_STORE);
        }
    }
}

impl Kernel for Planes {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if !self.planes.is_empty() {
            let last = self.program.side - 1;
            let end = last.min(self.x + 6);
            while self.x < end {
                self.cell(memory);
                self.x += 1;
            }
            if self.x < last {
                return Progress::Working;
            }
            self.x = 1;
            self.y += 1;
            if self.y < last {
                return Progress::Working;
            }
            self.y = 1;
            self.z += 1;
            if self.z < self.planes.end {
                return Progress::Working;
            }
            self.z = self.planes.start;
        }
        self.step += 1;
        if self.step == self.program.iterations { Progress::Done } else { Progress::Barrier }
    }
}
