//! A stencil of seven points on a GPU: from one grid into another.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, store_lanes};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array, Number};
use crate::parameters::*;
use crate::random::hash;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-stencil",
    summary: "on a GPU: a stencil of seven points over a grid of three dimensions",
    description: "\
Each work-item has a point: it reads the point and its six neighbours from one grid and writes the point of another. The lanes of a warp lie \
side by side along a row; neighbours in other rows and planes were read by other groups, as far as caches still hold them. The two grids \
change places with each launch.

Stands for Parboil's stencil, a Jacobi iteration of the heat equation (Stratton et al., 2012). It differs: one point for each work-item, where \
Parboil's best version walks along the third dimension with three planes in registers; points at the border take the nearest inside.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Points along a row and rows of a plane, rounded up to a multiple of 32.
    #[parameter(default = 256, range = 32..=16384, unit = "points")]
    side: u64,
    /// Planes.
    #[parameter(default = 16, range = 1..=16384, unit = "planes")]
    planes: u64,
    /// Launches of the kernel.
    #[parameter(default = 1, range = 1..=10000, unit = "launches")]
    iterations: u64,
}

#[derive(Clone)]
pub(crate) struct Work {
    side: u64,
    planes: u64,
    iterations: u64,
    grids: [u64; 2],
}

impl Work {
    /// The grid that a launch reads, and the one that it writes.
    fn turned(&self, launch: u64) -> [u64; 2] {
        let [first, second] = self.grids;
        if launch.is_multiple_of(2) { [first, second] } else { [second, first] }
    }

    fn points(&self) -> u64 {
        self.side * self.side * self.planes
    }
}

impl OnGpu for Work {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Work, Problem> {
        let Parameters { side, planes, iterations } = *parameters;
        let side = side.next_multiple_of(LANES);
        let grids = ["A0", "Anext"].map(|name| layout.array(name, 4 * side * side * planes));
        Ok(Work { side, planes, iterations, grids })
    }

    fn launches(&self) -> u64 {
        self.iterations
    }

    fn accesses(&self) -> u64 {
        8 * self.points() * self.iterations
    }

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_stencil.cl"));

    fn arguments(&self, launch: u64) -> Vec<Argument> {
        let [from, to] = self.turned(launch);
        vec![Array(from), Array(to), Number(self.side), Number(self.planes)]
    }

    fn fill(&self, memory: &Backing) {
        (0..self.points()).for_each(|at| memory.write(self.grids[0] + 4 * at, hash(1, at) as u32));
    }

    fn compute(&self, memory: &Backing) {
        let Work { side, planes, .. } = *self;
        for launch in 0..self.iterations {
            let [from, to] = self.turned(launch);
            for at in 0..self.points() {
                let (plane, row, column) = (at / (side * side), at / side % side, at % side);
                let of = |plane: u64, row: u64, column: u64| {
                    memory.read::<u32>(from + 4 * ((plane * side + row) * side + column))
                };
                let around = [
                    of((plane + 1).min(planes - 1), row, column),
                    of(plane.saturating_sub(1), row, column),
                    of(plane, (row + 1).min(side - 1), column),
                    of(plane, row.saturating_sub(1), column),
                    of(plane, row, (column + 1).min(side - 1)),
                    of(plane, row, column.saturating_sub(1)),
                ];
                let own = of(plane, row, column).wrapping_mul(5);
                memory.write(to + 4 * at, around.into_iter().fold(0, u32::wrapping_add).wrapping_sub(own));
            }
        }
    }
}

impl Warps for Work {
    const PIECE: u64 = 4 * LANES;

    fn name(&self, _: u64) -> &'static str {
        "stencil"
    }

    fn groups(&self, _: u64) -> u64 {
        self.points() / (WARPS * LANES)
    }

    fn pieces(&self, _: u64) -> u64 {
        2
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { launch, warp, piece }: Place) {
        let [from, to] = self.turned(launch);
        let Work { side, planes, .. } = *self;
        let first = warp * LANES;
        let (plane, row, column) = (first / (side * side), first / side % side, first % side);
        let at = |plane: u64, row: u64, column: u64| {
            from + 4 * ((plane * side + row) * side + column.min(side - 1))
        };
        if piece == 0 {
            load_lanes::<u32>(memory, |lane| at((plane + 1).min(planes - 1), row, column + lane), false, 12);
            load_lanes::<u32>(memory, |lane| at(plane.saturating_sub(1), row, column + lane), false, 2);
            load_lanes::<u32>(memory, |lane| at(plane, (row + 1).min(side - 1), column + lane), false, 2);
            load_lanes::<u32>(memory, |lane| at(plane, row.saturating_sub(1), column + lane), false, 2);
            return;
        }
        load_lanes::<u32>(memory, |lane| at(plane, row, column + lane + 1), false, 2);
        load_lanes::<u32>(memory, |lane| at(plane, row, (column + lane).saturating_sub(1)), false, 2);
        load_lanes::<u32>(memory, |lane| at(plane, row, column + lane), false, 2);
        store_lanes::<u32>(memory, |lane| to + 4 * (first + lane), 9);
    }
}
