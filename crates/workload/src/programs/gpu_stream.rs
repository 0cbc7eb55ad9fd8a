//! A triad of three long vectors on a GPU: bandwidth and nothing else.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, store_lanes};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array};
use crate::parameters::*;
use crate::program::share;
use terrace_model::Bytes;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-stream",
    summary: "on a GPU: triad a[i] = b[i] + s*c[i] over three long vectors",
    description: "\
Three vectors of 4-byte numbers. Each work-item computes eight elements, a whole grid apart, as grid-stride loops do; the lanes of \
a warp read and write 128 bytes side by side. It is limited by the bandwidth of memory alone.

Stands for the uniform, bandwidth-bound programs of the BW-AWARE placement (Agarwal 2017, chapter 3) and for Triad of STREAM \
(McCalpin, 1995). It differs from both: vectors are only as long as whole groups fill, and nothing initialises them.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

/// Elements of a work-item.
const EACH: u64 = 8;

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Size of the three vectors together, rounded down to whole work-groups.
    #[parameter(default = "96 MiB", range = "96 KiB"..="32 TiB")]
    bytes: Bytes,
    /// Launches of the kernel.
    #[parameter(default = 1, range = 1..=LARGEST_COUNT, unit = "launches")]
    iterations: u64,
}

#[derive(Clone)]
pub(crate) struct Triad {
    groups: u64,
    iterations: u64,
    vectors: [u64; 3],
}

impl Triad {
    /// Elements of a vector.
    fn elements(&self) -> u64 {
        EACH * self.groups * WARPS * LANES
    }
}

impl OnGpu for Triad {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Triad, Problem> {
        let group = 4 * LANES * WARPS * EACH;
        let groups = share(parameters.bytes.0, 0, 3).end / group;
        let vectors = ["a", "b", "c"].map(|name| layout.array(name, groups * group));
        Ok(Triad { groups, iterations: parameters.iterations, vectors })
    }

    fn launches(&self) -> u64 {
        self.iterations
    }

    fn accesses(&self) -> u64 {
        3 * EACH * self.groups * WARPS * LANES * self.iterations
    }

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_stream.cl"));

    fn arguments(&self, _: u64) -> Vec<Argument> {
        self.vectors.map(Array).to_vec()
    }

    fn fill(&self, memory: &Backing) {
        let [_, b, c] = self.vectors;
        for at in 0..self.elements() {
            memory.write(b + 4 * at, at as u32);
            memory.write(c + 4 * at, !at as u32);
        }
    }

    fn compute(&self, memory: &Backing) {
        let [a, b, c] = self.vectors;
        for at in (0..4 * self.elements()).step_by(4) {
            let (b, c): (u32, u32) = (memory.read(b + at), memory.read(c + at));
            memory.write(a + at, c.wrapping_mul(3).wrapping_add(b));
        }
    }
}

impl Warps for Triad {
    const PIECE: u64 = 3 * LANES;

    fn name(&self, _: u64) -> &'static str {
        "triad"
    }

    fn groups(&self, _: u64) -> u64 {
        self.groups
    }

    fn pieces(&self, _: u64) -> u64 {
        EACH
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { warp, piece, .. }: Place) {
        let [a, b, c] = self.vectors;
        let first = 4 * LANES * (piece * self.groups * WARPS + warp);
        // Index, bounds and address, then the loads; multiply-add and the store.
        load_lanes::<u32>(memory, |lane| b + first + 4 * lane, false, 5);
        load_lanes::<u32>(memory, |lane| c + first + 4 * lane, false, 2);
        store_lanes::<u32>(memory, |lane| a + first + 4 * lane, 3);
    }
}
