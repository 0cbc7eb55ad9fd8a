//! A three-dimensional Fourier transform.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Iterations, Kernel, Program, Progress, share};
use terrace_model::Bytes;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "ft",
    summary: "3-D Fourier transforms through a blocked scratch buffer (NPB FT)",
    description: "\
Each iteration multiplies a grid of complex numbers (u0) by its time factors and copies it, then transforms the copy \
(u1) along z, y and x, within that one array. A pass takes 16 lines of the grid at a time: it copies them into \
scratch memory of its thread, transforms them there and writes 16 lines back. Along x the 16 lines are neighbouring \
rows; along y and z each of their points is a piece of 256 bytes, a row or a plane from the next.

Stands for FT of the NAS Parallel Benchmarks (Bailey et al., 1991) in the OpenMP version 3.4: 40 bytes for each \
point, in u0, u1 and twiddle, which one loop touches first, side by side. Of every five transfers that write the \
grid's arrays, u1 takes four and u0 one; twiddle is only read. Below the caches that is 1.7 bytes read per byte \
written, fills for stores included, which is what Ambix (Marques, MSc thesis, 2021) states for FT; at the instruction \
level it is 1.0, most of it in scratch memory. It differs: the original writes a block to where it came from, and \
with lines of a thousand points and more loses it from the caches in between; here, where lines are short, it is \
written half of the thread's share away, so that it is lost as well. A transform is three radix-8 steps over the \
scratch memory whatever its length, which need not be a power of two; no checksum; an access moves 64 bytes \
(AVX-512). The grid has as many rows as columns, both multiples of 16, and as many planes as fit. Threads take \
contiguous blocks.",
    parameters: declared::<Parameters>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Size of the three arrays together.
    #[parameter(default = "256 MiB", range = "256 KiB"..="32 TiB")]
    bytes: Bytes,
    /// Transforms.
    #[parameter(default = 1, range = 1..=LARGEST_COUNT, unit = "iterations")]
    iterations: u64,
    #[parameter(flatten)]
    warmup: WarmupIterations,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    threads: Threads,
}

/// A cache line and a vector register: four points.
type Line = [u64; 8];
const LINE: u64 = 64;
/// Two complex arrays and the time factors.
const POINT_BYTES: u64 = 2 * 16 + 8;
/// Grid lines that are transformed together: NPB's `fftblock`.
const BLOCK: u64 = 16;
const BLOCK_LINES: u64 = BLOCK * 16 / LINE;
const RADIX_STEPS: u64 = 3;
/// Load and store of the copies in and out, and of each step.
const ACCESSES_PER_LINE: u64 = 2 * (RADIX_STEPS + 2);

#[derive(Clone)]
pub(crate) struct Fourier {
    /// Points along x and along y.
    side: u64,
    planes: u64,
    iterations: Iterations,
    threads: u32,
    u: [u64; 2],
    twiddle: u64,
    /// Two buffers for each thread.
    scratch: Vec<u64>,
    layout: Layout,
}

impl Fourier {
    fn points(&self) -> u64 {
        self.side * self.side * self.planes
    }

    /// Blocks of 16 lines along a direction: 0 is x, 2 is z.
    fn blocks(&self, direction: u64) -> u64 {
        self.points() / BLOCK / self.length(direction)
    }

    fn length(&self, direction: u64) -> u64 {
        if direction == 2 { self.planes } else { self.side }
    }

    /// Byte offset of line `line` of a block: along x, of one row after the other, else of one point after the other.
    #[inline(always)]
    fn offset(&self, direction: u64, block: u64, line: u64) -> u64 {
        let row = self.side * 16;
        let columns = self.side / BLOCK;
        match direction {
            0 => block * BLOCK * row + line * LINE,
            1 => {
                let (plane, column) = (block / columns, block % columns);
                (plane * self.side + line / BLOCK_LINES) * row + self.in_row(column, line)
            }
            _ => {
                let (y, column) = (block / columns, block % columns);
                (line / BLOCK_LINES * self.side + y) * row + self.in_row(column, line)
            }
        }
    }

    #[inline(always)]
    fn in_row(&self, column: u64, line: u64) -> u64 {
        (column * BLOCK_LINES + line % BLOCK_LINES) * LINE
    }
}

/// The largest multiple of [`BLOCK`] of which a cube has at most so many points, and one block at least. C libraries differ
/// in the last digit of a cube root, and no input may depend on that.
fn side(points: u64) -> u64 {
    let fits = |blocks: u64| (blocks * BLOCK).checked_pow(3).is_some_and(|cube| cube <= points);
    let near = (points as f64).cbrt() as u64 / BLOCK;
    let blocks = (near.saturating_sub(1)..=near + 1).rev().find(|blocks| fits(*blocks));
    blocks.unwrap_or(0).max(1) * BLOCK
}

impl Program for Fourier {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Transform;

    fn new(parameters: &Parameters) -> Result<Fourier, Problem> {
        let points = parameters.bytes.0 / POINT_BYTES;
        let threads = parameters.threads.count;
        // A cube as nearly as multiples of 16 allow; the planes make up for the rounding.
        let side = side(points);
        let planes = points / (side * side);
        let mut layout = Layout::new(parameters.start.init);
        let complex = side * side * planes * 16;
        let u = ["u0", "u1"].map(|name| layout.array(name, complex));
        let twiddle = layout.array("twiddle", complex / 2);
        // By init_ui, one loop over all three.
        layout.together = 3;
        let block = side.max(planes) * BLOCK * 16;
        let scratch = (0..threads).map(|_| layout.array("scratch", 2 * block)).collect();
        let iterations = Iterations::new(parameters.warmup, parameters.iterations);
        Ok(Fourier { side, planes, iterations, threads, u, twiddle, scratch, layout })
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

    fn thread(&self, index: u32) -> Transform {
        let mut thread = Transform {
            program: self.clone(),
            index,
            iteration: 0,
            phase: Phase::Evolve,
            at: 0,
            end: 0,
            stage: 0,
            line: 0,
        };
        thread.enter(Phase::Evolve);
        thread
    }

    fn kernel_accesses(&self) -> u64 {
        let pass = self.points() * 16 / LINE * ACCESSES_PER_LINE;
        self.iterations.all() * (self.points() / 8 * 7 + 3 * pass)
    }
}

#[derive(Clone, Copy)]
enum Phase {
    Evolve,
    /// Along a direction: 2 is z, which comes first.
    Pass(u64),
}

/// One thread's blocks.
pub(crate) struct Transform {
    program: Fourier,
    index: u32,
    iteration: u64,
    phase: Phase,
    /// Groups of eight points while evolving, else blocks.
    at: u64,
    end: u64,
    /// Within a block: 0 copies in, the last copies out.
    stage: u64,
    line: u64,
}

impl Transform {
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        let total = match phase {
            Phase::Evolve => self.program.points() / 8,
            Phase::Pass(direction) => self.program.blocks(direction),
        };
        let own = share(total, self.index, self.program.threads);
        (self.at, self.end) = (own.start, own.end);
    }

    fn evolve<M: Memory>(&mut self, memory: &mut M) {
        let [u0, u1] = self.program.u;
        let end = self.end.min(self.at + 32);
        for group in self.at..end {
            memory.load_payload::<Line>(self.program.twiddle + group * LINE, 0, 1);
            for offset in [group * 2 * LINE, group * 2 * LINE + LINE] {
                // Spread the four factors over eight numbers, multiply, store twice; a share of the loop.
                let value: Line = memory.load(u0 + offset, 0, 2);
                memory.store_payload(u0 + offset, value, 0, 2);
                memory.store_payload(u1 + offset, value, 0, 2);
            }
        }
        self.at = end;
    }

    fn pass<M: Memory>(&mut self, memory: &mut M, direction: u64) {
        let program = &self.program;
        let lines = program.length(direction) * BLOCK_LINES;
        let scratch = program.scratch[self.index as usize];
        let buffers = [scratch, scratch + lines * LINE];
        let end = lines.min(self.line + 100);
        // Where the block is written to: by then the caches have lost it.
        let share = share(program.blocks(direction), self.index, program.threads);
        let count = share.end - share.start;
        let target_block = share.start + (self.at - share.start + count / 2) % count;
        for line in self.line..end {
            let offset = program.offset(direction, self.at, line);
            let parity = (self.stage & 1) as usize;
            let (source, target) = (buffers[1 - parity] + line * LINE, buffers[parity] + line * LINE);
            if self.stage == 0 {
                // Transposed on the way: two shuffles.
                memory.load_payload::<Line>(program.u[1] + offset, 0, 2);
                memory.store_payload::<Line>(target, [line; 8], 0, 3);
            } else if self.stage <= RADIX_STEPS {
                // 5 n log2(n) operations of a transform, in three steps, eight at once.
                memory.load_payload::<Line>(source, 0, 4);
                memory.store_payload::<Line>(target, [line; 8], 0, 6);
            } else {
                memory.load_payload::<Line>(source, 0, 2);
                let offset = program.offset(direction, target_block, line);
                memory.store_payload::<Line>(program.u[1] + offset, [line; 8], 0, 3);
            }
        }
        self.line = end;
        if end == lines {
            self.line = 0;
            self.stage += 1;
            if self.stage == RADIX_STEPS + 2 {
                self.stage = 0;
                self.at += 1;
            }
        }
    }
}

impl Kernel for Transform {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if self.at < self.end {
            match self.phase {
                Phase::Evolve => self.evolve(memory),
                Phase::Pass(direction) => self.pass(memory, direction),
            }
            return Progress::Working;
        }
        match self.phase {
            Phase::Evolve => self.enter(Phase::Pass(2)),
            Phase::Pass(0) => {
                self.iteration += 1;
                self.enter(Phase::Evolve);
                return self.program.iterations.ended(self.iteration);
            }
            Phase::Pass(direction) => self.enter(Phase::Pass(direction - 1)),
        }
        Progress::Barrier
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_cube_is_one_and_a_point_less_is_not() {
        for side_wanted in (2..=8192u64).map(|blocks| blocks * BLOCK) {
            assert_eq!(side(side_wanted.pow(3)), side_wanted);
            assert_eq!(side(side_wanted.pow(3) - 1), side_wanted - BLOCK);
        }
        assert_eq!(side(1), BLOCK, "at least one block");
    }
}
