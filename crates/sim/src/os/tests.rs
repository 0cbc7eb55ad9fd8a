//! Demand paging by hand, and under random programs.

use super::*;
use crate::design::{Library, OsParameters, PagePolicy, Placement};
use proptest::prelude::*;
use terrace_model::{AddressRange, Bytes, Frame, PageSize, SpaceId, TierId, VirtAddr};
use terrace_trace::{Advice, MapKind, Protection};

fn parameters(pages: PagePolicy, placement: Placement) -> OsParameters {
    let linux = Library::embedded().design("native-4k", None, &[]).unwrap().design.os;
    OsParameters { pages, placement, page_table_tier: None, reserved: Bytes(0), ..linux }
}

/// Two tiers of `frames` frames each, the second one starting at 1 GiB.
fn os(pages: PagePolicy, placement: Placement, frames: u64) -> Os {
    let tiers = [("fast".to_owned(), Frame(0), frames), ("slow".to_owned(), Frame(1 << 18), frames)];
    Os::new(&parameters(pages, placement), 4, &tiers).unwrap()
}

fn tier_at(os: &Os, addr: VirtAddr) -> u8 {
    os.tier_of(os.table(SpaceId(0)).find(addr).unwrap().pte.frame()).0
}

fn map(os: &mut Os, start: u64, bytes: u64) {
    os.map(SpaceId(0), AddressRange::new(start, bytes), MapKind::Anonymous, Protection::READ_WRITE).unwrap();
}

#[test]
fn numbers_of_ended_processes_are_used_again_oldest_first() {
    let mut os = os(PagePolicy::Base, Placement::FirstTouch, 40_000);
    for number in 0..32_767 {
        assert_eq!(os.new_space(), Ok(SpaceId(number)));
    }
    assert_eq!(os.new_space(), Err(OsError::TooManyProcesses));
    for number in [7, 3] {
        os.clear_space(SpaceId(number), true).unwrap();
    }
    // A program that replaces another keeps its number.
    os.clear_space(SpaceId(5), false).unwrap();
    assert_eq!((os.new_space(), os.new_space()), (Ok(SpaceId(7)), Ok(SpaceId(3))));
    assert_eq!(os.new_space(), Err(OsError::TooManyProcesses));
}

#[test]
fn first_touch_fills_the_first_tier_then_spills() {
    let mut os = os(PagePolicy::Base, Placement::FirstTouch, 100);
    os.new_space().unwrap();
    map(&mut os, 0, 100 << 12);
    for page in 0..100 {
        os.fault(SpaceId(0), VirtAddr::of_vpn(page), &[]).unwrap();
    }
    // 96 pages beside the 4 pages of the page table.
    assert_eq!((0..100).filter(|&p| tier_at(&os, VirtAddr::of_vpn(p)) == 0).count(), 96);
    assert_eq!(os.used_frames(TierId(0)), 100);
    assert_eq!(os.used_frames(TierId(1)), 4);
    assert_eq!(os.resident(), [100, 0, 0]);
}

#[test]
fn interleave_and_weights_alternate() {
    let mut even = os(PagePolicy::Base, Placement::Interleave, 1000);
    even.new_space().unwrap();
    let mut weighted = os(PagePolicy::Base, Placement::WeightedInterleave { weights: vec![3, 1] }, 1000);
    weighted.new_space().unwrap();
    for os in [&mut even, &mut weighted] {
        map(os, 0, 16 << 12);
        for page in 0..16 {
            os.fault(SpaceId(0), VirtAddr::of_vpn(page), &[]).unwrap();
        }
    }
    let slow = |os: &Os| (0..16).filter(|&p| tier_at(os, VirtAddr::of_vpn(p)) == 1).count();
    assert_eq!((slow(&even), slow(&weighted)), (8, 4));
}

#[test]
fn a_ratio_holds_in_every_group() {
    for first in [0, 1, 33, 50, 80, 99, 100] {
        let mut os = os(PagePolicy::Base, Placement::Ratio { first, group: 100 }, 1000);
        os.new_space().unwrap();
        map(&mut os, 0x1000_0000, 300 << 12);
        for page in 0..300 {
            os.fault(SpaceId(0), VirtAddr(0x1000_0000 + (page << 12)), &[]).unwrap();
        }
        for page in 0..300u64 {
            let expected = u8::from(page % 100 >= u64::from(first));
            assert_eq!(tier_at(&os, VirtAddr(0x1000_0000 + (page << 12))), expected, "{first}: page {page}");
        }
    }
}

/// The first page of the area lies in the fast tier, whatever its address.
#[test]
fn copies_after_a_fork_keep_the_ratio_of_their_area() {
    let start = VirtAddr::of_vpn(0x1_0003);
    let mut os = os(PagePolicy::Base, Placement::Ratio { first: 1, group: 4 }, 1000);
    os.new_space().unwrap();
    map(&mut os, start.0, 8 << 12);
    let pages = AddressRange::new(start.0, 8 << 12);
    for page in pages.base_pages() {
        os.fault(SpaceId(0), page, &[]).unwrap();
    }
    let tiers = |os: &Os| pages.base_pages().map(|page| tier_at(os, page)).collect::<Vec<_>>();
    let before = tiers(&os);
    os.fork(SpaceId(0)).unwrap();
    for page in pages.base_pages() {
        let leaf = os.table(SpaceId(0)).find(page).unwrap();
        let copy = os.break_sharing(SpaceId(0), page, &leaf).unwrap().unwrap();
        assert!(copy.copied_from.is_some());
    }
    assert_eq!(tiers(&os), before);
    assert_eq!(before.iter().filter(|tier| **tier == 0).count(), 2);
}

#[test]
fn binding_to_a_full_tier_fails_with_its_name() {
    let mut os = os(PagePolicy::Base, Placement::Bind { tier: "slow".to_owned() }, 10);
    os.new_space().unwrap();
    map(&mut os, 0, 20 << 12);
    let error = (0..20).find_map(|page| os.fault(SpaceId(0), VirtAddr::of_vpn(page), &[]).err()).unwrap();
    assert!(error.to_string().contains("slow is full"), "{error}");
}

#[test]
fn thp_maps_huge_pages_only_where_an_area_holds_them_whole() {
    let mut os = os(PagePolicy::Thp, Placement::FirstTouch, 4096);
    os.new_space().unwrap();
    map(&mut os, 0x1f_f000, 0x40_1000); // one page before 2 MiB, up to 6 MiB
    assert_eq!(os.fault(SpaceId(0), VirtAddr(0x1f_f000), &[]).unwrap().size, PageSize::Base);
    assert_eq!(os.fault(SpaceId(0), VirtAddr(0x20_0000), &[]).unwrap().size, PageSize::Huge);
    os.advise(SpaceId(0), AddressRange::new(0x40_0000, 0x20_0000), Advice::NoHugePage).unwrap();
    assert_eq!(os.fault(SpaceId(0), VirtAddr(0x40_0000), &[]).unwrap().size, PageSize::Base);
    // Unmapping a part splits the huge page and frees just that part.
    os.unmap(SpaceId(0), AddressRange::new(0x30_0000, 0x1000)).unwrap();
    assert_eq!(os.changes.stale_pages(), 2, "the huge page that was split, and the part of it");
    assert_eq!(os.resident(), [2 + 511, 0, 0]);
    assert!(os.table(SpaceId(0)).find(VirtAddr(0x30_0000)).is_none());
    assert_eq!(os.table(SpaceId(0)).find(VirtAddr(0x2f_f000)).unwrap().size, PageSize::Base);
    assert_eq!(os.counters.splits, 1);
}

#[test]
fn a_fork_shares_until_someone_writes() {
    let mut os = os(PagePolicy::Base, Placement::FirstTouch, 1000);
    os.new_space().unwrap();
    map(&mut os, 0, 2 << 12);
    os.fault(SpaceId(0), VirtAddr(0), &[]).unwrap();
    os.fault(SpaceId(0), VirtAddr(4096), &[]).unwrap();
    let child = os.fork(SpaceId(0)).unwrap();
    assert_eq!(os.resident(), [2, 0, 0]);
    let leaf = os.table(child).find(VirtAddr(0)).unwrap();
    assert!(leaf.pte.is_copy_on_write());
    let copy = os.break_sharing(child, VirtAddr(0), &leaf).unwrap().unwrap();
    assert_eq!(copy.copied_from, Some(leaf.pte.frame()));
    assert_eq!(os.resident(), [3, 0, 0]);
    // The parent is alone with its page now: it keeps it.
    let leaf = os.table(SpaceId(0)).find(VirtAddr(0)).unwrap();
    assert_eq!(os.break_sharing(SpaceId(0), VirtAddr(0), &leaf).unwrap(), None);
    os.clear_space(child, true).unwrap();
    assert_eq!(os.resident(), [2, 0, 0]);
    os.clear_space(SpaceId(0), true).unwrap();
    assert_eq!(os.resident(), [0, 0, 0]);
    assert_eq!(os.used_frames(TierId(0)), 0, "page tables are freed too");
}

#[test]
fn remap_moves_pages_without_a_new_frame() {
    let mut os = os(PagePolicy::Base, Placement::FirstTouch, 1000);
    os.new_space().unwrap();
    map(&mut os, 0x10_0000, 4 << 12);
    let frame = os.fault(SpaceId(0), VirtAddr(0x10_1000), &[]).unwrap().frame;
    os.remap(SpaceId(0), AddressRange::new(0x10_0000, 4 << 12), AddressRange::new(0x80_0000, 8 << 12))
        .unwrap();
    assert!(os.table(SpaceId(0)).find(VirtAddr(0x10_1000)).is_none());
    assert_eq!(os.table(SpaceId(0)).find(VirtAddr(0x80_1000)).unwrap().pte.frame(), frame);
    assert!(os.areas(SpaceId(0)).find(VirtAddr(0x80_7fff)).is_some());
}

#[derive(Clone, Debug)]
enum Step {
    Map(u64, u64),
    Unmap(u64, u64),
    Touch(u64),
    DontNeed(u64, u64),
    Remap(u64, u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let page = 0u64..2048;
    let len = 1u64..700;
    prop_oneof![
        (page.clone(), len.clone()).prop_map(|(p, l)| Step::Map(p, l)),
        (page.clone(), len.clone()).prop_map(|(p, l)| Step::Unmap(p, l)),
        page.clone().prop_map(Step::Touch),
        page.clone().prop_map(Step::Touch),
        page.clone().prop_map(Step::Touch),
        (page.clone(), len.clone()).prop_map(|(p, l)| Step::DontNeed(p, l)),
        (page.clone(), len, page).prop_map(|(p, l, q)| Step::Remap(p, l, q)),
    ]
}

proptest! {
    /// Whatever a program does, frames in use are exactly those that page tables map or are made of.
    #[test]
    fn no_frame_is_lost(policy in 0usize..3, steps in prop::collection::vec(step(), 0..60)) {
        let policy = [PagePolicy::Base, PagePolicy::Thp, PagePolicy::Huge][policy];
        let mut os = os(policy, Placement::FirstTouch, 8192);
        os.new_space().unwrap();
        let range = |page: u64, pages: u64| AddressRange::new(page << 12, pages << 12);
        for step in steps {
            match step {
                Step::Map(page, pages) => map(&mut os, page << 12, pages << 12),
                Step::Unmap(page, pages) => { os.unmap(SpaceId(0), range(page, pages)).unwrap(); }
                Step::Touch(page) => {
                    if os.table(SpaceId(0)).find(VirtAddr::of_vpn(page)).is_none() {
                        os.fault(SpaceId(0), VirtAddr::of_vpn(page), &[]).unwrap();
                    }
                }
                Step::DontNeed(page, pages) => { os.advise(SpaceId(0), range(page, pages), Advice::DontNeed).unwrap(); }
                Step::Remap(page, pages, to) => {
                    if range(page, pages).overlaps(&range(to, pages)) { continue; }
                    os.remap(SpaceId(0), range(page, pages), range(to, pages)).unwrap();
                }
            }
            let mapped = os.table(SpaceId(0)).pages_in(AddressRange::new(0, 1 << 40));
            let mut frames: Vec<(u64, u64)> =
                mapped.iter().map(|(_, size, pte)| (pte.frame().0, size.base_pages())).collect();
            frames.sort_unstable();
            prop_assert!(frames.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "a frame is mapped twice");
            let pages: u64 = frames.iter().map(|f| f.1).sum();
            prop_assert_eq!(pages, os.resident().iter().sum::<u64>());
            let used = os.used_frames(TierId(0)) + os.used_frames(TierId(1));
            prop_assert_eq!(used, pages + os.table_pages());
        }
    }
}
