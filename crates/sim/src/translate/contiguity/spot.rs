//! SpOT: the offset between frame and page is predicted when the level-2 TLB misses.
//!
//! **What it does.** Instructions keep to a data structure, and a contiguous one has a single offset. A small table,
//! looked up by the instruction's address, predicts the offset; the access goes on with the predicted frame while the
//! walk runs, and the walk says whether that was right. A 2-bit counter per entry keeps uncertain entries silent.
//!
//! **Source.** Alverti et al., "Enhancing and Exploiting Contiguity for Fast Memory Virtualization", ISCA 2020: 32 entries
//! in sets of four; an entry begins at 1, predicts above that, goes up with each hit and down with each miss, and takes a
//! new offset at 0; only pages that the kernel marked contiguous (runs of 32 pages) teach it; a wrong prediction costs a
//! flush of 20 cycles. But for the flush the figures agree with Virtuoso's model of it, which cites the paper's pages; they are not
//! checked against its text.
//!
//! **Left open, and chosen here.** *Walks* are made as ever, with their traffic and bits, so accessed and dirty bits are
//! those of plain paging. A right prediction hides the walk whole, as the paper's own model has it, although a load cannot
//! retire before its walk ends. A wrong one waits for the walk, then for the flush; the line it fetched in vain is not
//! simulated. *Without instruction addresses* in the input, the aligned region of the data's address
//! ([`substitute_region`](crate::design::SpotParameters::substitute_region)) stands for the instruction. *A full set*: the
//! entry used least recently gives way; in Virtuoso's model only one whose counter is 0 does. *Processes*:
//! entries carry the address space. *Invalidation*: an entry whose latest page overlaps is dropped; no prediction is used
//! unverified in any case.

use crate::design::SpotParameters;

#[derive(Clone, Copy, Debug)]
struct Entry {
    space: u32,
    key: u64,
    offset: u64,
    confidence: u32,
    /// The page that taught it last.
    page: u64,
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
pub struct Spot {
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

impl Spot {
    /// An empty table.
    pub fn new(parameters: &SpotParameters) -> Spot {
        let sets = (parameters.entries / parameters.ways.max(1)).max(1) as usize;
        Spot {
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
    pub fn predict_and_learn(&mut self, space: u32, addr: u64, offset: u64, contiguous: bool) -> Prediction {
        let key = self.instruction.unwrap_or_else(|| {
            self.substitutes += 1;
            addr >> self.region_shift
        });
        let page = addr >> 12;
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

    /// Drops every entry of `space` that one of the base pages `first..end` taught last.
    pub fn invalidate(&mut self, space: u32, first: u64, end: u64) {
        for set in &mut self.sets {
            set.retain(|entry| entry.space != space || !(first..end).contains(&entry.page));
        }
    }
}
