//! The pieces of a program's address space that lie in blocks.

use super::layer::Part;
use crate::vbi::{Index, Rights};
use terrace_model::{SpaceId, VirtAddr};

/// Consecutive addresses that lie in one block in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub end: VirtAddr,
    pub block: u32,
    /// Where its first address lies.
    pub offset: u64,
    pub index: Index,
    pub rights: Rights,
}

impl Piece {
    /// What it is to its block, if it begins at `start`.
    pub fn part(&self, start: VirtAddr) -> Part {
        Part { first: self.offset, end: self.offset + (self.end - start), addr: start }
    }
}

/// Pieces that are remembered.
const RECENT: usize = 4;

/// The pieces that were looked up last, with their processes and first addresses.
#[derive(Debug, Default)]
pub struct RecentPieces {
    pieces: [Option<(SpaceId, VirtAddr, Piece)>; RECENT],
    /// The one to be replaced next.
    oldest: usize,
}

impl RecentPieces {
    /// The piece that holds an address, if it is remembered, and its first address.
    #[inline]
    pub fn find(&self, space: SpaceId, addr: VirtAddr) -> Option<(VirtAddr, Piece)> {
        let holds = |(of, start, piece): &&(SpaceId, VirtAddr, Piece)| {
            *of == space && *start <= addr && addr < piece.end
        };
        self.pieces.iter().flatten().find(holds).map(|(_, start, piece)| (*start, *piece))
    }

    /// Remembers a piece.
    pub fn add(&mut self, space: SpaceId, start: VirtAddr, piece: Piece) {
        self.pieces[self.oldest] = Some((space, start, piece));
        self.oldest = (self.oldest + 1) % RECENT;
    }
}
