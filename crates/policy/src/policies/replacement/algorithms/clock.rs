//! Second chance: a hand goes round and takes the next page that was not used since it last passed.
//!
//! **Idea.** A bit per page stands for the time of its last use. The hand clears the bits that it finds set, and takes
//! the first page whose bit is still clear.
//!
//! **Source.** A textbook algorithm; M. Marques, "Ambix" (IST Lisboa 2021), §2.1.3.
//!
//! **Left open by the source.** *The order of the circle*: that of the addresses. *How far the hand turns*: twice round
//! at most, the first time to clear, the second to find.

use super::super::{AlgorithmSetup, Replace};
use crate::{Clear, MemorySystem, PageView, Refusal, ScanHand, Scope, Step};
use terrace_model::TierId;

/// The algorithm.
#[derive(Debug)]
pub struct Clock {
    fast: TierId,
    hand: ScanHand,
}

impl Clock {
    /// The hand stands at the lowest page.
    ///
    /// # Errors
    /// None.
    pub fn new(AlgorithmSetup { fast, .. }: AlgorithmSetup<'_>) -> Result<Clock, Refusal> {
        Ok(Clock { fast, hand: ScanHand::default() })
    }
}

impl Replace for Clock {
    fn victims(&mut self, count: usize, memory: &mut dyn MemorySystem) -> Vec<PageView> {
        let mut victims: Vec<PageView> = Vec::new();
        for _ in 0..2 {
            memory.scan(Scope::Tier(self.fast), &mut self.hand, Clear::ACCESSED.flushed(true), &mut |view| {
                if victims.len() >= count {
                    return Step::Stop;
                }
                if view.accessed {
                    return Step::Clear;
                }
                if !view.in_flight && !victims.iter().any(|victim| victim.page == view.page) {
                    victims.push(*view);
                }
                Step::Keep
            });
        }
        victims
    }
}
