//! Which part of an operating system a policy manages: all of it, or the guest of one of several virtual machines.
//!
//! Guests of virtual machines side by side are one [`Os`], in which each has tiers and processes of its own. A policy of a
//! guest's knows no other: it counts its tiers from zero, and sees the pages of its own processes.

use crate::os::{Leaf, Os};
use std::ops::Range;
use terrace_model::{Frame, SpaceId, TierId};
use terrace_policy::PageId;

/// One of the systems that an [`Os`] stands for.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    /// The system's number; 0 where there are no others.
    pub number: usize,
    /// The system's tiers among those of all.
    tiers: Range<usize>,
}

impl Guest {
    pub fn new(number: usize, os: &Os) -> Guest {
        Guest { number, tiers: os.tiers_of(number) }
    }

    /// How many tiers it has.
    pub fn tiers(&self) -> usize {
        self.tiers.len()
    }

    /// The number that one of its tiers has among those of all.
    #[inline]
    pub fn in_os(&self, tier: TierId) -> TierId {
        TierId((self.tiers.start + tier.index()) as u8)
    }

    /// The number that it knows such a tier by.
    #[inline]
    pub fn relative(&self, tier: TierId) -> TierId {
        TierId((tier.index() - self.tiers.start) as u8)
    }

    /// The tier of a frame of its own, counted from its first one.
    #[inline]
    pub fn tier_of(&self, os: &Os, frame: Frame) -> TierId {
        self.relative(os.tier_of(frame))
    }

    /// Whether a frame is of its memory.
    pub fn contains(&self, os: &Os, frame: Frame) -> bool {
        os.contains(frame) && self.tiers.contains(&os.tier_of(frame).index())
    }

    /// Whether it has such a process, and that is not over.
    pub fn is_live(&self, os: &Os, space: SpaceId) -> bool {
        os.is_live(space) && os.guest_of(space) == self.number
    }

    /// The entry that maps a page of one of its processes.
    pub fn leaf_of(&self, os: &Os, page: PageId) -> Option<Leaf> {
        os.leaf_of(page).filter(|_| self.is_live(os, page.space))
    }

    /// The system's processes that are not over.
    pub fn live_spaces(&self, os: &Os) -> impl Iterator<Item = SpaceId> {
        os.live_spaces().filter(|space| os.guest_of(*space) == self.number)
    }
}
