//! Stencils of eighth order over five quantities on a GPU.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, store_lanes};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array, Number};
use crate::parameters::*;
use crate::random::hash;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-cns",
    summary: "on a GPU: differences of eighth order of five quantities on a cube",
    description: "\
Each work-item has a point of a cube. For each of three axes and each of five quantities it reads four points on either side along the \
axis, and adds up what flows; then it writes the five quantities of its point.

Stands for the kernel of the compressible Navier-Stokes mini-app CNS (ExaCT, 2012) that computes hyperbolic terms. It differs: pressure \
and velocities are not read apart, and edges repeat the outermost points.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

/// Points on either side.
const REACH: u64 = 4;

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Points along each of three axes, rounded up to a multiple of 32.
    #[parameter(default = 64, range = 8..=2048, unit = "points")]
    side: u64,
    /// Launches of the kernel.
    #[parameter(default = 1, range = 1..=1000, unit = "launches")]
    iterations: u64,
}

#[derive(Clone)]
pub(crate) struct Work {
    side: u64,
    points: u64,
    iterations: u64,
    quantities: [u64; 5],
    flows: [u64; 5],
}

impl OnGpu for Work {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Work, Problem> {
        let side = parameters.side.next_multiple_of(LANES);
        let points = side.pow(3);
        let mut all = |names: [&'static str; 5]| names.map(|name| layout.array(name, 8 * points));
        Ok(Work {
            side,
            points,
            iterations: parameters.iterations,
            quantities: all(["density", "momentum_x", "momentum_y", "momentum_z", "energy"]),
            flows: all(["flux_density", "flux_x", "flux_y", "flux_z", "flux_energy"]),
        })
    }

    fn launches(&self) -> u64 {
        self.iterations
    }

    fn accesses(&self) -> u64 {
        self.iterations * self.points * 5 * (3 * 2 * REACH + 1)
    }

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_cns.cl"));

    fn arguments(&self, _: u64) -> Vec<Argument> {
        let arrays = self.quantities.into_iter().chain(self.flows).map(Array);
        arrays.chain([Number(self.side)]).collect()
    }

    fn fill(&self, memory: &Backing) {
        for (quantity, seed) in self.quantities.into_iter().zip(1..) {
            (0..self.points).for_each(|point| memory.write(quantity + 8 * point, hash(seed, point)));
        }
    }

    fn compute(&self, memory: &Backing) {
        for (quantity, flow) in self.quantities.into_iter().zip(self.flows) {
            let value = |point: u64| memory.read::<u64>(quantity + 8 * point);
            for point in 0..self.points {
                let mut sum = 0u64;
                for stride in [1, self.side, self.side * self.side] {
                    for at in 1..=REACH {
                        let before = value(point.saturating_sub(at * stride));
                        let behind = value((point + at * stride).min(self.points - 1));
                        let difference = behind.wrapping_sub(before);
                        sum = sum.wrapping_add(difference.wrapping_mul(REACH + 1 - at));
                    }
                }
                memory.write(flow + 8 * point, sum);
            }
        }
    }
}

impl Warps for Work {
    const PIECE: u64 = 2 * REACH * LANES;

    fn name(&self, _: u64) -> &'static str {
        "hypterm"
    }

    fn groups(&self, _: u64) -> u64 {
        self.points / (WARPS * LANES)
    }

    fn pieces(&self, _: u64) -> u64 {
        5 * 3 + 1
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { warp, piece, .. }: Place) {
        let first = warp * LANES;
        if piece == 5 * 3 {
            return self.flows.iter().for_each(|flow| {
                store_lanes::<u64>(memory, |lane| flow + 8 * (first + lane), 3);
            });
        }
        let (axis, quantity) = (piece / 5, self.quantities[(piece % 5) as usize]);
        let stride = self.side.pow(axis as u32);
        for at in 1..=REACH {
            let before = |lane: u64| quantity + 8 * (first + lane).saturating_sub(at * stride);
            let behind = |lane: u64| quantity + 8 * (first + lane + at * stride).min(self.points - 1);
            load_lanes::<u64>(memory, before, false, 3);
            load_lanes::<u64>(memory, behind, false, 4);
        }
    }
}
