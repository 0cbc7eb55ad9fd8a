//! Heat of a chip on a GPU: tiles with borders that overlap, several steps in each launch.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_some, store_some};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array, Number};
use crate::parameters::*;
use crate::random::hash;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-hotspot",
    summary: "on a GPU: temperatures of a chip, tile by tile, several steps in each launch",
    description: "\
A group reads a tile of 16 by 16 temperatures and the power of the same cells, makes several time steps in local memory, and writes those \
cells of the middle that its borders have not spoilt. Tiles overlap by their borders. A warp has two rows of 16 cells, so that half a line is used \
of each. The two grids of temperatures change places with each launch.

Stands for Rodinia's hotspot (Che et al., IISWC 2009; the model: Huang et al., 2006). It differs: the side is rounded up to whole tiles, and local \
memory is not accessed.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

/// Cells along a tile's side, borders included.
const TILE: u64 = 16;
/// Rows of a tile that a warp has.
const ROWS: u64 = LANES / TILE;

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Cells along each side, rounded up to whole tiles without their borders.
    #[parameter(default = 1024, range = 16..=65536, unit = "cells")]
    side: u64,
    /// Time steps in each launch, which is how wide a tile's border is.
    #[parameter(default = 2, range = 1..=7, unit = "steps")]
    height: u64,
    /// Launches of the kernel.
    #[parameter(default = 2, range = 1..=10000, unit = "launches")]
    iterations: u64,
}

#[derive(Clone)]
pub(crate) struct Work {
    side: u64,
    height: u64,
    iterations: u64,
    temperatures: [u64; 2],
    power: u64,
}

impl Work {
    /// Cells along a tile's side that it writes.
    fn inner(&self) -> u64 {
        TILE - 2 * self.height
    }

    /// The grid of temperatures that a launch reads, and the one that it writes.
    fn grids(&self, launch: u64) -> [u64; 2] {
        let [first, second] = self.temperatures;
        if launch.is_multiple_of(2) { [first, second] } else { [second, first] }
    }

    fn tiles(&self) -> u64 {
        self.side / self.inner()
    }

    /// The cell of a lane along one axis, if the chip has it: `at` of the tile's 16.
    fn cell(&self, tile: u64, at: u64) -> Option<u64> {
        (tile * self.inner() + at).checked_sub(self.height).filter(|cell| *cell < self.side)
    }

    /// Cells that tiles read along one axis.
    fn read_along(&self) -> u64 {
        let of_tile = |tile| (0..TILE).filter(move |at| self.cell(tile, *at).is_some()).count() as u64;
        (0..self.tiles()).map(of_tile).sum()
    }
}

impl OnGpu for Work {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Work, Problem> {
        let Parameters { side, height, iterations } = *parameters;
        let side = side.next_multiple_of(TILE - 2 * height);
        let temperatures = ["MatrixTemp0", "MatrixTemp1"].map(|name| layout.array(name, 4 * side * side));
        let power = layout.array("MatrixPower", 4 * side * side);
        Ok(Work { side, height, iterations, temperatures, power })
    }

    fn launches(&self) -> u64 {
        self.iterations
    }

    fn accesses(&self) -> u64 {
        self.iterations * (2 * self.read_along().pow(2) + self.side.pow(2))
    }

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_hotspot.cl"));

    fn arguments(&self, launch: u64) -> Vec<Argument> {
        let [from, to] = self.grids(launch);
        vec![Array(self.power), Array(from), Array(to), Number(self.side), Number(self.height)]
    }

    fn fill(&self, memory: &Backing) {
        for at in 0..self.side * self.side {
            memory.write(self.temperatures[0] + 4 * at, hash(1, at) as u32);
            memory.write(self.power + 4 * at, hash(2, at) as u32);
        }
    }

    fn compute(&self, memory: &Backing) {
        let (side, last) = (self.side, self.side - 1);
        let cells = |array: u64| (0..side * side).map(move |at| array + 4 * at);
        for launch in 0..self.iterations {
            let [from, to] = self.grids(launch);
            let mut now: Vec<u32> = cells(from).map(|at| memory.read(at)).collect();
            for _ in 0..self.height {
                let of = |row: u64, column: u64| now[(row * side + column) as usize];
                let next = (0..side * side).map(|at| {
                    let (row, column) = (at / side, at % side);
                    let around = [
                        of(row.saturating_sub(1), column),
                        of((row + 1).min(last), column),
                        of(row, column.saturating_sub(1)),
                        of(row, (column + 1).min(last)),
                        memory.read(self.power + 4 * at),
                    ];
                    around.into_iter().fold(of(row, column).wrapping_mul(3), u32::wrapping_add)
                });
                now = next.collect();
            }
            cells(to).zip(now).for_each(|(at, temperature)| memory.write(at, temperature));
        }
    }
}

impl Warps for Work {
    const PIECE: u64 = 3 * LANES;

    fn name(&self, _: u64) -> &'static str {
        "calculate_temp"
    }

    fn groups(&self, _: u64) -> u64 {
        self.tiles().pow(2)
    }

    fn pieces(&self, _: u64) -> u64 {
        1
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { launch, warp, .. }: Place) {
        let [from, to] = self.grids(launch);
        let (tile, rows) = (warp / WARPS, warp % WARPS * ROWS);
        let place = |lane: u64| (rows + lane / TILE, lane % TILE);
        let cell = |lane: u64| {
            let (row, column) = place(lane);
            let (row, column) =
                (self.cell(tile / self.tiles(), row)?, self.cell(tile % self.tiles(), column)?);
            Some(4 * (row * self.side + column))
        };
        let is_inner = |lane: u64| {
            let inner = self.height..TILE - self.height;
            let (row, column) = place(lane);
            inner.contains(&row) && inner.contains(&column)
        };
        let is_there = |lane: u64| cell(lane).is_some();
        let at = |array: u64| move |lane: u64| array + cell(lane).unwrap_or(0);
        load_some::<u32>(memory, is_there, at(from), false, 20);
        load_some::<u32>(memory, is_there, at(self.power), false, 2);
        // Each step: neighbours from local memory, sums, a barrier.
        let steps = 25 * self.height as u16;
        store_some::<u32>(memory, |lane| is_inner(lane) && is_there(lane), at(to), steps);
    }
}
