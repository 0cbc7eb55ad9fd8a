//! Where memory lies over simulated time, by address: what a policy made of a run.
//!
//! The length of a run is not known beforehand, so columns begin short and are joined in pairs when there are too many;
//! pieces of the address space likewise. What a run costs to watch is bounded by that.

use crate::os::Os;
use crate::outcome::{PlacementColumn, PlacementMap};
use std::collections::{BTreeMap, BTreeSet};
use terrace_model::{AddressRange, PageSize, SpaceId, Time, VirtAddr};

/// Columns beyond which pairs are joined.
const MOST_COLUMNS: usize = 256;
/// Pieces of the address space beyond which pairs are joined.
const MOST_PIECES: usize = 1024;
/// A column at first.
const SHORTEST: Time = Time::from_nanos(10_000);
/// Base pages of a piece at first, as a power of two.
const SMALLEST: u32 = 3;

/// Space and piece.
type Piece = (u32, u64);

#[derive(Clone, Debug, Default)]
struct Column {
    resident: BTreeMap<Piece, [u64; 2]>,
    accesses: BTreeMap<Piece, u64>,
    served: [u64; 2],
    moved: [u64; 2],
}

/// Takes the columns.
#[derive(Debug)]
pub struct PlacementMaker {
    columns: Vec<Column>,
    current: Column,
    span: Time,
    ends: Time,
    shift: u32,
    /// What had moved when the last column ended.
    moved: [u64; 2],
}

impl PlacementMaker {
    /// No column yet.
    pub fn new() -> PlacementMaker {
        PlacementMaker {
            columns: Vec::new(),
            current: Column::default(),
            span: SHORTEST,
            ends: SHORTEST,
            shift: SMALLEST,
            moved: [0; 2],
        }
    }

    /// An access reached memory, in the first tier of its process's system or not.
    pub fn count(&mut self, space: SpaceId, addr: VirtAddr, in_first: bool) {
        *self.current.accesses.entry((space.0, addr.vpn() >> self.shift)).or_default() += 1;
        self.current.served[usize::from(!in_first)] += 1;
    }

    /// The column is over; pages in all, and what had moved until now.
    fn close(&mut self, resident: BTreeMap<Piece, [u64; 2]>, moved: [u64; 2]) {
        self.current.moved = [0, 1].map(|at| moved[at] - self.moved[at]);
        self.moved = moved;
        self.current.resident = resident;
        self.columns.push(std::mem::take(&mut self.current));
        self.ends += self.span;
        if self.columns.len() == MOST_COLUMNS {
            self.columns = self.columns.chunks(2).map(|pair| joined(&pair[0], &pair[1])).collect();
            self.span = self.span + self.span;
            self.ends = self.span.times(self.columns.len() as u64 + 1);
        }
        while self.columns.last().is_some_and(|column| column.resident.len() > MOST_PIECES) {
            self.shift += 1;
            for column in &mut self.columns {
                column.resident = coarser(&column.resident, |sum, part| *sum = added(*sum, part));
                column.accesses = coarser(&column.accesses, |sum, part| *sum += part);
            }
        }
    }

    fn finish(&self, tiers: Vec<String>, first_capacity: u64) -> PlacementMap {
        let pieces: BTreeSet<Piece> =
            self.columns.iter().flat_map(|column| column.resident.keys().copied()).collect();
        let columns = self.columns.iter().map(|column| PlacementColumn {
            resident: pieces.iter().map(|p| column.resident.get(p).copied().unwrap_or_default()).collect(),
            accesses: pieces.iter().map(|p| column.accesses.get(p).copied().unwrap_or_default()).collect(),
            served: column.served,
            moved: column.moved,
        });
        let columns = columns.collect();
        PlacementMap {
            tiers,
            first_capacity,
            piece_bytes: PageSize::Base.bytes() << self.shift,
            pieces: pieces.into_iter().map(|(space, piece)| (space, piece << (12 + self.shift))).collect(),
            column_seconds: self.span.as_secs(),
            columns,
        }
    }
}

fn added(one: [u64; 2], other: [u64; 2]) -> [u64; 2] {
    [one[0] + other[0], one[1] + other[1]]
}

/// Two columns side by side; memory lies where it lay at the end.
fn joined(first: &Column, second: &Column) -> Column {
    let mut accesses = first.accesses.clone();
    for (piece, count) in &second.accesses {
        *accesses.entry(*piece).or_default() += count;
    }
    Column {
        resident: second.resident.clone(),
        accesses,
        served: added(first.served, second.served),
        moved: added(first.moved, second.moved),
    }
}

/// A map by pieces of twice the size.
fn coarser<T: Copy + Default>(
    fine: &BTreeMap<Piece, T>,
    mut add: impl FnMut(&mut T, T),
) -> BTreeMap<Piece, T> {
    let mut coarse = BTreeMap::new();
    for ((space, piece), value) in fine {
        add(coarse.entry((*space, piece / 2)).or_default(), *value);
    }
    coarse
}

impl PlacementMaker {
    /// Whether a column is over at `now`.
    #[inline]
    pub fn is_due(&self, now: Time) -> bool {
        now >= self.ends
    }

    /// When the column that is being taken is over.
    pub fn ends(&self) -> Time {
        self.ends
    }

    /// Ends the columns that are over at `now`, and with `over` the last one too. `moved`: base pages that came to a
    /// faster and to a slower tier so far.
    #[cold]
    pub fn look(&mut self, os: &Os, moved: [u64; 2], now: Time, over: bool) {
        let mut resident: BTreeMap<Piece, [u64; 2]> = BTreeMap::new();
        for space in os.live_spaces() {
            let first = os.first_tier_of(space);
            for (addr, size, pte) in os.table(space).pages_in(AddressRange::ALL) {
                let other = usize::from(os.tier_of(pte.frame()) != first);
                let (mut page, end) = (addr.vpn(), addr.vpn() + size.base_pages());
                while page < end {
                    let piece = page >> self.shift;
                    let next = ((piece + 1) << self.shift).min(end);
                    resident.entry((space.0, piece)).or_default()[other] += next - page;
                    page = next;
                }
            }
        }
        while now >= self.ends {
            let (shift, seen) = (self.shift, resident.clone());
            self.close(seen, moved);
            for _ in shift..self.shift {
                resident = coarser(&resident, |sum, part| *sum = added(*sum, part));
            }
        }
        if over && self.current.served != [0; 2] {
            self.close(resident, moved);
        }
    }

    /// The finished map. Several systems that are alike have tiers of one name each: the map is of all of them.
    pub fn map(&self, os: &Os) -> PlacementMap {
        let of_one = os.tiers_of(0).len();
        let several = of_one < os.tiers_of_memory().count();
        let names = os.tiers_of_memory().take(of_one).map(|memory| {
            let name = memory.name.strip_prefix("vm0.").filter(|_| several);
            name.unwrap_or(&memory.name).to_owned()
        });
        let tiers: Vec<String> = names.collect();
        let firsts = os.tiers_of_memory().step_by(of_one.max(1));
        self.finish(tiers, firsts.map(|memory| memory.frames() << 12).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_and_pieces_are_joined_and_nothing_is_lost() {
        let mut maker = PlacementMaker::new();
        let pieces = |shift: u32| -> BTreeMap<Piece, [u64; 2]> {
            let mut all = BTreeMap::new();
            for page in 0..20_000u64 {
                let at: &mut [u64; 2] = all.entry((0, page >> shift)).or_default();
                at[usize::from(page % 2 == 0)] += 1;
            }
            all
        };
        let (mut shift, mut all) = (maker.shift, pieces(maker.shift));
        for at in 0..1000u64 {
            maker.count(SpaceId(0), VirtAddr(at << 12), at % 4 != 0);
            if maker.shift != shift {
                (shift, all) = (maker.shift, pieces(maker.shift));
            }
            maker.close(all.clone(), [3 * at, at]);
        }
        let map = maker.finish(vec!["fast".to_owned(), "slow".to_owned()], 0);
        assert!(map.columns.len() < MOST_COLUMNS && map.pieces.len() <= MOST_PIECES);
        assert!(map.columns.len() as f64 * map.column_seconds >= 0.0099, "1000 times 10 us");
        let sum = |part: fn(&PlacementColumn) -> u64| map.columns.iter().map(part).sum::<u64>();
        assert_eq!([sum(|c| c.served[0]), sum(|c| c.served[1])], [750, 250]);
        assert_eq!(sum(|c| c.accesses.iter().sum()), 1000);
        assert_eq!([sum(|c| c.moved[0]), sum(|c| c.moved[1])], [3 * 999, 999]);
        for column in &map.columns {
            let resident = column.resident.iter().fold([0; 2], |sum, p| [sum[0] + p[0], sum[1] + p[1]]);
            assert_eq!(resident, [10_000; 2]);
        }
    }
}
