//! Coordinate descent for a linear classifier on sparse data.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory, follow};
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};
use crate::random::{Permutation, Random, hash, scale};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "svm",
    summary: "coordinate descent over the columns of sparse data (LIBLINEAR)",
    description: "\
Training of a linear classifier: features are taken in random order; for each, its column of the data is read \
(nodes of 16 bytes, row number and value), and for every node two vectors over the rows are gathered. Where the \
coordinate moves, the column is read again and one of the vectors is updated. Columns are sequential, their order and \
the rows random.

Stands for LIBLINEAR (Fan et al., JMLR 2008) with solver 6, L1-regularised logistic regression by newGLMNET, whose \
inner loop this is; rows=150e6,features=55e6,nonzeros=30 has the size of the data set kdd2012. It differs: every \
feature has the same number of nodes, one in each of as many equal slices of the rows, at a place that a hash gives, so \
that a simulation needs no memory for them (a native run writes them first and gathers by what it reads); a \
coordinate moves with a fixed probability; each thread takes features of its own. The data by rows, from which \
the columns were made, stays allocated as it does there, and is not used again.",
    parameters: declared::<Parameters>,
    exact: false,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Instances of the data.
    #[parameter(default = "1.5e6", range = LONGEST_COLUMN..=u64::from(u32::MAX), unit = "rows")]
    rows: u64,
    /// Features, one column each.
    #[parameter(default = "550e3", range = 1..=u64::from(u32::MAX), unit = "features")]
    features: u64,
    /// Nodes of each column.
    #[parameter(default = 30, range = 1..=LONGEST_COLUMN, unit = "per column")]
    nonzeros: u64,
    /// Features taken, all threads together.
    #[parameter(default = "100e3", range = 1..=LARGEST_COUNT, unit = "updates")]
    updates: u64,
    /// Share of the updates whose coordinate moves.
    #[parameter(default = 0.3, range = 0.0..=1.0, unit = "probability")]
    moves: f64,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    settle: Settle,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

/// Row number, padding and value.
const NODE_BYTES: u64 = 16;
/// A step reads a column twice and stays within what it may issue.
const LONGEST_COLUMN: u64 = 40;

#[derive(Clone)]
pub(crate) struct Classifier {
    rows: u64,
    features: u64,
    nonzeros: u64,
    updates: u64,
    moves: f64,
    threads: u32,
    seed: u64,
    nodes: u64,
    /// Where each column begins.
    columns: u64,
    /// The order of the features.
    order: u64,
    /// Over the rows: second derivatives, and the direction times the data.
    curvature: u64,
    direction: u64,
    /// Over the features: diagonal of the Hessian, gradient, weight, weight with the direction.
    per_feature: [u64; 4],
    layout: Layout,
}

impl Classifier {
    /// The row of a node: one in each of `nonzeros` slices, so that a column is in the order of its rows.
    #[inline(always)]
    fn row(&self, feature: u64, k: u64) -> u32 {
        let slice = self.rows / self.nonzeros;
        (k * slice + scale(hash(self.seed, feature * self.nonzeros + k), slice)) as u32
    }

    #[inline(always)]
    fn column(&self, feature: u64) -> u64 {
        self.nodes + feature * self.nonzeros * NODE_BYTES
    }

    /// The order in which a thread takes its features.
    fn shuffled(&self, index: u32) -> Permutation {
        let own = share(self.features, index, self.threads);
        Permutation::new(own.end - own.start, hash(self.seed, 1 + u64::from(index)))
    }
}

impl Program for Classifier {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Descent;

    fn new(parameters: &Parameters) -> Result<Classifier, Problem> {
        let rows = parameters.rows;
        let threads = parameters.threads.count;
        let features = at_least("features", parameters.features, threads.into())?;
        let nonzeros = parameters.nonzeros;
        let settle = parameters.settle.instructions;
        let mut layout = Layout::new(parameters.start.init).settling(settle);
        layout.array("data by rows", NODE_BYTES * features * nonzeros);
        let nodes = layout.array("data by columns", NODE_BYTES * features * nonzeros);
        let columns = layout.array("column pointers", 8 * features);
        let order = layout.array("order", (4 * features).next_multiple_of(8));
        let [curvature, direction] = ["D", "xTd"].map(|name| layout.array(name, 8 * rows));
        let per_feature = ["Hdiag", "Grad", "w", "wpd"].map(|name| layout.array(name, 8 * features));
        Ok(Classifier {
            rows,
            features,
            nonzeros,
            updates: parameters.updates,
            moves: parameters.moves,
            threads,
            seed: parameters.seed.number,
            nodes,
            columns,
            order,
            curvature,
            direction,
            per_feature,
            layout,
        })
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Descent {
        let updates = share(self.updates, index, self.threads);
        Descent {
            random: Random::of_thread(self.seed, index),
            order: self.shuffled(index),
            own: share(self.features, index, self.threads),
            at: 0,
            left: updates.end - updates.start,
            program: self.clone(),
        }
    }

    fn kernel_accesses(&self) -> u64 {
        let moved = 1.0 + 3.0 * self.nonzeros as f64;
        self.updates * (6 + 3 * self.nonzeros) + (self.updates as f64 * self.moves * moved) as u64
    }

    fn prepare(&self, memory: &Backing) {
        for index in 0..self.threads {
            let (own, order) = (share(self.features, index, self.threads), self.shuffled(index));
            for at in 0..own.end - own.start {
                memory.write(self.order + 4 * (own.start + at), (own.start + order.apply(at)) as u32);
            }
        }
        for feature in 0..self.features {
            for k in 0..self.nonzeros {
                memory.write(self.column(feature) + k * NODE_BYTES, u64::from(self.row(feature, k)));
            }
        }
    }
}

/// One thread's updates.
pub(crate) struct Descent {
    program: Classifier,
    random: Random,
    order: Permutation,
    own: std::ops::Range<u64>,
    /// Position in the order.
    at: u64,
    left: u64,
}

impl Descent {
    fn update<M: Memory>(&mut self, memory: &mut M) {
        let program = &self.program;
        let read: u32 = memory.load(program.order + 4 * (self.own.start + self.at), 0, 4);
        let feature =
            if M::HOLDS_DATA { u64::from(read) } else { self.own.start + self.order.apply(self.at) };
        let [hessian, gradient, weight, moved] = program.per_feature;
        for (since, vector) in [hessian, gradient, weight, moved].into_iter().enumerate() {
            memory.load_payload::<u64>(vector + 8 * feature, since as u8 + 1, 2);
        }
        let column = follow(program.column(feature), memory.load(program.columns + 8 * feature, 5, 2));
        for k in 0..program.nonzeros {
            // The pointer to the first node was the last load; the other pointers follow in the same loop.
            let row = self.row(memory, column, feature, k, if k == 0 { 1 } else { 0 });
            memory.load_payload::<u64>(program.curvature + 8 * row, 1, 2);
            // Two multiplications, an addition, the next node, compare and branch.
            memory.load_payload::<u64>(program.direction + 8 * row, 2, 6);
        }
        // The step from gradient and curvature: some twenty instructions, two of them divisions.
        if self.random.unit() < program.moves {
            memory.store_payload::<u64>(moved + 8 * feature, 1, 0, 20);
            for k in 0..program.nonzeros {
                let row = self.row(memory, column, feature, k, 0);
                memory.load_payload::<u64>(program.direction + 8 * row, 1, 2);
                memory.store_payload::<u64>(program.direction + 8 * row, 1, 0, 5);
            }
        }
        self.at = (self.at + 1) % (self.own.end - self.own.start);
    }

    /// The row of a node of the column at `column`.
    #[inline(always)]
    fn row<M: Memory>(&self, memory: &mut M, column: u64, feature: u64, k: u64, depends_on: u8) -> u64 {
        // The whole node, of which the row number decides where to gather.
        let [read, _]: [u64; 2] = memory.load(column + k * NODE_BYTES, depends_on, 2);
        if M::HOLDS_DATA { read } else { u64::from(self.program.row(feature, k)) }
    }
}

impl Kernel for Descent {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if self.left == 0 {
            return Progress::Done;
        }
        self.left -= 1;
        self.update(memory);
        Progress::Working
    }
}
