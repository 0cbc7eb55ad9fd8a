//! The TLB sets in which entries of a line of a page table are held: the directory entries beside the line's own.

use super::parameters::{Granularity, HatricParameters, SetNumbers, Synonyms};
use crate::coherence::{ProbeSets, Target, TlbSets};
use std::collections::HashMap;
use terrace_model::{Line, PhysAddr};

/// Entries of a line.
const ENTRIES: usize = 8;
/// What six bits tell apart.
const SIX_BITS: u16 = 64;

/// What is known of one entry's sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Known {
    /// No translation was made from it.
    #[default]
    Nothing,
    /// Level 1 and level 2.
    One([u16; 2]),
    /// Several, each listed.
    Several(Vec<[u16; 2]>),
    /// Any set may hold one.
    Any,
}

/// The set numbers of all marked lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineSets {
    lines: HashMap<Line, [Known; ENTRIES]>,
}

impl LineSets {
    /// A translation of entry `entry` of `line` was put into these sets.
    pub fn note(&mut self, keys: &HatricParameters, line: Line, entry: usize, tlb_sets: TlbSets) {
        let known = &mut self.lines.entry(line).or_default()[entry];
        let sets = match keys.set_numbers {
            SetNumbers::Whole => tlb_sets.sets,
            SetNumbers::SixBits => [tlb_sets.page % SIX_BITS; 2],
        };
        match known {
            Known::Nothing => *known = Known::One(sets),
            Known::One(one) if *one == sets => {}
            Known::One(one) => {
                *known = match keys.synonyms {
                    Synonyms::SearchAll => Known::Any,
                    Synonyms::ListAll => Known::Several(vec![*one, sets]),
                }
            }
            Known::Several(list) if !list.contains(&sets) => list.push(sets),
            Known::Several(_) | Known::Any => {}
        }
    }

    /// Forgets a line of which nobody holds translations any more.
    pub fn forget(&mut self, line: Line) {
        self.lines.remove(&line);
    }

    /// What a message about a line looks for, and where. `written`: the entries stored to, one bit each. `searches_all`:
    /// whether set numbers are not known at all.
    pub fn targets(
        &self,
        keys: &HatricParameters,
        line: Line,
        written: u8,
        searches_all: bool,
    ) -> Vec<Target> {
        let known = self.lines.get(&line);
        let sets_of = |entries: &mut dyn Iterator<Item = usize>| {
            let mut numbers = [Vec::new(), Vec::new()];
            for entry in entries {
                let one = |list: &mut [Vec<u16>; 2], sets: &[u16; 2]| {
                    list[0].push(sets[0]);
                    list[1].push(sets[1]);
                };
                match known.map(|known| &known[entry]) {
                    None | Some(Known::Nothing) => {}
                    Some(Known::One(sets)) => one(&mut numbers, sets),
                    Some(Known::Several(list)) => list.iter().for_each(|sets| one(&mut numbers, sets)),
                    Some(Known::Any) => return [ProbeSets::All, ProbeSets::All],
                }
            }
            numbers.map(|numbers| match keys.set_numbers {
                SetNumbers::Whole => ProbeSets::Listed(numbers),
                SetNumbers::SixBits => ProbeSets::Cut { numbers, modulo: SIX_BITS },
            })
        };
        let target = |address: PhysAddr, entries: &mut dyn Iterator<Item = usize>| {
            let [l1, l2] = if searches_all { [ProbeSets::All, ProbeSets::All] } else { sets_of(entries) };
            Target { address, l1, l2 }
        };
        let first = line.addr();
        match keys.granularity {
            Granularity::Line => vec![target(first, &mut (0..ENTRIES))],
            Granularity::EightEntries | Granularity::Entry => {
                let meant = |entry: &usize| {
                    keys.granularity == Granularity::EightEntries || written >> entry & 1 != 0
                };
                let entries = (0..ENTRIES).filter(meant);
                entries.map(|entry| target(first + 8 * entry as u64, &mut std::iter::once(entry))).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(numbers: &[u16]) -> ProbeSets {
        ProbeSets::Listed(numbers.to_vec())
    }

    fn tlb_sets(l1: u16, l2: u16) -> TlbSets {
        TlbSets { sets: [l1, l2], page: l2 }
    }

    #[test]
    fn a_line_looks_where_its_entries_were_filled() {
        let keys = HatricParameters::default();
        let mut sets = LineSets::default();
        sets.note(&keys, Line(0x40), 1, tlb_sets(5, 69));
        sets.note(&keys, Line(0x40), 2, tlb_sets(6, 70));
        let line = Target { address: PhysAddr(0x1000), l1: listed(&[5, 6]), l2: listed(&[69, 70]) };
        assert_eq!(sets.targets(&keys, Line(0x40), 0b10, false), [line]);
        let all = Target { address: PhysAddr(0x1000), l1: ProbeSets::All, l2: ProbeSets::All };
        assert_eq!(sets.targets(&keys, Line(0x40), 0b10, true), [all]);
        let entry = HatricParameters { granularity: Granularity::Entry, ..keys.clone() };
        let second = Target { address: PhysAddr(0x1010), l1: listed(&[6]), l2: listed(&[70]) };
        assert_eq!(sets.targets(&entry, Line(0x40), 0b100, false), std::slice::from_ref(&second));
        let eight = HatricParameters { granularity: Granularity::EightEntries, ..keys.clone() };
        let probes = sets.targets(&eight, Line(0x40), 0b100, false);
        assert_eq!((probes.len(), &probes[2]), (8, &second), "one for each entry, in its own set");
        assert_eq!(probes[7].l1, listed(&[]), "nothing was ever made from it");
        sets.forget(Line(0x40));
        assert_eq!(sets.targets(&keys, Line(0x40), 1, false)[0].l1, listed(&[]));
    }

    #[test]
    fn six_bits_mean_several_sets_of_level_2() {
        let keys = HatricParameters { set_numbers: SetNumbers::SixBits, ..HatricParameters::default() };
        let mut sets = LineSets::default();
        sets.note(&keys, Line(3), 0, TlbSets { sets: [5, 69], page: 0x145 });
        let target = sets.targets(&keys, Line(3), 1, false).remove(0);
        assert_eq!(target.l2.of(128), [5, 69], "seven bits cut to six");
        assert_eq!(target.l1.of(16), [5], "four bits are among them");
        assert_eq!(
            target.l2.of(96).len(),
            96,
            "nothing follows from the bits where sets are no power of two"
        );
        let whole = HatricParameters::default();
        sets.forget(Line(3));
        sets.note(&whole, Line(3), 0, TlbSets { sets: [5, 69], page: 0x145 });
        assert_eq!(sets.targets(&whole, Line(3), 1, false)[0].l2.of(128), [69]);
    }

    #[test]
    fn two_sets_of_one_entry_are_searched_for_or_listed() {
        let keys = HatricParameters::default();
        let mut sets = LineSets::default();
        for (l1, l2) in [(1, 17), (1, 17), (2, 18)] {
            sets.note(&keys, Line(9), 4, tlb_sets(l1, l2));
        }
        assert_eq!(sets.targets(&keys, Line(9), 1, false)[0].l1, ProbeSets::All);
        let keys = HatricParameters { synonyms: Synonyms::ListAll, ..keys };
        let mut sets = LineSets::default();
        for (l1, l2) in [(1, 17), (1, 17), (2, 18), (3, 19), (2, 18)] {
            sets.note(&keys, Line(9), 4, tlb_sets(l1, l2));
        }
        assert_eq!(sets.targets(&keys, Line(9), 1, false)[0].l2, listed(&[17, 18, 19]));
    }
}
