//! Forces between atoms in cells on a GPU: all lanes read one neighbour after the other.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, store_lanes};
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;

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
        // A cell around the lane's own; the cube goes on at its other side.
        let around = |lane: u64| {
            let shift = |place: u64, digit: u64| (place + self.side + digit - 1) % self.side;
            let (x, rest) = (cell(lane) % self.side, cell(lane) / self.side);
            let (x, y) = (shift(x, which % 3), shift(rest % self.side, which / 3 % 3));
            x + self.side * (y + self.side * shift(rest / self.side, which / 9))
        };
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
