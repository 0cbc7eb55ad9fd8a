//! The staggered Dirac operator of lattice quantum chromodynamics: SU(3) matrices times vectors.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};
use terrace_model::Bytes;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "su3",
    summary: "SU(3) matrices times vectors on a four-dimensional lattice (SPEC CPU 433.milc)",
    description: "\
A lattice in four dimensions whose every site has a structure: four links, each an SU(3) matrix of nine complex numbers (144 \
bytes), two vectors of three complex numbers, and what else a simulation keeps there. For each site of one colour of a chessboard, \
the links to the four next sites are multiplied with the vectors there, and the adjoint links of the four sites before with \
theirs; the sum is stored into the site. Then the other colour follows with the roles of the two vectors changed. The lattice \
closes on itself in every dimension, and neighbours lie one, a row, a plane and a volume of sites away.

Stands for 433.milc of SPEC CPU 2006 (the MIMD Lattice Computation code with staggered quarks), of whose work the operator is \
the core. It differs: only the operator runs, without the gauge force and global sums of the conjugate gradient around it; sites \
lie in plain order of their coordinates, even and odd ones mixed. Threads take contiguous shares of the sites.",
    parameters: declared::<Parameters>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Sites along each of the four edges, an even number.
    #[parameter(default = 24, range = 2..=512, unit = "sites")]
    side: u64,
    /// Bytes of a site's structure: a multiple of 16, at least 672.
    #[parameter(default = "1152 B", range = "672 B"..="64 KiB")]
    site: Bytes,
    /// Applications of the operator to both colours.
    #[parameter(default = 1, range = 1..=LARGEST_COUNT, unit = "applications")]
    iterations: u64,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    threads: Threads,
}

const DIMENSIONS: usize = 4;
/// A complex number, which one access of a vector register moves.
const COMPLEX: u64 = 16;
const MATRIX: u64 = 9 * COMPLEX;
const VECTOR: u64 = 3 * COMPLEX;
/// The links come first, then the two vectors.
const VECTORS: u64 = DIMENSIONS as u64 * MATRIX;
/// A matrix times a vector: nine complex products and additions, eight operations each in two lanes at a time, and the
/// moves that turn them, shared out to its twelve loads.
const PER_LOAD: u16 = 7;

#[derive(Clone)]
pub(crate) struct Lattice {
    side: u64,
    site: u64,
    iterations: u64,
    threads: u32,
    sites: u64,
    layout: Layout,
}

impl Program for Lattice {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Sites;

    fn new(parameters: &Parameters) -> Result<Lattice, Problem> {
        let (side, site) = (parameters.side, parameters.site.0);
        if !side.is_multiple_of(2) {
            return Err(Problem::new("side", "an even number, so that both colours have as many sites"));
        }
        if !site.is_multiple_of(COMPLEX) {
            return Err(Problem::new("site", "a multiple of 16 B"));
        }
        let mut layout = Layout::new(parameters.start.init);
        let sites = layout.array("sites", side.pow(4) * site);
        let (iterations, threads) = (parameters.iterations, parameters.threads.count);
        Ok(Lattice { side, site, iterations, threads, sites, layout })
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Sites {
        let own = share(self.side.pow(4), index, self.threads);
        Sites { at: own.start, own, sweep: 0, program: self.clone() }
    }

    fn kernel_accesses(&self) -> u64 {
        let products = 2 * DIMENSIONS as u64;
        self.iterations * self.side.pow(4) * (products * (9 + 3) + 3)
    }
}

/// One thread's sites.
pub(crate) struct Sites {
    program: Lattice,
    own: std::ops::Range<u64>,
    at: u64,
    /// Half an application: one colour.
    sweep: u64,
}

impl Sites {
    /// The sites after and before `site` along `dimension`.
    #[inline(always)]
    fn neighbours(&self, site: u64, dimension: usize) -> (u64, u64) {
        let side = self.program.side;
        let stride = side.pow(dimension as u32);
        let place = site / stride % side;
        let after = if place + 1 == side { site - place * stride } else { site + stride };
        let before = if place == 0 { site + (side - 1) * stride } else { site - stride };
        (after, before)
    }

    /// Whether a site has the colour of this sweep.
    #[inline(always)]
    fn has_turn(&self, site: u64) -> bool {
        let side = self.program.side;
        let sum = site + site / side + site / (side * side) + site / (side * side * side);
        // An even side: each quotient's parity is its coordinate's and nothing else's.
        sum & 1 == self.sweep & 1
    }

    #[inline(always)]
    fn product<M: Memory>(memory: &mut M, matrix: u64, vector: u64, sum: &mut [[f64; 2]; 3]) {
        let mut factors = [[0.0; 2]; 3];
        for (column, factor) in factors.iter_mut().enumerate() {
            let read: [u64; 2] = memory.load(vector + column as u64 * COMPLEX, 0, PER_LOAD);
            *factor = [f64::from_bits(read[0]), f64::from_bits(read[1])];
        }
        for (row, sum) in sum.iter_mut().enumerate() {
            for (column, factor) in factors.iter().enumerate() {
                let at = matrix + (3 * row + column) as u64 * COMPLEX;
                let read: [u64; 2] = memory.load(at, 0, PER_LOAD);
                let [a, b] = [f64::from_bits(read[0]), f64::from_bits(read[1])];
                sum[0] += a * factor[0] - b * factor[1];
                sum[1] += a * factor[1] + b * factor[0];
            }
        }
    }

    #[inline(always)]
    fn site<M: Memory>(&self, memory: &mut M, site: u64) {
        let program = &self.program;
        let address = |site: u64| program.sites + site * program.site;
        let (from, to) = (VECTORS + (self.sweep & 1) * VECTOR, VECTORS + (1 - (self.sweep & 1)) * VECTOR);
        let mut sum = [[0.0; 2]; 3];
        for dimension in 0..DIMENSIONS {
            let (after, before) = self.neighbours(site, dimension);
            let link = dimension as u64 * MATRIX;
            Self::product(memory, address(site) + link, address(after) + from, &mut sum);
            Self::product(memory, address(before) + link, address(before) + from, &mut sum);
        }
        for (component, [re, im]) in sum.into_iter().enumerate() {
            let at = address(site) + to + component as u64 * COMPLEX;
            memory.store(at, [re.to_bits(), im.to_bits()], 0, 2);
        }
    }
}

impl Kernel for Sites {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        for _ in 0..4 {
            if self.at == self.own.end {
                self.at = self.own.start;
                self.sweep += 1;
                let done = self.sweep == 2 * self.program.iterations;
                return if done { Progress::Done } else { Progress::Barrier };
            }
            if self.has_turn(self.at) {
                self.site(memory, self.at);
                self.at += 1;
                return Progress::Working;
            }
            self.at += 1;
        }
        Progress::Working
    }
}
