//! What changes in page tables: the one door through which entries change.
//!
//! [`super::PageTable`] changes an entry only with a [`Door`] in hand, and what passes is written down here: the lines
//! that the stores go to, and the pages whose translations are wrong from now on. Whoever made the change completes it
//! ([`Changes::take`]) before the program goes on. Walkers set accessed and dirty bits by themselves, without a door.

use super::entry::Pte;
use terrace_model::{AddressRange, Line, PageSize, PhysAddr, SpaceId, VirtAddr};

/// Lines of page tables that were stored to, one after the other in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    /// Number of the first line.
    pub first: Line,
    /// How many.
    pub count: u64,
}

/// Pages of one size, one after the other, whose translations must be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StalePages {
    /// The process.
    pub space: SpaceId,
    /// Address of the first page.
    pub first: VirtAddr,
    /// The pages' size.
    pub size: PageSize,
    /// How many.
    pub count: u64,
}

impl StalePages {
    /// The pages' addresses.
    pub fn range(&self) -> AddressRange {
        AddressRange { start: self.first, bytes: self.count * self.size.bytes() }
    }
}

/// Changes of page tables that are not completed yet, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// What was stored to.
    pub lines: Vec<Lines>,
    /// Which of its eight entries each of those lines had stored to, one bit each.
    pub entries: Vec<u8>,
    /// What cores may no longer use.
    pub stale: Vec<StalePages>,
    /// An entry above base pages changed: what short cuts to tables and large pages say may be wrong.
    pub reshaped: bool,
}

impl Changes {
    /// Whether nothing waits to be completed.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.stale.is_empty() && !self.reshaped
    }

    /// The numbers of the lines that were stored to.
    pub fn stored_lines(&self) -> impl Iterator<Item = Line> + '_ {
        self.lines.iter().flat_map(|lines| (0..lines.count).map(|at| lines.first + at))
    }

    /// The lines stored to, and the entries of each that were stored to.
    pub fn stored_entries(&self) -> impl Iterator<Item = (Line, u8)> + use<'_> {
        self.stored_lines().zip(self.entries.iter().copied())
    }

    /// Base pages, huge pages and so on whose translations must be dropped, each counted once.
    pub fn stale_pages(&self) -> u64 {
        self.stale.iter().map(|pages| pages.count).sum()
    }

    /// The door to the page table of a process.
    pub fn door(&mut self, space: SpaceId) -> Door<'_> {
        Door { space, changes: self }
    }

    /// Translations of a page must be dropped, whatever its entry says.
    pub fn make_stale(&mut self, space: SpaceId, page: VirtAddr, size: PageSize) {
        if let Some(last) = self.stale.last_mut()
            && (last.space, last.size) == (space, size)
        {
            if page == last.first + (last.count - 1) * size.bytes() {
                return;
            }
            if page == last.range().end() {
                last.count += 1;
                return;
            }
        }
        self.stale.push(StalePages { space, first: page, size, count: 1 });
    }

    /// An entry was stored to that leaves its page where it was.
    pub(super) fn rewrote(&mut self, entry: PhysAddr) {
        let (line, bit) = (entry.line(), 1 << (entry.0 >> 3 & 7));
        if let Some(last) = self.lines.last_mut() {
            if line + 1 == last.first + last.count {
                if let Some(entries) = self.entries.last_mut() {
                    *entries |= bit;
                }
                return;
            }
            self.entries.push(bit);
            if line == last.first + last.count {
                last.count += 1;
                return;
            }
        }
        if self.lines.is_empty() {
            self.entries.push(bit);
        }
        self.lines.push(Lines { first: line, count: 1 });
    }
}

/// What it takes to change entries of one process's page table.
#[derive(Debug)]
pub struct Door<'a> {
    space: SpaceId,
    changes: &'a mut Changes,
}

impl Door<'_> {
    /// The entry at `entry`, which maps the page of `size` at `page` or points to a table in its place, was stored to.
    pub(super) fn stored(&mut self, entry: PhysAddr, page: VirtAddr, size: PageSize, old: Pte, new: Pte) {
        self.changes.rewrote(entry);
        self.changes.reshaped |= size != PageSize::Base && old.is_present();
        if new.makes_stale(old) {
            self.changes.make_stale(self.space, page, size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::Frame;

    #[test]
    fn neighbours_are_one_run() {
        let mut changes = Changes::default();
        for (entry, page) in [(0x1000, 0x8000), (0x1008, 0x9000), (0x1040, 0xa000), (0x1100, 0xf000)] {
            let (old, new) = (Pte::new(Frame(7)).accessed(), Pte::ABSENT);
            changes.door(SpaceId(3)).stored(PhysAddr(entry), VirtAddr(page), PageSize::Base, old, new);
        }
        assert_eq!(
            changes.lines,
            [Lines { first: Line(0x40), count: 2 }, Lines { first: Line(0x44), count: 1 }]
        );
        assert_eq!(
            changes.stored_entries().collect::<Vec<_>>(),
            [(Line(0x40), 0b11), (Line(0x41), 1), (Line(0x44), 1)]
        );
        let stale = |first, count| StalePages {
            space: SpaceId(3),
            first: VirtAddr(first),
            size: PageSize::Base,
            count,
        };
        assert_eq!(changes.stale, [stale(0x8000, 3), stale(0xf000, 1)]);
        assert_eq!((changes.stale_pages(), changes.reshaped), (4, false));
    }

    #[test]
    fn only_what_cores_may_no_longer_do_makes_translations_stale() {
        let pte = Pte::new(Frame(7)).dirtied();
        let stale = |old: Pte, new: Pte| new.makes_stale(old);
        assert!(stale(pte, Pte::ABSENT), "unmapped");
        assert!(stale(pte, pte.moved_to(Frame(8))), "moved");
        assert!(stale(pte, pte.with_copy_on_write(true)), "write-protected");
        assert!(
            stale(pte, pte.with_traps(true, false)) && stale(pte, pte.with_traps(false, true)),
            "trapped"
        );
        assert!(stale(pte, pte.with_held(true)), "held");
        assert!(!stale(Pte::ABSENT, pte), "nobody had it");
        assert!(!stale(pte.with_traps(true, true), pte) && !stale(pte.with_copy_on_write(true), pte));
        assert!(
            !stale(pte.with_held(true), pte.moved_to(Frame(8))),
            "nobody could have it while it was held"
        );
        assert!(!stale(pte, pte.cleared(true, true)), "the policy decides, as Linux does");
    }
}
