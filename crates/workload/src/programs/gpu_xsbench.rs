//! Look-ups of cross-sections on a GPU: a search that chases, then scattered loads; a few hot pages.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, WARPS, Warps, WithThreads, load_lanes, store_lanes};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array, Number};
use crate::parameters::*;
use crate::random::{hash, scale};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-xsbench",
    summary: "on a GPU: look-ups of macroscopic cross-sections, each a binary search and scattered loads",
    description: "\
Each work-item looks up one energy: a binary search over the grid of all energies, each step of which depends on the one before; then, \
for ten nuclides, the index of the energy in the nuclide's grid and the two points there that it interpolates. The first steps of \
all searches meet in the same few pages.

Stands for XSBench (Tramm et al., PHYSOR 2014) as a GPU runs it. It differs: every look-up visits ten nuclides, where materials have 5 to \
more than 300 there; energies are uniform.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

/// Nuclides of a look-up.
const NUCLIDES: u64 = 10;
/// Bytes of a point of a nuclide's grid: energy and five cross-sections.
const POINT: u64 = 48;

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Nuclides that have grids.
    #[parameter(default = 68, range = 10..=4096, unit = "nuclides")]
    nuclides: u64,
    /// Points of each nuclide's grid.
    #[parameter(default = 1000, range = 2..=1000000, unit = "points")]
    gridpoints: u64,
    /// Look-ups, rounded up to whole work-groups.
    #[parameter(default = 100000, range = 1..=1_000_000_000, unit = "look-ups")]
    lookups: u64,
    #[parameter(flatten)]
    seed: Seed,
}

#[derive(Clone)]
pub(crate) struct Lookups {
    groups: u64,
    nuclides: u64,
    gridpoints: u64,
    energies: u64,
    depth: u64,
    seed: u64,
    grid: u64,
    index: u64,
    points: u64,
    results: u64,
}

impl OnGpu for Lookups {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Lookups, Problem> {
        let (nuclides, gridpoints) = (parameters.nuclides, parameters.gridpoints);
        let energies = nuclides * gridpoints;
        let groups = parameters.lookups.div_ceil(WARPS * LANES);
        Ok(Lookups {
            groups,
            nuclides,
            gridpoints,
            energies,
            depth: u64::from(energies.next_power_of_two().ilog2()),
            seed: parameters.seed.number,
            grid: layout.array("unionized_energies", 8 * energies),
            index: layout.array("index_grid", 4 * energies * nuclides),
            points: layout.array("nuclide_grids", POINT * energies),
            results: layout.array("results", 8 * groups * WARPS * LANES),
        })
    }

    fn launches(&self) -> u64 {
        1
    }

    fn accesses(&self) -> u64 {
        let each = self.depth + 3 * NUCLIDES + 1;
        self.groups * WARPS * LANES * each
    }

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_xsbench.cl"));

    fn arguments(&self, _: u64) -> Vec<Argument> {
        let arrays = [self.grid, self.index, self.points, self.results].map(Array);
        let numbers = [self.nuclides, self.gridpoints, self.seed].map(Number);
        [arrays.as_slice(), &numbers].concat()
    }

    fn fill(&self, memory: &Backing) {
        for energy in 0..self.energies {
            memory.write(self.grid + 8 * energy, energy);
            for nuclide in 0..self.nuclides {
                memory.write(self.index + 4 * (energy * self.nuclides + nuclide), self.within(energy) as u32);
            }
            for word in 0..POINT / 8 {
                memory.write(self.points + POINT * energy + 8 * word, hash(word, energy));
            }
        }
    }

    fn compute(&self, memory: &Backing) {
        for lookup in 0..self.groups * WARPS * LANES {
            let (energy, mut sum) = (self.energy(lookup), 0u64);
            for at in 0..NUCLIDES {
                let point = self.nuclide(lookup, at) * self.gridpoints + self.within(energy);
                let word = |point: u64, word: u64| memory.read::<u64>(self.points + POINT * point + 8 * word);
                let above = word(point + 1, 0).wrapping_sub(energy);
                sum = sum.wrapping_add(above.wrapping_mul(energy.wrapping_sub(word(point, 0))));
                for section in 1..POINT / 8 {
                    let difference = word(point + 1, section).wrapping_sub(word(point, section));
                    sum = sum.wrapping_add(difference.wrapping_mul(section));
                }
            }
            memory.write(self.results + 8 * lookup, sum);
        }
    }
}

impl Lookups {
    /// The place in the grid of all energies that a look-up finds.
    fn energy(&self, lookup: u64) -> u64 {
        scale(hash(self.seed, lookup), self.energies)
    }

    /// Where a search for an energy looks in one of its steps: the middle of what is left, which each step halves.
    fn middle(&self, energy: u64, step: u64) -> u64 {
        let (mut begin, mut left) = (0, self.energies);
        for _ in 0..step {
            let middle = begin + left / 2;
            begin = if middle <= energy { middle } else { begin };
            left -= left / 2;
        }
        begin + left / 2
    }

    /// The nuclides of a look-up: materials differ, and nuclides follow each other.
    fn nuclide(&self, lookup: u64, at: u64) -> u64 {
        (hash(self.seed ^ 1, lookup) % self.nuclides + at) % self.nuclides
    }

    /// The point of a nuclide's grid below an energy.
    fn within(&self, energy: u64) -> u64 {
        (energy / self.nuclides).min(self.gridpoints - 2)
    }
}

impl Warps for Lookups {
    const PIECE: u64 = 3 * LANES;

    fn name(&self, _: u64) -> &'static str {
        "lookup"
    }

    fn groups(&self, _: u64) -> u64 {
        self.groups
    }

    fn pieces(&self, _: u64) -> u64 {
        self.depth + NUCLIDES + 1
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { warp, piece, .. }: Place) {
        let first = warp * LANES;
        if piece < self.depth {
            let middle = |lane: u64| self.middle(self.energy(first + lane), piece);
            return load_lanes::<u64>(memory, |lane| self.grid + 8 * middle(lane), piece > 0, 6);
        }
        if piece == self.depth + NUCLIDES {
            return store_lanes::<u64>(memory, |lane| self.results + 8 * (first + lane), 8);
        }
        let nuclide = |lane: u64| self.nuclide(first + lane, piece - self.depth);
        let index = |lane: u64| self.energy(first + lane) * self.nuclides + nuclide(lane);
        load_lanes::<u32>(memory, |lane| self.index + 4 * index(lane), true, 5);
        let point = |lane: u64| {
            let within = self.within(self.energy(first + lane));
            self.points + POINT * (nuclide(lane) * self.gridpoints + within)
        };
        load_lanes::<[u64; 6]>(memory, point, true, 4);
        load_lanes::<[u64; 6]>(memory, |lane| point(lane) + POINT, false, 1);
    }
}
