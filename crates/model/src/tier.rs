//! Memory tiers by number.

use serde::{Deserialize, Serialize};

/// A memory tier of a machine, by its position in the machine's list of tiers (fastest first by convention).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TierId(pub u8);

impl TierId {
    /// Position in the machine's list of tiers.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
