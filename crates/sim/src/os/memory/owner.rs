//! The holder of each frame: one word per allocated block, at its first frame.
//!
//! The words of a block's other frames are zero, and so are those of free frames, so the block that a frame belongs to is
//! found by looking at the three places where one could begin.

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

/// Frames of a chunk: a run that is taken as a whole is noted by chunks.
const CHUNK: usize = 512;

/// The words of all frames of a tier. What was never used costs the host nothing, and neither does what was taken as a run
/// and never used.
#[derive(Clone, Debug)]
pub(super) struct Words {
    words: Vec<u64>,
    /// What the words of each chunk differ from: zero, or the word of a taken frame.
    base: Vec<u64>,
}

impl Words {
    /// Words for frames that nobody holds.
    pub fn none(frames: u64) -> Words {
        Words { words: vec![0; frames as usize], base: vec![0; (frames as usize).div_ceil(CHUNK)] }
    }

    pub fn get(&self, at: usize) -> Word {
        Word(self.words[at] ^ self.base[at / CHUNK])
    }

    pub fn set(&mut self, at: usize, word: Word) {
        self.words[at] = word.0 ^ self.base[at / CHUNK];
    }

    pub fn take(&mut self, at: usize) -> Word {
        let word = self.get(at);
        self.set(at, Word::default());
        word
    }

    pub fn clear(&mut self, range: std::ops::Range<usize>) {
        range.for_each(|at| self.set(at, Word::default()));
    }

    /// Takes each frame of a range of which nobody holds any.
    pub fn take_all(&mut self, range: std::ops::Range<usize>) {
        let taken = Word::new(Owner::Taken, PageSize::Base);
        let mut at = range.start;
        while at < range.end {
            let chunk = at / CHUNK;
            let whole = at.is_multiple_of(CHUNK) && at + CHUNK <= range.end;
            if whole && self.base[chunk] == 0 {
                // Words of the chunk are zero, so they need no change.
                self.base[chunk] = taken.0;
                at += CHUNK;
            } else {
                self.set(at, taken);
                at += 1;
            }
        }
    }

    /// Releases the frames of a range, each of which was taken and never used.
    pub fn release_all(&mut self, range: std::ops::Range<usize>) {
        let taken = Word::new(Owner::Taken, PageSize::Base);
        debug_assert!(range.clone().all(|at| self.get(at) == taken));
        let mut at = range.start;
        while at < range.end {
            let chunk = at / CHUNK;
            let whole = at.is_multiple_of(CHUNK) && at + CHUNK <= range.end;
            if whole && self.base[chunk] == taken.0 {
                self.base[chunk] = 0;
                at += CHUNK;
            } else {
                self.set(at, Word::default());
                at += 1;
            }
        }
    }

    pub fn swap(&mut self, one: usize, other: usize) {
        let (of_one, of_other) = (self.get(one), self.get(other));
        self.set(one, of_other);
        self.set(other, of_one);
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

    #[test]
    fn runs_are_taken_as_if_frame_by_frame() {
        let frames = 3000;
        let taken = Word::new(Owner::Taken, PageSize::Base);
        let mut words = Words::none(frames as u64);
        let mut plain = vec![Word::default(); frames];
        let check = |words: &Words, plain: &[Word]| {
            (0..frames).for_each(|at| assert_eq!(words.get(at), plain[at], "{at}"));
        };
        // Twice: what is left of a first run must not show in a second.
        for round in 0..2 {
            for range in [512..1536, 1800..2100, 2560..3000] {
                words.take_all(range.clone());
                plain[range].fill(taken);
                check(&words, &plain);
            }
            let table = Word::new(Owner::Table, PageSize::Base);
            words.set(700, table);
            words.swap(700, 10);
            (plain[700], plain[10]) = (Word::default(), table);
            check(&words, &plain);
            assert_eq!(words.take(10), table);
            plain[10] = Word::default();
            words.release_all(1024..1536);
            words.release_all(2000..2050);
            (1024..1536).chain(2000..2050).for_each(|at| plain[at] = Word::default());
            check(&words, &plain);
            assert_eq!((words.base[1], words.base[2], words.words[1030 + round]), (taken.0, 0, 0));
            words.clear(0..frames);
            plain.fill(Word::default());
            check(&words, &plain);
        }
    }
}
