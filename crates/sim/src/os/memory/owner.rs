//! Who holds a frame: one word per allocated block, at its first frame.
//!
//! The words of a block's other frames are zero, and so are those of free frames, so the block that a frame belongs to
//! is found by looking at the three places where one could begin.

use terrace_model::PageSize;
use terrace_policy::PageId;

/// What an allocated block is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Taken, and not yet in use: an order's, or about to be mapped.
    Taken,
    /// A page of a program: the first address that it was mapped at.
    Page(PageId),
    /// A page table.
    Table,
    /// The kernel's own, for good.
    Kernel,
    /// A page of a file that nobody maps: its place in the order of eviction.
    Cache(u32),
}

/// An [`Owner`] and the size of the block, in one word; zero for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Word(u64);

const KIND_BITS: u32 = 3;
const SIZE_BITS: u32 = 2;
const PAYLOAD: u32 = KIND_BITS + SIZE_BITS;
/// Bits of a virtual page number with five levels, of user addresses.
const VPN_BITS: u32 = 44;

impl Word {
    pub fn new(owner: Owner, size: PageSize) -> Word {
        let (kind, payload) = match owner {
            Owner::Taken => (1, 0),
            Owner::Page(page) => (2, u64::from(page.space.0) << VPN_BITS | page.vpn),
            Owner::Table => (3, 0),
            Owner::Kernel => (4, 0),
            Owner::Cache(place) => (5, u64::from(place)),
        };
        Word(kind | (size.index() as u64) << KIND_BITS | payload << PAYLOAD)
    }

    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    pub fn size(self) -> PageSize {
        PageSize::ALL[(self.0 >> KIND_BITS & 3) as usize]
    }

    pub fn owner(self) -> Option<Owner> {
        let payload = self.0 >> PAYLOAD;
        Some(match self.0 & 7 {
            1 => Owner::Taken,
            2 => Owner::Page(PageId::new((payload >> VPN_BITS) as u32, payload & ((1 << VPN_BITS) - 1))),
            3 => Owner::Table,
            4 => Owner::Kernel,
            5 => Owner::Cache(payload as u32),
            _ => return None,
        })
    }
}

/// The words of all frames of a tier. What was never used costs the host nothing.
#[derive(Clone, Debug)]
pub(super) struct Words(Vec<u64>);

impl Words {
    /// Nobody holds any frame.
    pub fn none(frames: u64) -> Words {
        Words(vec![0; frames as usize])
    }

    pub fn get(&self, at: usize) -> Word {
        Word(self.0[at])
    }

    pub fn set(&mut self, at: usize, word: Word) {
        self.0[at] = word.0;
    }

    pub fn take(&mut self, at: usize) -> Word {
        Word(std::mem::take(&mut self.0[at]))
    }

    pub fn clear(&mut self, range: std::ops::Range<usize>) {
        self.0[range].fill(0);
    }

    pub fn swap(&mut self, one: usize, other: usize) {
        self.0.swap(one, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_owner_comes_back() {
        let far = PageId::new(32_766, (1 << VPN_BITS) - 1);
        for owner in [Owner::Taken, Owner::Page(far), Owner::Table, Owner::Kernel, Owner::Cache(u32::MAX)] {
            for size in PageSize::ALL {
                let word = Word::new(owner, size);
                assert_eq!((word.owner(), word.size(), word.is_none()), (Some(owner), size, false));
            }
        }
        assert_eq!(Word::default().owner(), None);
    }
}
