//! Hardware that profits from contiguity: virtual pages in a row that lie in frames in a row.
//!
//! One mechanism at most stands beside the TLBs of a core; without one, none of this runs. Each answers what the page
//! table says and nothing else: a page that is watched, on the move or shared since a fork is never covered together
//! with others, and every shootdown drops what overlaps it.

mod coalesced;
mod range;
mod range_table;
mod segment;
mod spot;
#[cfg(test)]
mod tests;

pub use coalesced::{CoalescedTlbs, PageRun};
pub use range::RangeTlb;
pub use range_table::RangeTables;
pub use segment::{SegmentChoices, SegmentRegisters};
pub use spot::{Prediction, Spot};

use crate::design::{ContiguityParameters, TranslationParameters};
use terrace_model::{AddressRange, Bytes};

/// The mechanism of one core.
#[derive(Clone, Debug)]
pub enum Contiguity {
    /// Plain TLBs.
    None,
    /// TLBs whose entries cover runs, instead of the plain ones.
    Coalesced(Box<CoalescedTlbs>),
    /// A range TLB.
    Range(Box<RangeTlb>),
    /// A direct segment's registers.
    Segment(Box<SegmentRegisters>),
    /// A prediction table.
    Spot(Box<Spot>),
}

/// The same, without what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContiguityKind {
    /// See [`Contiguity::None`].
    None,
    /// See [`Contiguity::Coalesced`].
    Coalesced,
    /// See [`Contiguity::Range`].
    Range,
    /// See [`Contiguity::Segment`].
    Segment,
    /// See [`Contiguity::Spot`].
    Spot,
}

impl Contiguity {
    /// What the design asks for, empty.
    ///
    /// # Errors
    /// A geometry that cannot be built.
    pub fn new(parameters: &TranslationParameters) -> Result<Contiguity, String> {
        Ok(match &parameters.contiguity {
            None => Contiguity::None,
            Some(ContiguityParameters::Coalesced(own)) => {
                Contiguity::Coalesced(Box::new(CoalescedTlbs::new(parameters, own)?))
            }
            Some(ContiguityParameters::Range(own)) => Contiguity::Range(Box::new(RangeTlb::new(own.entries))),
            Some(ContiguityParameters::DirectSegment(_)) => Contiguity::Segment(Box::default()),
            Some(ContiguityParameters::Spot(own)) => Contiguity::Spot(Box::new(Spot::new(own))),
        })
    }

    /// Which it is.
    #[inline(always)]
    pub fn kind(&self) -> ContiguityKind {
        match self {
            Contiguity::None => ContiguityKind::None,
            Contiguity::Coalesced(_) => ContiguityKind::Coalesced,
            Contiguity::Range(_) => ContiguityKind::Range,
            Contiguity::Segment(_) => ContiguityKind::Segment,
            Contiguity::Spot(_) => ContiguityKind::Spot,
        }
    }

    /// Look-ups of a prediction table that went by the substitute for the instruction.
    pub fn substitutes(&self) -> u64 {
        if let Contiguity::Spot(spot) = self { spot.substitutes } else { 0 }
    }

    /// Drops whatever overlaps `range` of `space`.
    pub fn invalidate(&mut self, space: u32, range: AddressRange) {
        let (first, end) = base_pages(range);
        match self {
            Contiguity::None => {}
            Contiguity::Coalesced(tlbs) => tlbs.invalidate(space, first, end),
            Contiguity::Range(ranges) => ranges.invalidate(space, first, end),
            Contiguity::Segment(registers) => registers.invalidate(space, first, end),
            Contiguity::Spot(spot) => spot.invalidate(space, first, end),
        }
    }

    /// A base page got another frame on this core, which replaces its own entry of the TLBs: what covers the page together
    /// with others goes.
    pub fn drop_changed(&mut self, space: u32, page: AddressRange) {
        if !matches!(self, Contiguity::Coalesced(_)) {
            self.invalidate(space, page);
        }
    }

    /// Drops whatever is of `space`.
    pub fn flush_space(&mut self, space: u32) {
        self.invalidate(space, AddressRange::new(0, u64::MAX));
    }

    /// The instruction whose access comes next, where it is known.
    #[inline(always)]
    pub fn set_instruction(&mut self, instruction: Option<u64>) {
        if let Contiguity::Spot(spot) = self {
            spot.instruction = instruction;
        }
    }
}

/// First base page of a range, and the first after it.
pub fn base_pages(range: AddressRange) -> (u64, u64) {
    (range.start.0 >> 12, range.start.0.saturating_add(range.bytes).div_ceil(4096))
}

/// The shortest run that counts, in base pages.
pub fn least_pages(least: Bytes) -> u64 {
    least.0.div_ceil(4096).max(1)
}
