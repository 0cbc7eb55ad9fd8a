//! The hypervisor under a calibrated machine.

use super::*;
use terrace_model::PageSize;

/// A guest whose base pages take so long beyond the TLBs, and its pieces of huge pages.
fn guest(base: f64, pieces: f64) -> Measured {
    let mut machine = zen5();
    machine.base_translation.push(Point { pages: 8192, extra: exact(base), quiet: base });
    machine.base_translation.sort_by_key(|point| point.pages);
    machine.pieces = Some(Point { pages: 8192, extra: exact(pieces), quiet: pieces });
    machine
}

fn design_of(machine: &Measured) -> (String, Resolved) {
    let text = write(machine, &base_of("zen5-turin"), "2026-11-29");
    (text.clone(), parse(&text).unwrap())
}

#[test]
fn huge_pages_that_miss_tlbs_lie_on_base_pages_of_the_host() {
    let (text, resolved) = design_of(&guest(20.0, 13.0));
    let hypervisor = resolved.design.hypervisor.unwrap();
    assert_eq!(hypervisor.pages, PageSize::Base);
    assert!(text.contains("# The guest's huge pages miss TLBs that would hold them"), "{text}");
    let cited = &resolved.design.ledger.cited;
    assert!(cited.iter().any(|entry| entry.starts_with("hypervisor.pages: measured")), "{cited:?}");
    assert!(resolved.design.translation.nested.is_none(), "studies put designs under it, not the machine");
}

#[test]
fn huge_pages_that_miss_none_lie_on_huge_pages_of_the_host() {
    let (_, resolved) = design_of(&guest(20.0, 0.4));
    assert_eq!(resolved.design.hypervisor.unwrap().pages, PageSize::Huge);
}

#[test]
fn times_that_tell_nothing_are_only_noted() {
    // Between the two, and walks that take next to nothing.
    for (base, pieces) in [(20.0, 4.0), (3.0, 2.0)] {
        let (text, resolved) = design_of(&guest(base, pieces));
        assert_eq!(resolved.design.hypervisor, None);
        assert!(text.contains("# That does not tell by which pages the hypervisor maps"), "{text}");
    }
    let mut few = guest(20.0, 13.0);
    few.pieces.as_mut().unwrap().pages = 2048;
    assert_eq!(few.hypervisor_pages(), None, "TLBs may hold so few");
    assert_eq!(design_of(&zen5()).1.design.hypervisor, None);
}
