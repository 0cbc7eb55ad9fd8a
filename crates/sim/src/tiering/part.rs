//! What an order has between unmap and map: which pages, where to, and what lands.

use super::State;
use super::copy::Chunk;
use crate::machine::{Machine, System};
use crate::os::Mappers;
use std::collections::{BTreeSet, HashSet};
use terrace_model::{AddressRange, Frame, LINE_BYTES, PageSize, Time};
use terrace_policy::{Cost, Outcome, PageId};

/// What a part does to memory when it lands.
#[derive(Debug)]
pub(super) enum Work {
    Move {
        page: PageId,
        size: PageSize,
        from: Frame,
        to: Frame,
    },
    Swap {
        one: (PageId, Frame),
        other: (PageId, Frame),
        size: PageSize,
    },
    /// To a new block, or where the parts are.
    Collapse {
        page: PageId,
        size: PageSize,
        to: Option<Frame>,
        parts: Vec<(PageId, PageSize, Frame)>,
    },
    /// From one block of a tier to another, what lies there coming back frame by frame.
    Relocate {
        from: Frame,
        to: Frame,
        size: PageSize,
        /// The pages that map what moves; none for a page of a file.
        pages: Option<Mappers>,
        /// Blocks that come back, with those that map them.
        back: Vec<(Mappers, PageSize, Frame)>,
        /// Frames of the page cache that take part, held for the time.
        cached: Vec<Frame>,
        /// What was free at the destination, taken for the time.
        free: Vec<(Frame, PageSize)>,
    },
    /// A free block that is filled with zeros.
    Zero {
        frame: Frame,
        size: PageSize,
        /// The number that the memory gave this filling.
        filling: u64,
    },
}

/// A part between unmap and map.
#[derive(Debug)]
pub(super) struct Part {
    /// Position among the items that its order has begun.
    pub item: usize,
    pub work: Work,
    /// The order gave it up, for this reason, because its pages changed under it.
    pub lost: Option<Outcome>,
    /// Places of 2 MiB, by their first frame, to which the hypervisor brought their contents: nothing is copied there.
    pub exchanged: BTreeSet<Frame>,
    pub cost: Cost,
}

impl Part {
    /// The pages whose entries change.
    pub fn pages(&self) -> Vec<(PageId, PageSize)> {
        match &self.work {
            Work::Move { page, size, .. } => vec![(*page, *size)],
            Work::Swap { one, other, size } => vec![(one.0, *size), (other.0, *size)],
            Work::Collapse { parts, .. } => parts.iter().map(|(page, size, _)| (*page, *size)).collect(),
            Work::Relocate { .. } => {
                let pages = |(mappers, size): (&Mappers, PageSize)| -> Vec<(PageId, PageSize)> {
                    mappers.iter().map(|page| (page, size)).collect()
                };
                self.relocated().flat_map(pages).collect()
            }
            Work::Zero { .. } => Vec::new(),
        }
    }

    /// The pages whose contents move: of those that share a block one.
    pub fn contents(&self) -> Vec<(PageId, PageSize)> {
        match &self.work {
            Work::Relocate { .. } => self.relocated().map(|(mappers, size)| (mappers.first, size)).collect(),
            _ => self.pages(),
        }
    }

    /// The blocks of pages that a relocation moves.
    fn relocated(&self) -> impl Iterator<Item = (&Mappers, PageSize)> {
        let (pages, size, back) = match &self.work {
            Work::Relocate { pages, size, back, .. } => (pages.as_ref(), *size, back.as_slice()),
            _ => (None, PageSize::Base, [].as_slice()),
        };
        pages.map(|pages| (pages, size)).into_iter().chain(back.iter().map(|(pages, size, _)| (pages, *size)))
    }

    /// Entries that the unmap takes away. A collapse takes that of the table above, once for all parts (Linux,
    /// `mm/khugepaged.c`, `pmdp_collapse_flush`).
    pub fn cleared_entries(&self) -> u64 {
        match &self.work {
            Work::Collapse { .. } => 1,
            _ => self.pages().len() as u64,
        }
    }

    /// The blocks that were taken for it.
    pub fn blocks(&self) -> Vec<(Frame, PageSize)> {
        match &self.work {
            Work::Move { to, size, .. } | Work::Collapse { to: Some(to), size, .. } => vec![(*to, *size)],
            Work::Zero { frame, size, .. } => vec![(*frame, *size)],
            Work::Relocate { free, .. } => free.clone(),
            _ => Vec::new(),
        }
    }

    /// Frames of the page cache that are held for it.
    pub fn cached(&self) -> &[Frame] {
        match &self.work {
            Work::Relocate { cached, .. } => cached,
            _ => &[],
        }
    }

    pub fn chunks(&self) -> Vec<Chunk> {
        let line = Frame::line;
        let lines = |size: PageSize| size.bytes() / LINE_BYTES;
        match &self.work {
            Work::Move { size, from, to, .. } => {
                vec![Chunk { from: Some(line(*from)), to: line(*to), lines: lines(*size), swap: false }]
            }
            Work::Swap { one, other, size } => {
                vec![Chunk { from: Some(line(one.1)), to: line(other.1), lines: lines(*size), swap: true }]
            }
            Work::Collapse { to: None, .. } => Vec::new(),
            Work::Collapse { page, size, to: Some(to), parts } => {
                let at = |part: PageId| line(to.plus(part.vpn - page.vpn));
                let mut chunks = Vec::new();
                let mut next = *page;
                let zero = |from: PageId, until: PageId, chunks: &mut Vec<Chunk>| {
                    if until > from {
                        let lines = (until.vpn - from.vpn) * lines(PageSize::Base);
                        chunks.push(Chunk { from: None, to: at(from), lines, swap: false });
                    }
                };
                for (part, part_size, frame) in parts {
                    zero(next, *part, &mut chunks);
                    let lines = lines(*part_size);
                    chunks.push(Chunk { from: Some(line(*frame)), to: at(*part), lines, swap: false });
                    next = part.plus(part_size.base_pages());
                }
                zero(next, page.plus(size.base_pages()), &mut chunks);
                chunks
            }
            Work::Zero { frame, size, .. } => {
                vec![Chunk { from: None, to: line(*frame), lines: lines(*size), swap: false }]
            }
            Work::Relocate { from, to, size, free, .. } if matches!(free[..], [(_, whole)] if whole == *size) =>
            {
                vec![Chunk { from: Some(line(*from)), to: line(*to), lines: lines(*size), swap: false }]
            }
            Work::Relocate { from, to, size, free, .. } => {
                // Frame by frame; only what is free takes one copy instead of two.
                let free: HashSet<Frame> = free.iter().map(|(frame, _)| *frame).collect();
                let chunk = |at: u64| {
                    let to = Frame(to.0 + at);
                    Chunk {
                        from: Some(line(Frame(from.0 + at))),
                        to: line(to),
                        lines: lines(PageSize::Base),
                        swap: !free.contains(&to),
                    }
                };
                (0..size.base_pages()).map(chunk).collect()
            }
        }
    }

    /// Whether pages came into the range of a collapse after it began: the copy is without them.
    pub fn is_outgrown(&self, machine: &Machine, system: System) -> bool {
        let Work::Collapse { page, size, parts, .. } = &self.work else { return false };
        let range = AddressRange { start: page.addr(), bytes: size.bytes() };
        machine.shared.system(system).table(page.space).pages_in(range).len() != parts.len()
    }

    /// Whether the block that it fills with zeros is no longer its own: a fault needed the memory.
    pub fn is_taken_back(&self, machine: &Machine, system: System) -> bool {
        let Work::Zero { frame, filling, .. } = &self.work else { return false };
        !machine.shared.system(system).is_being_zeroed(*frame, *filling)
    }

    /// Lets its pages be as they are.
    pub fn give_up(&mut self, machine: &mut Machine, state: &mut State, outcome: Outcome, now: Time) {
        self.lost = Some(outcome);
        for (page, size) in self.pages() {
            machine.shared.system_mut(state.system).set_held(page, false);
            state.held.remove(&page);
            state.released.push((page, size, now));
        }
        for (_, size) in self.contents() {
            state.counters.gave_up(size);
        }
        for (block, _) in self.blocks() {
            machine.shared.system_mut(state.system).free_block(block);
        }
        for frame in self.cached() {
            machine.shared.system_mut(state.system).release_cached(*frame);
        }
    }

    pub fn copied_bytes(&self) -> u64 {
        if !self.exchanged.is_empty() {
            let bytes = |chunk: Chunk| chunk.lines * LINE_BYTES * if chunk.swap { 2 } else { 1 };
            return self.chunks_to_copy().into_iter().filter(|chunk| chunk.from.is_some()).map(bytes).sum();
        }
        match &self.work {
            Work::Move { size, .. } => size.bytes(),
            Work::Swap { size, .. } => 2 * size.bytes(),
            Work::Zero { .. } => 0,
            Work::Relocate { size, free, .. } => {
                let free: u64 = free.iter().map(|(_, part)| part.bytes()).sum();
                2 * size.bytes() - free
            }
            Work::Collapse { to: None, .. } => 0,
            Work::Collapse { parts, .. } => parts.iter().map(|(_, size, _)| size.bytes()).sum(),
        }
    }
}
