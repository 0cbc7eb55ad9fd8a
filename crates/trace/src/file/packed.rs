//! Descriptions of accesses as words.

use crate::AccessKind;

/// Base-2 logarithm of the entries of each of the predictor's tables. Three tables of 64 KiB stay in a second-level cache.
pub(super) const TABLE_BITS: u32 = 13;

/// Everything about an access but its addresses, in a word: size, kind, instructions and dependence. Where the decoder's
/// loop takes it from, the [`spread`] of the description's code lies above them, so that one load brings all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Packed(pub u64);

/// Bits of a description without its code.
pub(super) const KEY_BITS: u32 = 40;
/// Where these bits lie.
pub(super) const KEY_MASK: u64 = (1 << KEY_BITS) - 1;

impl Packed {
    #[inline(always)]
    pub(super) fn new(size: u8, kind: AccessKind, depends_on: u8, instructions: u16) -> Packed {
        let low = u32::from(size) | (kind as u32) << 8 | u32::from(instructions) << 16;
        Packed(u64::from(low) | u64::from(depends_on) << 32)
    }

    /// With the [`spread`] of this code.
    #[inline]
    pub(super) fn with(self, code: u32) -> Packed {
        Packed(self.0 & KEY_MASK | u64::from(spread(code)) << KEY_BITS)
    }

    #[inline(always)]
    pub(super) fn size(self) -> u8 {
        self.0 as u8
    }

    #[inline(always)]
    pub(super) fn kind(self) -> AccessKind {
        if self.0 >> 8 & 1 == 1 { AccessKind::Write } else { AccessKind::Read }
    }

    #[inline(always)]
    pub(super) fn depends_on(self) -> u8 {
        (self.0 >> 32) as u8
    }

    #[inline(always)]
    pub(super) fn instructions(self) -> u16 {
        (self.0 >> 16) as u16
    }

    #[inline(always)]
    pub(super) fn spread(self) -> u32 {
        (self.0 >> KEY_BITS) as u32
    }
}

/// A description's code, spread over the table's index range.
#[inline]
pub(super) const fn spread(code: u32) -> u32 {
    code.wrapping_add(1).wrapping_mul(0x9e37_79b1) >> (32 - TABLE_BITS)
}
