//! The frames of one tier: who holds each, and what lies in it.

use std::collections::BTreeSet;
use terrace_model::{Frame, PageSize};
use terrace_seam::{PageId, Ticket, Watermarks};

/// Frames of a 2 MiB block.
const BLOCK: u64 = PageSize::Huge.base_pages();

/// The holder of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Free {
        zeroed: bool,
    },
    /// The page that begins at this name.
    Page(PageId),
    /// Taken by an order for a page that is not there yet.
    Reserved(Ticket),
    /// Movable, but of no managed page.
    Other,
    /// Movable, but of no managed page, and in the hands of an order.
    OtherInFlight(Ticket),
    Kernel,
}

/// The frames of a tier, numbered from `base`.
#[derive(Clone, Debug)]
pub(super) struct Frames {
    pub base: u64,
    holders: Vec<Holder>,
    /// The base page whose bytes lie in the frame; none for zeros.
    contents: Vec<Option<PageId>>,
    /// Free frames of each 2 MiB block, the last one possibly shorter.
    free_in_block: Vec<u16>,
    free: u64,
    /// Blocks that the allocator leaves alone: first frame and length.
    isolated: Vec<(u64, u64)>,
    /// Pageblocks of 2 MiB that are kept for what cannot move: their numbers.
    for_unmovable: BTreeSet<u64>,
    /// Frames of [`Holder::Other`] that hold pages of files nobody uses.
    pub evictable: BTreeSet<u64>,
    pub watermarks: Watermarks,
}

impl Frames {
    pub fn new(base: u64, count: u64) -> Frames {
        let blocks = count.div_ceil(BLOCK);
        Frames {
            base,
            holders: vec![Holder::Free { zeroed: false }; count as usize],
            contents: vec![None; count as usize],
            free_in_block: (0..blocks).map(|block| (count - block * BLOCK).min(BLOCK) as u16).collect(),
            free: count,
            isolated: Vec::new(),
            for_unmovable: BTreeSet::new(),
            evictable: BTreeSet::new(),
            watermarks: Watermarks::default(),
        }
    }

    pub fn keep_for_unmovable(&mut self, frame: u64) {
        self.for_unmovable.insert((frame - self.base) / BLOCK);
    }

    pub fn is_for_movable(&self, first: u64, frames: u64) -> bool {
        let first = first - self.base;
        let pageblocks = first / BLOCK..=(first + frames - 1) / BLOCK;
        self.for_unmovable.range(pageblocks).next().is_none()
    }

    pub fn count(&self) -> u64 {
        self.holders.len() as u64
    }

    pub fn free(&self) -> u64 {
        self.free
    }

    pub fn contains(&self, frame: u64) -> bool {
        frame >= self.base && frame < self.base + self.count()
    }

    pub fn holder(&self, frame: u64) -> Holder {
        self.holders[(frame - self.base) as usize]
    }

    pub fn content(&self, frame: u64) -> Option<PageId> {
        self.contents[(frame - self.base) as usize]
    }

    pub fn set_content(&mut self, frame: u64, content: Option<PageId>) {
        self.contents[(frame - self.base) as usize] = content;
    }

    pub fn set(&mut self, frame: u64, holder: Holder) {
        let at = (frame - self.base) as usize;
        let was = matches!(self.holders[at], Holder::Free { .. });
        let is = matches!(holder, Holder::Free { .. });
        let block = &mut self.free_in_block[at / BLOCK as usize];
        match (was, is) {
            (true, false) => {
                *block -= 1;
                self.free -= 1;
            }
            (false, true) => {
                *block += 1;
                self.free += 1;
            }
            _ => {}
        }
        self.holders[at] = holder;
        if holder != Holder::Other {
            self.evictable.remove(&frame);
        }
    }

    pub fn set_block(&mut self, first: u64, frames: u64, holder: Holder) {
        for frame in first..first + frames {
            self.set(frame, holder);
        }
    }

    pub fn is_free(&self, first: u64, frames: u64) -> bool {
        first >= self.base
            && first + frames <= self.base + self.count()
            && (first..first + frames).all(|frame| matches!(self.holder(frame), Holder::Free { .. }))
    }

    /// Evicts pages of files, the lowest first, until so many frames are free.
    pub fn reclaim(&mut self, free: u64) {
        while self.free < free
            && let Some(frame) = self.evictable.pop_first()
        {
            self.set(frame, Holder::Free { zeroed: false });
        }
    }

    pub fn is_zeroed(&self, first: u64, frames: u64) -> bool {
        (first..first + frames).all(|frame| self.holder(frame) == Holder::Free { zeroed: true })
    }

    pub fn isolate(&mut self, first: u64, frames: u64, isolated: bool) {
        self.isolated.retain(|block| *block != (first, frames));
        if isolated {
            self.isolated.push((first, frames));
        }
    }

    pub fn isolated(&self) -> usize {
        self.isolated.len()
    }

    fn is_isolated(&self, block: u64, length: u64) -> bool {
        self.isolated.iter().any(|&(first, frames)| block < first + frames && first < block + length)
    }

    /// Free aligned blocks of `size` that may be handed out, by address.
    pub fn free_blocks(&self, size: PageSize) -> impl Iterator<Item = u64> + '_ {
        let frames = size.base_pages();
        let start = self.base.next_multiple_of(frames);
        let end = self.base + self.count();
        let candidates = (start..end).step_by(frames as usize).take_while(move |at| at + frames <= end);
        candidates.filter(move |&first| {
            let at = (first - self.base) / BLOCK;
            let full = |block: u64| self.free_in_block[block as usize] == BLOCK as u16;
            let free = match size {
                PageSize::Base => {
                    self.free_in_block[at as usize] > 0 && matches!(self.holder(first), Holder::Free { .. })
                }
                _ if self.base.is_multiple_of(BLOCK) => (at..at + frames / BLOCK).all(full),
                _ => self.is_free(first, frames),
            };
            free && !self.is_isolated(first, frames)
        })
    }

    /// A free block of `size`, zeroed ones and low addresses first; not taken yet.
    pub fn find(&self, size: PageSize) -> Option<u64> {
        if size == PageSize::Base {
            return self.free_blocks(size).next();
        }
        let zeroed = self.free_blocks(size).find(|&first| self.is_zeroed(first, size.base_pages()));
        zeroed.or_else(|| self.free_blocks(size).next())
    }

    pub fn all(&self) -> impl Iterator<Item = (Frame, Holder, Option<PageId>)> + '_ {
        let frames = self.holders.iter().zip(&self.contents).enumerate();
        frames.map(|(at, (holder, content))| (Frame(self.base + at as u64), *holder, *content))
    }
}
