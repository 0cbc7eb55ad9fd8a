//! Multigrid V-cycles.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Iterations, Kernel, Program, Progress, share};
use terrace_model::Bytes;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "mg",
    summary: "multigrid V-cycles over a hierarchy of grids (NPB MG)",
    description: "\
A V-cycle on a periodic grid: the residual is restricted from each grid to the next of half the points along every \
edge, down to the coarsest; on the way back each grid is cleared, interpolated into, its residual computed and \
smoothed. A last residual on the finest grid ends the iteration. Residual and smoothing are 27-point stencils: they \
read nine rows of one array, of three planes, for each row of another that they write.

Stands for MG of the NAS Parallel Benchmarks (Bailey et al., 1991): the arrays u and r on every level, v on the finest \
only. v is only read; u and r are read more than written, and coarse levels, small as they are, are touched as often \
as the finest. At the instruction level it reads 7.8 bytes for each that it writes. Below the caches it is 3.8 where \
three planes of the finest grid do not stay in the cache, so that each stencil reads its array three times, and 2.5 \
where they do; Ambix (Marques, MSc thesis, 2021) states 4.0, with 32 threads each on planes of its own. Choose \
`planes` so that a plane is large against the last-level cache divided by the threads. It differs: the grid is flat \
where the original's is a cube, so that this holds at smaller footprints too, and coarsening ends when any edge would \
be shorter than 4 points; row buffers and ghost cells are left out; an access moves 64 bytes (AVX-512). Threads take \
contiguous rows.",
    parameters: declared::<Parameters>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Size of all grids together.
    #[parameter(default = "256 MiB", range = "1 MiB"..="32 TiB")]
    bytes: Bytes,
    /// Planes of the finest grid.
    #[parameter(default = 32, range = SHORTEST_EDGE..=LARGEST_COUNT, unit = "planes")]
    planes: u64,
    /// V-cycles.
    #[parameter(default = 1, range = 1..=LARGEST_COUNT, unit = "V-cycles")]
    iterations: u64,
    #[parameter(flatten)]
    warmup: WarmupIterations,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    threads: Threads,
}

/// A cache line and a vector register: eight points.
type Line = [u64; 8];
const LINE: u64 = 64;
const SHORTEST_EDGE: u64 = 4;

/// One grid of the hierarchy: its size and its arrays.
#[derive(Clone, Copy)]
struct Level {
    /// Lines in a row, rows in a plane, planes.
    lines: u64,
    rows: u64,
    planes: u64,
    u: u64,
    r: u64,
}

impl Level {
    /// Offset of a line; rows and planes beyond the edge are those of the other side.
    #[inline(always)]
    fn offset(&self, plane: u64, row: u64, line: u64) -> u64 {
        ((plane % self.planes * self.rows + row % self.rows) * self.lines + line.min(self.lines - 1)) * LINE
    }
}

/// A loop over a grid.
#[derive(Clone, Copy)]
enum Operation {
    /// r = v - A u; on coarse levels r = r - A u.
    Residual,
    /// u = u + C r
    Smooth,
    /// r of the next level from that of this.
    Restrict,
    /// u of this level from that of the next.
    Interpolate,
    /// u = 0
    Clear,
}

impl Operation {
    /// Accesses for each line of the grid that is looped over.
    const fn accesses(self) -> u64 {
        match self {
            Operation::Residual | Operation::Smooth => 11,
            Operation::Restrict => 19,
            Operation::Interpolate => 20,
            Operation::Clear => 1,
        }
    }
}

#[derive(Clone)]
pub(crate) struct Multigrid {
    levels: Vec<Level>,
    v: u64,
    /// One V-cycle: what is done, and on which level.
    cycle: Vec<(Operation, usize)>,
    iterations: Iterations,
    threads: u32,
    layout: Layout,
}

impl Multigrid {
    /// The grid whose lines an operation loops over: between two levels it is the coarse one.
    fn looped(&self, (operation, level): (Operation, usize)) -> Level {
        let coarse = matches!(operation, Operation::Restrict | Operation::Interpolate);
        self.levels[level + usize::from(coarse)]
    }
}

impl Program for Multigrid {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Cycle;

    fn new(parameters: &Parameters) -> Result<Multigrid, Problem> {
        let bytes = parameters.bytes.0;
        // u and r on all levels, each an eighth of the one before, and v.
        let points = (bytes as f64 / (8.0 * (1.0 + 2.0 * 8.0 / 7.0))) as u64;
        let planes = within("planes", parameters.planes, SHORTEST_EDGE..=points / 64)?;
        let edge = (((points / planes) as f64).sqrt() as u64 / 8 * 8).max(8);
        let mut layout = Layout::new(parameters.start.init);
        // As the original touches them: u is cleared, v filled with charges, then r is their residual.
        let finest = edge * edge * planes * 8;
        let [finest_u, v, finest_r] = ["u", "v", "r"].map(|name| layout.array(name, finest));
        let mut levels = Vec::new();
        let (mut lines, mut rows, mut planes) = (edge / 8, edge, planes);
        loop {
            let bytes = lines * rows * planes * LINE;
            let (u, r) = match levels.is_empty() {
                true => (finest_u, finest_r),
                false => (layout.array("u", bytes), layout.array("r", bytes)),
            };
            levels.push(Level { lines, rows, planes, u, r });
            if rows.min(planes) < 2 * SHORTEST_EDGE {
                break;
            }
            (lines, rows, planes) = (lines.div_ceil(2), rows / 2, planes / 2);
        }
        let last = levels.len() - 1;
        let mut cycle: Vec<_> = (0..last).map(|level| (Operation::Restrict, level)).collect();
        if last > 0 {
            cycle.extend([(Operation::Clear, last), (Operation::Smooth, last)]);
        }
        for level in (0..last).rev() {
            if level > 0 {
                cycle.push((Operation::Clear, level));
            }
            let up = [Operation::Interpolate, Operation::Residual, Operation::Smooth];
            cycle.extend(up.map(|operation| (operation, level)));
        }
        cycle.push((Operation::Residual, 0));
        let iterations = Iterations::new(parameters.warmup, parameters.iterations);
        Ok(Multigrid { levels, v, cycle, iterations, threads: parameters.threads.count, layout })
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

    fn thread(&self, index: u32) -> Cycle {
        let mut thread =
            Cycle { program: self.clone(), index, iteration: 0, position: 0, row: 0, end: 0, line: 0 };
        thread.enter(0);
        thread
    }

    fn kernel_accesses(&self) -> u64 {
        let loops = self.cycle.iter().map(|step| {
            let grid = self.looped(*step);
            grid.lines * grid.rows * grid.planes * step.0.accesses()
        });
        self.iterations.all() * loops.sum::<u64>()
    }
}

/// One thread's rows.
pub(crate) struct Cycle {
    program: Multigrid,
    index: u32,
    iteration: u64,
    /// In the V-cycle.
    position: usize,
    row: u64,
    end: u64,
    line: u64,
}

impl Cycle {
    fn enter(&mut self, position: usize) {
        self.position = position;
        let grid = self.program.looped(self.program.cycle[position]);
        let own = share(grid.rows * grid.planes, self.index, self.program.threads);
        (self.row, self.end, self.line) = (own.start, own.end, 0);
    }

    /// Loads the nine rows around a line.
    #[inline(always)]
    fn load_around<M: Memory>(memory: &mut M, grid: &Level, array: u64, [plane, row, line]: [u64; 3]) {
        for z in [plane + grid.planes - 1, plane, plane + 1] {
            for y in [row + grid.rows - 1, row, row + 1] {
                // The additions of the sums that rows share.
                memory.load_payload::<Line>(array + grid.offset(z, y, line), 0, 2);
            }
        }
    }

    #[inline(always)]
    fn line<M: Memory>(&self, memory: &mut M, line: u64) {
        let step = self.program.cycle[self.position];
        let (operation, number) = step;
        let looped = self.program.looped(step);
        let level = self.program.levels[number];
        let at = [self.row / looped.rows, self.row % looped.rows, line];
        let here = looped.offset(at[0], at[1], line);
        match operation {
            Operation::Residual => {
                let right_side = if number == 0 { self.program.v } else { level.r };
                memory.load_payload::<Line>(right_side + here, 0, 1);
                Self::load_around(memory, &level, level.u, at);
                // Shifted sums and four multiply-adds; a share of the loop.
                memory.store_payload::<Line>(level.r + here, [line; 8], 0, 9);
            }
            Operation::Smooth => {
                Self::load_around(memory, &level, level.r, at);
                memory.load_payload::<Line>(level.u + here, 0, 1);
                memory.store_payload::<Line>(level.u + here, [line; 8], 0, 9);
            }
            Operation::Restrict => {
                let fine = [2 * at[0], 2 * at[1]];
                for half in [2 * line, 2 * line + 1] {
                    Self::load_around(memory, &level, level.r, [fine[0], fine[1], half]);
                }
                memory.store_payload::<Line>(looped.r + here, [line; 8], 0, 12);
            }
            Operation::Interpolate => {
                for (z, y) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    memory.load_payload::<Line>(looped.u + looped.offset(at[0] + z, at[1] + y, line), 0, 2);
                }
                for (z, y) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    for half in [2 * line, 2 * line + 1] {
                        let fine = level.u + level.offset(2 * at[0] + z, 2 * at[1] + y, half);
                        memory.load_payload::<Line>(fine, 0, 2);
                        memory.store_payload::<Line>(fine, [line; 8], 0, 2);
                    }
                }
            }
            Operation::Clear => memory.store_payload::<Line>(level.u + here, [0; 8], 0, 2),
        }
    }
}

impl Kernel for Cycle {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if self.row < self.end {
            let step = self.program.cycle[self.position];
            let lines = self.program.looped(step).lines;
            let until = lines.min(self.line + 240 / step.0.accesses());
            for line in self.line..until {
                self.line(memory, line);
            }
            self.line = until % lines;
            self.row += u64::from(until == lines);
            return Progress::Working;
        }
        if self.position + 1 < self.program.cycle.len() {
            self.enter(self.position + 1);
            return Progress::Barrier;
        }
        self.iteration += 1;
        self.enter(0);
        self.program.iterations.ended(self.iteration)
    }
}
