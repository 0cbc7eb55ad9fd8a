//! Every area in one run of frames: pages move or change places until they lie where an anchor says.
//!
//! **Idea.** An area gets an anchor, a first page and its frame, which fixes the frame of every other page in it. A daemon
//! goes through all areas: a page that is not at its place is moved there if the frame is free, and changes places with
//! what is there otherwise. Areas have places that do not overlap, found by first fit. What cannot move now is tried
//! again in the next pass, with the same anchor. Aligned runs of 512 base pages become 2 MiB pages without a copy. So
//! TLBs that hold ranges have few ranges to hold.
//!
//! **Source.** Z. Yan, D. Lustig, D. Nellans, A. Bhattacharjee: "Translation Ranger: Operating system support for
//! contiguity-aware TLBs", ISCA 2019; Z. Yan, thesis (Rutgers 2019), ch. 4: mechanism (Figures 4.6, 4.7),
//! alignment, skipping; §4.5 configurations and metrics.
//!
//! **Left open by the source.** *How much is moved at once*: `batch`, one order after the other until the pass is
//! over; a pass that takes longer than the period is followed at once by the next. *A huge page at the place of a
//! base page*: it does not belong there, for regions do not overlap, so it is split (`split`) and its parts are
//! exchanged in the next pass. *No hole big enough*: the area stays where it is until there is one. *An area that shrinks*:
//! so does its region; areas that split keep their places. *1 GiB alignment that fits nowhere*: 2 MiB. *Synonyms*: of areas
//! that share frames since a fork one is coalesced, the one that its frames are named after, and the others are skipped. The
//! source tells them by the kernel's lists of areas (`anon_vma`), ours by the first page in an area; in an area that
//! is none any more, as its first page was written since, pages that still are synonyms stay where the other one wants
//! them. *Areas of files*: are left alone. *Several tiers*: the first one; pages elsewhere stay there. *Faults*: ask for 2
//! MiB, for the source has transparent huge pages on in all its runs (`thp`).
//!
//! **When to use it.** Hardware that can use contiguity of any size (coalesced or range TLBs), or huge pages for memory
//! that is fragmented. It moves pages for contiguity, never for heat.

#[path = "ranger/batch.rs"]
mod batch;
#[path = "ranger/regions.rs"]
mod regions;
#[path = "ranger/tests.rs"]
#[cfg(test)]
mod tests;

use crate::support::{ContiguitySampler, Pending, is_private, largest_first, takes_large_pages};
use crate::{
    Area, AreaKind, Capability, CapabilitySet, Clear, Fault, FrameState, MemorySystem, Moment, MoveOptions,
    Needs, NextTick, Outcome, PageId, PageRange, Parameters, Placement, Policy, Published, Refusal, Report,
    Resize, ScanHand, Scope, Setup, Signal, Step, Subject, Topology,
};
use batch::{Batch, Placed};
use regions::{Region, Regions};
use std::collections::{BTreeSet, VecDeque};
use terrace_model::{Bytes, Frame, PageSize, TierId, Time};

/// Parameters of Translation Ranger.
#[derive(Clone, Debug, PartialEq, Parameters)]
pub struct Parameters {
    /// Time from the begin of a pass over all areas to the next.
    #[parameter(default = "5 s", range = "1 ns"..="5 h", source = "§4.5: 5 s and 50 s", scaled)]
    pub period: Time,
    /// Most memory in one order.
    #[parameter(default = "16 MiB", range = "4 KiB"..="1024 TiB", source = "ours")]
    pub batch: Bytes,
    /// Areas below this size are left alone.
    #[parameter(default = "2 MiB", range = "0 B"..="1024 TiB", source = "ch. 4")]
    pub smallest_area: Bytes,
    /// Align places to 2 MiB, those of 1 GiB and more to 1 GiB.
    #[parameter(default = true, source = "ch. 4")]
    pub align: bool,
    /// Join 512 base pages that lie in one aligned block.
    #[parameter(default = true, source = "ch. 4")]
    pub promote: bool,
    /// Split huge pages that lie where base pages belong. The source leaves it open.
    #[parameter(default = true)]
    pub split: bool,
    /// Ask for 2 MiB at the fault.
    #[parameter(default = true, source = "§4.5: transparent huge pages are on")]
    pub thp: bool,
    /// Move pages. Off: contiguity is measured only.
    #[parameter(default = true, source = "§4.5: Linux Default")]
    pub coalesce: bool,
    /// Time between two samples of contiguity.
    #[parameter(default = "5 s", range = "1 ns"..="5 h", source = "§4.5", scaled)]
    pub sample_period: Time,
}

/// A pass over all areas.
#[derive(Clone, Debug, Default)]
struct Pass {
    /// Areas that are left, the last one first, with their places.
    areas: Vec<(Area, Region)>,
    /// Where it goes on in the area under work.
    hand: Option<PageId>,
}

/// What a look at a part of an area found.
#[derive(Clone, Debug, Default)]
struct Found {
    /// Pages that are not at their places, one batch of them.
    wrong: Vec<(PageId, Frame, PageSize)>,
    /// Ranges of base pages that could be joined in place.
    joinable: Vec<PageId>,
    /// Where it stopped, if not at the end.
    stopped: Option<PageId>,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    passes: u64,
    moved: u64,
    exchanged: u64,
    promoted: u64,
    split: u64,
    failed: u64,
    copied: u64,
    /// In this pass.
    busy: u64,
    unmovable: u64,
    synonyms: u64,
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Ranger {
    parameters: Parameters,
    tier: TierId,
    regions: Option<Regions>,
    pass: Option<Pass>,
    wakes: Moment,
    /// Relocations under way, and which of them are exchanges: they are answered in their order.
    relocations: Pending,
    exchanges: VecDeque<bool>,
    /// Splits and joins under way, and the ranges that are joined.
    resizes: Pending,
    joining: BTreeSet<PageId>,
    sampler: ContiguitySampler,
    counts: Counts,
}

impl Published for Ranger {
    type Parameters = Parameters;

    fn new(parameters: Parameters, _: Setup<'_>) -> Result<Ranger, Refusal> {
        Ok(Ranger {
            wakes: Moment::START.plus(parameters.period),
            sampler: ContiguitySampler::new(parameters.sample_period),
            parameters,
            tier: TierId(0),
            regions: None,
            pass: None,
            relocations: Pending::default(),
            exchanges: VecDeque::new(),
            resizes: Pending::default(),
            joining: BTreeSet::new(),
            counts: Counts::default(),
        })
    }
}

impl Policy for Ranger {
    fn needs(&self) -> Needs {
        let p = &self.parameters;
        let capabilities = CapabilitySet::of(&[Capability::Frames])
            .with_if(p.coalesce && p.promote, Capability::Collapse)
            .with_if(p.coalesce && p.split, Capability::Split);
        Needs { capabilities, ..Needs::default() }
    }

    fn place(&mut self, fault: &Fault, topology: &Topology) -> Placement {
        largest_first(fault, if self.parameters.thp { &[PageSize::Huge] } else { &[] }, topology)
    }

    fn on(&mut self, now: Moment, signals: &[Signal], memory: &mut dyn MemorySystem) -> NextTick {
        for signal in signals {
            self.handle(signal);
        }
        self.sampler.tick(now, memory);
        if self.parameters.coalesce {
            if self.pass.is_none() && self.wakes <= now {
                self.wakes = now.plus(self.parameters.period);
                self.begin(memory);
            }
            self.go_on(memory);
        }
        let next = if self.parameters.coalesce && self.pass.is_none() {
            self.sampler.next().min(self.wakes)
        } else {
            self.sampler.next()
        };
        NextTick::At(next)
    }

    fn report(&self, report: &mut Report) {
        self.sampler.report(report);
        let counts = &self.counts;
        report.count("passes", counts.passes);
        report.count("moved", counts.moved);
        report.count("exchanged", counts.exchanged);
        report.count("promoted", counts.promoted);
        report.count("split", counts.split);
        report.count("failed", counts.failed);
        report.bytes("copied", counts.copied);
        report.count("skipped_busy", counts.busy);
        report.count("skipped_unmovable", counts.unmovable);
        report.count("skipped_synonyms", counts.synonyms);
        let regions = self.regions.as_ref();
        report.count("anchors_moved", regions.map_or(0, |regions| regions.moved));
        report.count("areas_without_place", regions.map_or(0, |regions| regions.unplaced));
    }
}

impl Ranger {
    fn handle(&mut self, signal: &Signal) {
        let Signal::Done { cost, .. } = signal else { return };
        if let Some((_, _, outcome)) = self.relocations.handle(signal) {
            let exchange = self.exchanges.pop_front().unwrap_or_default();
            match outcome {
                Outcome::Done if exchange => self.counts.exchanged += 1,
                Outcome::Done => self.counts.moved += 1,
                _ => self.counts.failed += 1,
            }
            self.counts.copied += cost.copied;
        } else if let Some((_, Subject::Page(page), outcome)) = self.resizes.handle(signal) {
            let count =
                if self.joining.remove(&page) { &mut self.counts.promoted } else { &mut self.counts.split };
            *count += u64::from(outcome == Outcome::Done);
        }
    }

    /// Begins a pass: finds every area its place.
    fn begin(&mut self, memory: &mut dyn MemorySystem) {
        let smallest = self.parameters.smallest_area.0 >> 12;
        let mut areas = Vec::new();
        memory.areas(None, &mut |area| {
            let kind = is_private(area) || area.kind == AreaKind::Shared;
            if kind && area.range.pages >= smallest.max(1) {
                areas.push(*area);
            }
        });
        areas.sort_by_key(|area| area.range.first);
        (self.counts.busy, self.counts.unmovable, self.counts.synonyms) = (0, 0, 0);
        areas.retain(|area| {
            let synonym = is_synonym(area, memory);
            self.counts.synonyms += u64::from(synonym);
            !synonym
        });
        let (tier, align) = (self.tier, self.parameters.align);
        let Some(physical) = memory.physical() else { return };
        let regions = self.regions.get_or_insert_with(|| {
            let (first, frames) = physical.tier_frames(tier);
            Regions::new(first, frames, align)
        });
        regions.update(&areas);
        let placed = areas.into_iter().filter_map(|area| regions.of(&area).map(|region| (area, region)));
        let areas: Vec<(Area, Region)> = placed.rev().collect();
        self.pass = Some(Pass { areas, hand: None });
        self.counts.passes += 1;
    }

    /// Goes on with the pass, if nothing is under way, until an order is given or all areas are done.
    fn go_on(&mut self, memory: &mut dyn MemorySystem) {
        while self.relocations.is_empty() && self.resizes.is_empty() {
            let Some(pass) = &mut self.pass else { return };
            let Some(&(area, region)) = pass.areas.last() else {
                self.pass = None;
                return;
            };
            let from = pass.hand.unwrap_or(area.range.first);
            let rest = PageRange::new(from, area.range.end() - from.vpn);
            let found = self.look(rest, region, takes_large_pages(&area), memory);
            self.order(&found, region, memory);
            if let Some(pass) = &mut self.pass {
                pass.hand = found.stopped;
                if found.stopped.is_none() {
                    pass.areas.pop();
                }
            }
        }
    }

    /// Looks at a part of an area, whose base pages may become huge ones where it `takes_huge`.
    fn look(
        &self,
        range: PageRange,
        region: Region,
        takes_huge: bool,
        memory: &mut dyn MemorySystem,
    ) -> Found {
        let mut found = Found::default();
        let mut left = self.parameters.batch.0 >> 12;
        let huge = PageSize::Huge.base_pages();
        let congruent = region.target(0).is_multiple_of(huge) && self.parameters.promote && takes_huge;
        // Base pages in place, side by side from the begin of an aligned range.
        let mut run = 0;
        let mut hand = ScanHand { next: range.first };
        let scanned = memory.scan(Scope::Range(range), &mut hand, Clear::NOTHING, &mut |view| {
            let Some(frame) = view.frame.filter(|_| view.tier == self.tier) else { return Step::Keep };
            let target = region.target(view.page.vpn);
            if frame.0 == target {
                let base = view.size == PageSize::Base && !view.in_flight;
                run = match view.page.vpn % huge {
                    0 if base => 1,
                    at if base && run == at => run + 1,
                    _ => 0,
                };
                if run == huge && congruent {
                    found.joinable.push(view.page.aligned(PageSize::Huge));
                }
                return Step::Keep;
            }
            run = 0;
            if left < view.base_pages() && !found.wrong.is_empty() {
                return Step::Stop;
            }
            left = left.saturating_sub(view.base_pages());
            found.wrong.push((view.page, frame, view.size));
            Step::Keep
        });
        found.stopped = (!scanned.lap).then_some(hand.next);
        found
    }

    /// Orders pages to their places.
    fn order(&mut self, found: &Found, region: Region, memory: &mut dyn MemorySystem) {
        let mut batch = Batch::default();
        self.joining.extend(&found.joinable);
        let mut resizes: Vec<Resize> =
            found.joinable.iter().map(|page| Resize { page: *page, to: PageSize::Huge }).collect();
        for &(page, frame, size) in &found.wrong {
            let target = region.target(page.vpn);
            if !target.is_multiple_of(size.base_pages()) {
                // A place that no page of this size can have: the area was never aligned for it.
                self.counts.unmovable += 1;
                continue;
            }
            if belongs_elsewhere(page, frame, memory) {
                continue;
            }
            let placed = batch.place(frame, size, target, &mut |frame| {
                let state = memory.physical().map_or(FrameState::Unmovable, |physical| physical.state(frame));
                let size = match state {
                    FrameState::Movable(page) => memory.page(page).map_or(PageSize::Base, |view| view.size),
                    _ => PageSize::Base,
                };
                (state, size)
            });
            match placed {
                Placed::There | Placed::Ordered => {}
                Placed::Busy => self.counts.busy += 1,
                Placed::Unmovable => self.counts.unmovable += 1,
                Placed::Larger(page, larger) => {
                    let to = if larger == PageSize::Giant { PageSize::Huge } else { PageSize::Base };
                    let split = Resize { page: page.aligned(larger), to };
                    if !self.parameters.split {
                        self.counts.busy += 1;
                    } else if !resizes.contains(&split) {
                        resizes.push(split);
                    }
                }
            }
        }
        // One after the other: each counts on those before it.
        if let Some(physical) = memory.physical() {
            let ticket = physical.relocate(&batch.moves, MoveOptions::default());
            self.relocations.ordered(ticket, batch.moves.len());
            self.exchanges.extend(batch.moves.iter().map(|one| one.exchange));
        }
        let ticket = memory.resize(&resizes);
        self.resizes.ordered(ticket, resizes.len());
    }
}

/// Whether an area's first page lies in a frame that is another area's, with which it shares it.
fn is_synonym(area: &Area, memory: &mut dyn MemorySystem) -> bool {
    let mut first = None;
    let mut hand = ScanHand { next: area.range.first };
    memory.scan(Scope::Range(area.range), &mut hand, Clear::NOTHING, &mut |view| {
        first = view.frame.map(|frame| (view.page, frame));
        Step::Stop
    });
    first.is_some_and(|(page, frame)| belongs_elsewhere(page, frame, memory))
}

/// Whether a page's frame is one that moves with another page.
fn belongs_elsewhere(page: PageId, frame: Frame, memory: &mut dyn MemorySystem) -> bool {
    let state = memory.physical().map(|physical| physical.state(frame));
    matches!(state, Some(FrameState::Movable(owner)) if owner != page)
}
