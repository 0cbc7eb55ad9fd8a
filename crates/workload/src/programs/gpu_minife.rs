//! Conjugate gradients on a GPU: a sparse matrix of 27 diagonals in ELLPACK form, and vector updates.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, store_lanes};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array};
use crate::parameters::*;
use crate::random::hash;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-minife",
    summary: "on a GPU: conjugate gradients with a matrix of 27 entries a row",
    description: "\
Finite elements on a cube of points. In each iteration one kernel multiplies the matrix with a vector: a work-item has a row, whose 27 \
entries and columns lie a column apart from those of its neighbours, so that lanes read side by side, and reads the vector at the 27 \
neighbours of its point. A second kernel updates two vectors from two others.

Stands for miniFE (Mantevo; Heroux et al., 2009) as its GPU version runs it. It differs: sums of a whole vector are left out, and the two \
updates are one kernel.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

/// Entries of a row.
const NEIGHBOURS: u64 = 27;

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Points along each of three axes, rounded up to a multiple of 32.
    #[parameter(default = 32, range = 8..=2048, unit = "points")]
    side: u64,
    /// Iterations.
    #[parameter(default = 2, range = 1..=1000, unit = "iterations")]
    iterations: u64,
}

#[derive(Clone)]
pub(crate) struct Work {
    side: u64,
    rows: u64,
    iterations: u64,
    columns: u64,
    values: u64,
    vectors: [u64; 4],
}

impl Work {
    /// The column of a row's entry: a neighbour by its place in the cube of 27; one beyond the border is the nearest inside.
    fn column(&self, row: u64, entry: u64) -> u64 {
        let step = [1, self.side, self.side * self.side].into_iter().zip([1, 3, 9]);
        let (ahead, behind) = step.fold((0, 0), |(ahead, behind), (stride, digit)| match entry / digit % 3 {
            0 => (ahead, behind + stride),
            2 => (ahead + stride, behind),
            _ => (ahead, behind),
        });
        (row + ahead).saturating_sub(behind).min(self.rows - 1)
    }
}

impl OnGpu for Work {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Work, Problem> {
        let side = parameters.side.next_multiple_of(LANES);
        let rows = side.pow(3);
        Ok(Work {
            side,
            rows,
            iterations: parameters.iterations,
            columns: layout.array("columns", 4 * NEIGHBOURS * rows),
            values: layout.array("coefficients", 8 * NEIGHBOURS * rows),
            vectors: ["p", "Ap", "x", "r"].map(|name| layout.array(name, 8 * rows)),
        })
    }

    fn launches(&self) -> u64 {
        2 * self.iterations
    }

    fn accesses(&self) -> u64 {
        self.iterations * self.rows * (3 * NEIGHBOURS + 1 + 6)
    }

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_minife.cl"));

    fn arguments(&self, launch: u64) -> Vec<Argument> {
        let [p, ap, x, r] = self.vectors;
        let all = if launch.is_multiple_of(2) { [self.columns, self.values, p, ap] } else { [p, ap, x, r] };
        all.map(Array).to_vec()
    }

    fn fill(&self, memory: &Backing) {
        for row in 0..self.rows {
            for at in 0..NEIGHBOURS {
                let entry = at * self.rows + row;
                memory.write(self.columns + 4 * entry, self.column(row, at) as u32);
                memory.write(self.values + 8 * entry, hash(1, entry));
            }
            for (vector, seed) in self.vectors.into_iter().zip(2..) {
                memory.write(vector + 8 * row, hash(seed, row));
            }
        }
    }

    fn compute(&self, memory: &Backing) {
        let [p, ap, x, r] = self.vectors;
        let of = |vector: u64, row: u64| memory.read::<u64>(vector + 8 * row);
        for row in 0..self.rows {
            let product =
                |at: u64| of(self.values, at * self.rows + row).wrapping_mul(of(p, self.column(row, at)));
            let sum = (0..NEIGHBOURS).map(product).fold(0, u64::wrapping_add);
            memory.write(ap + 8 * row, sum);
            for _ in 0..self.iterations {
                memory.write(x + 8 * row, of(x, row).wrapping_add(of(p, row).wrapping_mul(3)));
                memory.write(r + 8 * row, of(r, row).wrapping_sub(sum.wrapping_mul(3)));
            }
        }
    }
}

impl Warps for Work {
    const PIECE: u64 = 6 * LANES;

    fn name(&self, launch: u64) -> &'static str {
        if launch.is_multiple_of(2) { "matvec" } else { "waxpby" }
    }

    fn groups(&self, _: u64) -> u64 {
        self.rows / (WARPS * LANES)
    }

    fn pieces(&self, launch: u64) -> u64 {
        if launch.is_multiple_of(2) { NEIGHBOURS + 1 } else { 1 }
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { launch, warp, piece }: Place) {
        let first = warp * LANES;
        let of = |vector: u64| move |lane: u64| vector + 8 * (first + lane);
        let [p, ap, x, r] = self.vectors;
        if launch % 2 == 1 {
            [p, ap, x, r].into_iter().for_each(|from| load_lanes::<u64>(memory, of(from), false, 2));
            return [x, r].into_iter().for_each(|to| store_lanes::<u64>(memory, of(to), 2));
        }
        if piece == NEIGHBOURS {
            return store_lanes::<u64>(memory, of(ap), 2);
        }
        let entry = |lane: u64| piece * self.rows + first + lane;
        load_lanes::<u32>(memory, |lane| self.columns + 4 * entry(lane), false, 3);
        load_lanes::<u64>(memory, |lane| self.values + 8 * entry(lane), false, 2);
        load_lanes::<u64>(memory, |lane| p + 8 * self.column(first + lane, piece), true, 2);
    }
}
