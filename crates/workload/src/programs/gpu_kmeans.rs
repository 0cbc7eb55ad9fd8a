//! Distances to the centres of clusters on a GPU: strided loads of which a quarter of each line is used.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, store_lanes};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array, Number};
use crate::parameters::*;
use crate::random::hash;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-kmeans",
    summary: "on a GPU: distances of points to cluster centres, points stored one after the other",
    description: "\
Each work-item reads all features of its point for each cluster, and those of the cluster's centre, which all lanes share; then it \
stores the nearest cluster. A point's features lie side by side, so that the lanes of a warp read 32 different lines.

Stands for the kernel of Rodinia's kmeans (Che et al., IISWC 2009) with the 34 features of its input kdd_cup. It differs: points are \
not transposed first, as the source's measured line utilization of 25 % shows, and centres are not moved.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Points, rounded up to whole work-groups.
    #[parameter(default = 65536, range = 1..=1_000_000_000, unit = "points")]
    points: u64,
    /// Features of a point.
    #[parameter(default = 34, range = 1..=4096, unit = "features")]
    features: u64,
    /// Clusters.
    #[parameter(default = 5, range = 1..=1024, unit = "clusters")]
    clusters: u64,
    /// Launches of the kernel.
    #[parameter(default = 1, range = 1..=1000, unit = "launches")]
    iterations: u64,
}

#[derive(Clone)]
pub(crate) struct Distances {
    groups: u64,
    features: u64,
    clusters: u64,
    iterations: u64,
    points_at: u64,
    centres_at: u64,
    nearest_at: u64,
}

impl Distances {
    /// Points of whole work-groups.
    fn points(&self) -> u64 {
        self.groups * WARPS * LANES
    }
}

impl OnGpu for Distances {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Distances, Problem> {
        let Parameters { points, features, clusters, iterations } = *parameters;
        let groups = points.div_ceil(WARPS * LANES);
        let points = groups * WARPS * LANES;
        Ok(Distances {
            groups,
            features,
            clusters,
            iterations,
            points_at: layout.array("features", 4 * points * features),
            centres_at: layout.array("clusters", 4 * clusters * features),
            nearest_at: layout.array("membership", 4 * points),
        })
    }

    fn launches(&self) -> u64 {
        self.iterations
    }

    fn accesses(&self) -> u64 {
        let Distances { groups, features, clusters, .. } = *self;
        groups * WARPS * LANES * (2 * features * clusters + 1) * self.iterations
    }

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_kmeans.cl"));

    fn arguments(&self, _: u64) -> Vec<Argument> {
        let arrays = [self.points_at, self.centres_at, self.nearest_at].map(Array);
        [&arrays[..], &[Number(self.features), Number(self.clusters)]].concat()
    }

    fn fill(&self, memory: &Backing) {
        for at in 0..self.points() * self.features {
            memory.write(self.points_at + 4 * at, hash(1, at) as u32 >> 24);
        }
        for at in 0..self.clusters * self.features {
            memory.write(self.centres_at + 4 * at, hash(2, at) as u32 >> 24);
        }
    }

    fn compute(&self, memory: &Backing) {
        let distance = |point: u64, cluster: u64| {
            let of_feature = |feature: u64| {
                let coordinate = self.points_at + 4 * (point * self.features + feature);
                let centre = self.centres_at + 4 * (cluster * self.features + feature);
                memory.read::<u32>(coordinate).abs_diff(memory.read(centre)).pow(2)
            };
            (0..self.features).map(of_feature).fold(0, u32::wrapping_add)
        };
        for point in 0..self.points() {
            let nearest = (0..self.clusters).min_by_key(|cluster| distance(point, *cluster));
            memory.write(self.nearest_at + 4 * point, nearest.unwrap_or(0) as u32);
        }
    }
}

impl Warps for Distances {
    const PIECE: u64 = 2 * LANES;

    fn name(&self, _: u64) -> &'static str {
        "nearest_cluster"
    }

    fn groups(&self, _: u64) -> u64 {
        self.groups
    }

    fn pieces(&self, _: u64) -> u64 {
        self.features * self.clusters + 1
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { warp, piece, .. }: Place) {
        let first = warp * LANES;
        if piece == self.features * self.clusters {
            return store_lanes::<u32>(memory, |lane| self.nearest_at + 4 * (first + lane), 4);
        }
        let feature = piece % self.features;
        // Index and address, the loads; difference, product and sum.
        load_lanes::<u32>(
            memory,
            |lane| self.points_at + 4 * ((first + lane) * self.features + feature),
            false,
            4,
        );
        load_lanes::<u32>(memory, |_| self.centres_at + 4 * piece, false, 2);
    }
}
