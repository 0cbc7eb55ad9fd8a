//! Every mechanism against the page table itself, on random tables and random histories; and examples by hand.

use super::colt::{CoalescedLevels, CoalescedParameters, CoalescedTlbs, PageRun};
use super::direct_segment::{SegmentChoices, SegmentRegisters};
use super::rmm::RangeTlb;
use super::spot::{Prediction, PredictionTable, SpotParameters};
use crate::design::{Associativity, Design, Library};
use crate::os::{Changes, Leaf, PageTable, Pte};
use crate::translate::{RangeTables, Run, TlbHit};
use proptest::prelude::*;
use terrace_model::{AddressRange, Bytes, Frame, PageNumber, PageSize, SpaceId, Time, VirtAddr};

const PAGE: u64 = 4096;

/// The default design with these coalesced TLBs, small ones.
fn design() -> Design {
    let mut design = Library::embedded().design("native-4k", None, &[]).unwrap().design;
    for tlb in design.translation.l1d.values_mut() {
        (tlb.entries, tlb.ways) = (4, Associativity::Ways(2));
    }
    design.translation.l2.array.truncate(1);
    let array = &mut design.translation.l2.array[0];
    (array.entries, array.ways) = (12, Associativity::Ways(3));
    array.sizes = vec![PageSize::Base, PageSize::Huge];
    design
}

fn coalesced(pages: u32, levels: CoalescedLevels) -> CoalescedTlbs {
    let own = CoalescedParameters { pages, levels, sizes: vec![PageSize::Base, PageSize::Huge] };
    CoalescedTlbs::new(&design().translation, &own).unwrap()
}

/// A page table to change, and the frames of its own tables.
struct World {
    table: PageTable,
    next: u64,
}

impl World {
    fn new() -> World {
        World { table: PageTable::new(4, Frame(1 << 30)), next: 1 << 30 }
    }

    fn map(&mut self, page: u64, size: PageSize, pte: Pte) {
        let next = &mut self.next;
        let _ = self.table.map(
            VirtAddr::of_vpn(page),
            size,
            pte,
            &mut Changes::default().door(SpaceId(0)),
            || {
                *next += 1;
                Some(Frame(*next))
            },
        );
    }

    fn store(&mut self, page: u64, change: impl FnOnce(Pte) -> Pte) {
        if let Some(leaf) = self.table.find(VirtAddr::of_vpn(page)) {
            self.table.store(
                &leaf,
                VirtAddr::of_vpn(page),
                change(leaf.pte),
                &mut Changes::default().door(SpaceId(0)),
            );
        }
    }

    fn unmap(&mut self, page: u64) -> Option<Leaf> {
        self.table.unmap(VirtAddr::of_vpn(page), &mut Changes::default().door(SpaceId(0)))
    }

    fn frame(&self, page: u64) -> Option<u64> {
        let leaf = self.table.find(VirtAddr::of_vpn(page))?;
        Some(leaf.pte.frame().0 + (page & (leaf.size.base_pages() - 1)))
    }

    /// The run around a page, the slow way.
    fn run(&self, page: u64) -> Option<Run> {
        let offset = |page: u64| {
            let leaf = self.table.find(VirtAddr::of_vpn(page))?;
            let frame = self.frame(page)?;
            leaf.pte.is_plain().then(|| frame.wrapping_sub(page))
        };
        let own = offset(page)?;
        let (mut first, mut end) = (page, page + 1);
        while first > 0 && offset(first - 1) == Some(own) {
            first -= 1;
        }
        while offset(end) == Some(own) {
            end += 1;
        }
        Some(run_of(first..end, own))
    }
}

/// A run of base pages, whose frames have numbers higher by `offset`.
fn run_of(pages: std::ops::Range<u64>, offset: u64) -> Run {
    Run {
        first: VirtAddr::of_vpn(pages.start),
        end: VirtAddr::of_vpn(pages.end),
        offset: offset.wrapping_mul(PAGE),
    }
}

/// The addresses of base pages.
fn pages_at(pages: std::ops::Range<u64>) -> AddressRange {
    AddressRange::new(pages.start * PAGE, (pages.end - pages.start) * PAGE)
}

fn frame_of(hit: TlbHit, page: u64) -> u64 {
    hit.entry.frame().0 + (page & (hit.size.base_pages() - 1))
}

/// Walks: sets the bits and fills.
fn walk(world: &mut World, tlbs: &mut CoalescedTlbs, page: u64, write: bool) -> PageRun {
    world.store(page, |pte| if write { pte.dirtied() } else { pte.accessed() });
    let leaf = world.table.find(VirtAddr::of_vpn(page)).unwrap();
    let run = PageRun::around(&world.table, &leaf, leaf.pte, VirtAddr::of_vpn(page), tlbs.group(leaf.size));
    tlbs.fill_after_walk(SpaceId(0), VirtAddr::of_vpn(page), leaf.size, run);
    run
}

#[test]
fn a_run_of_eight_pages_costs_one_walk() {
    let mut world = World::new();
    for page in 0..16 {
        world.map(page, PageSize::Base, Pte::new(Frame(100 + page)).accessed());
    }
    let mut tlbs = coalesced(8, CoalescedLevels::Both);
    assert_eq!(
        walk(&mut world, &mut tlbs, 3, false),
        PageRun { first: PageNumber(0), pages: 8, frame: Frame(100), dirty: false }
    );
    for page in 0..8 {
        assert_eq!(frame_of(tlbs.lookup_l1(SpaceId(0), VirtAddr::of_vpn(page)).unwrap(), page), 100 + page);
    }
    assert_eq!(tlbs.lookup_l1(SpaceId(0), VirtAddr(8 * PAGE)), None, "the next group");
    assert_eq!(tlbs.lookup_l1(SpaceId(1), VirtAddr(3 * PAGE)), None, "another process");
    // Seven of the eight first uses needed no walk of their own.
    assert_eq!((tlbs.coalesced.avoided, tlbs.coalesced.l1_hits), (7, 8));
    tlbs.drop_pages(SpaceId(0), &pages_at(7..8));
    assert_eq!(tlbs.lookup_l1(SpaceId(0), VirtAddr(0)), None, "one page changed: the entry goes whole");
    assert_eq!(tlbs.lookup_l2(SpaceId(0), VirtAddr(0)), None);
}

#[test]
fn holes_bits_and_strangers_split_a_group() {
    let mut world = World::new();
    let plain = |page: u64| Pte::new(Frame(100 + page)).accessed();
    for page in 0..32 {
        world.map(page, PageSize::Base, plain(page));
    }
    let mut tlbs = coalesced(8, CoalescedLevels::Both);
    let mut run_at = |world: &mut World, page: u64| {
        let run = walk(world, &mut tlbs, page, false);
        (run.first.0, run.pages)
    };
    world.unmap(3);
    assert_eq!(run_at(&mut world, 1), (0, 3), "a hole");
    assert_eq!(run_at(&mut world, 4), (4, 4), "the other side of it, in the same set");
    world.store(10, |pte| pte.moved_to(Frame(7)));
    assert_eq!(
        (run_at(&mut world, 8), run_at(&mut world, 10), run_at(&mut world, 11)),
        ((8, 2), (10, 1), (11, 5))
    );
    world.store(17, Pte::dirtied);
    assert_eq!((run_at(&mut world, 16), run_at(&mut world, 18)), ((16, 1), (18, 6)), "dirty or not");
    world.store(20, |pte| pte.cleared(true, false));
    assert_eq!(run_at(&mut world, 18), (18, 2), "never accessed: its walk has a bit to set");
    for change in [
        Pte::with_traps as fn(Pte, bool, bool) -> Pte,
        |pte, _, _| pte.with_held(true),
        |pte, _, _| pte.with_copy_on_write(true),
    ] {
        world.store(26, |pte| change(pte, true, false));
        assert_eq!(run_at(&mut world, 24), (24, 2), "watched, on the move, or shared");
        let leaf = world.table.find(VirtAddr(26 * PAGE)).unwrap();
        assert_eq!(PageRun::around(&world.table, &leaf, leaf.pte, VirtAddr(26 * PAGE), 8).pages, 1);
        world.store(26, |_| plain(26));
    }
}

#[test]
fn the_first_store_makes_a_dirty_entry_of_what_is_dirty() {
    let mut world = World::new();
    for page in 0..8 {
        world.map(page, PageSize::Base, Pte::new(Frame(100 + page)).accessed());
    }
    let mut tlbs = coalesced(8, CoalescedLevels::Both);
    walk(&mut world, &mut tlbs, 0, false);
    for page in 2..4 {
        assert!(tlbs.lookup_l1(SpaceId(0), VirtAddr::of_vpn(page)).is_none_or(|hit| !hit.entry.is_dirty()));
        if page == 3 {
            walk(&mut world, &mut tlbs, 3, false);
        }
        world.store(page, Pte::dirtied);
        let leaf = world.table.find(VirtAddr::of_vpn(page)).unwrap();
        let run = PageRun::around(&world.table, &leaf, leaf.pte, VirtAddr::of_vpn(page), 8);
        tlbs.replace(SpaceId(0), VirtAddr::of_vpn(page), PageSize::Base, run);
    }
    assert!(tlbs.lookup_l1(SpaceId(0), VirtAddr(2 * PAGE)).unwrap().entry.is_dirty());
    assert!(tlbs.lookup_l1(SpaceId(0), VirtAddr(3 * PAGE)).unwrap().entry.is_dirty());
    assert_eq!(tlbs.lookup_l1(SpaceId(0), VirtAddr(PAGE)), None, "clean pages left the entry");
}

#[test]
fn huge_pages_coalesce_and_frames_need_no_alignment() {
    let mut world = World::new();
    for page in 0..4u64 {
        world.map(page * 512, PageSize::Huge, Pte::new(Frame(512 * (10 + page))).accessed());
    }
    let mut tlbs = coalesced(4, CoalescedLevels::L2);
    assert_eq!(
        walk(&mut world, &mut tlbs, 700, false),
        PageRun { first: PageNumber(0), pages: 4, frame: Frame(5120), dirty: false }
    );
    assert_eq!(tlbs.lookup_l1(SpaceId(0), VirtAddr(1100 * PAGE)), None, "level 1 does not coalesce");
    assert_eq!(frame_of(tlbs.lookup_l2(SpaceId(0), VirtAddr(1100 * PAGE)).unwrap(), 1100), 5120 + 1100);
    assert!(tlbs.lookup_l1(SpaceId(0), VirtAddr(1100 * PAGE)).is_some());
    assert_eq!(
        tlbs.lookup_l1(SpaceId(0), VirtAddr(1600 * PAGE)),
        None,
        "only the page asked for came to level 1"
    );
    // Virtual pages 5..8 in frames 1..4: the group begins at 0 all the same.
    for page in 2053..2056 {
        world.map(page, PageSize::Base, Pte::new(Frame(page - 2052)).accessed());
    }
    assert_eq!(
        walk(&mut world, &mut tlbs, 2054, false),
        PageRun { first: PageNumber(2053), pages: 3, frame: Frame(1), dirty: false }
    );
}

#[test]
fn a_range_is_there_after_its_walk_and_gone_after_a_shootdown() {
    let mut ranges = RangeTlb::new(2);
    let page = VirtAddr::of_vpn;
    ranges.insert(SpaceId(0), run_of(10..20, 90), Time(500));
    assert_eq!(ranges.lookup(SpaceId(0), page(15), Time(499)), None);
    assert!(ranges.holds(SpaceId(0), page(15)));
    assert_eq!(ranges.lookup(SpaceId(0), page(15), Time(500)), Some(Frame(105)));
    assert_eq!(
        (ranges.lookup(SpaceId(1), page(15), Time(500)), ranges.lookup(SpaceId(0), page(20), Time(500))),
        (None, None)
    );
    ranges.insert(SpaceId(0), run_of(30..40, 0), Time(0));
    assert!(ranges.lookup(SpaceId(0), page(10), Time(500)).is_some(), "now the most recent");
    ranges.insert(SpaceId(0), run_of(50..60, 0), Time(0));
    assert!(ranges.holds(SpaceId(0), page(10)) && !ranges.holds(SpaceId(0), page(30)));
    ranges.invalidate(SpaceId(0), pages_at(19..20));
    assert!(!ranges.holds(SpaceId(0), page(10)) && ranges.holds(SpaceId(0), page(50)));
}

#[test]
fn the_kernel_looks_for_the_longest_run_once_a_period() {
    let mut world = World::new();
    let mut tables = RangeTables::new(Bytes::kib(16));
    let mut choices = SegmentChoices::new(Time(100));
    let map = |world: &mut World, tables: &mut RangeTables, pages: std::ops::Range<u64>, further: u64| {
        for page in pages.clone() {
            world.map(page, PageSize::Base, Pte::new(Frame(further + page)));
        }
        tables.learn(SpaceId(0), VirtAddr(pages.start * PAGE), &world.table);
    };
    map(&mut world, &mut tables, 0..3, 100);
    choices.look(SpaceId(0), &tables, Time(0));
    assert_eq!((choices.of(SpaceId(0)), tables.covered()), (None, 0), "too short");
    map(&mut world, &mut tables, 10..15, 200);
    choices.look(SpaceId(0), &tables, Time(99));
    assert_eq!(choices.of(SpaceId(0)), None, "not yet");
    choices.look(SpaceId(0), &tables, Time(100));
    assert_eq!(choices.of(SpaceId(0)), Some(run_of(10..15, 200)));
    let mut registers = SegmentRegisters::default();
    registers.load(SpaceId(0), choices.of(SpaceId(0)));
    assert_eq!(
        (
            registers.lookup(SpaceId(0), VirtAddr::of_vpn(14)),
            registers.lookup(SpaceId(0), VirtAddr::of_vpn(15)),
            registers.lookup(SpaceId(1), VirtAddr::of_vpn(14))
        ),
        (Some(Frame(214)), None, None)
    );
    tables.forget(SpaceId(0), pages_at(14..15));
    choices.forget(SpaceId(0), pages_at(14..15));
    registers.invalidate(SpaceId(0), pages_at(14..15));
    assert_eq!((choices.of(SpaceId(0)), registers.lookup(SpaceId(0), VirtAddr::of_vpn(10))), (None, None));
    choices.look(SpaceId(0), &tables, Time(200));
    assert_eq!((choices.of(SpaceId(0)).unwrap().end, choices.changes), (VirtAddr::of_vpn(14), 2));
}

#[test]
fn a_prediction_needs_two_confirmations_and_unlearns() {
    let own = SpotParameters::default();
    let mut spot = PredictionTable::new(&own);
    spot.instruction = Some(0x400);
    let mut look =
        |addr: VirtAddr, offset: u64, marked: bool| spot.predict_and_learn(SpaceId(0), addr, offset, marked);
    assert_eq!(look(VirtAddr(0), 50, false), Prediction::None, "not marked contiguous: not kept");
    assert_eq!([0; 5].map(|_| look(VirtAddr(0), 50, true)), {
        use Prediction::{None, Right};
        [None, None, Right, Right, Right]
    });
    use Prediction::{None, Right, Wrong};
    // 3, then down to 1, then silent, then the new offset at 1.
    assert_eq!([0; 6].map(|_| look(VirtAddr(0), 60, true)), [Wrong, Wrong, None, None, None, Right]);
    spot.invalidate(SpaceId(0), pages_at(0..1));
    assert_eq!(spot.predict_and_learn(SpaceId(0), VirtAddr(0), 60, true), None);
    spot.instruction = Option::None;
    spot.predict_and_learn(SpaceId(0), VirtAddr(5 << 30), 60, true);
    assert_eq!((spot.substitutes, spot.outcomes), (1, [4, 2, 8]));
}

#[derive(Clone, Debug)]
enum Step {
    Map { page: u64, frame: Frame, huge: bool },
    Unmap { page: u64 },
    Change { page: u64, what: u8 },
    Forget { page: u64, pages: u64 },
    Access { page: u64, write: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Base pages below 64, huge ones above 512; frames mostly in a row with the pages.
    let page = prop_oneof![6 => 0u64..64, 1 => 512u64..2560];
    let frame = |page: u64, far: u64| if far < 6 { page + 4096 } else { page + 512 * far };
    let step = prop_oneof![
        4 => (page.clone(), 0u64..9).prop_map(move |(page, far)| {
            let huge = page >= 512;
            let page = if huge { page & !511 } else { page };
            Step::Map { page, frame: Frame(frame(page, far)), huge }
        }),
        1 => page.clone().prop_map(|page| Step::Unmap { page }),
        1 => (page.clone(), 0u8..6).prop_map(|(page, what)| Step::Change { page, what }),
        1 => (page.clone(), 1u64..40).prop_map(|(page, pages)| Step::Forget { page, pages }),
        12 => (page, any::<bool>()).prop_map(|(page, write)| Step::Access { page, write }),
    ];
    proptest::collection::vec(step, 1..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// What any mechanism answers is what the page table says, and nothing is answered of a page just invalidated.
    #[test]
    fn answers_are_the_page_tables(steps in steps(), pages in 0u32..4, levels in 0usize..3) {
        use CoalescedLevels::{Both, L1, L2};
        let mut world = World::new();
        let mut tlbs = coalesced(2 << pages, [Both, L1, L2][levels]);
        let mut tables = RangeTables::new(Bytes(8192));
        let mut ranges = RangeTlb::new(3);
        let mut choices = SegmentChoices::new(Time(0));
        let mut registers = SegmentRegisters::default();
        for step in steps {
            let changed = match step {
                Step::Access { page, write } => {
                    let Some(frame) = world.frame(page) else { continue };
                    let leaf = world.table.find(VirtAddr::of_vpn(page)).unwrap();
                    if leaf.pte.stops(write) {
                        continue;
                    }
                    let addr = VirtAddr::of_vpn(page);
                    for answer in [ranges.lookup(SpaceId(0), addr, Time(1)), registers.lookup(SpaceId(0), addr)] {
                        prop_assert!(answer.is_none_or(|answer| answer == Frame(frame) && leaf.pte.is_plain()));
                    }
                    let hit = tlbs.lookup_l1(SpaceId(0), VirtAddr::of_vpn(page)).or_else(|| tlbs.lookup_l2(SpaceId(0), VirtAddr::of_vpn(page)));
                    match hit {
                        Some(hit) => {
                            prop_assert_eq!(frame_of(hit, page), frame);
                            prop_assert!(leaf.pte.is_accessed());
                            if write && !hit.entry.is_dirty() {
                                world.store(page, Pte::dirtied);
                                let leaf = world.table.find(VirtAddr::of_vpn(page)).unwrap();
                                let group = tlbs.group(leaf.size);
                                let run = PageRun::around(&world.table, &leaf, leaf.pte, VirtAddr::of_vpn(page), group);
                                tlbs.replace(SpaceId(0), VirtAddr::of_vpn(page), leaf.size, run);
                            }
                            prop_assert!(!write || world.table.find(VirtAddr::of_vpn(page)).unwrap().pte.is_dirty());
                        }
                        None => {
                            walk(&mut world, &mut tlbs, page, write);
                        }
                    }
                    let known = tables.range(SpaceId(0), VirtAddr::of_vpn(page));
                    tables.learn(SpaceId(0), VirtAddr::of_vpn(page), &world.table);
                    let run = world.run(page);
                    match (known, tables.range(SpaceId(0), VirtAddr::of_vpn(page))) {
                        (None, range) => prop_assert!(
                            range == run.filter(|run| run.pages() > 1) || range.is_none()
                        ),
                        (before, after) => prop_assert_eq!(before, after),
                    }
                    if let Some(range) = tables.range(SpaceId(0), VirtAddr::of_vpn(page)) {
                        let whole = run.unwrap();
                        prop_assert!(whole.first <= range.first && range.end <= whole.end);
                        ranges.insert(SpaceId(0), range, Time(0));
                        choices.look(SpaceId(0), &tables, Time(0));
                        registers.load(SpaceId(0), choices.of(SpaceId(0)));
                    }
                    continue;
                }
                Step::Map { page, frame, huge } => {
                    let size = if huge { PageSize::Huge } else { PageSize::Base };
                    let pte = Pte::new(Frame(if huge { frame.0 & !511 } else { frame.0 }));
                    if world.table.find(VirtAddr::of_vpn(page)).is_none() {
                        // Where nothing was mapped, nobody is notified.
                        world.map(page, size, pte);
                        continue;
                    }
                    world.store(page, |old| old.moved_to(pte.frame()));
                    (page, size.base_pages())
                }
                Step::Unmap { page } => match world.unmap(page) {
                    Some(leaf) => (page & !(leaf.size.base_pages() - 1), leaf.size.base_pages()),
                    None => continue,
                },
                Step::Change { page, what } => {
                    world.store(page, |pte| match what {
                        0 => pte.with_traps(true, false),
                        1 => pte.with_traps(false, true),
                        2 => pte.with_held(!pte.is_held()),
                        3 => pte.with_copy_on_write(!pte.is_copy_on_write()),
                        4 => pte.with_traps(false, false),
                        _ => pte.cleared(true, true),
                    });
                    let pages = world.table.find(VirtAddr::of_vpn(page)).map_or(1, |leaf| leaf.size.base_pages());
                    (page & !(pages - 1), pages)
                }
                Step::Forget { page, pages } => (page, pages),
            };
            let (first, end) = (changed.0, changed.0 + changed.1);
            let range = pages_at(first..end);
            tlbs.drop_pages(SpaceId(0), &range);
            ranges.invalidate(SpaceId(0), range);
            registers.invalidate(SpaceId(0), range);
            choices.forget(SpaceId(0), range);
            tables.forget(SpaceId(0), range);
            for page in first..end {
                prop_assert_eq!(tlbs.lookup_l1(SpaceId(0), VirtAddr::of_vpn(page)), None);
                prop_assert_eq!(tlbs.lookup_l2(SpaceId(0), VirtAddr::of_vpn(page)), None);
                let addr = VirtAddr::of_vpn(page);
                prop_assert!(ranges.lookup(SpaceId(0), addr, Time(1)).is_none() && registers.lookup(SpaceId(0), addr).is_none());
                prop_assert!(tables.range(SpaceId(0), VirtAddr::of_vpn(page)).is_none() && choices.of(SpaceId(0)).is_none_or(|run| !run.holds(addr)));
            }
        }
    }
}
