//! What fits into fast memory only in part.

use crate::Choice;

/// What becomes of a structure for which the room that is left does not suffice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub enum Straddling {
    /// As many of its pages as fit go to the fast tier.
    #[default]
    Split,
    /// The structure goes to the slow tier, and the next one is tried.
    Skip,
    /// The structure goes to the slow tier with all that come after it.
    Stop,
}
