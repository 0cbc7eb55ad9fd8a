//! Nimble (Yan, ch. 3), in full in `src/policies/nimble.rs`. Asked of the seam: orders that return before anything has
//! happened, an answer per page, how many pages fly at once, threads per copy, huge pages whole or split first, and
//! pairs that swap without a free frame. In-flight pages stall the program; a policy sees them as such in scans.

use crate::{millis, two_tiers};
use terrace_model::{PageSize, TierId};
use terrace_policy::*;

#[test]
fn an_order_returns_at_once_and_is_answered_page_by_page() {
    let mut world = two_tiers(2, 4).with_huge_pages();
    world.map_anonymous(0, 0, 1024);
    for vpn in [0, 512] {
        let fault = world.touch(PageId::new(0, vpn), true).unwrap();
        world.fault_in(&fault, &Placement::tier(TierId(u8::from(vpn > 0))));
    }
    let (one, other) = (PageId::new(0, 0), PageId::new(0, 512));
    let how = MoveOptions { threads: 4, in_flight: None, ..MoveOptions::default() };
    let ticket = world.exchange(&[Exchange { one, other }, Exchange { one, other: one }], how);
    assert_eq!(world.locate(one).unwrap().0, TierId(0), "nothing has happened yet");
    assert!(world.page(one).unwrap().in_flight);
    world.advance_to(Moment::START.plus(millis(1)));
    let answers: Vec<(Subject, Outcome)> = world
        .take_signals()
        .iter()
        .filter_map(|signal| match signal {
            Signal::Done { ticket: t, subject, outcome, cost } if *t == ticket => {
                assert_eq!(
                    cost.copied,
                    if *outcome == Outcome::Done { 2 * PageSize::Huge.bytes() } else { 0 }
                );
                Some((*subject, *outcome))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        answers,
        [(Subject::Pair(one, other), Outcome::Done), (Subject::Pair(one, one), Outcome::Busy)]
    );
    assert_eq!(world.locate(one).unwrap().0, TierId(1));
}
