//! A 7-point stencil in three dimensions.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "stencil",
    summary: "7-point stencil sweeps over a 3-D grid (Parboil stencil)",
    description: "\
Two cubic grids of 8-byte numbers. A sweep replaces every inner cell by a weighted sum of itself and its six \
neighbours, from one grid into the other, then the grids change roles. Neighbours along x share lines, those along y \
are a row away, those along z a plane away.

Stands for the stencil benchmark of Parboil (Stratton et al., 2012), a Jacobi sweep of the 3-D heat equation. It \
differs: numbers have 8 bytes instead of 4; the width of an access is a parameter, because compilers vectorize the \
inner loop (32 B: AVX2); the first and last vector of a row belong to the boundary. Threads take contiguous planes.",
    parameters: declared::<Parameters>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Cells along each edge: a multiple of width / 8.
    #[parameter(default = 256, range = 12..=16384, unit = "cells")]
    side: u64,
    /// Sweeps over the grid.
    #[parameter(default = 1, range = 1..=LARGEST_COUNT, unit = "sweeps")]
    iterations: u64,
    /// Bytes that one access moves.
    width: Width,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    threads: Threads,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub(crate) enum Width {
    /// One number.
    #[choice("8")]
    Eight = 8,
    /// Four, as AVX2 does.
    #[default]
    #[choice("32")]
    ThirtyTwo = 32,
}

/// Accesses per vector of cells: itself, six neighbours, the result.
const POINT_ACCESSES: u64 = 8;

#[derive(Clone)]
pub(crate) struct Stencil {
    side: u64,
    width: u64,
    iterations: u64,
    threads: u32,
    grids: [u64; 2],
    layout: Layout,
}

impl Stencil {
    /// Vectors in the inner part of a row.
    fn row_vectors(&self) -> u64 {
        self.side * 8 / self.width - 2
    }
}

impl Program for Stencil {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Sweep;

    fn new(parameters: &Parameters) -> Result<Stencil, Problem> {
        let width = parameters.width as u64;
        let side = parameters.side;
        if !(side * 8).is_multiple_of(width) {
            return Err(Problem::new(
                "side",
                format!("a multiple of {}, the cells of one access", width / 8),
            ));
        }
        let mut layout = Layout::new(parameters.start.init);
        let grids = ["grid", "next grid"].map(|name| layout.array(name, side * side * side * 8));
        let iterations = parameters.iterations;
        Ok(Stencil { side, width, iterations, threads: parameters.threads.count, grids, layout })
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Sweep {
        let planes = share(self.side - 2, index, self.threads);
        let planes = planes.start + 1..planes.end + 1;
        Sweep { z: planes.start, y: 1, vector: 0, sweep: 0, planes, program: self.clone() }
    }

    fn kernel_accesses(&self) -> u64 {
        self.iterations * (self.side - 2).pow(2) * self.row_vectors() * POINT_ACCESSES
    }
}

/// One thread's planes.
pub(crate) struct Sweep {
    program: Stencil,
    planes: std::ops::Range<u64>,
    z: u64,
    y: u64,
    vector: u64,
    sweep: u64,
}

impl Sweep {
    #[inline(always)]
    fn row<const LANES: usize, M: Memory>(&mut self, memory: &mut M) {
        let side = self.program.side;
        let (row, plane, width) = (8 * side, 8 * side * side, 8 * LANES as u64);
        let parity = (self.sweep & 1) as usize;
        let (from, to) = (self.program.grids[parity], self.program.grids[1 - parity]);
        let end = self.program.row_vectors().min(self.vector + 32);
        let offset = self.z * plane + self.y * row + (self.vector + 1) * width;
        let (mut at, mut out) = (from + offset, to + offset);
        for _ in self.vector..end {
            let mut sum = [0.0f64; LANES];
            let mut add = |value: [u64; LANES], weight: f64| {
                for (sum, value) in sum.iter_mut().zip(value) {
                    *sum += weight * f64::from_bits(value);
                }
            };
            // One arithmetic instruction with a memory operand per neighbour; at the end the scaling, the store and a
            // share of the loop.
            add(memory.load(at, 0, 1), 0.4);
            for neighbour in [at - 8, at + 8, at - row, at + row, at - plane, at + plane] {
                add(memory.load(neighbour, 0, 1), 0.1);
            }
            // A loop and not `map`, which is not always inlined.
            let mut cells = [0; LANES];
            for (cell, sum) in cells.iter_mut().zip(sum) {
                *cell = sum.to_bits();
            }
            memory.store(out, cells, 0, 4);
            at += width;
            out += width;
        }
        self.vector = end;
    }
}

impl Kernel for Sweep {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if !self.planes.is_empty() {
            match self.program.width {
                8 => self.row::<1, M>(memory),
                _ => self.row::<4, M>(memory),
            }
            if self.vector < self.program.row_vectors() {
                return Progress::Working;
            }
            self.vector = 0;
            self.y += 1;
            if self.y < self.program.side - 1 {
                return Progress::Working;
            }
            self.y = 1;
            self.z += 1;
            if self.z < self.planes.end {
                return Progress::Working;
            }
            self.z = self.planes.start;
        }
        self.sweep += 1;
        if self.sweep == self.program.iterations { Progress::Done } else { Progress::Barrier }
    }
}
