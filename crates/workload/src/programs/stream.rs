//! STREAM triad: three long vectors at full bandwidth.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};
use terrace_model::Bytes;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "stream",
    summary: "triad a[i] = b[i] + s*c[i] over three long vectors (STREAM)",
    description: "\
Three vectors of 8-byte numbers; every iteration computes a[i] = b[i] + s*c[i] from one end to the other: two \
sequential loads and one sequential store, all independent. It measures bandwidth.

Stands for the Triad kernel of STREAM (McCalpin, 1995). It differs: only Triad runs, not Copy, Scale and Add; and the \
width of an access is a parameter, because compilers vectorize this loop (32 B: AVX2). Threads take contiguous parts, \
as OpenMP's static schedule does.",
    parameters: declared::<Parameters>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Size of the three vectors together.
    #[parameter(default = "384 MiB", range = "4 KiB"..="32 TiB")]
    bytes: Bytes,
    /// Passes over the vectors.
    #[parameter(default = 2, range = 1..=LARGEST_COUNT, unit = "passes")]
    iterations: u64,
    /// Bytes that one access moves.
    width: Width,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    threads: Threads,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub(crate) enum Width {
    /// One number.
    #[choice("8")]
    Eight = 8,
    /// Two, as SSE2 does.
    #[choice("16")]
    Sixteen = 16,
    /// Four, as AVX2 does.
    #[default]
    #[choice("32")]
    ThirtyTwo = 32,
    /// Eight, as AVX-512 does.
    #[choice("64")]
    SixtyFour = 64,
}

/// STREAM's scalar.
const SCALAR: f64 = 3.0;

#[derive(Clone)]
pub(crate) struct Triad {
    /// Accesses' worth of `width` bytes in each vector.
    chunks: u64,
    width: u64,
    iterations: u64,
    threads: u32,
    vectors: [u64; 3],
    layout: Layout,
}

impl Program for Triad {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Pass;

    fn new(parameters: &Parameters) -> Result<Triad, Problem> {
        let width = parameters.width as u64;
        let chunks = parameters.bytes.0 / 3 / width;
        let mut layout = Layout::new(parameters.start.init);
        let vectors = ["a", "b", "c"].map(|name| layout.array(name, chunks * width));
        let iterations = parameters.iterations;
        Ok(Triad { chunks, width, iterations, threads: parameters.threads.count, vectors, layout })
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Pass {
        let own = share(self.chunks, index, self.threads);
        let (begin, end) = (own.start * self.width, own.end * self.width);
        Pass { begin, end, at: begin, width: self.width, left: self.iterations, vectors: self.vectors }
    }

    fn kernel_accesses(&self) -> u64 {
        3 * self.chunks * self.iterations
    }
}

/// One thread's part of the vectors; positions are byte offsets.
pub(crate) struct Pass {
    begin: u64,
    end: u64,
    at: u64,
    width: u64,
    left: u64,
    vectors: [u64; 3],
}

impl Pass {
    #[inline(always)]
    fn triad<const LANES: usize, M: Memory>(&mut self, memory: &mut M) {
        let [a, b, c] = self.vectors;
        let width = 8 * LANES as u64;
        let end = self.end.min(self.at + 80 * width);
        let mut at = self.at;
        while at < end {
            // Unrolled by the compiler: load; multiply-add with the second operand in memory; store and a share of the
            // loop's count and branch.
            let x: [u64; LANES] = memory.load(b + at, 0, 1);
            let y: [u64; LANES] = memory.load(c + at, 0, 1);
            let sum = |i: usize| f64::from_bits(x[i]) + SCALAR * f64::from_bits(y[i]);
            memory.store(a + at, std::array::from_fn::<u64, LANES, _>(|i| sum(i).to_bits()), 0, 2);
            at += width;
        }
        self.at = at;
    }
}

impl Kernel for Pass {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        match self.width {
            8 => self.triad::<1, M>(memory),
            16 => self.triad::<2, M>(memory),
            32 => self.triad::<4, M>(memory),
            _ => self.triad::<8, M>(memory),
        }
        if self.at < self.end {
            return Progress::Working;
        }
        self.at = self.begin;
        self.left -= 1;
        if self.left == 0 { Progress::Done } else { Progress::Barrier }
    }
}
