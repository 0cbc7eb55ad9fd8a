//! The account of all frames, for tests and for builds with assertions.

use super::paging::Os;
use std::collections::HashMap;
use terrace_model::{AddressRange, Frame, PageSize};

/// Frames of a tier that are few enough to look at each: 1 GiB.
const AUDITED_BY_FRAME: u64 = 1 << 18;
/// Frames of a block of [`Users`]: 2 MiB.
const BLOCK: u64 = 512;

/// How many mappings each frame has, by blocks of 2 MiB, so that a page is looked up once and not frame by frame.
#[derive(Default)]
struct Users(HashMap<u64, Box<[u32; BLOCK as usize]>>);

impl Users {
    /// The counters of an aligned page's frames, block by block, with the number of each block's first frame.
    fn of(&mut self, first: Frame, size: PageSize, mut each: impl FnMut(u64, &mut [u32])) {
        let (mut at, end) = (first.0, first.0 + size.base_pages());
        while at < end {
            let block = self.0.entry(at / BLOCK).or_insert_with(|| Box::new([0; BLOCK as usize]));
            let start = at % BLOCK;
            let stop = (start + end - at).min(BLOCK);
            each(at, &mut block[start as usize..stop as usize]);
            at += stop - start;
        }
    }

    /// One more mapping of an aligned page. Returns how many its first frame has now.
    ///
    /// # Errors
    /// A frame that has more than `most`, and how many.
    fn map(&mut self, first: Frame, size: PageSize, most: u32) -> Result<u32, (u64, u32)> {
        let (mut of_first, mut wrong) = (0, None);
        self.of(first, size, |at, users| {
            for (frame, users) in (at..).zip(users) {
                *users = users.saturating_add(1);
                if frame == first.0 {
                    of_first = *users;
                }
                if *users > most {
                    wrong.get_or_insert((frame, *users));
                }
            }
        });
        wrong.map_or(Ok(of_first), Err)
    }

    /// Nobody else may use these frames.
    ///
    /// # Errors
    /// A frame that somebody uses.
    fn take(&mut self, first: Frame, size: PageSize) -> Result<(), u64> {
        let mut wrong = None;
        self.of(first, size, |at, users| {
            for (frame, users) in (at..).zip(users) {
                if std::mem::replace(users, u32::MAX) != 0 {
                    wrong.get_or_insert(frame);
                }
            }
        });
        wrong.map_or(Ok(()), Err)
    }
}

impl Os {
    /// Counts everything anew: every frame in use is a page's, a page table's, one of `taken` (blocks of orders under way)
    /// or one of the `reserved`, and nobody's twice.
    ///
    /// # Errors
    /// The first thing that is wrong, in words.
    pub fn audit(&self, system: usize, taken: &[(Frame, PageSize)], reserved: &[u64]) -> Result<(), String> {
        let mut users = Users::default();
        let mut used = vec![0u64; self.tiers.len()];
        let mut resident = [0u64; 3];
        for (number, space) in self.spaces.iter().enumerate() {
            for frame in space.table.table_frames() {
                if space.alive {
                    let twice = |frame| format!("frame {frame:#x} of a page table is used twice");
                    users.take(frame, PageSize::Base).map_err(twice)?;
                }
                used[self.tier_of(frame).index()] += u64::from(space.alive);
            }
            for (addr, size, pte) in space.table.pages_in(AddressRange::ALL) {
                let first = pte.frame().0;
                if !first.is_multiple_of(size.base_pages()) {
                    return Err(format!("{number}:{addr:#x}: frame {first:#x} is not aligned to {size}"));
                }
                let most = self.shared.get(&first).copied().unwrap_or(1);
                let too_many =
                    |(frame, users)| format!("{number}:{addr:#x}: frame {frame:#x} has {users} users");
                if users.map(pte.frame(), size, most).map_err(too_many)? == 1 {
                    used[self.tier_of(pte.frame()).index()] += size.base_pages();
                    resident[size.index()] += size.base_pages();
                }
            }
        }
        for (block, size) in taken {
            users
                .take(*block, *size)
                .map_err(|frame| format!("frame {frame:#x} of an order is used twice"))?;
            used[self.tier_of(*block).index()] += size.base_pages();
        }
        for (at, reserved) in self.tiers_of(system).zip(reserved) {
            let (tier, expected) = (&self.tiers[at], used[at] + reserved);
            let found = tier.used();
            if found != expected {
                return Err(format!("{}: {found} frames in use, {expected} accounted for", tier.name));
            }
            // Frame by frame, where that is done soon.
            if tier.frames() <= AUDITED_BY_FRAME {
                tier.audit()?;
            }
        }
        if resident != self.resident {
            return Err(format!("resident by size: counted {resident:?}, kept {:?}", self.resident));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_two_use_is_found_in_pages_of_all_sizes() {
        let mut users = Users::default();
        let giant = Frame(1 << 18);
        assert_eq!(users.map(giant, PageSize::Giant, 1), Ok(1));
        assert_eq!(users.map(giant, PageSize::Giant, 2), Ok(2));
        assert_eq!(users.map(giant.plus(700), PageSize::Base, 2), Err((giant.0 + 700, 3)));
        assert_eq!(users.take(giant.plus(512), PageSize::Huge), Err(giant.0 + 512));
        assert_eq!(users.take(Frame(3), PageSize::Base), Ok(()));
        assert_eq!(users.map(Frame(0), PageSize::Huge, 1), Err((3, u32::MAX)));
        assert_eq!(users.map(Frame(512), PageSize::Huge, 1), Ok(1));
    }
}
