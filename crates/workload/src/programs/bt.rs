//! A block tridiagonal solver.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Iterations, Kernel, Program, Progress, share};
use terrace_model::Bytes;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "bt",
    summary: "block tridiagonal sweeps along x, y and z of a 3-D grid (NPB BT)",
    description: "\
Each cell of a grid has five unknowns (u), a right-hand side (rhs) and a forcing term of five numbers each, and six \
auxiliary numbers, each in an array of its own. A time step computes the auxiliary arrays from u, then the right-hand \
side from forcing, u and them with differences along x, y and z; then it solves along every line in x, in y and in z: \
forward, where 5x5 blocks of the cells go to scratch memory of the thread (lhs), and back; last it adds rhs to u.

Stands for BT of the NAS Parallel Benchmarks (Bailey et al., 1991). rhs is written by six of the eight loops, u and \
the auxiliary arrays by one, forcing by none: pages that are written hot lie beside pages that are only read. At the \
instruction level it reads 2.0 bytes for each that it writes, scratch memory included. Below the caches it is 3.5, \
fills for stores included, where the differences along z find none of the planes that they share still in the cache, \
and 2.8 where they find them all; Ambix (Marques, MSc thesis, 2021) states 3.5, with 32 threads each on planes of its \
own. Arrays are first touched in the original's order: u, forcing, the auxiliary ones, rhs. Choose `planes` so that a \
plane of all arrays is large against the last-level cache divided by the threads. It differs: the grid is flat where \
the original's is a cube, so that this holds at smaller footprints too; the loops of the right-hand side are one for \
each direction; eight lines are solved at once, with accesses of 64 bytes (AVX-512). Threads take contiguous lines.",
    parameters: declared::<Parameters>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Size of all arrays together.
    #[parameter(default = "256 MiB", range = "1 MiB"..="32 TiB")]
    bytes: Bytes,
    /// Planes of the grid.
    #[parameter(default = 16, range = 5..=LARGEST_COUNT, unit = "planes")]
    planes: u64,
    /// Time steps.
    #[parameter(default = 1, range = 1..=LARGEST_COUNT, unit = "steps")]
    iterations: u64,
    #[parameter(flatten)]
    warmup: WarmupIterations,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    threads: Threads,
}

/// A cache line and a vector register: one number of eight cells.
type Line = [u64; 8];
const LINE: u64 = 64;
/// Numbers of a cell in u, rhs and forcing, and so lines of eight cells.
const UNKNOWNS: u64 = 5;
const AUXILIARY: usize = 6;
/// Auxiliary arrays that a solve reads.
const SOLVE_AUXILIARY: usize = 3;
/// A 5x5 block.
const BLOCK: u64 = UNKNOWNS * UNKNOWNS;
const CELL_BYTES: u64 = 8 * (3 * UNKNOWNS + AUXILIARY as u64);

#[derive(Clone)]
pub(crate) struct BlockTridiagonal {
    /// Groups of eight cells in a row, rows in a plane, planes.
    groups: u64,
    rows: u64,
    planes: u64,
    iterations: Iterations,
    threads: u32,
    u: u64,
    rhs: u64,
    forcing: u64,
    auxiliary: [u64; AUXILIARY],
    scratch: Vec<u64>,
    layout: Layout,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Auxiliary,
    /// Differences along a direction: 0 is x.
    Difference(u64),
    Solve(u64),
    Add,
}

const STEP: [Phase; 8] = [
    Phase::Auxiliary,
    Phase::Difference(0),
    Phase::Difference(1),
    Phase::Difference(2),
    Phase::Solve(0),
    Phase::Solve(1),
    Phase::Solve(2),
    Phase::Add,
];

/// Accesses for each group of eight cells.
const FORWARD: u64 = 3 * UNKNOWNS + SOLVE_AUXILIARY as u64 + BLOCK;
const BACKWARD: u64 = BLOCK + 2 * UNKNOWNS;

impl Phase {
    const fn accesses(self) -> u64 {
        match self {
            Phase::Auxiliary => UNKNOWNS + AUXILIARY as u64,
            Phase::Difference(0) => 3 * UNKNOWNS + AUXILIARY as u64,
            Phase::Difference(_) => 7 * UNKNOWNS + 3 * AUXILIARY as u64,
            Phase::Solve(_) => FORWARD + BACKWARD,
            Phase::Add => 3 * UNKNOWNS,
        }
    }
}

impl BlockTridiagonal {
    fn cells(&self) -> u64 {
        self.groups * self.rows * self.planes
    }

    /// Groups along a line of a solve.
    fn length(&self, direction: u64) -> u64 {
        [self.groups, self.rows, self.planes][direction as usize]
    }

    /// The group at a position of a line.
    #[inline(always)]
    fn group(&self, direction: u64, line: u64, position: u64) -> u64 {
        match direction {
            0 => line * self.groups + position,
            1 => (line / self.groups * self.rows + position) * self.groups + line % self.groups,
            _ => position * self.rows * self.groups + line,
        }
    }

    /// The group `by` rows or planes away, held at the grid's edges.
    #[inline(always)]
    fn neighbour(&self, direction: u64, group: u64, by: i64) -> u64 {
        let (stride, edge) = match direction {
            1 => (self.groups, self.rows),
            _ => (self.groups * self.rows, self.planes),
        };
        let position = group / stride % edge;
        let moved = position.saturating_add_signed(by).min(edge - 1);
        group - position * stride + moved * stride
    }
}

impl Program for BlockTridiagonal {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Solver;

    fn new(parameters: &Parameters) -> Result<BlockTridiagonal, Problem> {
        let cells = parameters.bytes.0 / CELL_BYTES;
        let planes = within("planes", parameters.planes, 5..=cells / 64)?;
        let threads = parameters.threads.count;
        let edge = (((cells / planes) as f64).sqrt() as u64 / 8 * 8).max(8);
        let cells = edge * edge * planes;
        let mut layout = Layout::new(parameters.start.init);
        let mut array = |name, numbers| layout.array(name, cells * 8 * numbers);
        // As the original touches them: `initialize`, `exact_rhs`, then `compute_rhs`, whose last array is rhs.
        let (u, forcing) = (array("u", UNKNOWNS), array("forcing", UNKNOWNS));
        let auxiliary = ["us", "vs", "ws", "qs", "square", "rho_i"].map(|name| array(name, 1));
        let rhs = array("rhs", UNKNOWNS);
        let scratch = edge.max(planes) * BLOCK * LINE;
        Ok(BlockTridiagonal {
            groups: edge / 8,
            rows: edge,
            planes,
            iterations: Iterations::new(parameters.warmup, parameters.iterations),
            threads,
            u,
            rhs,
            forcing,
            auxiliary,
            scratch: (0..threads).map(|_| layout.array("lhs", scratch)).collect(),
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
        let mut thread = Solver {
            program: self.clone(),
            index,
            iteration: 0,
            phase: 0,
            at: 0,
            end: 0,
            position: 0,
            back: false,
        };
        thread.enter(0);
        thread
    }

    fn kernel_accesses(&self) -> u64 {
        self.iterations.all() * self.cells() * STEP.iter().map(|phase| phase.accesses()).sum::<u64>()
    }
}

/// One thread's lines.
pub(crate) struct Solver {
    program: BlockTridiagonal,
    index: u32,
    iteration: u64,
    /// In [`STEP`].
    phase: usize,
    /// Groups, or lines of a solve.
    at: u64,
    end: u64,
    /// On the line, counted from where the sweep begins.
    position: u64,
    back: bool,
}

#[inline(always)]
fn load<M: Memory>(memory: &mut M, array: u64, lines: u64, instructions: u16) {
    for line in 0..lines {
        memory.load_payload::<Line>(array + line * LINE, 0, instructions);
    }
}

#[inline(always)]
fn store<M: Memory>(memory: &mut M, array: u64, lines: u64, instructions: u16) {
    for line in 0..lines {
        memory.store_payload::<Line>(array + line * LINE, [line; 8], 0, instructions);
    }
}

impl Solver {
    fn enter(&mut self, phase: usize) {
        self.phase = phase;
        let total = match STEP[phase] {
            Phase::Solve(direction) => self.program.cells() / self.program.length(direction),
            _ => self.program.cells(),
        };
        let own = share(total, self.index, self.program.threads);
        (self.at, self.end) = (own.start, own.end);
    }

    /// Everything but the solves, on one group.
    #[inline(always)]
    fn group<M: Memory>(&self, memory: &mut M, phase: Phase, group: u64) {
        let program = &self.program;
        let (wide, narrow) = (group * UNKNOWNS * LINE, group * LINE);
        match phase {
            Phase::Auxiliary => {
                load(memory, program.u + wide, UNKNOWNS, 2);
                for array in program.auxiliary {
                    memory.store_payload::<Line>(array + narrow, [group; 8], 0, 4);
                }
            }
            Phase::Difference(0) => {
                // Neighbours along x are in the same lines. About 150 operations a direction.
                load(memory, program.u + wide, UNKNOWNS, 10);
                for array in program.auxiliary {
                    memory.load_payload::<Line>(array + narrow, 0, 5);
                }
                load(memory, program.forcing + wide, UNKNOWNS, 2);
                store(memory, program.rhs + wide, UNKNOWNS, 8);
            }
            Phase::Difference(direction) => {
                for by in -2..=2 {
                    let neighbour = program.neighbour(direction, group, by) * UNKNOWNS * LINE;
                    load(memory, program.u + neighbour, UNKNOWNS, 3);
                }
                for by in -1..=1 {
                    let neighbour = program.neighbour(direction, group, by) * LINE;
                    for array in program.auxiliary {
                        memory.load_payload::<Line>(array + neighbour, 0, 2);
                    }
                }
                load(memory, program.rhs + wide, UNKNOWNS, 1);
                store(memory, program.rhs + wide, UNKNOWNS, 8);
            }
            Phase::Solve(_) => {}
            Phase::Add => {
                load(memory, program.rhs + wide, UNKNOWNS, 1);
                load(memory, program.u + wide, UNKNOWNS, 1);
                store(memory, program.u + wide, UNKNOWNS, 2);
            }
        }
    }

    /// One group of a line, on the way forward or back.
    #[inline(always)]
    fn solve<M: Memory>(&self, memory: &mut M, direction: u64, position: u64) {
        let program = &self.program;
        let group = program.group(direction, self.at, position);
        let (wide, narrow) = (group * UNKNOWNS * LINE, group * LINE);
        let block = program.scratch[self.index as usize] + position * BLOCK * LINE;
        if self.back {
            load(memory, block, BLOCK, 2);
            load(memory, program.rhs + wide, UNKNOWNS, 1);
            store(memory, program.rhs + wide, UNKNOWNS, 1);
        } else {
            load(memory, program.u + wide, UNKNOWNS, 2);
            for array in &program.auxiliary[AUXILIARY - SOLVE_AUXILIARY..] {
                memory.load_payload::<Line>(array + narrow, 0, 2);
            }
            load(memory, program.rhs + wide, UNKNOWNS, 1);
            // The Jacobians, a product of two blocks and the inverse of one: about 1200 operations for each cell.
            store(memory, block, BLOCK, 45);
            store(memory, program.rhs + wide, UNKNOWNS, 10);
        }
    }
}

impl Kernel for Solver {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        let phase = STEP[self.phase];
        if self.at < self.end {
            if let Phase::Solve(direction) = phase {
                let length = self.program.length(direction);
                let until = length.min(self.position + 5);
                for position in self.position..until {
                    self.solve(memory, direction, if self.back { length - 1 - position } else { position });
                }
                self.position = until % length;
                if until == length {
                    self.at += u64::from(self.back);
                    self.back = !self.back;
                }
            } else {
                let until = self.end.min(self.at + 240 / phase.accesses());
                for group in self.at..until {
                    self.group(memory, phase, group);
                }
                self.at = until;
            }
            return Progress::Working;
        }
        if self.phase + 1 < STEP.len() {
            self.enter(self.phase + 1);
            return Progress::Barrier;
        }
        self.iteration += 1;
        self.enter(0);
        self.program.iterations.ended(self.iteration)
    }
}
