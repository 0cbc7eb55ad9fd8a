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
        for (page, fate) in work.iter().flat_map(|work| self.fates(work)).flatten() {
            let Some(found) = self.found(page) else { continue };
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
        runs.iter().map(|run| self.in_words(run)).collect()
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

    fn in_words(&self, run: &Run) -> String {
        let name =
            |tier: TierId| self.topology.tiers.get(tier.index()).map_or("?", |tier| tier.name.as_str());
        let process = self.spaces.get(&run.space).map(|space| (space.name.as_str(), space.process.pid));
        let (program, pid) = process.unwrap_or(("?", 0));
        let base = run.pages.end - run.pages.start;
        let count = base / run.size.base_pages();
        let pages = if count == 1 { "page" } else { "pages" };
        let fate = match run.fate {
            Fate::Move(from, to) => format!("{} from {} to {}", direction(from, to), name(from), name(to)),
            Fate::Exchange(from, to) => {
                format!("{} from {} to {} in exchange", direction(from, to), name(from), name(to))
            }
            Fate::Resize(to) => format!("become pages of {to}"),
        };
        format!(
            "would {fate}: {count} {pages} of {} ({}) at {:#x} of {program} ({pid})",
            run.size,
            Bytes(base << 12),
            Address(run.pages.start)
        )
    }
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
