//! Sets of cores, as the directory keeps them: one word for machines of up to 64 cores, else a list that becomes a bit
//! map.

use std::fmt::Debug;
use terrace_model::CoreId;

/// Most cores of a machine: what a sharer set can name.
pub const MAX_CORES: u32 = 1024;

/// Cores that one word can name.
pub const NARROW_CORES: u32 = 64;

/// A set of cores. Its members come in ascending order.
pub trait SharerSet: Clone + Debug + Default + PartialEq {
    /// The set of one core.
    fn one(core: CoreId) -> Self;
    /// Whether it has no member.
    fn is_empty(&self) -> bool;
    /// Whether a core is a member.
    fn contains(&self, core: CoreId) -> bool;
    /// Adds a core.
    fn insert(&mut self, core: CoreId);
    /// Takes a core out, if it is a member.
    fn remove(&mut self, core: CoreId);
    /// Takes its first member out.
    fn pop(&mut self) -> Option<CoreId>;
}

impl SharerSet for u64 {
    #[inline(always)]
    fn one(core: CoreId) -> u64 {
        1 << core.0
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        *self == 0
    }

    #[inline(always)]
    fn contains(&self, core: CoreId) -> bool {
        self >> core.0 & 1 != 0
    }

    #[inline(always)]
    fn insert(&mut self, core: CoreId) {
        *self |= 1 << core.0;
    }

    #[inline(always)]
    fn remove(&mut self, core: CoreId) {
        *self &= !(1 << core.0);
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<CoreId> {
        let core = CoreId(self.trailing_zeros());
        let rest = self.checked_sub(1)?;
        *self &= rest;
        Some(core)
    }
}

/// Members that a [`WideSet`] lists before it becomes a bit map.
const LISTED: usize = 6;
const WORDS: usize = MAX_CORES as usize / 64;

/// A set among up to [`MAX_CORES`] cores. Most lines have few sharers: those are listed in place, and only more of them
/// take a bit map.
#[derive(Clone, Debug)]
pub enum WideSet {
    /// The first `count` of these, in ascending order.
    Few {
        /// Members.
        count: u8,
        /// The members' numbers.
        cores: [u16; LISTED],
    },
    /// One bit per core.
    Many(Box<[u64; WORDS]>),
}

impl Default for WideSet {
    fn default() -> WideSet {
        WideSet::Few { count: 0, cores: [0; LISTED] }
    }
}

impl PartialEq for WideSet {
    fn eq(&self, other: &WideSet) -> bool {
        let (mut one, mut two) = (self.clone(), other.clone());
        loop {
            match (one.pop(), two.pop()) {
                (None, None) => return true,
                (one, two) if one != two => return false,
                _ => {}
            }
        }
    }
}

impl SharerSet for WideSet {
    fn one(core: CoreId) -> WideSet {
        let mut set = WideSet::default();
        set.insert(core);
        set
    }

    fn is_empty(&self) -> bool {
        match self {
            WideSet::Few { count, .. } => *count == 0,
            WideSet::Many(words) => words.iter().all(|word| *word == 0),
        }
    }

    fn contains(&self, core: CoreId) -> bool {
        match self {
            WideSet::Few { count, cores } => {
                cores[..usize::from(*count)].iter().any(|member| u32::from(*member) == core.0)
            }
            WideSet::Many(words) => words[core.index() / 64] >> (core.0 % 64) & 1 != 0,
        }
    }

    fn insert(&mut self, core: CoreId) {
        match self {
            WideSet::Few { count, cores } => {
                let members = &cores[..usize::from(*count)];
                let at = members.partition_point(|member| u32::from(*member) < core.0);
                if members.get(at).is_some_and(|member| u32::from(*member) == core.0) {
                    return;
                }
                if members.len() == LISTED {
                    let mut words = Box::new([0u64; WORDS]);
                    for member in members.iter().map(|member| usize::from(*member)).chain([core.index()]) {
                        words[member / 64] |= 1 << (member % 64);
                    }
                    *self = WideSet::Many(words);
                    return;
                }
                cores.copy_within(at..usize::from(*count), at + 1);
                cores[at] = core.0 as u16;
                *count += 1;
            }
            WideSet::Many(words) => words[core.index() / 64] |= 1 << (core.0 % 64),
        }
    }

    fn remove(&mut self, core: CoreId) {
        match self {
            WideSet::Few { count, cores } => {
                let end = usize::from(*count);
                if let Some(at) = cores[..end].iter().position(|member| u32::from(*member) == core.0) {
                    cores.copy_within(at + 1..end, at);
                    *count -= 1;
                }
            }
            WideSet::Many(words) => words[core.index() / 64] &= !(1 << (core.0 % 64)),
        }
    }

    fn pop(&mut self) -> Option<CoreId> {
        match self {
            WideSet::Few { count: 0, .. } => None,
            WideSet::Few { count, cores } => {
                let first = CoreId(u32::from(cores[0]));
                cores.copy_within(1..usize::from(*count), 0);
                *count -= 1;
                Some(first)
            }
            WideSet::Many(words) => {
                let at = words.iter().position(|word| *word != 0)?;
                words[at].pop().map(|bit| CoreId::at(at * 64 + bit.index()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn members(mut set: impl SharerSet) -> Vec<CoreId> {
        std::iter::from_fn(|| set.pop()).collect()
    }

    fn agrees<S: SharerSet>(cores: usize, steps: &[(usize, u8)]) -> Result<(), TestCaseError> {
        let (mut set, mut model) = (S::default(), BTreeSet::new());
        for (core, action) in steps {
            let core = CoreId::at(core % cores);
            match action {
                0..=4 => {
                    set.insert(core);
                    model.insert(core);
                }
                5..=7 => {
                    set.remove(core);
                    model.remove(&core);
                }
                8 => prop_assert_eq!(set.pop(), model.pop_first()),
                _ => {
                    set = S::one(core);
                    model = BTreeSet::from([core]);
                }
            }
            prop_assert_eq!(set.is_empty(), model.is_empty());
            prop_assert_eq!(set.contains(core), model.contains(&core));
            prop_assert_eq!(members(set.clone()), model.iter().copied().collect::<Vec<_>>());
            let again = model.iter().fold(S::default(), |mut again, core| {
                again.insert(*core);
                again
            });
            prop_assert_eq!(&set, &again);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn sets_agree_with_an_ordered_set(steps in prop::collection::vec((0..4096usize, 0u8..30), 0..100)) {
            // Actions above 9 count as insertions, so that sets grow beyond the list.
            let steps: Vec<_> = steps.into_iter().map(|(core, action)| (core, if action > 9 { 0 } else { action })).collect();
            for cores in [1, 2, 64] {
                agrees::<u64>(cores, &steps)?;
            }
            for cores in [1, 2, 64, 65, 200, MAX_CORES as usize] {
                agrees::<WideSet>(cores, &steps)?;
            }
        }
    }

    #[test]
    fn a_wide_set_takes_no_more_room_than_two_words() {
        assert_eq!(size_of::<WideSet>(), 16);
    }
}
