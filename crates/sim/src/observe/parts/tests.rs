use super::*;
use terrace_model::{Histogram, SpaceId, VirtAddr};
use terrace_trace::Protection;

fn map(parts: &mut Parts, start: u64, bytes: u64, name: &str) {
    let range = AddressRange::new(start, bytes);
    let (kind, protection) = (MapKind::Anonymous, Protection::READ_WRITE);
    parts.apply(SpaceId(0), &Event::Map { range, kind, protection, name: name.to_owned() });
}

fn name_at(parts: &mut Parts, addr: VirtAddr) -> String {
    let number = parts.find(SpaceId(0), addr).1;
    parts.list[number as usize].name.clone()
}

#[test]
fn a_page_belongs_to_the_structure_that_holds_its_middle() {
    let mut parts = Parts::default();
    map(&mut parts, 0x10000, 0x10000, "/usr/lib/libm.so");
    parts.apply(SpaceId(0), &Event::Site { site: 3, name: "tree".to_owned() });
    // From the middle of the second page to just before the middle of the fourth.
    let range = AddressRange::new(0x11800, 0x2000);
    parts.apply(SpaceId(0), &Event::Alloc { object: 1, site: 3, range });
    let names: Vec<String> =
        (0..5).map(|page| name_at(&mut parts, VirtAddr(0x10000 + 0x1000 * page + 7))).collect();
    assert_eq!(names, ["libm.so", "tree", "tree", "libm.so", "libm.so"]);
    parts.apply(SpaceId(0), &Event::Free { object: 1 });
    assert_eq!(name_at(&mut parts, VirtAddr(0x11000)), "libm.so");
    // A small object that holds no middle leaves no trace.
    parts.apply(SpaceId(0), &Event::Alloc { object: 2, site: 3, range: AddressRange::new(0x12000, 64) });
    assert_eq!(name_at(&mut parts, VirtAddr(0x12000)), "libm.so");
    assert_eq!(name_at(&mut parts, VirtAddr(0x99000)), "unmapped");
}

#[test]
fn areas_without_a_name_grow_and_small_ones_are_together() {
    let mut parts = Parts::default();
    map(&mut parts, 0x4000_0000, 4 << 20, "");
    map(&mut parts, 0x4040_0000, 0x1000, "");
    map(&mut parts, 0x8000_0000, 0x1000, "");
    assert_eq!(name_at(&mut parts, VirtAddr(0x4040_0fff)), "anonymous at 0x40000000");
    assert_eq!(name_at(&mut parts, VirtAddr(0x8000_0000)), "small anonymous areas");
}

#[test]
fn a_fault_belongs_to_the_object_that_comes_to_hold_the_middle_of_its_page() {
    let mut parts = Parts::default();
    map(&mut parts, 0x10000, 0x10000, "heap");
    parts.apply(SpaceId(0), &Event::Site { site: 3, name: "tree".to_owned() });
    let took = Time::from_nanos(700);
    // A small object at its beginning faults the page in; only then comes the one in the middle, which goes again.
    parts.faulted(SpaceId(0), VirtAddr(0x11008), took);
    parts.faulted(SpaceId(0), VirtAddr(0x18000), took.times(2));
    parts.apply(SpaceId(0), &Event::Alloc { object: 1, site: 3, range: AddressRange::new(0x11400, 0x800) });
    parts.apply(SpaceId(0), &Event::Free { object: 1 });
    parts.copied(PageId::new(0, 0x11), PageSize::Base);
    let uses = parts.uses(Time::from_nanos(1));
    let cost = |name: &str| uses.iter().find(|part| part.part.name == name).unwrap().cost.clone();
    let expected = |faults, nanos, copied_bytes| {
        let time = Time::from_nanos(nanos);
        let mut fault_latency = Histogram::default();
        (0..faults).for_each(|_| fault_latency.record(nanos));
        PartCost { fault_latency, fault_time: time, copied_bytes }
    };
    assert_eq!(cost("tree"), expected(1, 700, 0));
    assert_eq!(cost("heap"), expected(1, 1400, 4096));
}

#[test]
fn the_tail_of_a_part_is_more_than_its_longest_fault() {
    let mut parts = Parts::default();
    map(&mut parts, 0x10000, 0x10000, "heap");
    for number in 0..300 {
        parts.faulted(
            SpaceId(0),
            VirtAddr(0x10000),
            Time::from_nanos(if number == 7 { 900_000 } else { 700 }),
        );
    }
    let cost = parts.uses(Time::from_nanos(1))[0].cost.clone();
    let latency = &cost.fault_latency;
    assert_eq!((latency.count, latency.quantile(0.99), latency.max), (300, 1023, 900_000));
    assert_eq!(cost.fault_time, Time::from_nanos(299 * 700 + 900_000));
}

#[test]
fn copied_pages_of_files_are_no_part_s() {
    let mut parts = Parts::default();
    map(&mut parts, 0x10000, 0x10000, "heap");
    parts.copied(PageId::new(0, 0x11), PageSize::Base);
    parts.copied_cached(3 * 4096);
    parts.copied_cached(4096);
    let copied = |part: &Part| {
        let uses = parts.clone().uses(Time::from_nanos(1));
        uses.iter().find(|other| other.part == *part).map(|part| part.cost.copied_bytes)
    };
    assert_eq!(copied(&Part { name: "heap".to_owned(), ..Part::default() }), Some(4096));
    assert_eq!(copied(&Part::page_cache()), Some(4 * 4096));
}
