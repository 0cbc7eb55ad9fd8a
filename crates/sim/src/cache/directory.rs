//! The MESI directory beside the last level: which private caches hold a line.

use super::sharers::{NARROW_CORES, SharerSet, WideSet};
use crate::array::{Divider, NO_WAY, PackedSets};
use std::collections::HashMap;
use terrace_model::{CacheLine, CoreId};

const WAYS: u32 = 16;

/// Sets of the directory of private caches that hold so many lines.
fn sets_for(private_lines: u64) -> u64 {
    private_lines.saturating_mul(2).div_ceil(u64::from(WAYS)).clamp(1, 1 << 24)
}

/// What the directory knows about a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sharers<S> {
    /// The cores whose private caches hold the line.
    pub cores: S,
    /// The single sharer may write it (and may have).
    pub exclusive: bool,
    /// Translations were made from the line, and its sharers may hold those without the line (HATRIC's nPT bit).
    pub translates: bool,
}

impl<S: SharerSet> Sharers<S> {
    /// A core holds the line alone.
    #[inline(always)]
    pub fn sole(core: CoreId) -> Sharers<S> {
        Sharers { cores: S::one(core), exclusive: true, translates: false }
    }
}

/// A sparse directory: set-associative, with room for twice the lines of all private caches, as built directories have.
///
/// When an entry must go, the line leaves all private caches with it; the caller does that.
#[derive(Clone, Debug)]
pub struct Directory<S> {
    sets: PackedSets,
    sharers: Vec<Sharers<S>>,
    divider: Divider,
    /// Entries that found no room, in a directory without bounds.
    beyond: Option<HashMap<CacheLine, Sharers<S>>>,
}

impl<S: SharerSet> Directory<S> {
    /// An empty directory for private caches of `private_lines` lines altogether.
    pub fn new(private_lines: usize) -> Directory<S> {
        let sets = sets_for(private_lines as u64) as usize;
        Directory {
            sets: PackedSets::new(sets, WAYS),
            sharers: vec![Sharers::default(); sets * WAYS as usize],
            divider: Divider::new(sets as u64),
            beyond: None,
        }
    }

    /// Lifts the bound: no entry has to go any more.
    pub fn make_boundless(&mut self) {
        self.beyond = Some(HashMap::new());
    }

    #[inline]
    fn find(&self, line: CacheLine) -> (usize, u32, u32) {
        let (tag, set) = self.divider.divide(line.0);
        (set as usize, tag as u32, self.sets.find(set as usize, tag as u32))
    }

    /// The cores that hold `line`; none when it has no entry.
    #[inline]
    pub fn sharers(&self, line: CacheLine) -> Sharers<S> {
        let (set, _, way) = self.find(line);
        if way == NO_WAY {
            self.beyond.as_ref().and_then(|beyond| beyond.get(&line).cloned()).unwrap_or_default()
        } else {
            self.sharers[set * WAYS as usize + way as usize].clone()
        }
    }

    /// Sets who holds `line`, making an entry if needed. Returns the entry that had to go for it.
    #[inline]
    pub fn record(&mut self, line: CacheLine, sharers: Sharers<S>) -> Option<(CacheLine, Sharers<S>)> {
        let (number, tag, way) = self.find(line);
        let mut set = self.sets.set(number);
        if way != NO_WAY {
            set.touch(way);
            self.sharers[number * WAYS as usize + way as usize] = sharers;
            return None;
        }
        let way = set.take_victim();
        let old_tag = set.tag(way);
        set.set_tag(way, tag);
        let entry = &mut self.sharers[number * WAYS as usize + way as usize];
        let old = std::mem::replace(entry, sharers);
        let evicted =
            old_tag.map(|tag| (CacheLine(u64::from(tag) * self.divider.divisor() + number as u64), old));
        let Some(beyond) = &mut self.beyond else { return evicted };
        beyond.remove(&line);
        beyond.extend(evicted);
        None
    }

    /// `core`'s private caches no longer hold `line`. It stays a sharer where it may hold translations. Returns whether it
    /// does.
    #[inline]
    pub fn remove(&mut self, line: CacheLine, core: CoreId) -> bool {
        let (set, _, way) = self.find(line);
        if way == NO_WAY {
            return self.beyond.is_some() && self.remove_beyond(line, core, false);
        }
        let entry = &mut self.sharers[set * WAYS as usize + way as usize];
        if entry.translates {
            return true;
        }
        entry.cores.remove(core);
        if entry.cores.is_empty() {
            self.free(set, way);
        }
        false
    }

    /// Translations are made from a line that has an entry. Returns whether that is new.
    pub fn mark(&mut self, line: CacheLine) -> bool {
        let (set, _, way) = self.find(line);
        let entry = if way == NO_WAY {
            self.beyond.as_mut().and_then(|beyond| beyond.get_mut(&line))
        } else {
            self.sharers.get_mut(set * WAYS as usize + way as usize)
        };
        entry.is_some_and(|entry| !std::mem::replace(&mut entry.translates, true))
    }

    /// `core` holds neither the line nor a translation made from it.
    pub fn demote(&mut self, line: CacheLine, core: CoreId) {
        let (set, _, way) = self.find(line);
        if way == NO_WAY {
            self.remove_beyond(line, core, true);
            return;
        }
        let entry = &mut self.sharers[set * WAYS as usize + way as usize];
        entry.cores.remove(core);
        if entry.cores.is_empty() {
            self.free(set, way);
        }
    }

    fn free(&mut self, set: usize, way: u32) {
        let mut set = self.sets.set(set);
        set.clear_tag(way);
        set.move_to_back(way);
    }

    #[inline(never)]
    fn remove_beyond(&mut self, line: CacheLine, core: CoreId, demotes: bool) -> bool {
        let Some(beyond) = &mut self.beyond else { return false };
        let Some(entry) = beyond.get_mut(&line) else { return false };
        if entry.translates && !demotes {
            return true;
        }
        entry.cores.remove(core);
        if entry.cores.is_empty() {
            beyond.remove(&line);
        }
        false
    }
}
/// The directory of a machine, once two of its cores have run.
#[derive(Clone, Debug)]
pub enum AnyDirectory {
    /// At most one core has run: nobody else can hold a line.
    None,
    /// That of a machine whose cores one word can name.
    Narrow(Directory<u64>),
    /// That of a larger machine.
    Wide(Directory<WideSet>),
}

impl AnyDirectory {
    /// An empty directory for `cores` cores whose private caches have `private_lines` lines altogether.
    pub fn new(cores: usize, private_lines: usize) -> AnyDirectory {
        if cores <= NARROW_CORES as usize {
            AnyDirectory::Narrow(Directory::new(private_lines))
        } else {
            AnyDirectory::Wide(Directory::new(private_lines))
        }
    }

    /// What one takes of the host's memory, in bytes.
    pub fn host_bytes(cores: u64, private_lines: u64) -> u64 {
        let sets = sets_for(private_lines);
        let sharers = match cores <= u64::from(NARROW_CORES) {
            true => size_of::<Sharers<u64>>(),
            false => size_of::<Sharers<WideSet>>(),
        };
        PackedSets::host_bytes(sets, WAYS) + sets * u64::from(WAYS) * sharers as u64
    }

    /// Whether there is one.
    #[inline(always)]
    pub fn is_some(&self) -> bool {
        !matches!(self, AnyDirectory::None)
    }

    /// `core`'s private caches no longer hold `line`. Returns whether it stays a sharer for translations it may hold.
    #[inline(always)]
    pub fn remove(&mut self, line: CacheLine, core: CoreId) -> bool {
        match self {
            AnyDirectory::None => false,
            AnyDirectory::Narrow(directory) => directory.remove(line, core),
            AnyDirectory::Wide(directory) => directory.remove(line, core),
        }
    }
}

/// The directory that is kept in sets of this type.
pub trait InDirectory: SharerSet {
    /// The machine's directory of this type, where it has one.
    fn of(any: &mut AnyDirectory) -> Option<&mut Directory<Self>>;
}

impl InDirectory for u64 {
    #[inline(always)]
    fn of(any: &mut AnyDirectory) -> Option<&mut Directory<u64>> {
        if let AnyDirectory::Narrow(directory) = any { Some(directory) } else { None }
    }
}

impl InDirectory for WideSet {
    #[inline(always)]
    fn of(any: &mut AnyDirectory) -> Option<&mut Directory<WideSet>> {
        if let AnyDirectory::Wide(directory) = any { Some(directory) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeSet, VecDeque};

    #[test]
    fn an_entry_lives_as_long_as_a_sharer() {
        let mut directory = Directory::new(64);
        directory.record(CacheLine(7), Sharers { cores: 0b101u64, exclusive: false, translates: false });
        directory.remove(CacheLine(7), CoreId(0));
        assert_eq!(
            directory.sharers(CacheLine(7)),
            Sharers { cores: 0b100, exclusive: false, translates: false }
        );
        directory.remove(CacheLine(7), CoreId(2));
        assert_eq!(directory.sharers(CacheLine(7)), Sharers::default());
    }

    #[test]
    fn the_least_recent_entry_of_a_full_set_goes() {
        let mut directory = Directory::new(8); // one set of 16
        let one = Sharers::<u64>::sole(CoreId(0));
        for line in 0..16 {
            assert_eq!(directory.record(CacheLine(line), one.clone()), None);
        }
        directory.record(CacheLine(0), one.clone());
        assert_eq!(directory.record(CacheLine(16), one.clone()), Some((CacheLine(1), one)));
    }

    #[test]
    fn a_line_of_translations_keeps_its_sharers_until_they_are_demoted() {
        let mut directory = Directory::new(64);
        directory.record(CacheLine(7), Sharers { cores: 0b101u64, exclusive: false, translates: false });
        assert!(
            directory.mark(CacheLine(7)) && !directory.mark(CacheLine(7)) && !directory.mark(CacheLine(8))
        );
        assert!(directory.remove(CacheLine(7), CoreId(0)), "its line went, its translations may be there");
        assert_eq!(directory.sharers(CacheLine(7)).cores, 0b101);
        directory.demote(CacheLine(7), CoreId(0));
        assert_eq!(directory.sharers(CacheLine(7)).cores, 0b100);
        directory.demote(CacheLine(7), CoreId(2));
        assert_eq!(directory.sharers(CacheLine(7)), Sharers::default());
    }

    #[test]
    fn a_boundless_directory_evicts_nothing() {
        let mut directory = Directory::new(8); // one set of 16
        directory.make_boundless();
        for line in 0..40 {
            let mut sharers = Sharers::<u64>::sole(CoreId(3));
            sharers.cores.insert(CoreId(5));
            assert_eq!(directory.record(CacheLine(line), sharers), None);
        }
        assert!(directory.mark(CacheLine(1)));
        for line in 0..40 {
            assert_eq!(directory.sharers(CacheLine(line)).cores, 0b10_1000, "{line}");
            assert_eq!(directory.remove(CacheLine(line), CoreId(3)), line == 1);
            directory.demote(CacheLine(line), CoreId(3));
            assert!(!directory.remove(CacheLine(line), CoreId(5)) || line == 1);
            directory.demote(CacheLine(line), CoreId(5));
            assert_eq!(directory.sharers(CacheLine(line)), Sharers::default());
        }
    }

    #[test]
    fn an_entry_of_up_to_64_cores_takes_two_words() {
        assert_eq!(size_of::<Sharers<u64>>(), 16);
    }

    /// One set: lines in the order of their last use, least recent first.
    #[derive(Default)]
    struct Naive(VecDeque<(u64, BTreeSet<CoreId>, bool)>);

    impl Naive {
        fn record(
            &mut self,
            line: u64,
            cores: BTreeSet<CoreId>,
            exclusive: bool,
        ) -> Option<(u64, BTreeSet<CoreId>, bool)> {
            let old = self.0.iter().position(|entry| entry.0 == line);
            old.map(|at| self.0.remove(at));
            let full = self.0.len() == WAYS as usize;
            let evicted = if full { self.0.pop_front() } else { None };
            self.0.push_back((line, cores, exclusive));
            evicted
        }

        fn remove(&mut self, line: u64, core: CoreId) {
            if let Some(entry) = self.0.iter_mut().find(|entry| entry.0 == line) {
                entry.1.remove(&core);
            }
            self.0.retain(|entry| !entry.1.is_empty());
        }
    }

    fn agrees<S: SharerSet>(cores: usize, steps: &[(u64, usize, usize, u8)]) -> Result<(), TestCaseError> {
        let set_of = |members: &BTreeSet<CoreId>| {
            members.iter().fold(S::default(), |mut set, core| {
                set.insert(*core);
                set
            })
        };
        let (mut directory, mut naive) = (Directory::<S>::new(8), Naive::default());
        for &(line, core, others, action) in steps {
            let core = core % cores;
            if action < 3 {
                directory.remove(CacheLine(line), CoreId::at(core));
                naive.remove(line, CoreId::at(core));
            } else {
                let members: BTreeSet<CoreId> =
                    (0..=others % 9).map(|at| CoreId::at((core + at * at) % cores)).collect();
                let exclusive = members.len() == 1 && action % 2 == 0;
                let sharers = Sharers { cores: set_of(&members), exclusive, translates: false };
                let evicted = directory.record(CacheLine(line), sharers);
                let expected = naive.record(line, members, exclusive);
                let expected = expected.map(|(line, members, exclusive)| {
                    (CacheLine(line), Sharers { cores: set_of(&members), exclusive, translates: false })
                });
                prop_assert_eq!(evicted, expected);
            }
            for line in 0..20 {
                let expected = naive.0.iter().find(|entry| entry.0 == line).map_or(
                    Sharers::default(),
                    |(_, members, exclusive)| Sharers {
                        cores: set_of(members),
                        exclusive: *exclusive,
                        translates: false,
                    },
                );
                let mut held = directory.sharers(CacheLine(line));
                // What an entry says of nobody means nothing.
                held.exclusive &= !held.cores.is_empty();
                prop_assert_eq!(held, expected);
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn agrees_with_a_list_of_lines(
            steps in prop::collection::vec((0u64..20, 0usize..1000, 0usize..100, 0u8..10), 0..120),
        ) {
            for cores in [1, 2, 64] {
                agrees::<u64>(cores, &steps)?;
            }
            for cores in [1, 2, 64, 65, 200] {
                agrees::<WideSet>(cores, &steps)?;
            }
        }
    }
}
