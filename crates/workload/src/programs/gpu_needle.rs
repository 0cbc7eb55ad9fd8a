//! Alignment of two sequences by anti-diagonals of tiles on a GPU: rows, and columns that take a line for each word.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, Warps, WithThreads, load_lanes, load_some, store_lanes};
use crate::layout::Layout;
use crate::memory::{Backing, Contents, Memory};
use crate::opencl::session::Argument::{self, Array, Number};
use crate::parameters::*;
use crate::random::hash;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-needle",
    summary: "on a GPU: alignment of two sequences, tiles along anti-diagonals",
    description: "\
The matrix of scores is filled by tiles of 32 by 32, one launch for each anti-diagonal of tiles: first those that grow, then those that \
shrink. A group of one warp reads its tile of the reference, the row above, the column to the left, whose words lie a row apart, and the corner \
between them, and writes its tile.

Stands for Rodinia's needle (Needleman-Wunsch; Che et al., IISWC 2009). It differs: tiles have 32 rows, and the way back is left out.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

/// What a letter costs that is left out.
const PENALTY: u32 = 10;

#[derive(Clone, Debug, PartialEq, Parameters)]
pub(crate) struct Parameters {
    /// Length of both sequences, rounded up to whole tiles.
    #[parameter(default = 1024, range = 1..=1_000_000, unit = "letters")]
    letters: u64,
}

#[derive(Clone)]
pub(crate) struct Work {
    tiles: u64,
    reference: u64,
    scores: u64,
}

impl OnGpu for Work {
    type Parameters = Parameters;
    const INFO: &'static WorkloadInfo = &INFO;

    fn new(parameters: &Parameters, layout: &mut Layout) -> Result<Work, Problem> {
        let tiles = parameters.letters.div_ceil(LANES);
        let bytes = 4 * (tiles * LANES + 1).pow(2);
        Ok(Work {
            tiles,
            reference: layout.array("referrence_cuda", bytes),
            scores: layout.array("matrix_cuda", bytes),
        })
    }

    fn launches(&self) -> u64 {
        2 * self.tiles - 1
    }

    fn accesses(&self) -> u64 {
        self.tiles * self.tiles * (2 * LANES * LANES + 2 * LANES + 1)
    }

    const OPENCL: Option<&'static str> = Some(include_str!("gpu_needle.cl"));

    fn arguments(&self, launch: u64) -> Vec<Argument> {
        vec![Array(self.reference), Array(self.scores), Number(self.tiles), Number(launch)]
    }

    fn fill(&self, memory: &Backing) {
        let across = self.tiles * LANES + 1;
        for at in 0..across * across {
            memory.write(self.reference + 4 * at, (hash(1, at) % 21) as u32);
        }
        for at in 0..across {
            let score = (at as u32 * PENALTY).wrapping_neg();
            memory.write(self.scores + 4 * at, score);
            memory.write(self.scores + 4 * at * across, score);
        }
    }

    fn compute(&self, memory: &Backing) {
        let across = self.tiles * LANES + 1;
        for (row, column) in (1..across).flat_map(|row| (1..across).map(move |column| (row, column))) {
            let of = |array: u64, row: u64, column: u64| {
                memory.read::<u32>(array + 4 * (row * across + column)).cast_signed()
            };
            let gap = of(self.scores, row, column - 1).max(of(self.scores, row - 1, column));
            let matched = of(self.scores, row - 1, column - 1) + of(self.reference, row, column);
            let best = matched.max(gap - PENALTY.cast_signed());
            memory.write(self.scores + 4 * (row * across + column), best.cast_unsigned());
        }
    }
}

impl Warps for Work {
    const PIECE: u64 = LANES + 1;
    const WARPS: u64 = 1;

    fn name(&self, launch: u64) -> &'static str {
        if launch < self.tiles { "needle_cuda_shared_1" } else { "needle_cuda_shared_2" }
    }

    fn groups(&self, launch: u64) -> u64 {
        (launch + 1).min(2 * self.tiles - 1 - launch)
    }

    fn pieces(&self, _: u64) -> u64 {
        2 * LANES + 2
    }

    fn piece<M: Memory>(&self, memory: &mut M, Place { launch, warp, piece }: Place) {
        let across = (self.tiles * LANES + 1) * 4;
        // Tiles of an anti-diagonal, from the lower left to the upper right.
        let column = warp + (launch + 1).saturating_sub(self.tiles);
        let row = launch - column;
        // The corner before the tile: row and column 0 are borders.
        let corner = row * LANES * across + 4 * column * LANES;
        let word = |row: u64, column: u64| corner + row * across + 4 * column;
        match piece {
            0 => {
                load_lanes::<u32>(memory, |lane| self.scores + word(lane + 1, 0), false, 10);
                load_some::<u32>(memory, |lane| lane == 0, |_| self.scores + word(0, 0), false, 2);
            }
            1 => load_lanes::<u32>(memory, |lane| self.scores + word(0, lane + 1), false, 4),
            _ if piece < LANES + 2 => {
                let row = piece - 1;
                load_lanes::<u32>(memory, |lane| self.reference + word(row, lane + 1), false, 3);
            }
            // The tile is computed in the SM, along its own anti-diagonals.
            _ => {
                let row = piece - LANES - 1;
                store_lanes::<u32>(memory, |lane| self.scores + word(row, lane + 1), 20);
            }
        }
    }
}
