//! Conjugate gradient on a random sparse matrix.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::parameters::*;
use crate::program::{Iterations, Kernel, Program, Progress, share};
use crate::random::{hash, scale};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "cg",
    summary: "conjugate gradient iterations on a random sparse matrix (NPB CG)",
    description: "\
Each iteration multiplies a sparse matrix in compressed rows by a vector (for every nonzero: its column number, the \
vector's element there, its value), then takes a dot product and updates three vectors. The vector's elements are \
gathered by the column numbers; the rest is sequential.

Stands for CG of the NAS Parallel Benchmarks (Bailey et al., 1991). It differs: every row has the same number of \
nonzeros, one in each of as many equal slices of the columns, at a place that a hash gives, so that a simulation needs \
no memory for the matrix (a native run writes the column numbers first and gathers by what it reads); the matrix is \
not symmetric and the scalars are constants, so the numbers do not converge to anything. Threads take contiguous rows.

What is read and written below the caches depends on the nonzeros, since only the vectors are written. The classes \
have about 56 (S), 240 (C) and 460 (D) in a row. With nonzeros=256 at least 98 bytes are read for each that is \
written, and more where the vectors stay in the cache in part; Ambix (Marques, MSc thesis, 2021) states more than 60. \
rows=85e3,nonzeros=256 takes 256 MiB, and more rows as much more.

The vector that is gathered from has 12 MB in class D and 72 in E: choose `rows` by the caches. Where it is larger \
than the caches, nearly every nonzero costs a line of it, and with nonzeros=32 62 bytes are read for each that is \
written. \
NPB's OpenMP version, 3.4, first fills two arrays of together 12 bytes for each nonzero (v and iv), from which it \
compacts the matrix, and keeps them to the end without another access: half of its memory, and the half that is \
touched first. With `workspace` they are there.",
    parameters: declared::<Parameters>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Rows and columns of the matrix.
    #[parameter(default = "1.5e6", range = 16..=u64::from(u32::MAX), unit = "rows")]
    rows: u64,
    /// Nonzeros in each row.
    #[parameter(default = 8, range = 1..=1024, unit = "per row")]
    nonzeros: u64,
    /// Conjugate gradient iterations.
    #[parameter(default = 1, range = 1..=LARGEST_COUNT, unit = "iterations")]
    iterations: u64,
    #[parameter(flatten)]
    warmup: WarmupIterations,
    /// Keep what the matrix was built from, as much again, touched first and never read.
    workspace: bool,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

/// Vector operations move 32 bytes at a time (AVX2).
const LANES: usize = 4;
const VECTOR_BYTES: u64 = 8 * LANES as u64;
/// Most entries of a row in one step.
const LONGEST_PIECE: u64 = 80;

#[derive(Clone)]
pub(crate) struct ConjugateGradient {
    rows: u64,
    nonzeros: u64,
    iterations: Iterations,
    threads: u32,
    seed: u64,
    row_ends: u64,
    columns: u64,
    values: u64,
    /// p, q, r, z.
    vectors: [u64; 4],
    layout: Layout,
}

impl ConjugateGradient {
    #[inline(always)]
    fn column(&self, row: u64, k: u64) -> u32 {
        let slice = self.rows / self.nonzeros;
        (k * slice + scale(hash(self.seed, row * self.nonzeros + k), slice)) as u32
    }

    /// Vector accesses' worth of rows: the vectors are padded to whole ones.
    fn vector_chunks(&self) -> u64 {
        self.rows.div_ceil(LANES as u64)
    }
}

impl Program for ConjugateGradient {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Solver;

    fn new(parameters: &Parameters) -> Result<ConjugateGradient, Problem> {
        let rows = parameters.rows;
        let nonzeros = within("nonzeros", parameters.nonzeros, 1..=rows.min(1024))?;
        let mut layout = Layout::new(parameters.start.init);
        let row_ends = layout.array("row pointers", 8 * rows);
        if parameters.workspace {
            layout.array("workspace", 12 * rows * nonzeros);
        }
        let columns = layout.array("column numbers", (4 * rows * nonzeros).next_multiple_of(8));
        let values = layout.array("values", 8 * rows * nonzeros);
        let padded = rows.next_multiple_of(LANES as u64) * 8;
        let vectors = ["p", "q", "r", "z"].map(|name| layout.array(name, padded));
        Ok(ConjugateGradient {
            rows,
            nonzeros,
            iterations: Iterations::new(parameters.warmup, parameters.iterations),
            threads: parameters.threads.count,
            seed: parameters.seed.number,
            row_ends,
            columns,
            values,
            vectors,
            layout,
        })
    }

    fn populates(&self) -> bool {
        self.iterations.warmup > 0
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Solver {
        let rows = share(self.rows, index, self.threads);
        let chunks = share(self.vector_chunks(), index, self.threads);
        Solver {
            phase: Phase::Multiply,
            at: rows.start,
            entry: 0,
            sum: 0.0,
            rows,
            chunks,
            iteration: 0,
            program: self.clone(),
        }
    }

    fn kernel_accesses(&self) -> u64 {
        self.iterations.all() * (self.rows * (2 + 3 * self.nonzeros) + self.vector_chunks() * 11)
    }

    fn prepare(&self, memory: &Backing) {
        for row in 0..self.rows {
            memory.write(self.row_ends + 8 * row, (row + 1) * self.nonzeros);
            for k in 0..self.nonzeros {
                memory.write(self.columns + 4 * (row * self.nonzeros + k), self.column(row, k));
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Phase {
    /// q = A p
    Multiply,
    /// p · q
    Dot,
    /// z += alpha p, r -= alpha q, r · r
    Update,
    /// p = r + beta p
    Direction,
}

/// One thread's rows.
pub(crate) struct Solver {
    program: ConjugateGradient,
    rows: std::ops::Range<u64>,
    /// The thread's share of the vectors, in vector accesses.
    chunks: std::ops::Range<u64>,
    phase: Phase,
    at: u64,
    /// Entries of a long row already multiplied, and their sum.
    entry: u64,
    sum: f64,
    iteration: u64,
}

impl Solver {
    /// Adds some entries of a row to the sum of those before them.
    #[inline(always)]
    fn multiply<M: Memory>(
        &self,
        memory: &mut M,
        row: u64,
        entries: std::ops::Range<u64>,
        mut sum: f64,
    ) -> f64 {
        let program = &self.program;
        let [p, q, ..] = program.vectors;
        if entries.start == 0 {
            let _: u64 = memory.load(program.row_ends + 8 * row, 0, 3);
        }
        let last = entries.end == program.nonzeros;
        for k in entries {
            let entry = row * program.nonzeros + k;
            let read: u32 = memory.load(program.columns + 4 * entry, 0, 1);
            let column = if M::HOLDS_DATA { read } else { program.column(row, k) };
            let x: u64 = memory.load(p + 8 * u64::from(column), 1, 1);
            // Multiply-add with the value in memory, count, branch.
            let value: u64 = memory.load(program.values + 8 * entry, 0, 3);
            sum += f64::from_bits(x) * f64::from_bits(value);
        }
        if last {
            memory.store(q + 8 * row, sum.to_bits(), 0, 3);
        }
        sum
    }

    /// target = target + 0.5 other, on one vector register.
    #[inline(always)]
    fn update<M: Memory>(memory: &mut M, target: u64, other: u64) {
        let x: [u64; LANES] = memory.load(other, 0, 1);
        let y: [u64; LANES] = memory.load(target, 0, 1);
        let sum = |i: usize| f64::from_bits(y[i]) + 0.5 * f64::from_bits(x[i]);
        memory.store(target, std::array::from_fn::<u64, LANES, _>(|i| sum(i).to_bits()), 0, 2);
    }
}

impl Kernel for Solver {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        let [p, q, r, z] = self.program.vectors;
        let nonzeros = self.program.nonzeros;
        if matches!(self.phase, Phase::Multiply) && nonzeros > LONGEST_PIECE && self.at < self.rows.end {
            let until = nonzeros.min(self.entry + LONGEST_PIECE);
            self.sum = self.multiply(memory, self.at, self.entry..until, self.sum);
            self.entry = until % nonzeros;
            if self.entry > 0 {
                return Progress::Working;
            }
            self.sum = 0.0;
            self.at += 1;
            if self.at < self.rows.end {
                return Progress::Working;
            }
        }
        let (end, count) = match self.phase {
            Phase::Multiply => (self.rows.end, (250 / (2 + 3 * nonzeros)).max(1)),
            _ => (self.chunks.end, 32),
        };
        let until = end.min(self.at + count);
        for at in self.at..until {
            let offset = at * VECTOR_BYTES;
            match self.phase {
                Phase::Multiply => _ = self.multiply(memory, at, 0..nonzeros, 0.0),
                Phase::Dot => {
                    let _: [u64; LANES] = memory.load(p + offset, 0, 1);
                    let _: [u64; LANES] = memory.load(q + offset, 0, 2);
                }
                Phase::Update => {
                    Self::update(memory, z + offset, p + offset);
                    Self::update(memory, r + offset, q + offset);
                }
                Phase::Direction => Self::update(memory, p + offset, r + offset),
            }
        }
        self.at = until;
        if self.at < end {
            return Progress::Working;
        }
        self.at = self.chunks.start;
        self.phase = match self.phase {
            Phase::Multiply => Phase::Dot,
            Phase::Dot => Phase::Update,
            Phase::Update => Phase::Direction,
            Phase::Direction => {
                self.at = self.rows.start;
                self.iteration += 1;
                self.phase = Phase::Multiply;
                return self.program.iterations.ended(self.iteration);
            }
        };
        Progress::Barrier
    }
}
