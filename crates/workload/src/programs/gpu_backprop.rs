//! A layer of a neural network, forward and back, on a GPU: rows of seventeen weights.

use crate::WorkloadInfo;
use crate::gpu::{
    LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, load_some, store_lanes, store_some,
};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array};
use crate::parameters::*;
use crate::random::hash;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-backprop",
    summary: "on a GPU: one hidden layer of a neural network, forward, then the weights adjusted",
    description: "\
Sixteen hidden units and many inputs. Forward: a group of 16 by 16 work-items reads sixteen inputs and their weights, of which seventeen \
make a row, multiplies and adds up in the SM, writes the products back, and stores sixteen partial sums. Then the weights are adjusted: \
each work-item reads a delta, an input, a weight and the weight's last change, and writes both.

Stands for Rodinia's backprop (Che et al., IISWC 2009). It differs: nothing but accesses is done.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

/// Hidden units, and inputs of a group.
const HIDDEN: u64 = 16;
/// Weights of an input: one is a threshold.
const ROW: u64 = HIDDEN + 1;

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Inputs, rounded up to whole groups.
    #[parameter(default = 65536, range = 1..=1_000_000_000, unit = "inputs")]
    inputs: u64,
}

#[derive(Clone)]
pub(crate) struct Work {
    groups: u64,
    units: u64,
    weights: u64,
    changes: u64,
    sums: u64,
    deltas: u64,
}

impl OnGpu for Work {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Work, Problem> {
        let groups = parameters.inputs.div_ceil(HIDDEN);
        let inputs = groups * HIDDEN;
        let weights = 4 * (inputs + 1) * ROW;
        Ok(Work {
            groups,
            units: layout.array("input_cuda", 4 * (inputs + 1)),
            weights: layout.array("input_hidden_cuda", weights),
            changes: layout.array("input_prev_weights_cuda", weights),
            sums: layout.array("hidden_partial_sum", 4 * inputs),
            deltas: layout.array("hidden_delta_cuda", 4 * ROW),
        })
    }

    fn launches(&self) -> u64 {
        2
    }

    fn accesses(&self) -> u64 {
        // Sixteen of the 256 work-items read an input, and as many store a sum.
        let forward = 2 * HIDDEN + 2 * WARPS * LANES;
        self.groups * (forward + 6 * WARPS * LANES)
    }

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_backprop.cl"));

    fn arguments(&self, launch: u64) -> Vec<Argument> {
        let Work { units, weights, changes, sums, deltas, .. } = *self;
        let all =
            if launch == 0 { vec![units, weights, sums] } else { vec![deltas, units, weights, changes] };
        all.into_iter().map(Array).collect()
    }

    fn fill(&self, memory: &Backing) {
        let inputs = self.groups * HIDDEN;
        for at in 0..(inputs + 1) * ROW {
            memory.write(self.weights + 4 * at, hash(1, at) as u32);
            memory.write(self.changes + 4 * at, hash(2, at) as u32);
        }
        (0..=inputs).for_each(|at| memory.write(self.units + 4 * at, hash(3, at) as u32));
        (0..ROW).for_each(|at| memory.write(self.deltas + 4 * at, hash(4, at) as u32));
    }

    fn compute(&self, memory: &Backing) {
        for group in 0..self.groups {
            for hidden in 0..HIDDEN {
                let mut sum = 0u32;
                let delta: u32 = memory.read(self.deltas + 4 * (hidden + 1));
                for unit in group * HIDDEN + 1..=(group + 1) * HIDDEN {
                    let at = 4 * (unit * ROW + hidden + 1);
                    let input: u32 = memory.read(self.units + 4 * unit);
                    let product = memory.read::<u32>(self.weights + at).wrapping_mul(input);
                    sum = sum.wrapping_add(product);
                    let before = memory.read::<u32>(self.changes + at).wrapping_mul(5);
                    let change = delta.wrapping_mul(3).wrapping_mul(input).wrapping_add(before);
                    memory.write(self.weights + at, product.wrapping_add(change));
                    memory.write(self.changes + at, change);
                }
                memory.write(self.sums + 4 * (group * HIDDEN + hidden), sum);
            }
        }
    }
}

impl Warps for Work {
    const PIECE: u64 = 3 * LANES;

    fn name(&self, launch: u64) -> &'static str {
        if launch == 0 { "bpnn_layerforward_CUDA" } else { "bpnn_adjust_weights_cuda" }
    }

    fn groups(&self, _: u64) -> u64 {
        self.groups
    }

    fn pieces(&self, _: u64) -> u64 {
        2
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { launch, warp, piece }: Place) {
        let (group, place) = (warp / WARPS, warp % WARPS * LANES);
        let unit = |lane: u64| group * HIDDEN + (place + lane) / HIDDEN + 1;
        let hidden = |lane: u64| (place + lane) % HIDDEN;
        let weight = |lane: u64| 4 * (unit(lane) * ROW + hidden(lane) + 1);
        match (launch, piece) {
            (0, 0) => {
                load_some::<u32>(
                    memory,
                    |lane| hidden(lane) == 0,
                    |lane| self.units + 4 * unit(lane),
                    false,
                    9,
                );
                load_lanes::<u32>(memory, |lane| self.weights + weight(lane), false, 4);
            }
            (0, _) => {
                store_lanes::<u32>(memory, |lane| self.weights + weight(lane), 24);
                let sum = |lane: u64| self.sums + 4 * (group * HIDDEN + hidden(lane));
                store_some::<u32>(memory, |lane| place + lane < HIDDEN, sum, 5);
            }
            (_, 0) => {
                load_lanes::<u32>(memory, |lane| self.deltas + 4 * (hidden(lane) + 1), false, 8);
                load_lanes::<u32>(memory, |lane| self.units + 4 * unit(lane), false, 2);
                load_lanes::<u32>(memory, |lane| self.changes + weight(lane), false, 2);
            }
            _ => {
                load_lanes::<u32>(memory, |lane| self.weights + weight(lane), false, 4);
                store_lanes::<u32>(memory, |lane| self.weights + weight(lane), 3);
                store_lanes::<u32>(memory, |lane| self.changes + weight(lane), 3);
            }
        }
    }
}
