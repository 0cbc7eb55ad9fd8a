//! The parts of the input's programs: areas and data structures by name, and what is known of each.
//!
//! A page belongs to the data structure that holds its middle byte, else to its area. Objects of one allocation site in one
//! process are one part, and so are areas of one name; areas without a name go by their address. Nothing here is simulated,
//! and nothing is done unless somebody asks.

mod usage;

use crate::os::Os;
use crate::outcome::{Part, PartCost, PartUse};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use terrace_model::{AddressRange, PageSize, Ranges, SpaceId, Time, VirtAddr};
use terrace_policy::PageId;
use terrace_trace::{Event, MapKind};
use usage::Usages;

/// Anonymous areas that are smaller count as one part of their process.
const SMALL: u64 = PageSize::Huge.bytes();

/// Faults that are not counted yet, at most.
const LATE: usize = 256;

/// The address space of a process, by parts.
#[derive(Clone, Debug, Default)]
struct Space {
    areas: Ranges,
    structures: Ranges,
    /// Objects that hold the middle of a page: their pages.
    objects: HashMap<u64, (AddressRange, u32)>,
}

/// All parts.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    list: Vec<Part>,
    numbers: HashMap<Part, u32>,
    spaces: Vec<Space>,
    sites: HashMap<u32, String>,
    /// Walks of each part, and the time they took.
    walks: Vec<(u64, Time)>,
    /// The walks when the region of interest began and ended.
    begin: Option<Vec<(u64, Time)>>,
    end: Option<Vec<(u64, Time)>>,
    costs: Vec<PartCost>,
    /// The last faults, not yet counted: process, address and time.
    faults: VecDeque<(SpaceId, VirtAddr, Time)>,
    usages: Usages,
}

impl Parts {
    /// The parts so far.
    pub fn list(&self) -> &[Part] {
        &self.list
    }

    fn space(&mut self, space: SpaceId) -> &mut Space {
        let at = space.index();
        if self.spaces.len() <= at {
            self.spaces.resize_with(at + 1, Space::default);
        }
        &mut self.spaces[at]
    }

    fn number(&mut self, process: u32, name: String, is_structure: bool) -> u32 {
        let part = Part { process, name, is_structure };
        if let Some(number) = self.numbers.get(&part) {
            return *number;
        }
        let number = self.list.len() as u32;
        self.list.push(part.clone());
        self.numbers.insert(part, number);
        self.walks.push((0, Time::ZERO));
        self.costs.push(PartCost::default());
        number
    }

    /// The part that a page of a program belongs to, and the addresses around it that do too.
    fn find(&mut self, space: SpaceId, addr: VirtAddr) -> (AddressRange, u32) {
        let found = self.spaces.get(space.index()).and_then(|space| {
            let page = addr.align_down(PageSize::Base);
            if let Some(found) = space.structures.find(page + 2048) {
                return Some(found);
            }
            let (area, number) = space.areas.find(addr)?;
            // The area goes on where no structure is.
            let end = space.structures.next_after(addr).map_or(area.end(), |next| area.end().min(next));
            Some((AddressRange::between(area.start.max(page), end), number))
        });
        match found {
            Some(found) => found,
            None => {
                let page = addr.align_down(PageSize::Base);
                let next = self.spaces.get(space.index()).and_then(|space| space.areas.next_after(addr));
                let end = next.map_or(VirtAddr(!4095), |next| next.max(page + 4096));
                (AddressRange::between(page, end), self.number(space.0, "unmapped".to_owned(), false))
            }
        }
    }

    /// A walk for `addr` took so long.
    pub fn walked(&mut self, space: SpaceId, addr: VirtAddr, took: Time) {
        let (_, number) = self.find(space, addr);
        let (walks, time) = &mut self.walks[number as usize];
        *walks += 1;
        *time += took;
    }

    /// A fault at `addr` took so long. It is counted a little later: a page is mostly faulted in by the object at its
    /// beginning, before the one in its middle is allocated.
    pub fn faulted(&mut self, space: SpaceId, addr: VirtAddr, took: Time) {
        self.faults.push_back((space, addr, took));
        self.count_faults(LATE);
    }

    /// Counts all faults but the last `left`.
    fn count_faults(&mut self, left: usize) {
        while self.faults.len() > left
            && let Some(fault) = self.faults.pop_front()
        {
            self.count_fault(fault);
        }
    }

    fn count_fault(&mut self, (space, addr, took): (SpaceId, VirtAddr, Time)) {
        let (_, number) = self.find(space, addr);
        let cost = &mut self.costs[number as usize];
        cost.fault_latency.record(took.as_nanos() as u64);
        cost.fault_time += took;
    }

    /// An object is about to go: its faults are counted while it is known.
    fn object_goes(&mut self, space: SpaceId, object: u64) {
        let Some((pages, _)) = self.space(space).objects.get(&object).copied() else { return };
        let theirs = |fault: &(SpaceId, VirtAddr, Time)| fault.0 == space && pages.contains(fault.1);
        while let Some(at) = self.faults.iter().position(theirs) {
            let fault = self.faults.remove(at);
            fault.into_iter().for_each(|fault| self.count_fault(fault));
        }
    }

    /// A page was copied.
    pub fn copied(&mut self, page: PageId, size: PageSize) {
        let from = page.addr();
        self.pieces(page.space, from..from + size.bytes(), |parts, number, bytes| {
            parts.costs[number].copied_bytes += bytes;
        });
    }

    /// Pages of files were copied, which no part of a program has.
    pub fn copied_cached(&mut self, bytes: u64) {
        let Part { process, name, is_structure } = Part::page_cache();
        let number = self.number(process, name, is_structure);
        self.costs[number as usize].copied_bytes += bytes;
    }

    /// A range piece by piece, as parts share it: each one's number and bytes.
    fn pieces(
        &mut self,
        space: SpaceId,
        range: Range<VirtAddr>,
        mut visit: impl FnMut(&mut Parts, usize, u64),
    ) {
        let mut at = range.start;
        while at < range.end {
            let (piece, number) = self.find(space, at);
            let until = piece.end().clamp(at + 1, range.end);
            visit(self, number as usize, until - at);
            at = until;
        }
    }

    /// A process was forked from another.
    pub fn forked(&mut self, parent: SpaceId, child: SpaceId) {
        // Pages of the child are the parent's parts under the child's number, from the first event that changes them on.
        let copy = self.space(parent).clone();
        *self.space(child) = copy;
    }

    /// An event of a process was applied.
    pub fn apply(&mut self, space: SpaceId, event: &Event) {
        if matches!(event, Event::Unmap { .. } | Event::Remap { .. } | Event::Exec { .. }) {
            self.count_faults(0);
        }
        match event {
            Event::Site { site, name } => {
                self.sites.insert(*site, name.clone());
            }
            Event::Map { range, kind, name, .. } => {
                let number = self.area(space, *range, *kind, name);
                let own = self.space(space);
                own.structures.remove(*range);
                own.areas.insert(range.page_cover(PageSize::Base), number);
            }
            Event::Unmap { range } => {
                let own = self.space(space);
                own.areas.remove(range.page_cover(PageSize::Base));
                own.structures.remove(*range);
            }
            Event::Remap { from, to } => {
                let own = self.space(space);
                own.areas.remap(from.page_cover(PageSize::Base), to.page_cover(PageSize::Base));
                own.structures.remap(*from, *to);
            }
            Event::Alloc { object, site, range } => {
                let name = self.sites.get(site).cloned().unwrap_or_else(|| format!("site {site}"));
                let pages = range.pages_by_middle();
                if pages.bytes > 0 {
                    let number = self.number(space.0, name, true);
                    let own = self.space(space);
                    own.structures.insert(pages, number);
                    own.objects.insert(*object, (pages, number));
                }
            }
            Event::Realloc { object, range } => {
                self.object_goes(space, *object);
                let own = self.space(space);
                if let Some((old, number)) = own.objects.remove(object) {
                    let pages = range.pages_by_middle();
                    own.structures.remove(old);
                    own.structures.insert(pages, number);
                    own.objects.insert(*object, (pages, number));
                }
            }
            Event::Free { object } => {
                self.object_goes(space, *object);
                let own = self.space(space);
                if let Some((pages, _)) = own.objects.remove(object) {
                    own.structures.remove(pages);
                }
            }
            Event::Exec { .. } => *self.space(space) = Space::default(),
            _ => {}
        }
    }

    /// The part of an area that is mapped now.
    fn area(&mut self, space: SpaceId, range: AddressRange, kind: MapKind, name: &str) -> u32 {
        let label = match (name, kind) {
            ("", MapKind::Heap) => "[heap]".to_owned(),
            ("", MapKind::Stack) => "[stack]".to_owned(),
            ("", _) => {
                // An area that grows stays the same part.
                let before = range.start.0.checked_sub(1);
                let before = before.and_then(|addr| self.space(space).areas.find(VirtAddr(addr)));
                if let Some((_, number)) = before
                    && self.list[number as usize].name.starts_with("anonymous at")
                {
                    return number;
                }
                match range.bytes {
                    ..SMALL => "small anonymous areas".to_owned(),
                    _ => format!("anonymous at {:#x}", range.start.0),
                }
            }
            (name, _) => name.rsplit('/').next().unwrap_or(name).to_owned(),
        };
        self.number(space.0, label, false)
    }

    /// The region of interest begins.
    pub fn region_begins(&mut self) {
        self.begin = Some(self.walks.clone());
    }

    /// The region of interest ends, for now.
    pub fn region_ends(&mut self) {
        self.end = Some(self.walks.clone());
    }

    /// Memory is about to be given back, or the run is over: what is resident is noted where it is most so far.
    pub fn look(&mut self, os: &Os, over: bool) {
        let mut usages = std::mem::take(&mut self.usages);
        usages.look(self, os, over);
        self.usages = usages;
    }

    /// For pictures: the part of a page, asked for page by page.
    pub fn part_of(&mut self, page: PageId) -> u32 {
        self.find(page.space, page.addr()).1
    }

    /// What is known of each part.
    pub fn uses(&mut self, cycle: Time) -> Vec<PartUse> {
        self.count_faults(0);
        let at = |walks: &Option<Vec<(u64, Time)>>, number: usize| {
            walks.as_ref().and_then(|walks| walks.get(number)).copied().unwrap_or((0, Time::ZERO))
        };
        let uses = self.list.iter().enumerate().map(|(number, part)| {
            let end = if self.end.is_some() { at(&self.end, number) } else { self.walks[number] };
            let begin = at(&self.begin, number);
            let time = end.1 - begin.1;
            PartUse {
                part: part.clone(),
                walks: end.0 - begin.0,
                walk_cycles: time.in_cycles(cycle),
                cost: self.costs[number].clone(),
                ..self.usages.of(number)
            }
        });
        uses.collect()
    }
}

#[cfg(test)]
mod tests;
