//! Which pages' lines may lie in the caches: the others need not be looked for.
//!
//! A page that the kernel hands out for the first time has no line in any cache, and zeroing it would look for 64 of
//! them in every level.

use terrace_model::CacheLine;

/// Lines that share a bit.
const GROUP: u64 = 64;
/// Pages of 4 GiB; a page beyond shares its bit with others.
const BITS: u64 = 1 << 20;

/// One bit for each group of 64 lines, whether one of them was ever put into a cache. Groups share bits, so a set bit
/// says nothing; a clear one says that no cache holds a line of the group.
#[derive(Clone, Debug)]
pub struct Seen {
    words: Box<[u64]>,
    /// The line after the last one, where that was zeroed, no cache held a line of its group before, and nothing but lines
    /// of the group before it was put in since; else [`NO_LINE`].
    next: CacheLine,
}

const NO_LINE: CacheLine = CacheLine(u64::MAX);

impl Seen {
    /// No line was put in.
    pub fn new() -> Seen {
        Seen { words: vec![0; (BITS / 64) as usize].into(), next: NO_LINE }
    }

    /// Word and bit of a line's group.
    #[inline(always)]
    fn place(line: CacheLine) -> (usize, u64) {
        let group = line.0 / GROUP % BITS;
        ((group / 64) as usize, 1 << (group % 64))
    }

    /// A line is put into a cache.
    #[inline(always)]
    pub fn note(&mut self, line: CacheLine) {
        let (word, bit) = Seen::place(line);
        self.words[word] |= bit;
        self.next = NO_LINE;
    }

    /// A line is put in as zeros. Returns whether a cache may hold it already.
    #[inline(always)]
    pub fn zero(&mut self, line: CacheLine) -> bool {
        let (word, bit) = Seen::place(line);
        let follows = line == self.next && !line.0.is_multiple_of(GROUP);
        let is_new = follows || self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.next = if is_new { line + 1 } else { NO_LINE };
        !is_new
    }

    /// Whether a line may be in a cache.
    #[inline(always)]
    pub fn may_hold(&self, line: CacheLine) -> bool {
        let (word, bit) = Seen::place(line);
        self.words[word] & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn what_was_put_in_may_be_held(lines in prop::collection::vec(any::<u64>(), 1..200), others: Vec<u64>) {
            let mut seen = Seen::new();
            lines.iter().for_each(|line| seen.note(CacheLine(*line)));
            prop_assert!(lines.iter().all(|line| seen.may_hold(CacheLine(*line))));
            let groups: HashSet<u64> = lines.iter().map(|line| line / 64 % (1 << 20)).collect();
            for line in others {
                prop_assert_eq!(seen.may_hold(CacheLine(line)), groups.contains(&(line / 64 % (1 << 20))));
            }
        }

        #[test]
        fn a_line_that_was_put_in_is_never_taken_for_new(
            steps in prop::collection::vec((0u64..130, any::<bool>(), 1u64..80), 1..60),
        ) {
            let mut seen = Seen::new();
            let mut put_in = HashSet::new();
            for (first, zeroes, lines) in steps {
                for line in first..first + lines {
                    if !zeroes {
                        seen.note(CacheLine(line));
                    } else if !seen.zero(CacheLine(line)) {
                        prop_assert!(!put_in.contains(&line), "{line} is there");
                    }
                    put_in.insert(line);
                }
            }
        }

        #[test]
        fn a_page_of_which_nothing_was_put_in_is_new(first in 0u64..1000, other in 0u64..1000) {
            prop_assume!(first != other);
            let mut seen = Seen::new();
            seen.note(CacheLine(other * 64 + 5));
            prop_assert!((0..64).all(|line| !seen.zero(CacheLine(first * 64 + line))));
            prop_assert!((0..64).all(|line| seen.zero(CacheLine(first * 64 + line))), "the second time");
        }
    }
}
