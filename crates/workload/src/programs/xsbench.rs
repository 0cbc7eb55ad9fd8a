//! Cross-section lookups of a Monte Carlo neutron transport code.

use crate::WorkloadInfo;
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::parameters::*;
use crate::program::{Kernel, Program, Progress, share};
use crate::random::{Permutation, Random, hash, scale};

const INFO: WorkloadInfo = WorkloadInfo {
    name: "xsbench",
    summary: "macroscopic cross-section lookups on a unionized energy grid (XSBench)",
    description: "\
Each lookup draws a material and an energy, finds the energy in the unionized grid by binary search, and for every \
nuclide of the material reads the nuclide's index from the grid point's row and then two neighbouring points of the \
nuclide's own grid, 48 bytes each, to interpolate five cross sections.

Stands for XSBench (Tramm et al., 2014), event-based, unionized grid, with its twelve materials (their nuclide counts \
and probabilities; the large problem's fuel from 355 nuclides on). The default is its small problem. It differs: \
energies are evenly spaced and the index rows follow from that, so a simulation needs no memory for them (a native run \
writes them first and searches what it reads); which nuclides a material holds is drawn by the seed.",
    parameters: declared::<Parameters>,
    exact: false,
};

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Nuclides: 68 small, 355 large problem.
    #[parameter(default = 68, range = 34..=(1 << 20), unit = "nuclides")]
    nuclides: u64,
    /// Energy points of each nuclide.
    #[parameter(default = 11303, range = 2..=(1 << 24), unit = "points")]
    gridpoints: u64,
    /// Lookups, all threads together.
    #[parameter(default = "300e3", range = 1..=LARGEST_COUNT, unit = "lookups")]
    lookups: u64,
    #[parameter(flatten)]
    start: Start,
    #[parameter(flatten)]
    settle: Settle,
    #[parameter(flatten)]
    threads: Threads,
    #[parameter(flatten)]
    seed: Seed,
}

/// Nuclides per material and the probability of a lookup in it, as XSBench's materials table states them.
const MATERIALS: [(u64, f64); 12] = [
    (34, 0.140),
    (5, 0.052),
    (4, 0.275),
    (4, 0.134),
    (27, 0.154),
    (21, 0.064),
    (21, 0.066),
    (21, 0.055),
    (21, 0.008),
    (21, 0.015),
    (9, 0.025),
    (9, 0.013),
];
/// Nuclides of the fuel in the large problem.
const LARGE_FUEL: u64 = 321;
const LARGE_NUCLIDES: u64 = 355;
/// Energy and five cross sections.
const POINT_BYTES: u64 = 48;

#[derive(Clone)]
pub(crate) struct XsBench {
    nuclides: u64,
    gridpoints: u64,
    lookups: u64,
    threads: u32,
    seed: u64,
    /// Nuclides of each material.
    materials: Vec<Vec<u32>>,
    energies: u64,
    indices: u64,
    points: u64,
    nuclide_lists: u64,
    concentrations: u64,
    layout: Layout,
}

/// Entries reserved for each material's list.
const LIST_ENTRIES: u64 = LARGE_FUEL;

impl XsBench {
    /// Points of the unionized grid.
    fn union_points(&self) -> u64 {
        self.nuclides * self.gridpoints
    }

    /// Energy of a point of the unionized grid, in (0, 1).
    #[inline(always)]
    fn energy(&self, point: u64, spacing: f64) -> f64 {
        (point as f64 + 0.5) * spacing
    }

    /// Position in a nuclide's own grid of the last point at or below a point of the unionized grid: every
    /// `nuclides`-th point belongs to it, beginning at an offset of its own.
    #[inline(always)]
    fn index(&self, point: u64, nuclide: u64) -> u32 {
        let offset = scale(hash(self.seed, nuclide), self.nuclides);
        ((point + offset) / self.nuclides).min(self.gridpoints - 2) as u32
    }
}

impl Program for XsBench {
    const INFO: &WorkloadInfo = &INFO;
    type Parameters = Parameters;
    type Thread = Lookups;

    fn new(parameters: &Parameters) -> Result<XsBench, Problem> {
        let nuclides = parameters.nuclides;
        let gridpoints = parameters.gridpoints;
        let union_points = nuclides * gridpoints;
        if union_points.saturating_mul(8 + 4 * nuclides) > 32 << 40 {
            return Err(Problem::new("gridpoints", "a unionized grid of at most 32 TiB"));
        }
        let seed = parameters.seed.number;
        let materials = MATERIALS
            .iter()
            .enumerate()
            .map(|(material, (count, _))| {
                let large_fuel = material == 0 && nuclides >= LARGE_NUCLIDES;
                let count = if large_fuel { LARGE_FUEL } else { *count };
                let order = Permutation::new(nuclides, hash(seed, 1000 + material as u64));
                (0..count).map(|i| order.apply(i) as u32).collect()
            })
            .collect();
        let mut layout = Layout::new(parameters.start.init).settling(parameters.settle.instructions);
        let lists = MATERIALS.len() as u64 * LIST_ENTRIES;
        Ok(XsBench {
            nuclides,
            gridpoints,
            lookups: parameters.lookups,
            threads: parameters.threads.count,
            seed,
            materials,
            energies: layout.array("unionized energies", 8 * union_points),
            indices: layout.array("unionized indices", (4 * union_points * nuclides).next_multiple_of(8)),
            points: layout.array("nuclide grids", POINT_BYTES * union_points),
            nuclide_lists: layout.array("material nuclides", (4 * lists).next_multiple_of(8)),
            concentrations: layout.array("material concentrations", 8 * lists),
            layout,
        })
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn thread(&self, index: u32) -> Lookups {
        let own = share(self.lookups, index, self.threads);
        Lookups {
            random: Random::of_thread(self.seed, index),
            left: own.end - own.start,
            spacing: 1.0 / self.union_points() as f64,
            state: None,
            program: self.clone(),
        }
    }

    fn kernel_accesses(&self) -> u64 {
        let total: f64 = MATERIALS.iter().map(|m| m.1).sum();
        let nuclides: f64 = self
            .materials
            .iter()
            .zip(MATERIALS)
            .map(|(list, (_, share))| list.len() as f64 * share / total)
            .sum();
        (self.lookups as f64 * (5.0 * nuclides + (self.union_points() as f64).log2())) as u64
    }

    fn prepare(&self, memory: &Backing) {
        let spacing = 1.0 / self.union_points() as f64;
        for point in 0..self.union_points() {
            memory.write(self.energies + 8 * point, self.energy(point, spacing).to_bits());
            for nuclide in 0..self.nuclides {
                let at = self.indices + 4 * (point * self.nuclides + nuclide);
                memory.write(at, self.index(point, nuclide));
            }
        }
        for (material, list) in self.materials.iter().enumerate() {
            for (i, nuclide) in list.iter().enumerate() {
                memory.write(self.nuclide_lists + 4 * (material as u64 * LIST_ENTRIES + i as u64), *nuclide);
            }
        }
    }
}

/// One thread's lookups.
pub(crate) struct Lookups {
    program: XsBench,
    random: Random,
    left: u64,
    spacing: f64,
    /// A lookup whose nuclides are not all read: material, grid point, next nuclide.
    state: Option<(usize, u64, u64)>,
}

/// Nuclides that one step reads at most.
const STEP_NUCLIDES: u64 = 40;

impl Lookups {
    /// The last grid point at or below `energy`.
    #[inline(always)]
    fn search<M: Memory>(&self, memory: &mut M, energy: f64) -> u64 {
        let (mut low, mut high) = (0, self.program.union_points() - 1);
        let mut depends_on = 0;
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            // The compiler selects the half without a branch, so the next probe waits for this one.
            let read: u64 = memory.load(self.program.energies + 8 * middle, depends_on, 7);
            let at =
                if M::HOLDS_DATA { f64::from_bits(read) } else { self.program.energy(middle, self.spacing) };
            if at > energy {
                high = middle;
            } else {
                low = middle;
            }
            depends_on = 1;
        }
        low
    }

    #[inline(always)]
    fn read_nuclide<M: Memory>(&self, memory: &mut M, material: usize, point: u64, i: u64) {
        let program = &self.program;
        let entry = material as u64 * LIST_ENTRIES + i;
        let listed: u32 = memory.load(program.nuclide_lists + 4 * entry, 0, 3);
        let nuclide = u64::from(if M::HOLDS_DATA { listed } else { program.materials[material][i as usize] });
        let _: u64 = memory.load(program.concentrations + 8 * entry, 0, 1);
        let read: u32 = memory.load(program.indices + 4 * (point * program.nuclides + nuclide), 2, 3);
        let index = u64::from(if M::HOLDS_DATA { read } else { program.index(point, nuclide) });
        let low = program.points + POINT_BYTES * (nuclide * program.gridpoints + index);
        let _: [u64; 6] = memory.load(low, 1, 4);
        // The interpolation factor and five multiply-adds for the cross sections, five more into the totals.
        let _: [u64; 6] = memory.load(low + POINT_BYTES, 2, 24);
    }
}

impl Kernel for Lookups {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        let (material, point, from) = match self.state.take() {
            Some(state) => state,
            None if self.left == 0 => return Progress::Done,
            None => {
                self.left -= 1;
                let mut pick = self.random.unit();
                let chosen = MATERIALS.iter().position(|(_, share)| {
                    pick -= share;
                    pick < 0.0
                });
                let energy = self.random.unit();
                // The probabilities sum to 1.001, so the fallback is never needed; rounding is.
                let material = chosen.unwrap_or(0);
                (material, self.search(memory, energy), 0)
            }
        };
        let count = self.program.materials[material].len() as u64;
        let until = count.min(from + STEP_NUCLIDES);
        for i in from..until {
            self.read_nuclide(memory, material, point, i);
        }
        if until < count {
            self.state = Some((material, point, until));
        }
        Progress::Working
    }
}
