//! A page that was not used in the period goes first, better if it was not written either.
//!
//! **Idea.** The accessed and the dirty bit make four classes: neither used nor written, written, used, used and
//! written. The lowest class that is not empty gives the victim.
//!
//! **Source.** A textbook algorithm, "not recently used"; M. Marques, "Ambix" (IST Lisboa 2021), §2.1.3.
//!
//! **Left open by the source.** *Which page of a class*: one drawn at random.

use super::super::{AlgorithmSetup, Replace, by_rank, ranked};
use crate::{Capability, CapabilitySet, Clear, MemorySystem, PageView, Random, Refusal};
use terrace_model::TierId;

/// The algorithm.
#[derive(Debug)]
pub struct Nru {
    fast: TierId,
    random: Random,
}

impl Nru {
    /// Draws from the policy's generator.
    ///
    /// # Errors
    /// None.
    pub fn new(AlgorithmSetup { setup, fast }: AlgorithmSetup<'_>) -> Result<Nru, Refusal> {
        Ok(Nru { fast, random: setup.random() })
    }
}

impl Replace for Nru {
    fn capabilities(&self) -> CapabilitySet {
        CapabilitySet::of(&[Capability::DirtyBits])
    }

    fn victims(&mut self, _: usize, memory: &mut dyn MemorySystem) -> Vec<PageView> {
        let random = &mut self.random;
        let pages = ranked(self.fast, Clear::BOTH, memory, |view| {
            let class = 2 * u64::from(view.accessed) + u64::from(view.dirty);
            class << 60 | random.next() >> 4
        });
        by_rank(pages, |_| 0)
    }
}
