//! What the kernel in memory keeps: nodes, swap, processes with their pages, and what programs do meanwhile.

mod proc;

use super::{Files, Plan};
use proc::stat;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::time::Duration;
use terrace_live::kernel::{Advice, Event, Image, Sample};
use terrace_model::PageSize;
use terrace_policy::Random;

/// Base pages of a huge page.
const HUGE: u64 = 512;
/// Areas begin at multiples of this.
const AREA: u64 = 1 << 15;

/// Where a page lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Node(usize),
    Swap,
}

/// One page, by the number of its first base page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub size: PageSize,
    pub place: Place,
    /// Soft-dirty.
    pub dirty: bool,
    /// Written since it was protected.
    pub written: bool,
    /// Registered for that.
    pub tracked: bool,
    /// Mapped by several processes.
    pub shared: bool,
}

#[derive(Clone, Debug)]
pub struct Area {
    pub end: u64,
    pub writable: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Program {
    parent: u32,
    /// How many programs the process has executed.
    executed: u64,
    /// The process has its parent's memory until it executes a program.
    in_vfork: bool,
    pub areas: BTreeMap<u64, Area>,
    pub pages: BTreeMap<u64, Page>,
}

/// Everything.
#[derive(Debug)]
pub struct Machine {
    pub files: Files,
    pub plan: Plan,
    pub random: Random,
    pub clock: Duration,
    pub processes: BTreeMap<u32, Program>,
    /// Processes of others: they may not be looked into.
    pub hidden: BTreeSet<u32>,
    /// Pages that were tried to be moved.
    pub attempts: u64,
    /// What sampled events have shown, ever.
    pub noted: HashMap<Event, Vec<Sample>>,
    /// Which were opened, on which processor.
    pub sampled: Vec<(Event, u32)>,
    /// Processor time of advice, for each page.
    pub advice_cost: Duration,
    /// Processor time beyond that of the clock.
    pub busy: Duration,
    /// Base pages per node.
    capacity: Vec<u64>,
    swap: u64,
    next_pid: u32,
    next_area: u64,
}

impl Machine {
    pub fn new(files: Files, capacity: &[u64], swap: u64, random: Random) -> Machine {
        Machine {
            files,
            plan: Plan::default(),
            random,
            clock: Duration::from_secs(100),
            processes: BTreeMap::new(),
            hidden: BTreeSet::new(),
            attempts: 0,
            noted: HashMap::new(),
            sampled: Vec::new(),
            advice_cost: Duration::ZERO,
            busy: Duration::ZERO,
            capacity: capacity.to_vec(),
            swap,
            next_pid: 1000,
            next_area: 1,
        }
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        one_in > 0 && self.random.below(one_in) == 0
    }

    // --- Arranging ---

    /// A process without memory.
    pub fn start(&mut self, parent: u32) -> u32 {
        self.next_pid += 1;
        self.processes.insert(self.next_pid, Program { parent, ..Program::default() });
        self.next_pid
    }

    /// A new area of so many pages; returns its first page.
    pub fn map(&mut self, pid: u32, pages: u64) -> u64 {
        let first = self.next_area * AREA;
        self.next_area += 1;
        let writable = self.random.below(8) > 0;
        self.processes.get_mut(&pid).unwrap().areas.insert(first, Area { end: first + pages, writable });
        first
    }

    /// Puts new pages of a size on a node.
    pub fn fill(&mut self, pid: u32, range: Range<u64>, size: PageSize, node: usize) {
        let page = Page {
            size,
            place: Place::Node(node),
            dirty: false,
            written: false,
            tracked: false,
            shared: false,
        };
        let heads = range.step_by(size.base_pages() as usize);
        self.processes.get_mut(&pid).unwrap().pages.extend(heads.map(|head| (head, page)));
    }

    /// A process with memory of all kinds on all nodes; returns its number.
    pub fn populate(&mut self, parent: u32) -> u32 {
        let pid = self.start(parent);
        for _ in 0..2 {
            let first = self.map(pid, 3 * HUGE);
            for block in 0..3 {
                let head = first + block * HUGE;
                let node = self.random.below(self.capacity.len() as u64) as usize;
                if self.random.below(3) == 0 && self.free(node) >= HUGE {
                    self.fill(pid, head..head + HUGE, PageSize::Huge, node);
                    continue;
                }
                for vpn in head..head + HUGE {
                    let node = self.random.below(self.capacity.len() as u64) as usize;
                    if self.random.below(3) == 0 && self.free(node) > 0 {
                        self.fill(pid, vpn..vpn + 1, PageSize::Base, node);
                    }
                }
            }
        }
        let tracked = self.random.below(2) == 0;
        let random = &mut self.random;
        for page in self.processes.get_mut(&pid).unwrap().pages.values_mut() {
            page.tracked = tracked;
            page.shared = random.below(40) == 0;
        }
        pid
    }

    /// A child that works in its parent's memory.
    pub fn vfork(&mut self, parent: u32) -> u32 {
        let pid = self.start(parent);
        let program = self.processes.get_mut(&pid).unwrap();
        program.in_vfork = true;
        pid
    }

    /// The process executes a program: its memory is a new one.
    pub fn exec(&mut self, pid: u32) {
        let program = self.processes.get_mut(&pid).unwrap();
        *program = Program { parent: program.parent, executed: program.executed + 1, ..Program::default() };
    }

    /// Which memory a process has.
    pub fn image(&self, pid: u32) -> Option<Image> {
        self.processes.get(&pid).and_then(|program| Image::parse(&stat(pid, program)))
    }

    pub fn shares_memory(&self, pid: u32, other: u32) -> bool {
        let program = self.processes.get(&pid);
        program.is_some_and(|program| program.in_vfork && program.parent == other)
    }

    pub fn end(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    pub fn end_one(&mut self) {
        if let Some(pid) = self.any_process() {
            self.end(pid);
        }
    }

    fn any_process(&mut self) -> Option<u32> {
        let at = self.random.below(self.processes.len() as u64) as usize;
        self.processes.keys().nth(at).copied()
    }

    // --- Looking ---

    /// Base pages in use by programs at a place.
    pub fn used(&self, place: Place) -> u64 {
        let pages = self.processes.values().flat_map(|program| program.pages.values());
        pages.filter(|page| page.place == place).map(|page| page.size.base_pages()).sum()
    }

    pub fn free(&self, node: usize) -> u64 {
        self.capacity[node].saturating_sub(self.used(Place::Node(node)))
    }

    /// Free base pages of every node: counted once for a call that moves many.
    pub fn room(&self) -> Vec<u64> {
        (0..self.capacity.len()).map(|node| self.free(node)).collect()
    }

    pub fn page(&self, pid: u32, vpn: u64) -> Option<(u64, Page)> {
        let (head, page) = self.processes.get(&pid)?.pages.range(..=vpn).next_back()?;
        (vpn < head + page.size.base_pages()).then_some((*head, *page))
    }

    pub fn page_mut(&mut self, pid: u32, vpn: u64) -> Option<(u64, &mut Page)> {
        let (head, page) = self.processes.get_mut(&pid)?.pages.range_mut(..=vpn).next_back()?;
        (vpn < head + page.size.base_pages()).then_some((*head, page))
    }

    pub fn pages_in(&self, pid: u32, range: Range<u64>) -> Vec<(u64, Page)> {
        let Some(program) = self.processes.get(&pid) else { return Vec::new() };
        let reaching_in = self.page(pid, range.start).map_or(range.start, |(head, _)| head);
        program.pages.range(reaching_in..range.end).map(|(head, page)| (*head, *page)).collect()
    }

    // --- What the kernel does ---

    /// # Errors
    /// The kernel's number for why it stays where it is.
    pub fn move_page(&mut self, pid: u32, vpn: u64, node: usize, room: &mut [u64]) -> Result<(), i32> {
        let Some((head, page)) = self.page(pid, vpn) else { return Err(libc::ENOENT) };
        let Place::Node(from) = page.place else { return Err(libc::ENOENT) };
        if from == node {
            return Ok(());
        }
        if page.shared {
            return Err(libc::EACCES);
        }
        let pages = page.size.base_pages();
        room[node] = room[node].checked_sub(pages).ok_or(libc::ENOMEM)?;
        room[from] += pages;
        self.page_mut(pid, head).expect("it was found").1.place = Place::Node(node);
        Ok(())
    }

    fn split(&mut self, pid: u32, head: u64) {
        let pages = &mut self.processes.get_mut(&pid).unwrap().pages;
        if let Some(page) = pages.get(&head).copied().filter(|page| page.size == PageSize::Huge) {
            let base = Page { size: PageSize::Base, ..page };
            pages.extend((head..head + HUGE).map(|vpn| (vpn, base)));
        }
    }

    /// Joins the pages from `head` on, holes included, on the node that holds the first.
    fn collapse(&mut self, pid: u32, head: u64) -> Result<(), i32> {
        let pages = self.pages_in(pid, head..head + HUGE);
        let Some(Place::Node(node)) = pages.first().map(|(_, page)| page.place) else {
            return Err(libc::EINVAL);
        };
        if pages.iter().any(|(_, page)| page.shared || page.place == Place::Swap) {
            return Err(libc::EINVAL);
        }
        if self.free(node) < HUGE {
            return Err(libc::ENOMEM);
        }
        let page = Page { size: PageSize::Huge, place: Place::Node(node), ..pages[0].1 };
        let all = &mut self.processes.get_mut(&pid).unwrap().pages;
        all.retain(|vpn, _| !(head..head + HUGE).contains(vpn));
        all.insert(head, page);
        Ok(())
    }

    /// # Errors
    /// The kernel's number.
    pub fn advise(&mut self, pid: u32, range: Range<u64>, advice: Advice) -> Result<(), i32> {
        let mapped = self.processes[&pid]
            .areas
            .range(..=range.start)
            .next_back()
            .is_some_and(|(_, area)| range.start < area.end);
        if !mapped {
            return Err(libc::ENOMEM);
        }
        match advice {
            Advice::Collapse => return self.collapse(pid, range.start),
            Advice::Cold | Advice::PageOut => {
                let huge = self.pages_in(pid, range.clone());
                for (head, page) in huge {
                    let part = head < range.start || head + page.size.base_pages() > range.end;
                    // Swap takes base pages.
                    if page.size == PageSize::Huge && (part || advice == Advice::PageOut) {
                        self.split(pid, head);
                    }
                }
            }
            Advice::WillNeed => {}
        }
        self.busy += self.advice_cost * (range.end - range.start) as u32;
        let mut in_swap = self.used(Place::Swap);
        for (head, page) in self.pages_in(pid, range) {
            // Some are passed over without a word.
            if self.random.below(10) == 0 {
                continue;
            }
            match (advice, page.place) {
                (Advice::PageOut, Place::Node(_)) if !page.shared && in_swap < self.swap => {
                    in_swap += 1;
                    self.page_mut(pid, head).unwrap().1.place = Place::Swap;
                }
                (Advice::WillNeed, Place::Swap) => _ = self.touch(pid, head),
                _ => {}
            }
        }
        Ok(())
    }

    /// A read by the program itself, or as if; whether there was something to read.
    pub fn touch(&mut self, pid: u32, vpn: u64) -> bool {
        let Some((head, page)) = self.page(pid, vpn) else { return false };
        if page.place == Place::Swap {
            let Some(node) = (0..self.capacity.len()).find(|node| self.free(*node) > 0) else { return false };
            self.page_mut(pid, head).unwrap().1.place = Place::Node(node);
            let (time, address) = (self.clock.as_nanos() as u64, (vpn << 12) + 8);
            let faults = self.noted.entry(Event::MajorFaults).or_default();
            faults.push(Sample { pid, time, address, store: false });
        }
        true
    }

    // --- What programs do ---

    /// One of them does something.
    pub fn live(&mut self) {
        let Some(pid) = self.any_process() else { return };
        let areas: Vec<(u64, u64)> =
            self.processes[&pid].areas.iter().map(|(first, area)| (*first, area.end)).collect();
        if areas.is_empty() {
            return;
        }
        let (first, end) = areas[self.random.below(areas.len() as u64) as usize];
        let from = first + self.random.below(end - first);
        let to = end.min(from + 1 + self.random.below(200));
        match self.random.below(10) {
            9 => {
                self.exec(pid);
                let first = self.map(pid, end - first);
                let mut room = self.room();
                for vpn in first..first + 200 {
                    if let Some(node) = room.iter().position(|free| *free > 0) {
                        room[node] -= 1;
                        self.fill(pid, vpn..vpn + 1, PageSize::Base, node);
                    }
                }
            }
            0 => {
                for vpn in from..to {
                    self.touch(pid, vpn);
                    if let Some((_, page)) = self.page_mut(pid, vpn) {
                        (page.dirty, page.written) = (true, true);
                    }
                }
            }
            1 => {
                let mut room = self.room();
                for vpn in from..to {
                    let node = room.iter().position(|free| *free > 0);
                    if let Some(node) = node.filter(|_| self.page(pid, vpn).is_none()) {
                        room[node] -= 1;
                        self.fill(pid, vpn..vpn + 1, PageSize::Base, node);
                    }
                }
            }
            2 => self.drop_pages(pid, from..to),
            3 => {
                self.drop_pages(pid, first..end);
                self.processes.get_mut(&pid).unwrap().areas.remove(&first);
                self.map(pid, end - first);
            }
            4 => self.split(pid, from / HUGE * HUGE),
            5 => {
                let head = from / HUGE * HUGE;
                let inside = head >= first && head + HUGE <= end;
                if inside {
                    _ = self.collapse(pid, head);
                }
            }
            // The kernel's own balancing.
            6 => {
                let mut room = self.room();
                for vpn in from..to {
                    let node = self.random.below(self.capacity.len() as u64) as usize;
                    _ = self.move_page(pid, vpn, node, &mut room);
                }
            }
            // mremap
            7 => {
                let program = self.processes.get_mut(&pid).unwrap();
                let area = program.areas.remove(&first).unwrap();
                let pages: Vec<(u64, Page)> =
                    program.pages.range(first..end).map(|(head, page)| (*head, *page)).collect();
                program.pages.retain(|head, _| !(first..end).contains(head));
                let new = self.next_area * AREA;
                self.next_area += 1;
                let program = self.processes.get_mut(&pid).unwrap();
                program.areas.insert(new, Area { end: new + (end - first), ..area });
                program.pages.extend(pages.into_iter().map(|(head, page)| (head - first + new, page)));
            }
            _ => {
                if self.processes.len() < 4 {
                    self.populate(pid);
                }
            }
        }
    }

    /// Drops pages. Huge pages that are only in part in the range are split.
    fn drop_pages(&mut self, pid: u32, range: Range<u64>) {
        for edge in [range.start, range.end] {
            if let Some((head, page)) = self.page(pid, edge)
                && head != edge
                && page.size == PageSize::Huge
            {
                self.split(pid, head);
            }
        }
        self.processes.get_mut(&pid).unwrap().pages.retain(|vpn, _| !range.contains(vpn));
    }

    // --- Files ---
}
