//! Lattice Boltzmann on a GPU: nineteen arrays are read side by side, nineteen are written.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, store_lanes};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array, Number};
use crate::parameters::*;
use crate::random::hash;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-lbm",
    summary: "on a GPU: lattice Boltzmann with nineteen velocities, from one grid into another",
    description: "\
Each work-item has a cell: it reads the nineteen distributions of its cell and its flags, and writes each distribution to the neighbour that \
its velocity leads to. A grid keeps each distribution as an array of its own, so that the lanes of a warp read and write side by side. The \
two grids change places with each launch. It is limited by the bandwidth of memory.

Stands for Parboil's lbm (Stratton et al., 2012). It differs: the lattice is a cube and ends meet, where Parboil's has walls and padding; all \
cells hold fluid.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

/// Distributions of a cell, the one at rest first.
const VELOCITIES: u64 = 19;
/// Arrays of a grid: one for each distribution, and the flags.
const ARRAYS: u64 = VELOCITIES + 1;
/// Arrays that a piece reads or writes.
const EACH: u64 = 5;
const READS: u64 = ARRAYS.div_ceil(EACH);
const WRITES: u64 = VELOCITIES.div_ceil(EACH);

/// Where each velocity leads: none, one or two of three axes.
const STEPS: [[i64; 3]; VELOCITIES as usize] = [
    [0, 0, 0],
    [1, 0, 0],
    [-1, 0, 0],
    [0, 1, 0],
    [0, -1, 0],
    [0, 0, 1],
    [0, 0, -1],
    [1, 1, 0],
    [1, -1, 0],
    [-1, 1, 0],
    [-1, -1, 0],
    [1, 0, 1],
    [1, 0, -1],
    [-1, 0, 1],
    [-1, 0, -1],
    [0, 1, 1],
    [0, 1, -1],
    [0, -1, 1],
    [0, -1, -1],
];

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Cells along each of three axes, rounded up to a multiple of 32.
    #[parameter(default = 64, range = 8..=2048, unit = "cells")]
    side: u64,
    /// Launches of the kernel.
    #[parameter(default = 1, range = 1..=10000, unit = "launches")]
    iterations: u64,
}

#[derive(Clone)]
pub(crate) struct Work {
    side: u64,
    cells: u64,
    iterations: u64,
    grids: [u64; 2],
}

impl Work {
    /// The grid that a launch reads, and the one that it writes.
    fn turned(&self, launch: u64) -> [u64; 2] {
        let [first, second] = self.grids;
        if launch.is_multiple_of(2) { [first, second] } else { [second, first] }
    }

    /// How many cells ahead a velocity leads; ends meet.
    fn step(&self, velocity: u64) -> u64 {
        let [x, y, z] = STEPS[velocity as usize];
        let side = self.side as i64;
        (x + side * (y + side * z)).rem_euclid(self.cells as i64) as u64
    }
}

impl OnGpu for Work {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Work, Problem> {
        let side = parameters.side.next_multiple_of(LANES);
        let cells = side.pow(3);
        let grids = ["src_grid", "dst_grid"].map(|name| layout.array(name, 4 * ARRAYS * cells));
        Ok(Work { side, cells, iterations: parameters.iterations, grids })
    }

    fn launches(&self) -> u64 {
        self.iterations
    }

    fn accesses(&self) -> u64 {
        self.iterations * self.cells * (ARRAYS + VELOCITIES)
    }

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_lbm.cl"));

    fn arguments(&self, launch: u64) -> Vec<Argument> {
        let [from, to] = self.turned(launch);
        vec![Array(from), Array(to), Number(self.side)]
    }

    fn fill(&self, memory: &Backing) {
        for at in 0..VELOCITIES * self.cells {
            memory.write(self.grids[0] + 4 * at, hash(1, at) as u32);
        }
        for cell in VELOCITIES * self.cells..ARRAYS * self.cells {
            self.grids.iter().for_each(|grid| memory.write(grid + 4 * cell, 1u32));
        }
    }

    fn compute(&self, memory: &Backing) {
        for launch in 0..self.iterations {
            let [from, to] = self.turned(launch);
            for cell in 0..self.cells {
                let own = |array: u64| memory.read::<u32>(from + 4 * (array * self.cells + cell));
                let density =
                    (0..VELOCITIES).map(own).fold(0, u32::wrapping_add).wrapping_mul(own(VELOCITIES));
                for velocity in 0..VELOCITIES {
                    let moved = own(velocity).wrapping_mul(velocity as u32 + 1).wrapping_add(density);
                    let there = (cell + self.step(velocity)) % self.cells;
                    memory.write(to + 4 * (velocity * self.cells + there), moved);
                }
            }
        }
    }
}

impl Warps for Work {
    const PIECE: u64 = EACH * LANES;

    fn name(&self, _: u64) -> &'static str {
        "stream_collide"
    }

    fn groups(&self, _: u64) -> u64 {
        self.cells / (WARPS * LANES)
    }

    fn pieces(&self, _: u64) -> u64 {
        READS + WRITES
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { launch, warp, piece }: Place) {
        let first = warp * LANES;
        let [from, to] = self.turned(launch);
        if piece < READS {
            for array in EACH * piece..ARRAYS.min(EACH * (piece + 1)) {
                load_lanes::<u32>(memory, |lane| from + 4 * (array * self.cells + first + lane), false, 3);
            }
            return;
        }
        let velocities = EACH * (piece - READS)..VELOCITIES.min(EACH * (piece - READS + 1));
        for velocity in velocities {
            let step = self.step(velocity);
            // The collision's arithmetic, about 200 instructions over all distributions, and the address.
            let at = |lane: u64| to + 4 * (velocity * self.cells + (first + lane + step) % self.cells);
            store_lanes::<u32>(memory, at, 14);
        }
    }
}
