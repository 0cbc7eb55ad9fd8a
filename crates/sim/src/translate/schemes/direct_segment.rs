//! Direct segment: registers for base, limit and offset translate a process's longest run without the TLBs.
//!
//! **What it does.** An access inside the segment takes its frame from the registers, at no cost and whatever the TLBs
//! hold; everything outside is paged as ever.
//!
//! **Source.** Basu, Gandhi, Chang, Hill, Swift, "Efficient Virtual Memory for Big Memory Servers", ISCA 2013: base,
//! limit and offset registers per core, one segment per process.
//!
//! **Left open, and chosen here.** The paper has the program ask for a primary region, which is reserved when the process
//! begins. *Which, and when*: here the kernel looks for the longest run of a process every
//! [`period`](SegmentParameters::period), at the first page walk after it, and makes that the segment if
//! it is long enough; every core of the process has it from its next walk on at the latest. *Bits*: the paper's region is
//! never swapped and has no accessed and dirty bits. Here the segment answers only accesses that change nothing in the page
//! table: the first touch of a page and its first store are paged, and the walk sets the bits. *Invalidation*: a segment
//! that overlaps is gone until the kernel looks again. Loading the registers costs nothing.

use super::plain::{look_up, walk_and_fill};
use crate::translate::{
    KernelState, RangeTables, Request, Run, SchemeKeys, Setup, Stop, TlbHit, Tlbs, Translation, Walker,
};
use serde::{Deserialize, Serialize};
use terrace_model::parameters::Parameters;
use terrace_model::{AddressRange, Bytes, Frame, PageSize, SpaceId, Stats, Time, Unit, VirtAddr};

/// Parameters of the direct segment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[serde(default, deny_unknown_fields)]
pub struct SegmentParameters {
    /// Shortest run of pages that becomes a segment.
    #[parameter(default = "1 MiB", range = "8 KiB"..="8 TiB")]
    pub least: Bytes,
    /// How often the kernel looks for a process's longest run.
    #[parameter(default = "1 ms", range = "0 ns"..="3600 s")]
    pub period: Time,
}

impl SchemeKeys for SegmentParameters {}

/// The registers of one core.
#[derive(Clone, Debug, Default)]
pub struct SegmentRegisters {
    current: Option<(SpaceId, Run)>,
    /// Accesses that the segment answered; they were no look-ups of a TLB.
    pub hits: u64,
}

impl SegmentRegisters {
    /// The base frame of an address inside the segment.
    #[inline]
    pub fn lookup(&self, space: SpaceId, addr: VirtAddr) -> Option<Frame> {
        let (owner, run) = self.current?;
        (owner == space && run.holds(addr)).then(|| run.place_of(addr).frame())
    }

    /// The process whose segment is loaded.
    pub fn owner(&self) -> Option<SpaceId> {
        self.current.map(|(owner, _)| owner)
    }

    /// Loads a process's segment.
    pub fn load(&mut self, space: SpaceId, segment: Option<Run>) {
        self.current = segment.map(|run| (space, run));
    }

    /// Drops the segment if it is of `space` and has one of the pages in `range`.
    pub fn invalidate(&mut self, space: SpaceId, range: AddressRange) {
        self.current = self.current.filter(|(owner, run)| *owner != space || !run.overlaps(&range));
    }
}

/// What the kernel chose for each process.
#[derive(Clone, Debug)]
pub struct SegmentChoices {
    segments: Vec<(Option<Run>, Time)>,
    period: Time,
    /// How often another segment was chosen.
    pub changes: u64,
}

impl SegmentChoices {
    /// A chooser that has chosen nothing; the kernel looks every `period`.
    pub fn new(period: Time) -> SegmentChoices {
        SegmentChoices { segments: Vec::new(), period, changes: 0 }
    }

    /// The present segment of a process.
    pub fn of(&self, space: SpaceId) -> Option<Run> {
        self.segments.get(space.index()).and_then(|(segment, _)| *segment)
    }

    /// Looks at the process's ranges if it is time.
    pub fn look(&mut self, space: SpaceId, ranges: &RangeTables, now: Time) {
        let at = space.index();
        if self.segments.len() <= at {
            self.segments.resize(at + 1, (None, Time::ZERO));
        }
        let (segment, next) = &mut self.segments[at];
        if now < *next {
            return;
        }
        *next = now + self.period;
        let longest = ranges.longest(space);
        if longest.is_some() && longest != *segment {
            *segment = longest;
            self.changes += 1;
        }
    }

    /// The pages in `range` changed.
    pub fn forget(&mut self, space: SpaceId, range: AddressRange) {
        if let Some((segment, _)) = self.segments.get_mut(space.index()) {
            *segment = segment.filter(|run| !run.overlaps(&range));
        }
    }

    /// Pages in segments, over all processes.
    pub fn covered(&self) -> u64 {
        self.segments.iter().filter_map(|(segment, _)| segment.as_ref()).map(Run::pages).sum()
    }
}

/// What the kernel keeps: runs, and the segment of each process.
#[derive(Debug)]
pub struct Segments {
    ranges: RangeTables,
    choices: SegmentChoices,
}

impl KernelState for Segments {
    fn forget(&mut self, space: SpaceId, range: AddressRange) {
        self.ranges.forget(space, range);
        self.choices.forget(space, range.page_cover(PageSize::Base));
    }
}

/// Plain TLBs and the registers of one core.
#[derive(Debug)]
pub struct DirectSegment {
    tlbs: Tlbs,
    registers: SegmentRegisters,
}

impl Translation for DirectSegment {
    const NAME: &'static str = "direct-segment";
    const STATISTICS: &'static [(&'static str, &'static str)] = &[
        ("tlb.segment.hit", "accesses inside the direct segment; they are no look-ups of a TLB"),
        ("os.segment.changes", "how often the kernel chose another segment"),
        ("os.segment.pages", "pages in segments, at the end"),
    ];
    type Keys = SegmentParameters;
    type Kernel = Segments;
    type Tlbs = Tlbs;

    fn new(setup: &Setup<'_, SegmentParameters>) -> Result<DirectSegment, String> {
        Ok(DirectSegment { tlbs: Tlbs::new(setup.translation)?, registers: SegmentRegisters::default() })
    }

    fn kernel(setup: &Setup<'_, SegmentParameters>) -> Result<Segments, String> {
        let (ranges, choices) = (RangeTables::new(setup.own.least), SegmentChoices::new(setup.own.period));
        Ok(Segments { ranges, choices })
    }

    #[inline(always)]
    fn tlbs(&self) -> &Tlbs {
        &self.tlbs
    }

    #[inline(always)]
    fn tlbs_mut(&mut self) -> &mut Tlbs {
        &mut self.tlbs
    }

    #[inline(never)]
    fn translate<W: Walker>(
        &mut self,
        kernel: &mut Segments,
        walker: &mut W,
        request: &Request,
    ) -> Result<(TlbHit, Time), Stop> {
        let Request { space, addr, now, .. } = *request;
        if self.registers.owner() != Some(space) {
            // The process came onto the core.
            self.registers.load(space, kernel.choices.of(space));
        }
        if let Some(frame) = self.registers.lookup(space, addr)
            && let Some(hit) = walker.confirm(request, frame)
        {
            self.registers.hits += 1;
            return Ok((hit, now));
        }
        if let Some(found) = look_up(self, kernel, walker, request)? {
            return Ok(found);
        }
        let looked_up = now + walker.l2_tlb_latency();
        let (hit, walk) = walk_and_fill(self, kernel, walker, request, looked_up)?;
        kernel.ranges.learn(space, addr, walker.table(space));
        kernel.choices.look(space, &kernel.ranges, walker.now());
        self.registers.load(space, kernel.choices.of(space));
        Ok((hit, walk.done))
    }

    fn drop_changed(&mut self, space: SpaceId, page: AddressRange) {
        self.registers.invalidate(space, page.page_cover(PageSize::Base));
    }

    fn count_into(cores: &[DirectSegment], kernel: &Segments, _cycle: Time, stats: &mut Stats) {
        let hits = cores.iter().map(|core| core.registers.hits).sum();
        stats.count("tlb.segment.hit", hits, Unit::Count);
        stats.count("os.segment.changes", kernel.choices.changes, Unit::Count);
        stats.level("os.segment.pages", kernel.choices.covered(), Unit::Pages);
    }
}
