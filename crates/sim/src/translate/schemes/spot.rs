//! SpOT: the offset between frame and page is predicted when the level-2 TLB misses.
//!
//! **What it does.** Instructions keep to a data structure, and a contiguous one has a single offset. A small table,
//! looked up by the instruction's address, predicts the offset; the access goes on with the predicted frame while the
//! walk runs, and the walk says whether that was right. A 2-bit counter per entry keeps uncertain entries silent.
//!
//! **Source.** Alverti et al., "Enhancing and Exploiting Contiguity for Fast Memory Virtualization", ISCA 2020: 32 entries
//! in sets of four; an entry begins at 1, predicts above that, goes up with each hit and down with each miss, and takes a
//! new offset at 0; only pages that the kernel marked contiguous (runs of 32 pages) teach it; a wrong prediction costs a
//! flush of 20 cycles. But for the flush the figures agree with Virtuoso's model of it, which cites the paper's pages; they
//! are not checked against its text.
//!
//! **Left open, and chosen here.** *Walks* are made as ever, with their traffic and bits, so accessed and dirty bits are
//! those of plain paging. A right prediction hides the walk whole, as the paper's own model has it, although a load cannot
//! retire before its walk ends. A wrong one waits for the walk, then for the flush; the line it fetched in vain is not
//! simulated. *Without instruction addresses* in the input, the aligned region of the data's address
//! ([`substitute_region`](SpotParameters::substitute_region)) stands for the instruction. *A full set*: the
//! entry used least recently gives way; in Virtuoso's model only one whose counter is 0 does. *Processes*:
//! entries carry the address space. *Invalidation*: an entry whose latest page overlaps is dropped; no prediction is used
//! unverified in any case.

use super::plain::{look_up, walk_and_fill};
use crate::translate::{RangeTables, Request, SchemeKeys, Setup, Stop, TlbHit, Tlbs, Translation, Walker};
use serde::{Deserialize, Serialize};
use terrace_model::parameters::Parameters;
use terrace_model::{AddressRange, Bytes, Cycles, PageSize, SpaceId, Stats, Time, Unit, VirtAddr};

/// Parameters of predicted translations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Parameters)]
#[serde(default, deny_unknown_fields)]
pub struct SpotParameters {
    /// Entries of the prediction table.
    #[parameter(default = 32, range = 1..=1_048_576)]
    pub entries: u32,
    /// Ways of a set of the prediction table.
    #[parameter(default = 4, range = 1..=1_048_576)]
    pub ways: u32,
    /// Value of an entry's 2-bit counter from which it predicts.
    #[parameter(default = 2, range = 1..=3)]
    pub confidence: u32,
    /// Shortest run of pages that is marked contiguous, so that the table learns from it.
    #[parameter(default = "128 KiB", range = "8 KiB"..="8 TiB")]
    pub least: Bytes,
    /// What a wrong prediction costs beyond the walk.
    #[parameter(default = "20 cycles", range = "0 cycles"..="1000000 cycles")]
    pub flush: Cycles,
    /// Where the input has no instruction addresses, the aligned region of this size that holds the data's address
    /// stands for the instruction.
    #[parameter(default = "1 GiB", range = "4 KiB"..="8 TiB")]
    pub substitute_region: Bytes,
}

impl SchemeKeys for SpotParameters {
    fn validate(&self) -> Result<(), (&'static str, String)> {
        if !self.entries.is_multiple_of(self.ways) {
            let problem =
                format!("{} ways do not divide {} entries into whole sets", self.ways, self.entries);
            return Err(("ways", problem));
        }
        if !self.substitute_region.0.is_power_of_two() {
            return Err(("substitute_region", format!("{} is no power of two", self.substitute_region)));
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    space: SpaceId,
    key: u64,
    offset: u64,
    confidence: u32,
    /// The page that taught it last.
    page: VirtAddr,
}

/// What became of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prediction {
    /// The table was silent.
    None,
    /// The walk confirmed it.
    Right,
    /// The walk found another frame.
    Wrong,
}

/// The prediction table of one core, most recent first in each set.
#[derive(Clone, Debug)]
pub struct PredictionTable {
    sets: Vec<Vec<Entry>>,
    ways: usize,
    threshold: u32,
    region_shift: u32,
    /// The instruction that accesses now, if it is known.
    pub instruction: Option<u64>,
    /// Look-ups that ended right, wrong, and without a prediction.
    pub outcomes: [u64; 3],
    /// Look-ups by the substitute.
    pub substitutes: u64,
}

/// The largest value of a counter of two bits.
const MOST_CONFIDENT: u32 = 3;

impl PredictionTable {
    /// An empty table.
    pub fn new(parameters: &SpotParameters) -> PredictionTable {
        let sets = (parameters.entries / parameters.ways.max(1)).max(1) as usize;
        PredictionTable {
            sets: vec![Vec::new(); sets],
            ways: parameters.ways as usize,
            threshold: parameters.confidence,
            region_shift: parameters.substitute_region.0.max(1).ilog2(),
            instruction: None,
            outcomes: [0; 3],
            substitutes: 0,
        }
    }

    /// Looks up what is to be said of the page of `addr`, compares it with the offset that the walk found, and learns.
    /// `contiguous`: the page is marked.
    pub fn predict_and_learn(
        &mut self,
        space: SpaceId,
        addr: VirtAddr,
        offset: u64,
        contiguous: bool,
    ) -> Prediction {
        let key = self.instruction.unwrap_or_else(|| {
            self.substitutes += 1;
            addr.0 >> self.region_shift
        });
        let page = addr.align_down(PageSize::Base);
        let sets = self.sets.len() as u64;
        let set = &mut self.sets[(key % sets) as usize];
        let Some(at) = set.iter().position(|entry| entry.space == space && entry.key == key) else {
            if contiguous {
                set.insert(0, Entry { space, key, offset, confidence: 1, page });
                set.truncate(self.ways);
            }
            self.outcomes[2] += 1;
            return Prediction::None;
        };
        set[..=at].rotate_right(1);
        let entry = &mut set[0];
        let right = entry.offset == offset;
        let outcome = match (entry.confidence >= self.threshold, right) {
            (false, _) => Prediction::None,
            (true, true) => Prediction::Right,
            (true, false) => Prediction::Wrong,
        };
        if right {
            if contiguous {
                entry.confidence = (entry.confidence + 1).min(MOST_CONFIDENT);
                entry.page = page;
            }
        } else if entry.confidence > 0 {
            entry.confidence -= 1;
        } else if contiguous {
            *entry = Entry { space, key, offset, confidence: 1, page };
        }
        let counted = match outcome {
            Prediction::Right => 0,
            Prediction::Wrong => 1,
            Prediction::None => 2,
        };
        self.outcomes[counted] += 1;
        outcome
    }

    /// Drops every entry of `space` that one of the pages in `range` taught last.
    pub fn invalidate(&mut self, space: SpaceId, range: AddressRange) {
        for set in &mut self.sets {
            set.retain(|entry| entry.space != space || !range.contains(entry.page));
        }
    }
}

/// Plain TLBs and the prediction table of one core.
#[derive(Debug)]
pub struct Spot {
    tlbs: Tlbs,
    table: PredictionTable,
    /// What a wrong prediction costs beyond the walk.
    flush: Time,
    /// Time of walks that right predictions hid.
    hidden: Time,
}

impl Translation for Spot {
    const NAME: &'static str = "spot";
    const STATISTICS: &'static [(&'static str, &'static str)] = &[
        ("walk.predictions.right", "walks that the prediction table had foretold"),
        ("walk.predictions.wrong", "walks that it had foretold wrongly"),
        ("walk.predictions.none", "walks of which it had said nothing"),
        ("walk.hidden_cycles", "those of `walk.cycles` that right predictions hid"),
    ];
    type Keys = SpotParameters;
    type Kernel = RangeTables;
    type Tlbs = Tlbs;

    fn new(setup: &Setup<'_, SpotParameters>) -> Result<Spot, String> {
        Ok(Spot {
            tlbs: Tlbs::new(setup.translation)?,
            table: PredictionTable::new(setup.own),
            flush: setup.own.flush.at(setup.cycle),
            hidden: Time::ZERO,
        })
    }

    fn kernel(setup: &Setup<'_, SpotParameters>) -> Result<RangeTables, String> {
        Ok(RangeTables::new(setup.own.least))
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
        tables: &mut RangeTables,
        walker: &mut W,
        request: &Request,
    ) -> Result<(TlbHit, Time), Stop> {
        let Request { space, addr, now, .. } = *request;
        if let Some(found) = look_up(self, tables, walker, request)? {
            return Ok(found);
        }
        let looked_up = now + walker.l2_tlb_latency();
        let (hit, walk) = walk_and_fill(self, tables, walker, request, looked_up)?;
        tables.learn(space, addr, walker.table(space));
        let offset = hit.entry.frame().addr().0.wrapping_sub(addr.align_down(hit.size).0);
        let marked = tables.range(space, addr).is_some();
        let known = match self.table.predict_and_learn(space, addr, offset, marked) {
            Prediction::None => walk.done,
            Prediction::Right => {
                self.hidden += walk.done - walk.begin;
                walk.looked_up
            }
            Prediction::Wrong => walk.done + self.flush,
        };
        Ok((hit, known))
    }

    #[inline(always)]
    fn set_instruction(&mut self, instruction: Option<u64>) {
        self.table.instruction = instruction;
    }

    fn drop_changed(&mut self, space: SpaceId, page: AddressRange) {
        self.table.invalidate(space, page.page_cover(PageSize::Base));
    }

    fn count_into(cores: &[Spot], _tables: &RangeTables, cycle: Time, stats: &mut Stats) {
        let outcomes = |at: usize| cores.iter().map(|core| core.table.outcomes[at]).sum();
        stats.count("walk.predictions.right", outcomes(0), Unit::Count);
        stats.count("walk.predictions.wrong", outcomes(1), Unit::Count);
        stats.count("walk.predictions.none", outcomes(2), Unit::Count);
        let hidden = cores.iter().fold(Time::ZERO, |sum, core| sum + core.hidden);
        stats.count("walk.hidden_cycles", hidden.in_cycles(cycle), Unit::Cycles);
    }

    fn notes(cores: &[Spot], _kernel: &<Spot as Translation>::Kernel) -> Vec<String> {
        let substitutes: u64 = cores.iter().map(|core| core.table.substitutes).sum();
        let note = format!(
            "{substitutes} look-ups of the prediction table went by the data's region: the input has no \
             instruction addresses (translation.scheme.substitute_region)"
        );
        Vec::from_iter((substitutes > 0).then_some(note))
    }
}
