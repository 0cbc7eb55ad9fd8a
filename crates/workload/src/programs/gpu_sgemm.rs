//! A product of two matrices on a GPU, by tiles: few accesses, of which each is waited for.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, store_lanes};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array, Number};
use crate::parameters::*;
use crate::random::hash;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-sgemm",
    summary: "on a GPU: a product of two square matrices by tiles of 16",
    description: "\
Each group computes a tile of 16 by 16 of the result. Step by step it reads a tile of each matrix into the SM, where all that follows \
happens. Tiles are read again by other groups, so that caches serve most.

Stands for sgemm of Parboil (Stratton et al., 2012). It differs: tiles are square, and matrices too.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

/// Rows and columns of a tile: a group's work-items.
const TILE: u64 = 16;

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Rows and columns, rounded up to whole tiles.
    #[parameter(default = 512, range = 16..=65536, unit = "rows")]
    rows: u64,
}

#[derive(Clone)]
pub(crate) struct Work {
    tiles: u64,
    a: u64,
    b: u64,
    c: u64,
}

impl OnGpu for Work {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Work, Problem> {
        let tiles = parameters.rows.div_ceil(TILE);
        let bytes = 4 * (tiles * TILE).pow(2);
        let [a, b, c] = ["matA", "matBT", "matC"].map(|name| layout.array(name, bytes));
        Ok(Work { tiles, a, b, c })
    }

    fn launches(&self) -> u64 {
        1
    }

    fn accesses(&self) -> u64 {
        self.tiles * self.tiles * WARPS * LANES * (2 * self.tiles + 1)
    }

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_sgemm.cl"));

    fn arguments(&self, _: u64) -> Vec<Argument> {
        vec![Array(self.a), Array(self.b), Array(self.c), Number(self.tiles)]
    }

    fn fill(&self, memory: &Backing) {
        for at in 0..(self.tiles * TILE).pow(2) {
            memory.write(self.a + 4 * at, hash(1, at) as u32);
            memory.write(self.b + 4 * at, hash(2, at) as u32);
        }
    }

    fn compute(&self, memory: &Backing) {
        let rows = self.tiles * TILE;
        let of = |matrix: u64, row: u64, column: u64| memory.read::<u32>(matrix + 4 * (row * rows + column));
        for row in 0..rows {
            let mut sums = vec![0u32; rows as usize];
            for step in 0..rows {
                let factor = of(self.a, row, step);
                for (column, sum) in sums.iter_mut().enumerate() {
                    *sum = sum.wrapping_add(factor.wrapping_mul(of(self.b, step, column as u64)));
                }
            }
            (0..rows)
                .zip(sums)
                .for_each(|(column, sum)| memory.write(self.c + 4 * (row * rows + column), sum));
        }
    }
}

impl Warps for Work {
    const PIECE: u64 = 2 * LANES;

    fn name(&self, _: u64) -> &'static str {
        "mysgemmNT"
    }

    fn groups(&self, _: u64) -> u64 {
        self.tiles * self.tiles
    }

    fn pieces(&self, _: u64) -> u64 {
        self.tiles + 1
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { warp, piece, .. }: Place) {
        let (group, place) = (warp / WARPS, warp % WARPS * LANES);
        let (row, column) = (group / self.tiles * TILE, group % self.tiles * TILE);
        let (down, across) = (|lane: u64| (place + lane) / TILE, |lane: u64| lane % TILE);
        let word = |row: u64, column: u64| 4 * (row * self.tiles * TILE + column);
        if piece == self.tiles {
            return store_lanes::<u32>(
                memory,
                |lane| self.c + word(row + down(lane), column + across(lane)),
                4,
            );
        }
        let step = piece * TILE;
        load_lanes::<u32>(memory, |lane| self.a + word(row + down(lane), step + across(lane)), piece > 0, 4);
        // Sixteen products and sums follow for each step.
        load_lanes::<u32>(memory, |lane| self.b + word(step + down(lane), column + across(lane)), false, 40);
    }
}
