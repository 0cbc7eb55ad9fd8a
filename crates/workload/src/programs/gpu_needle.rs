//! Alignment of two sequences by anti-diagonals of tiles on a GPU: rows, and columns that take a line for each word.

use crate::WorkloadInfo;
use crate::gpu::{LANES, OnGpu, Place, Warps, WithThreads, load_lanes, store_lanes};
use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;

const INFO: WorkloadInfo = WorkloadInfo {
    name: "gpu-needle",
    summary: "on a GPU: alignment of two sequences, tiles along anti-diagonals",
    description: "\
The matrix of scores is filled by tiles of 32 by 32, one launch for each anti-diagonal of tiles: first those that grow, then those that \
shrink. A group of one warp reads its tile of the reference, the row above and the column to the left, whose words lie a row apart, and \
writes its tile.

Stands for Rodinia's needle (Needleman-Wunsch; Che et al., IISWC 2009). It differs: tiles have 32 rows, and the way back is left out.",
    parameters: declared::<WithThreads<Parameters>>,
    exact: true,
};

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
        self.tiles * self.tiles * (2 * LANES * LANES + 2 * LANES)
    }
}

impl Warps for Work {
    const PIECE: u64 = LANES;
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
            0 => load_lanes::<u32>(memory, |lane| self.scores + word(lane + 1, 0), false, 10),
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
