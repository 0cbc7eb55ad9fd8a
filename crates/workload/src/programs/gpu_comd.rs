//! Forces between atoms in cells on a GPU: all lanes read one neighbour after the other.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, store_lanes};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array, Number};
use crate::parameters::*;
use crate::random::hash;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-comd",
    summary: "on a GPU: Lennard-Jones forces between atoms in cells",
    description: "\
Atoms lie in cells of a cube, sixteen in each; a cell has room for 64. Each work-item has an atom, and a warp those of two cells. For each \
of the 27 cells around its own it reads the number of atoms, then the three coordinates of each; all atoms of a cell read the same \
neighbours at the same time. At the end it adds to the forces of its atom.

Stands for CoMD (ExMatEx, 2013) with forces of Lennard-Jones by atom. It differs: cells are all equally full.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

/// Atoms of a cell, and its room.
const ATOMS: u64 = 16;
const ROOM: u64 = 64;

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Cells along each of three axes, rounded up to a multiple of four.
    #[parameter(default = 8, range = 4..=256, unit = "cells")]
    side: u64,
    /// Steps in time.
    #[parameter(default = 1, range = 1..=1000, unit = "steps")]
    iterations: u64,
}

#[derive(Clone)]
pub(crate) struct Work {
    side: u64,
    cells: u64,
    iterations: u64,
    counts: u64,
    positions: [u64; 3],
    forces: [u64; 3],
    energies: u64,
}

impl Work {
    /// One of the 27 cells around a cell; the cube goes on at its other side.
    fn around(&self, cell: u64, which: u64) -> u64 {
        let shift = |place: u64, digit: u64| (place + self.side + digit - 1) % self.side;
        let (x, rest) = (cell % self.side, cell / self.side);
        let (x, y) = (shift(x, which % 3), shift(rest % self.side, which / 3 % 3));
        x + self.side * (y + self.side * shift(rest / self.side, which / 9))
    }
}

impl OnGpu for Work {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Work, Problem> {
        let side = parameters.side.next_multiple_of(4);
        let cells = side.pow(3);
        let bytes = 8 * ROOM * cells;
        Ok(Work {
            side,
            cells,
            iterations: parameters.iterations,
            counts: layout.array("nAtoms", 4 * cells),
            positions: ["r.x", "r.y", "r.z"].map(|name| layout.array(name, bytes)),
            forces: ["f.x", "f.y", "f.z"].map(|name| layout.array(name, bytes)),
            energies: layout.array("e", bytes),
        })
    }

    fn launches(&self) -> u64 {
        self.iterations
    }

    fn accesses(&self) -> u64 {
        self.iterations * self.cells * ATOMS * (3 + 27 * (1 + 3 * ATOMS) + 4)
    }

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_comd.cl"));

    fn arguments(&self, _: u64) -> Vec<Argument> {
        let arrays =
            [self.counts].into_iter().chain(self.positions).chain(self.forces).chain([self.energies]);
        arrays.map(Array).chain([Number(self.side)]).collect()
    }

    fn fill(&self, memory: &Backing) {
        for cell in 0..self.cells {
            memory.write(self.counts + 4 * cell, ATOMS as u32);
            for atom in cell * ROOM..cell * ROOM + ATOMS {
                for (position, seed) in self.positions.into_iter().zip(1..) {
                    memory.write(position + 8 * atom, hash(seed, atom));
                }
            }
        }
    }

    fn compute(&self, memory: &Backing) {
        let at = |atom: u64| self.positions.map(|position| memory.read::<u64>(position + 8 * atom));
        for own in 0..self.cells * ATOMS {
            let cell = own / ATOMS;
            let own = cell * ROOM + own % ATOMS;
            let (mut forces, mut energy) = ([0u64; 3], 0u64);
            for other in (0..27).flat_map(|which| {
                let begin = self.around(cell, which) * ROOM;
                begin..begin + ATOMS
            }) {
                let (from, to) = (at(own), at(other));
                let away: [u64; 3] = std::array::from_fn(|axis| from[axis].wrapping_sub(to[axis]));
                let square = away.iter().fold(0u64, |sum, away| sum.wrapping_add(away.wrapping_mul(*away)));
                energy = energy.wrapping_add(square);
                for (force, away) in forces.iter_mut().zip(away) {
                    *force = force.wrapping_add(square.wrapping_mul(away));
                }
            }
            for (force, value) in self.forces.into_iter().zip(forces) {
                memory.write(force + 8 * own, value);
            }
            memory.write(self.energies + 8 * own, energy);
        }
    }
}

impl Warps for Work {
    const PIECE: u64 = 7 * LANES;

    fn name(&self, _: u64) -> &'static str {
        "LJ_Force_thread_atom"
    }

    fn groups(&self, _: u64) -> u64 {
        self.cells * ATOMS / (WARPS * LANES)
    }

    fn pieces(&self, _: u64) -> u64 {
        2 + 27 * (1 + ATOMS)
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { warp, piece, .. }: Place) {
        let cell = |lane: u64| (warp * LANES + lane) / ATOMS;
        let own = |lane: u64| 8 * (cell(lane) * ROOM + lane % ATOMS);
        if piece == 0 {
            return self
                .positions
                .iter()
                .for_each(|at| load_lanes::<u64>(memory, |lane| at + own(lane), false, 4));
        }
        if piece == 1 + 27 * (1 + ATOMS) {
            self.forces.iter().for_each(|at| store_lanes::<u64>(memory, |lane| at + own(lane), 2));
            return store_lanes::<u64>(memory, |lane| self.energies + own(lane), 2);
        }
        let (which, atom) = ((piece - 1) / (1 + ATOMS), (piece - 1) % (1 + ATOMS));
        let around = |lane: u64| self.around(cell(lane), which);
        if atom == 0 {
            return load_lanes::<u32>(memory, |lane| self.counts + 4 * around(lane), false, 9);
        }
        let neighbour = |lane: u64| 8 * (around(lane) * ROOM + atom - 1);
        // Distance, and the force where it is small enough.
        for (at, instructions) in self.positions.iter().zip([8, 3, 3]) {
            load_lanes::<u64>(memory, |lane| at + neighbour(lane), false, instructions);
        }
    }
}
