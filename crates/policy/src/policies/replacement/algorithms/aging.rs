//! The page that was used least goes first, where the past fades by half each period.
//!
//! **Idea.** A counter per page moves one bit to the right in each period, and a use sets its highest bit.
//!
//! **Source.** A textbook algorithm, aging; M. Marques, "Ambix" (IST Lisboa 2021), §2.1.3.
//!
//! **Left open by the source.** *The direction*: the counter moves to the right; the thesis' "left" is a slip. *What is
//! counted*: periods in which the accessed bit was set.

use super::super::least_used::{Count, LeastUsed};

/// The algorithm.
pub type Aging = LeastUsed<Fading>;

/// The counter moves to the right, and a use sets its highest bit.
#[derive(Debug)]
pub struct Fading;

impl Count for Fading {
    fn next(counter: u32, accessed: bool) -> u32 {
        counter >> 1 | u32::from(accessed) << 31
    }
}
