//! What a dry run would do, in words: which pages, of which size, from where to where.

use super::World;
use super::orders::Work;
use std::fmt;
use std::ops::Range;
use terrace_model::{Bytes, PageSize, TierId};
use terrace_policy::{PageId, Resize, SpaceId};

/// What would become of pages that lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The pages move from one tier to another.
    Move(TierId, TierId),
    /// The pages change places with pages of another tier.
    Exchange(TierId, TierId),
    /// The pages become pages of this size.
    Resize(PageSize),
}

/// Pages of one size side by side that fare alike.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    space: SpaceId,
    pages: Range<u64>,
    size: PageSize,
    fate: Fate,
}

impl World {
    /// What would be done, a line for each run of pages; pages that are gone meanwhile are left out.
    pub(super) fn plan(&self, work: &[Work]) -> Vec<String> {
        let mut runs: Vec<Run> = Vec::new();
        let mut joins: Vec<String> = Vec::new();
        for (page, fate) in work.iter().flat_map(|work| self.fates(work)).flatten() {
            let Some(found) = self.found(page) else { continue };
            if let Fate::Resize(to) = fate
                && to > found.size
            {
                joins.push(self.join_in_words(page, to));
                continue;
            }
            let (first, end) = (found.page.vpn, found.page.vpn + found.size.base_pages());
            match runs.last_mut() {
                Some(last)
                    if (last.space, last.pages.end, last.size, last.fate)
                        == (page.space, first, found.size, fate) =>
                {
                    last.pages.end = end;
                }
                _ => runs.push(Run { space: page.space, pages: first..end, size: found.size, fate }),
            }
        }
        runs.iter().map(|run| self.in_words(run)).chain(joins).collect()
    }

    fn fates(&self, work: &Work) -> [Option<(PageId, Fate)>; 2] {
        let tier = |page: PageId| self.found(page).map(|found| found.tier);
        match *work {
            Work::Move(one) => [tier(one.page).map(|from| (one.page, Fate::Move(from, one.to))), None],
            Work::Exchange(pair) => {
                let tiers = tier(pair.one).zip(tier(pair.other));
                [
                    tiers.map(|(one, other)| (pair.one, Fate::Exchange(one, other))),
                    tiers.map(|(one, other)| (pair.other, Fate::Exchange(other, one))),
                ]
            }
            Work::Resize(Resize { page, to, .. }) => [Some((page, Fate::Resize(to))), None],
            Work::DropZeros(_) => [None, None],
        }
    }

    /// What an order to join pages to one of size `to` would join: all pages that are in memory there.
    fn join_in_words(&self, page: PageId, to: PageSize) -> String {
        let range = page.vpn..page.vpn + to.base_pages();
        let mut counts = [0u64; 3];
        let mut vpn = range.start;
        while vpn < range.end {
            let found = self.found(PageId { vpn, ..page });
            if let Some(found) = &found {
                counts[found.size.index()] += 1;
            }
            vpn += found.map_or(1, |found| found.size.base_pages());
        }
        let joined = PageSize::ALL.map(|size| (counts[size.index()], size));
        let base: u64 = joined.iter().map(|(count, size)| count * size.base_pages()).sum();
        let some = joined.iter().filter(|(count, _)| *count > 0);
        let some: Vec<String> = some.map(|(count, size)| pages(*count, *size)).collect();
        let (program, pid) = self.program(page.space);
        let (bytes, at) = (Bytes(base << 12), Address(range.start));
        format!(
            "would become 1 page of {to}: {} ({bytes}) at {at:#x} of {program} ({pid})",
            some.join(" and ")
        )
    }

    /// Name and number of the process that has a space.
    fn program(&self, space: SpaceId) -> (&str, u32) {
        self.spaces.get(&space).map_or(("?", 0), |space| (space.name.as_str(), space.process.pid))
    }

    fn in_words(&self, run: &Run) -> String {
        let name =
            |tier: TierId| self.topology.tiers.get(tier.index()).map_or("?", |tier| tier.name.as_str());
        let (program, pid) = self.program(run.space);
        let base = run.pages.end - run.pages.start;
        let fate = match run.fate {
            Fate::Move(from, to) => format!("{} from {} to {}", direction(from, to), name(from), name(to)),
            Fate::Exchange(from, to) => {
                format!("{} from {} to {} in exchange", direction(from, to), name(from), name(to))
            }
            Fate::Resize(to) => format!("become pages of {to}"),
        };
        format!(
            "would {fate}: {} ({}) at {:#x} of {program} ({pid})",
            pages(base / run.size.base_pages(), run.size),
            Bytes(base << 12),
            Address(run.pages.start)
        )
    }
}

/// `3 pages of 4k`.
fn pages(count: u64, size: PageSize) -> String {
    let noun = if count == 1 { "page" } else { "pages" };
    format!("{count} {noun} of {size}")
}

/// The address of a page.
struct Address(u64);

impl fmt::LowerHex for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&(self.0 << 12), f)
    }
}

/// Tiers are in the order of their speed.
fn direction(from: TierId, to: TierId) -> &'static str {
    match from.index().cmp(&to.index()) {
        std::cmp::Ordering::Greater => "promote",
        std::cmp::Ordering::Less => "demote",
        std::cmp::Ordering::Equal => "leave",
    }
}
