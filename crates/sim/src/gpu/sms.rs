//! SMs: work-groups come in, warps issue in the order of time, memory answers.
//!
//! A throughput core, sibling of the CPU's models. An SM issues `issue_width` instructions a cycle, of whichever warp is
//! ready first. A warp that waits for memory costs nothing: others issue meanwhile, until all wait, or caches, links or
//! devices are busy. So latency is hidden by warps, and what binds is what binds on hardware: issue, misses under way,
//! bandwidth.
//!
//! Left open by traces: when an instruction uses what a load brings. A warp has up to `loads` loads under way; stores,
//! barriers and loads that depend on one wait for all.

use super::around::Around;
use super::coalesce::{Step, WarpWork};
use super::parameters::GpuParameters;
use super::paths::Paths;
use crate::os::OsError;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use terrace_model::{PageId, PageRange, Time};

/// A work-group that waits for an SM.
pub type Group = Vec<WarpWork>;

#[derive(Debug)]
struct Sm {
    /// When the next instruction can be issued.
    issue: Time,
    warps: u32,
    groups: u32,
}

/// A group on an SM.
#[derive(Debug, Default)]
struct Resident {
    sm: usize,
    /// Warps that are not at their end.
    running: u32,
    all: u32,
    /// Warps at the barrier, and when the last of them came.
    waiting: Vec<u32>,
    arrived: Time,
}

#[derive(Debug)]
struct Warp {
    group: usize,
    work: WarpWork,
    at: usize,
    /// The instruction at `at` has been issued.
    issued: bool,
    /// When each load under way is done, earliest first.
    loads: VecDeque<Time>,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmCounters {
    pub groups: u64,
    pub warps: u64,
    pub instructions: u64,
    /// Time in which SMs issued, summed over them.
    pub busy: Time,
}

/// All SMs.
#[derive(Debug)]
pub struct Sms {
    sms: Vec<Sm>,
    most_warps: u32,
    most_groups: u32,
    most_loads: usize,
    /// Time of an instruction at the SM's issue width.
    slot: Time,
    waiting: VecDeque<Group>,
    groups: Vec<Resident>,
    free_groups: Vec<usize>,
    warps: Vec<Option<Warp>>,
    free_warps: Vec<u32>,
    /// When each warp goes on.
    ready: BinaryHeap<Reverse<(Time, u32)>>,
    /// Warps that wait for a page on its way: the page, since when, the warp.
    parked: Vec<(PageId, Time, u32)>,
    /// The latest moment at which something happened.
    pub now: Time,
    pub counters: SmCounters,
}

impl Sms {
    /// Idle SMs.
    pub fn new(gpu: &GpuParameters) -> Sms {
        let sm = || Sm { issue: Time::ZERO, warps: 0, groups: 0 };
        Sms {
            sms: (0..gpu.sms).map(|_| sm()).collect(),
            most_warps: gpu.warps,
            most_groups: gpu.groups,
            most_loads: gpu.loads as usize,
            slot: Time(gpu.frequency.period().0 / u64::from(gpu.issue_width)),
            waiting: VecDeque::new(),
            groups: Vec::new(),
            free_groups: Vec::new(),
            warps: Vec::new(),
            free_warps: Vec::new(),
            ready: BinaryHeap::new(),
            parked: Vec::new(),
            now: Time::ZERO,
            counters: SmCounters::default(),
        }
    }

    /// Begins the next kernel at `now`, when no part of a kernel runs or waits.
    pub fn begin_kernel(&mut self, now: Time) {
        self.now = self.now.max(now);
        for sm in &mut self.sms {
            sm.issue = sm.issue.max(self.now);
        }
    }

    /// A group is to run.
    pub fn add(&mut self, group: Group) {
        self.waiting.push_back(group);
        self.place(self.now);
    }

    /// Whether groups wait because all SMs are full.
    pub fn is_full(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// When something happens next.
    pub fn next(&self) -> Option<Time> {
        self.ready.peek().map(|Reverse((at, _))| *at)
    }

    /// Whether nothing is left to happen.
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.parked.is_empty()
    }

    /// Pages have arrived at `now`; none: all of them. Whoever waits for them goes on. Returns how long they did, summed.
    pub fn wake(&mut self, pages: Option<PageRange>, now: Time) -> Time {
        let Sms { parked, ready, .. } = self;
        let mut waited = Time::ZERO;
        parked.retain(|(page, since, id)| {
            let stays = pages.is_some_and(|pages| !pages.contains(*page));
            if !stays {
                ready.push(Reverse((now.max(*since), *id)));
                waited += now.saturating_sub(*since);
            }
            stays
        });
        waited
    }

    /// No SM issues anything for `span` from `now` on.
    pub fn stall(&mut self, now: Time, span: Time) {
        for sm in &mut self.sms {
            sm.issue = sm.issue.max(now) + span;
        }
    }

    /// Waiting groups go to SMs with room, the emptiest first.
    fn place(&mut self, now: Time) {
        while let Some(group) = self.waiting.front() {
            // A group larger than an SM runs alone on one.
            let warps = (group.len() as u32).min(self.most_warps);
            let has_room = |sm: &Sm| sm.groups < self.most_groups && sm.warps + warps <= self.most_warps;
            let fitting = (0..self.sms.len()).filter(|&at| has_room(&self.sms[at]));
            let Some(at) = fitting.min_by_key(|&at| (self.sms[at].warps, at)) else { return };
            let Some(group) = self.waiting.pop_front() else { return };
            self.start(at, group, warps, now);
        }
    }

    fn start(&mut self, sm: usize, group: Group, warps: u32, now: Time) {
        self.sms[sm].warps += warps;
        self.sms[sm].groups += 1;
        self.counters.groups += 1;
        self.counters.warps += group.len() as u64;
        let number = self.free_groups.pop().unwrap_or_else(|| {
            self.groups.push(Resident::default());
            self.groups.len() - 1
        });
        let all = group.len() as u32;
        self.groups[number] = Resident { sm, running: all, all: warps, waiting: Vec::new(), arrived: now };
        if all == 0 {
            self.end_group(number, now);
        }
        for work in group {
            let warp = Some(Warp { group: number, work, at: 0, issued: false, loads: VecDeque::new() });
            let id = match self.free_warps.pop() {
                Some(id) => {
                    self.warps[id as usize] = warp;
                    id
                }
                None => {
                    self.warps.push(warp);
                    self.warps.len() as u32 - 1
                }
            };
            self.ready.push(Reverse((now, id)));
        }
    }

    fn end_group(&mut self, number: usize, now: Time) {
        let Resident { sm, all, .. } = self.groups[number];
        self.sms[sm].groups -= 1;
        self.sms[sm].warps -= all;
        self.free_groups.push(number);
        self.place(now);
    }

    /// Does what comes next, not beyond `horizon` once something was done.
    ///
    /// # Errors
    /// Memory is full.
    pub fn step(&mut self, paths: &mut Paths, around: &mut Around<'_>, horizon: Time) -> Result<(), OsError> {
        let Some(Reverse((mut now, id))) = self.ready.pop() else { return Ok(()) };
        loop {
            self.now = self.now.max(now);
            let Some(then) = self.run(id, now, paths, around)? else { return Ok(()) };
            // A warp goes on at once where nothing else comes before.
            match self.ready.peek() {
                Some(Reverse(next)) if *next < (then, id) => {
                    self.ready.push(Reverse((then, id)));
                    return Ok(());
                }
                _ if then > horizon => {
                    self.ready.push(Reverse((then, id)));
                    return Ok(());
                }
                _ => now = then,
            }
        }
    }

    /// Runs a warp at `now`: when it goes on, or nothing where it waits for others or has ended.
    fn run(
        &mut self,
        id: u32,
        now: Time,
        paths: &mut Paths,
        around: &mut Around<'_>,
    ) -> Result<Option<Time>, OsError> {
        let Some(warp) = self.warps[id as usize].as_mut() else { return Ok(None) };
        let number = warp.group;
        let sm = self.groups[number].sm;
        while warp.loads.front().is_some_and(|done| *done <= now) {
            warp.loads.pop_front();
        }
        let Some(&step) = warp.work.steps.get(warp.at) else {
            // What it loads may go to registers that nobody reads, and is waited for all the same.
            if let Some(&last) = warp.loads.back() {
                return Ok(Some(last));
            }
            self.warps[id as usize] = None;
            self.free_warps.push(id);
            self.end_warp(number, now);
            return Ok(None);
        };
        if !warp.issued {
            let waits = match step {
                Step::Access { write: false, depends: false, .. } if self.most_loads > 0 => {
                    (warp.loads.len() >= self.most_loads).then(|| warp.loads[0])
                }
                Step::Compute { .. } => None,
                _ => warp.loads.back().copied(),
            };
            if let Some(then) = waits {
                return Ok(Some(then));
            }
            let (instructions, replays) = match step {
                Step::Access { instructions, count, .. } => {
                    (u64::from(instructions), u64::from(count.max(1)) - 1)
                }
                Step::Compute { instructions } => (instructions, 0),
                Step::Barrier => (1, 0),
            };
            self.counters.instructions += instructions;
            warp.issued = true;
            let slots = self.slot.times(instructions);
            let issue = self.sms[sm].issue.max(now).max(paths.blocked_until(sm)) + slots;
            // Each further transaction is issued once more.
            self.sms[sm].issue = issue + self.slot.times(replays);
            self.counters.busy += slots + self.slot.times(replays);
            return Ok(Some(issue));
        }
        if let Step::Access { first, count, .. } = step
            && let Some(page) =
                paths.waits_for(around, &warp.work.transactions[first as usize..][..usize::from(count)])
        {
            self.parked.push((page, now, id));
            return Ok(None);
        }
        warp.issued = false;
        warp.at += 1;
        match step {
            Step::Compute { .. } => Ok(Some(now)),
            Step::Access { first, count, write, atomic, .. } => {
                let transactions = &warp.work.transactions[first as usize..][..usize::from(count)];
                if write {
                    let handed_over = paths.store(around, sm, transactions, atomic, now)?;
                    return Ok(Some(paths.touches.warp_goes_on(handed_over)));
                }
                let done = paths.load(around, sm, transactions, atomic, now)?;
                let at = warp.loads.partition_point(|other| *other <= done);
                warp.loads.insert(at, done);
                Ok(Some(paths.touches.warp_goes_on(now)))
            }
            Step::Barrier => {
                let group = &mut self.groups[number];
                group.waiting.push(id);
                group.arrived = group.arrived.max(now);
                self.open_barrier(number);
                Ok(None)
            }
        }
    }

    fn end_warp(&mut self, number: usize, now: Time) {
        self.groups[number].running -= 1;
        if self.groups[number].running == 0 {
            self.end_group(number, now);
        } else {
            self.groups[number].arrived = self.groups[number].arrived.max(now);
            self.open_barrier(number);
        }
    }

    /// All go on where all that run have come.
    fn open_barrier(&mut self, number: usize) {
        let group = &mut self.groups[number];
        if group.waiting.is_empty() || (group.waiting.len() as u32) < group.running {
            return;
        }
        let then = group.arrived;
        for id in std::mem::take(&mut group.waiting) {
            self.ready.push(Reverse((then, id)));
        }
    }
}
