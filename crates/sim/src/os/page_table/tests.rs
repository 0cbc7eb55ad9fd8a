use super::super::changes::Changes;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use terrace_model::SpaceId;

fn frames() -> impl FnMut() -> Option<Frame> {
    let mut next = 1000;
    move || {
        next += 1;
        Some(Frame(next))
    }
}

#[test]
fn entry_addresses_by_hand() {
    let mut changes = Changes::default();
    let mut table = PageTable::new(4, Frame(1));
    let addr = (3 << 39) | (5 << 30) | (7 << 21) | (9 << 12);
    let mut next = 1;
    table
        .map(VirtAddr(addr), PageSize::Base, Pte::new(Frame(77)), &mut changes.door(SpaceId(0)), || {
            next += 1;
            Some(Frame(next))
        })
        .unwrap();
    let leaf = table.find(VirtAddr(addr + 5)).unwrap();
    assert_eq!((leaf.pte.frame(), leaf.size), (Frame(77), PageSize::Base));
    let addresses: Vec<u64> =
        (1..=4).rev().map(|level| table.entry_address(&leaf, VirtAddr(addr), level).0).collect();
    assert_eq!(addresses, [0x1000 + 24, 0x2000 + 40, 0x3000 + 56, 0x4000 + 72]);
    assert_eq!(table.table_pages(), 4);
}

#[test]
fn a_huge_page_needs_an_empty_place() {
    let mut changes = Changes::default();
    let mut table = PageTable::new(4, Frame(1));
    table
        .map(VirtAddr(0x20_1000), PageSize::Base, Pte::new(Frame(5)), &mut changes.door(SpaceId(0)), frames())
        .unwrap();
    assert!(
        table
            .map(
                VirtAddr(0x20_0000),
                PageSize::Huge,
                Pte::new(Frame(512)),
                &mut changes.door(SpaceId(0)),
                frames()
            )
            .is_none()
    );
    assert!(!table.is_region_empty(VirtAddr(0x20_0000), PageSize::Huge));
    table.unmap(VirtAddr(0x20_1000), &mut changes.door(SpaceId(0))).unwrap();
    assert!(
        table
            .map(
                VirtAddr(0x20_0000),
                PageSize::Huge,
                Pte::new(Frame(512)),
                &mut changes.door(SpaceId(0)),
                frames()
            )
            .is_some()
    );
    assert_eq!(table.find(VirtAddr(0x3f_ffff)).unwrap().size, PageSize::Huge);
    assert!(
        table
            .map(
                VirtAddr(0x20_1000),
                PageSize::Base,
                Pte::new(Frame(5)),
                &mut changes.door(SpaceId(0)),
                frames()
            )
            .is_none()
    );
}

#[test]
fn a_table_that_a_larger_page_replaced_is_used_again() {
    let mut changes = Changes::default();
    let mut table = PageTable::new(4, Frame(1));
    let (mut asked, giant) = (0, PageSize::Giant.bytes());
    let mut frame = || {
        asked += 1;
        Some(Frame(asked))
    };
    for round in 0..3 {
        for at in (0..giant).step_by(4096 << 9) {
            table
                .map(
                    VirtAddr(at),
                    PageSize::Base,
                    Pte::new(Frame(round)),
                    &mut changes.door(SpaceId(0)),
                    &mut frame,
                )
                .unwrap();
        }
        assert_eq!(table.pages_in(AddressRange::new(0, giant)).len(), 512, "nothing else is in them");
        for at in (0..giant).step_by(4096 << 9) {
            table.unmap(VirtAddr(at), &mut changes.door(SpaceId(0))).unwrap();
        }
        table
            .map(VirtAddr(0), PageSize::Giant, Pte::new(Frame(0)), &mut changes.door(SpaceId(0)), &mut frame)
            .unwrap();
        table.unmap(VirtAddr(0), &mut changes.door(SpaceId(0))).unwrap();
    }
    // Below the root one table for 512 GiB, one for 1 GiB and 512 for 2 MiB each.
    assert_eq!((table.table_pages(), asked), (1 + 514, 514));
}

/// The tables that hang from `table`, itself included.
fn reachable(table: &PageTable, number: u32) -> Vec<u32> {
    let mut all = vec![number];
    for entry in table.entries[number as usize] {
        if entry & (Pte::PRESENT | Pte::LEAF) == Pte::PRESENT {
            all.extend(reachable(table, (entry >> 12) as u32));
        }
    }
    all
}

proptest! {
    #[test]
    fn agrees_with_a_map(levels in 4u32..=5, steps in prop::collection::vec((0u64..64, 0usize..3, any::<bool>()), 0..200)) {
        let mut changes = Changes::default();
        let mut table = PageTable::new(levels, Frame(1));
        let mut reference: BTreeMap<u64, (PageSize, u64)> = BTreeMap::new();
        let mut frame = frames();
        for (place, size, unmap) in steps {
            // Addresses that are neighbours at every level.
            let addr = (place & 3) << 12 | (place >> 2 & 3) << 21 | (place >> 4) << 30;
            let size = PageSize::ALL[size];
            let addr = addr & !(size.bytes() - 1);
            let covering = reference.range(..=addr).next_back()
                .filter(|(start, page)| **start + page.0.bytes() > addr).map(|(s, p)| (*s, *p));
            if unmap {
                let removed = table.unmap(VirtAddr(addr), &mut changes.door(SpaceId(0))).map(|leaf| (leaf.size, leaf.pte.frame().0));
                prop_assert_eq!(removed, covering.map(|(_, page)| page));
                if let Some((start, _)) = covering { reference.remove(&start); }
            } else {
                let free = covering.is_none() && reference.range(addr..addr + size.bytes()).next().is_none();
                prop_assert_eq!(table.is_region_empty(VirtAddr(addr), size), free);
                let number = addr >> 12;
                let mapped = table.map(VirtAddr(addr), size, Pte::new(Frame(number)), &mut changes.door(SpaceId(0)), &mut frame).is_some();
                prop_assert_eq!(mapped, free);
                if free { reference.insert(addr, (size, number)); }
            }
        }
        let all: Vec<_> = table.pages_in(AddressRange::new(0, 1 << 40)).iter()
            .map(|(a, s, p)| (a.0, (*s, p.frame().0))).collect();
        prop_assert_eq!(all, reference.into_iter().collect::<Vec<_>>());
        // Every table hangs in one place or waits, empty, to be used.
        let mut tables = reachable(&table, 0);
        tables.extend(&table.spare);
        tables.sort_unstable();
        prop_assert_eq!(tables, (0..table.table_pages() as u32).collect::<Vec<_>>());
        prop_assert!(table.spare.iter().all(|number| table.entries[*number as usize] == [0; 512]));
    }
}
