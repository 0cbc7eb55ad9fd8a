//! Clustering of a stream on a GPU: what a new centre would save, point by point.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, load_some, store_some};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array, Number};
use crate::parameters::*;
use crate::random::hash;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-streamcluster",
    summary: "on a GPU: what opening a centre would save each point of a stream",
    description: "\
Each launch tries one point as a new centre. A work-item computes the distance of its point to it over all dimensions, whose coordinates lie an \
array of all points apart, so that lanes read side by side; the first lane of a group reads the centre's. It then reads its point's record \
of 32 bytes. An eighth of the points would change over to the new centre, and writes a flag and what it saves; the others add to \
what closing their own centre would cost.

Stands for Rodinia's streamcluster (Che et al., IISWC 2009), after PARSEC's (Bienia et al., PACT 2008). It differs: which points would change over \
is drawn by their numbers, and the host's part between launches is left out.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

/// Bytes of a point's record: weight, coordinates, assignment, cost.
const RECORD: u64 = 32;
/// One in so many lanes of a warp changes over.
const GAINS: u64 = 8;

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Points, rounded up to whole work-groups.
    #[parameter(default = 65536, range = 1..=1_000_000_000, unit = "points")]
    points: u64,
    /// Dimensions of a point.
    #[parameter(default = 32, range = 1..=4096, unit = "dimensions")]
    dimensions: u64,
    /// Centres that are open.
    #[parameter(default = 16, range = 1..=4096, unit = "centres")]
    centres: u64,
    /// Launches of the kernel.
    #[parameter(default = 2, range = 1..=10000, unit = "launches")]
    iterations: u64,
}

#[derive(Clone)]
pub(crate) struct Work {
    groups: u64,
    points: u64,
    dimensions: u64,
    centres: u64,
    iterations: u64,
    coordinates: u64,
    records: u64,
    switches: u64,
    costs: u64,
    table: u64,
}

/// Whether a point changes over.
fn gains(lane: u64, warp: u64, launch: u64) -> bool {
    (lane + warp + launch).is_multiple_of(GAINS)
}

impl Work {
    /// The candidate of a launch, far from the one before.
    fn candidate(&self, launch: u64) -> u64 {
        launch * 2_654_435_761 % self.points
    }

    /// The centre that a point is assigned to.
    fn own(&self, point: u64) -> u64 {
        point * 40_503 % self.centres
    }
}

impl OnGpu for Work {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Work, Problem> {
        let Parameters { points, dimensions, centres, iterations } = *parameters;
        let groups = points.div_ceil(WARPS * LANES);
        let points = groups * WARPS * LANES;
        Ok(Work {
            groups,
            points,
            dimensions,
            centres,
            iterations,
            coordinates: layout.array("coord_d", 4 * points * dimensions),
            records: layout.array("p", RECORD * points),
            switches: layout.array("switch_membership_d", 4 * points),
            costs: layout.array("work_mem_d", 4 * points * (centres + 1)),
            table: layout.array("center_table_d", 4 * points),
        })
    }

    fn launches(&self) -> u64 {
        self.iterations
    }

    fn accesses(&self) -> u64 {
        let warps = self.groups * WARPS;
        let gains = LANES / GAINS;
        let of_warp = (self.dimensions + 3) * LANES + 2 * gains + 3 * (LANES - gains);
        self.iterations * (self.groups * self.dimensions + warps * of_warp)
    }

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_streamcluster.cl"));

    fn arguments(&self, launch: u64) -> Vec<Argument> {
        let arrays = [self.coordinates, self.records, self.switches, self.costs, self.table].map(Array);
        let numbers = [self.dimensions, self.centres, self.candidate(launch), launch].map(Number);
        [arrays.as_slice(), &numbers].concat()
    }

    fn fill(&self, memory: &Backing) {
        for at in 0..self.points * self.dimensions {
            memory.write(self.coordinates + 4 * at, hash(1, at) as u32 >> 24);
        }
        for point in 0..self.points {
            let record = self.records + RECORD * point;
            memory.write(record, hash(2, point) as u32 >> 24);
            memory.write(record + 16, self.own(point) as u32);
            memory.write(record + 24, hash(3, point) as u32);
            memory.write(self.table + 4 * point, point as u32);
        }
    }

    fn compute(&self, memory: &Backing) {
        for (launch, point) in
            (0..self.iterations).flat_map(|launch| (0..self.points).map(move |at| (launch, at)))
        {
            let coordinate = |dimension: u64, of: u64| {
                memory.read::<u32>(self.coordinates + 4 * (dimension * self.points + of))
            };
            let away = |dimension: u64| {
                coordinate(dimension, point).abs_diff(coordinate(dimension, self.candidate(launch))).pow(2)
            };
            let distance = (0..self.dimensions).map(away).fold(0, u32::wrapping_add);
            let field = |offset: u64| memory.read::<u32>(self.records + RECORD * point + offset);
            let saved = field(24).wrapping_sub(field(0).wrapping_mul(distance));
            let cost = |centre: u64| self.costs + 4 * (point * (self.centres + 1) + centre);
            if gains(point % LANES, point / LANES, launch) {
                memory.write(self.switches + 4 * point, field(16) + 1);
                memory.write(cost(self.centres), saved);
            } else {
                let at = cost(self.own(point));
                memory.write(at, memory.read::<u32>(at).wrapping_add(saved));
            }
        }
    }
}

impl Warps for Work {
    const PIECE: u64 = 6 * LANES + 2 * LANES / GAINS;

    fn name(&self, _: u64) -> &'static str {
        "compute_cost"
    }

    fn groups(&self, _: u64) -> u64 {
        self.groups
    }

    fn pieces(&self, _: u64) -> u64 {
        self.dimensions + 1
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { launch, warp, piece }: Place) {
        let point = |lane: u64| warp * LANES + lane;
        if piece < self.dimensions {
            let coordinate = |of: u64| self.coordinates + 4 * (piece * self.points + of);
            if warp.is_multiple_of(WARPS) {
                let candidate = self.candidate(launch);
                load_some::<u32>(memory, |lane| lane == 0, |_| coordinate(candidate), false, 3);
            }
            return load_lanes::<u32>(memory, |lane| coordinate(point(lane)), false, 5);
        }
        let record = |offset: u64| move |lane: u64| self.records + RECORD * point(lane) + offset;
        // Weight and cost, then the centre it is assigned to.
        load_lanes::<u32>(memory, record(0), false, 3);
        load_lanes::<u32>(memory, record(24), false, 3);
        load_lanes::<u32>(memory, record(16), false, 3);
        let gains = |lane: u64| gains(lane, warp, launch);
        let cost = |lane: u64, centre: u64| self.costs + 4 * (point(lane) * (self.centres + 1) + centre);
        store_some::<u32>(memory, gains, |lane| self.switches + 4 * point(lane), 2);
        store_some::<u32>(memory, gains, |lane| cost(lane, self.centres), 3);
        let own = |lane: u64| self.own(point(lane));
        let stays = |lane: u64| !gains(lane);
        load_some::<u32>(memory, stays, |lane| self.table + 4 * own(lane), true, 2);
        load_some::<u32>(memory, stays, |lane| cost(lane, own(lane)), true, 3);
        store_some::<u32>(memory, stays, |lane| cost(lane, own(lane)), 3);
    }
}
