//! Any page goes.
//!
//! **Idea.** The floor: what a choice is worth shows against none.
//!
//! **Source.** A textbook algorithm; M. Marques, "Ambix" (IST Lisboa 2021), §2.1.3.
//!
//! **Left open by the source.** Nothing.

use super::super::{AlgorithmSetup, Replace, by_rank, ranked};
use crate::{Clear, MemorySystem, PageView, Random as Generator, Refusal};
use terrace_model::TierId;

/// The algorithm.
#[derive(Debug)]
pub struct Random {
    fast: TierId,
    generator: Generator,
}

impl Random {
    /// Draws from the policy's generator.
    ///
    /// # Errors
    /// None.
    pub fn new(AlgorithmSetup { setup, fast }: AlgorithmSetup<'_>) -> Result<Random, Refusal> {
        Ok(Random { fast, generator: setup.random() })
    }
}

impl Replace for Random {
    fn victims(&mut self, _: usize, memory: &mut dyn MemorySystem) -> Vec<PageView> {
        let generator = &mut self.generator;
        by_rank(ranked(self.fast, Clear::ACCESSED, memory, |_| generator.next()), |_| 0)
    }
}
