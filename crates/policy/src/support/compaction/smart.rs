//! Compaction by counters per region.

use super::{
    Met, Next, Progress, SmartLimits, Unmovable, Work, has_block, is_free, is_free_block, is_stuck, regions,
    walk,
};
use crate::{FrameRegion, MemorySystem, Moment, Outcome, Relocate};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use terrace_model::{Frame, PageSize, TierId};

/// Passes over a source some of whose frames were busy.
const PASSES: u32 = 3;

/// Where free frames are looked for: a region, and a frame in it.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    region: usize,
    offset: u64,
}

/// The region being emptied.
#[derive(Clone, Debug)]
struct Source {
    region: FrameRegion,
    /// Regions with free frames, the fullest first.
    targets: Vec<FrameRegion>,
    base: Place,
    huge: Place,
    /// Up to where this pass has come.
    at: u64,
    pass: u32,
    /// Something in this pass is to be tried again, and something was moved.
    left_over: bool,
    moved: bool,
    stuck: bool,
    copied: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Smart {
    limits: SmartLimits,
    attempts: u32,
    source: Option<Source>,
    previous: Option<Frame>,
    chosen: BTreeMap<Frame, Moment>,
}

impl Smart {
    pub fn new(limits: SmartLimits) -> Smart {
        Smart { limits, attempts: 0, source: None, previous: None, chosen: BTreeMap::new() }
    }

    pub fn begin(&mut self) {
        self.attempts = 0;
    }

    pub fn answered(&mut self, outcome: Outcome, copied: u64) {
        let Some(source) = &mut self.source else { return };
        source.copied += copied;
        source.moved |= outcome == Outcome::Done;
        source.left_over |= outcome != Outcome::Done;
        source.stuck |= is_stuck(outcome);
    }

    pub fn step(
        &mut self,
        tier: TierId,
        size: PageSize,
        now: Moment,
        work: &mut Work,
        memory: &mut dyn MemorySystem,
    ) -> Next {
        loop {
            let Some(source) = &mut self.source else {
                if has_block(tier, size, memory) {
                    return Next::Over(Progress::Free);
                }
                if self.attempts == self.limits.retries {
                    return Next::Over(Progress::Failed);
                }
                let Some(source) = self.select(tier, size, now, memory) else {
                    return Next::Over(Progress::Failed);
                };
                self.attempts += 1;
                work.sources += 1;
                self.previous = Some(source.region.first);
                self.chosen.insert(source.region.first, now);
                if let Some(physical) = memory.physical() {
                    physical.isolate(source.region.first, size, true);
                }
                self.source = Some(source);
                continue;
            };
            match source.drain(memory) {
                Drained::Order(moves) => return Next::Order(moves),
                Drained::Empty(empty) => {
                    let (first, copied) = (source.region.first, source.copied);
                    self.source = None;
                    if let Some(physical) = memory.physical() {
                        physical.isolate(first, size, false);
                    }
                    if !empty {
                        work.wasted += copied;
                    }
                }
            }
        }
    }

    /// The region with most free frames of those that may be emptied, if others can take what is in it.
    fn select(
        &mut self,
        tier: TierId,
        size: PageSize,
        now: Moment,
        memory: &mut dyn MemorySystem,
    ) -> Option<Source> {
        self.chosen.retain(|_, chosen| now.since(*chosen) < self.limits.timeout);
        let regions = regions(tier, size, memory.physical()?);
        let free: u64 = regions.iter().map(|region| region.free).sum();
        let movable = |region: &FrameRegion| match self.limits.unmovable {
            Unmovable::Counter => region.unmovable == 0,
            Unmovable::Mobility => region.for_movable,
        };
        let fits = |region: &FrameRegion| {
            region.frames == size.base_pages()
                && region.first.0.is_multiple_of(size.base_pages())
                && movable(region)
                && region.free > 0
                && region.frames <= free
                && Some(region.first) != self.previous
                && !self.chosen.contains_key(&region.first)
        };
        let candidates = regions.iter().filter(|region| fits(region));
        let region = *candidates.max_by_key(|region| (region.free, Reverse(region.first)))?;
        let others = regions.into_iter().filter(|other| other.first != region.first && other.free > 0);
        let mut targets: Vec<FrameRegion> = others.collect();
        targets.sort_by_key(|target| (target.free, target.first));
        Some(Source {
            region,
            targets,
            base: Place::default(),
            huge: Place::default(),
            at: region.first.0,
            pass: 1,
            left_over: false,
            moved: false,
            stuck: false,
            copied: 0,
        })
    }
}

enum Drained {
    Order(Vec<Relocate>),
    /// The work on the source is over: whether the source is empty.
    Empty(bool),
}

impl Source {
    /// The next pages to move out.
    fn drain(&mut self, memory: &mut dyn MemorySystem) -> Drained {
        let end = self.region.first.0 + self.region.frames;
        while !self.stuck {
            let found = walk(self.at, end, memory);
            self.at = found.at;
            if !found.pages.is_empty() {
                return match self.find_targets(&found.pages, memory) {
                    Some(moves) => Drained::Order(moves),
                    None => Drained::Empty(false),
                };
            }
            match found.met {
                Met::Unmovable => break,
                Met::Busy => {
                    self.left_over = true;
                    self.at += 1;
                }
                Met::Nothing if !self.left_over => return Drained::Empty(true),
                // Without a move no time has passed: what was busy is busy still.
                Met::Nothing if self.pass == PASSES || !self.moved => break,
                Met::Nothing => {
                    (self.at, self.pass) = (self.region.first.0, self.pass + 1);
                    (self.left_over, self.moved) = (false, false);
                    (self.base, self.huge) = (Place::default(), Place::default());
                }
            }
        }
        Drained::Empty(false)
    }

    fn find_targets(
        &mut self,
        pages: &[(Frame, PageSize)],
        memory: &mut dyn MemorySystem,
    ) -> Option<Vec<Relocate>> {
        let mut taken: Vec<u64> = Vec::new();
        let mut moves = Vec::with_capacity(pages.len());
        // Large blocks first: base pages fit anywhere.
        let (base, huge): (Vec<_>, Vec<_>) = pages.iter().partition(|(_, size)| *size == PageSize::Base);
        for (from, size) in huge.into_iter().chain(base) {
            let to = if size == PageSize::Base {
                find(&mut self.base, &self.targets, size, &mut |frame| {
                    !taken.contains(&(frame & !(PageSize::Huge.base_pages() - 1))) && is_free(frame, memory)
                })?
            } else {
                let to = find(&mut self.huge, &self.targets, size, &mut |first| {
                    is_free_block(first, size, memory)
                })?;
                taken.push(to);
                to
            };
            moves.push(Relocate { from, to: Frame(to), exchange: false });
        }
        Some(moves)
    }
}

/// The next aligned block of `size` that will do, the fullest regions first.
fn find(
    place: &mut Place,
    targets: &[FrameRegion],
    size: PageSize,
    will_do: &mut dyn FnMut(u64) -> bool,
) -> Option<u64> {
    let step = size.base_pages();
    while let Some(region) = targets.get(place.region) {
        let first = region.first.0.next_multiple_of(step);
        let end = region.first.0 + region.frames;
        while first + place.offset + step <= end {
            let at = first + place.offset;
            place.offset += step;
            if will_do(at) {
                return Some(at);
            }
        }
        *place = Place { region: place.region + 1, offset: 0 };
    }
    None
}
