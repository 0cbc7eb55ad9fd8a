//! Shortest paths through a grid, row after row, on a GPU: rows are read once, side by side.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_some, store_some};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array, Number};
use crate::parameters::*;
use crate::random::hash;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-pathfinder",
    summary: "on a GPU: shortest paths through a grid, twenty rows in a launch",
    description: "\
A launch carries the best paths on by twenty rows. Each group reads the paths of its columns and twenty on either side, then twenty rows \
of the grid, and keeps what it finds in the SM. Neighbouring groups overlap by forty columns, so that part of each row is read twice.

Stands for Rodinia's pathfinder (Che et al., IISWC 2009) with its pyramid height of 20. It differs: nothing but accesses is done.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

/// Rows of a launch.
const HEIGHT: u64 = 20;
/// Columns that are a group's own.
const OWN: u64 = WARPS * LANES - 2 * HEIGHT;

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Columns of the grid.
    #[parameter(default = 100000, range = 1..=1_000_000_000, unit = "columns")]
    columns: u64,
    /// Rows of the grid, rounded up to whole launches.
    #[parameter(default = 100, range = 1..=1_000_000, unit = "rows")]
    rows: u64,
}

#[derive(Clone)]
pub(crate) struct Work {
    columns: u64,
    groups: u64,
    launches: u64,
    wall: u64,
    paths: [u64; 2],
}

impl Work {
    /// The paths that a launch reads, and those that it writes.
    fn turned(&self, launch: u64) -> [u64; 2] {
        let [first, second] = self.paths;
        if launch.is_multiple_of(2) { [first, second] } else { [second, first] }
    }
}

impl OnGpu for Work {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Work, Problem> {
        let Parameters { columns, rows } = *parameters;
        let launches = rows.div_ceil(HEIGHT);
        Ok(Work {
            columns,
            groups: columns.div_ceil(OWN),
            launches,
            wall: layout.array("gpuWall", 4 * columns * launches * HEIGHT),
            paths: ["gpuResult0", "gpuResult1"].map(|name| layout.array(name, 4 * columns)),
        })
    }

    fn launches(&self) -> u64 {
        self.launches
    }

    fn accesses(&self) -> u64 {
        let read = |group: u64| {
            let first = (group * OWN).saturating_sub(HEIGHT);
            (group * OWN + OWN + HEIGHT).min(self.columns) - first
        };
        let read = (0..self.groups).map(read).sum::<u64>();
        self.launches * (read * (HEIGHT + 1) + self.columns)
    }

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_pathfinder.cl"));

    fn arguments(&self, launch: u64) -> Vec<Argument> {
        let [from, to] = self.turned(launch);
        vec![Array(self.wall), Array(from), Array(to), Number(self.columns), Number(launch * HEIGHT)]
    }

    fn fill(&self, memory: &Backing) {
        for at in 0..self.columns * self.launches * HEIGHT {
            memory.write(self.wall + 4 * at, hash(1, at) as u32 >> 16);
        }
        (0..self.columns).for_each(|at| memory.write(self.paths[0] + 4 * at, hash(2, at) as u32 >> 16));
    }

    fn compute(&self, memory: &Backing) {
        let columns = 0..self.columns as usize;
        let mut best: Vec<u32> =
            columns.clone().map(|at| memory.read(self.paths[0] + 4 * at as u64)).collect();
        for row in 0..self.launches * HEIGHT {
            let next = columns.clone().map(|at| {
                let wall: u32 = memory.read(self.wall + 4 * (row * self.columns + at as u64));
                let beside = best[at.saturating_sub(1)].min(best[(at + 1).min(columns.end - 1)]);
                wall + best[at].min(beside)
            });
            best = next.collect();
            if (row + 1).is_multiple_of(HEIGHT) {
                let [_, to] = self.turned(row / HEIGHT);
                best.iter().zip(0..).for_each(|(path, at)| memory.write(to + 4 * at, *path));
            }
        }
    }
}

impl Warps for Work {
    const PIECE: u64 = LANES;

    fn name(&self, _: u64) -> &'static str {
        "dynproc"
    }

    fn groups(&self, _: u64) -> u64 {
        self.groups
    }

    fn pieces(&self, _: u64) -> u64 {
        HEIGHT + 2
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { launch, warp, piece }: Place) {
        let (group, place) = (warp / WARPS, warp % WARPS * LANES);
        // Columns are counted from so many before the first.
        let column = |lane: u64| group * OWN + place + lane;
        let inside = |lane: u64| (HEIGHT..self.columns + HEIGHT).contains(&column(lane));
        let own = |lane: u64| inside(lane) && (HEIGHT..HEIGHT + OWN).contains(&(place + lane));
        let at = |lane: u64| 4 * (column(lane) - HEIGHT);
        let [from, to] = self.turned(launch);
        if piece == 0 {
            return load_some::<u32>(memory, inside, |lane| from + at(lane), false, 12);
        }
        if piece <= HEIGHT {
            let row = launch * HEIGHT + piece - 1;
            let wall = self.wall + 4 * row * self.columns;
            return load_some::<u32>(memory, inside, |lane| wall + at(lane), false, 14);
        }
        store_some::<u32>(memory, own, |lane| to + at(lane), 3);
    }
}
