//! A sparse matrix times a vector on a GPU: jagged diagonals, and a vector that is read anywhere.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, store_lanes};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array, Number};
use crate::parameters::*;
use crate::random::{hash, scale};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-spmv",
    summary: "on a GPU: a sparse matrix in jagged diagonals times a vector",
    description: "\
Rows are sorted by how many entries they have, and the first entries of all rows lie side by side, then the second ones, and so on. A work-item has a \
row: for each entry it reads where its diagonal begins, the entry's column and value, and the vector at that column; it then writes the sum to \
the row's place before sorting. Matrix and columns are read once, lane beside lane; the vector is read near the row's own place, lane by lane elsewhere.

Stands for Parboil's spmv (Stratton et al., 2012). It differs: columns are drawn within a band around the row, and the lengths of rows fall evenly from \
twice their mean to one.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Rows, rounded up to whole work-groups.
    #[parameter(default = 131072, range = 1..=100_000_000, unit = "rows")]
    rows: u64,
    /// Entries of a row, on average.
    #[parameter(default = 13, range = 1..=1024, unit = "entries")]
    entries: u64,
    /// Largest distance of a column from its row.
    #[parameter(default = 4096, range = 1..=1_000_000_000, unit = "columns")]
    band: u64,
    /// Launches of the kernel.
    #[parameter(default = 1, range = 1..=10000, unit = "launches")]
    iterations: u64,
    #[parameter(flatten)]
    seed: Seed,
}

#[derive(Clone)]
pub(crate) struct Work {
    warps: u64,
    longest: u64,
    band: u64,
    iterations: u64,
    seed: u64,
    /// From a row's place before sorting to the next row's.
    stride: u64,
    /// Entries before each diagonal, and all of them.
    before: Vec<u64>,
    begins: u64,
    columns: u64,
    values: u64,
    vector: u64,
    places: u64,
    sums: u64,
}

/// Entries of each row of a warp: they fall from `longest` to one.
fn length(warp: u64, warps: u64, longest: u64) -> u64 {
    longest - (longest - 1) * warp / (warps - 1).max(1)
}

/// A stride that leads through all `rows`, as it has no divisor in common with them.
fn stride(rows: u64) -> u64 {
    let divisor = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (40_503..).step_by(2).find(|stride| divisor(*stride, rows) == 1).unwrap_or(1)
}

impl Work {
    fn rows(&self) -> u64 {
        self.warps * LANES
    }

    /// The entries of a row.
    fn entries(&self, row: u64) -> impl Iterator<Item = u64> + '_ {
        let length = length(row / LANES, self.warps, self.longest);
        (0..length).map(move |diagonal| self.before[diagonal as usize] + row)
    }

    /// The column of a row's entry: one within a band around the row.
    fn column(&self, row: u64, entry: u64) -> u64 {
        let away = scale(hash(self.seed, entry), 2 * self.band + 1);
        (row + away).saturating_sub(self.band).min(self.rows() - 1)
    }

    /// Where a row lay before rows were sorted: anywhere.
    fn place(&self, row: u64) -> u64 {
        row * self.stride % self.rows()
    }
}

impl OnGpu for Work {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Work, Problem> {
        let Parameters { rows, entries, band, iterations, seed: Seed { number: seed } } = *parameters;
        let warps = rows.div_ceil(WARPS * LANES) * WARPS;
        let longest = 2 * entries - 1;
        let mut of_diagonal = vec![0; longest as usize];
        for warp in 0..warps {
            of_diagonal[length(warp, warps, longest) as usize - 1] += LANES;
        }
        // A diagonal has an entry of each row that is long enough.
        for at in (1..of_diagonal.len()).rev() {
            of_diagonal[at - 1] += of_diagonal[at];
        }
        let mut before = vec![0];
        for rows in of_diagonal {
            before.push(before[before.len() - 1] + rows);
        }
        let (all, rows) = (before[longest as usize], warps * LANES);
        Ok(Work {
            warps,
            longest,
            band,
            iterations,
            seed,
            stride: stride(rows),
            before,
            begins: layout.array("jds_ptr", 4 * longest),
            columns: layout.array("jds_col_index", 4 * all),
            values: layout.array("jds_data", 4 * all),
            vector: layout.array("x_vec", 4 * rows),
            places: layout.array("jds_perm", 4 * rows),
            sums: layout.array("dst_vector", 4 * rows),
        })
    }

    fn launches(&self) -> u64 {
        self.iterations
    }

    fn accesses(&self) -> u64 {
        self.iterations * (4 * self.before[self.longest as usize] + 2 * self.warps * LANES)
    }

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_spmv.cl"));

    fn arguments(&self, _: u64) -> Vec<Argument> {
        let Work { begins, columns, values, vector, places, sums, .. } = *self;
        let arrays = [begins, columns, values, vector, places, sums].map(Array);
        [&arrays[..], &[Number(self.longest)]].concat()
    }

    fn fill(&self, memory: &Backing) {
        for (diagonal, before) in (0..self.longest).zip(&self.before) {
            memory.write(self.begins + 4 * diagonal, *before as u32);
        }
        for row in 0..self.rows() {
            for entry in self.entries(row) {
                memory.write(self.columns + 4 * entry, self.column(row, entry) as u32);
                memory.write(self.values + 4 * entry, hash(1, entry) as u32);
            }
            memory.write(self.vector + 4 * row, hash(2, row) as u32);
            memory.write(self.places + 4 * row, self.place(row) as u32);
        }
    }

    fn compute(&self, memory: &Backing) {
        let of = |array: u64, at: u64| memory.read::<u32>(array + 4 * at);
        for row in 0..self.rows() {
            let products = self
                .entries(row)
                .map(|entry| of(self.values, entry).wrapping_mul(of(self.vector, self.column(row, entry))));
            memory.write(self.sums + 4 * self.place(row), products.fold(0, u32::wrapping_add));
        }
    }
}

impl Warps for Work {
    const PIECE: u64 = 4 * LANES;

    fn name(&self, _: u64) -> &'static str {
        "spmv_jds"
    }

    fn groups(&self, _: u64) -> u64 {
        self.warps / WARPS
    }

    fn pieces(&self, _: u64) -> u64 {
        self.longest + 1
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { warp, piece, .. }: Place) {
        let row = |lane: u64| warp * LANES + lane;
        if piece == self.longest {
            load_lanes::<u32>(memory, |lane| self.places + 4 * row(lane), false, 4);
            return store_lanes::<u32>(memory, |lane| self.sums + 4 * self.place(row(lane)), 2);
        }
        if piece >= length(warp, self.warps, self.longest) {
            return;
        }
        let entry = |lane: u64| self.before[piece as usize] + row(lane);
        let column = |lane: u64| self.column(row(lane), entry(lane));
        load_lanes::<u32>(memory, |_| self.begins + 4 * piece, false, 3);
        load_lanes::<u32>(memory, |lane| self.columns + 4 * entry(lane), true, 2);
        load_lanes::<u32>(memory, |lane| self.values + 4 * entry(lane), false, 1);
        load_lanes::<u32>(memory, |lane| self.vector + 4 * column(lane), true, 2);
    }
}
