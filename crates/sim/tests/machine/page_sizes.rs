//! Promotion and demotion change how memory is mapped and nothing of what it holds, and an order that fails midway leaves
//! the address space as it was.

use crate::support::probe::*;
use crate::support::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use terrace_model::{Bytes, Frame, PageSize, TierId};
use terrace_policy::*;
use terrace_sim::design::{Design, PagePolicy};
use terrace_trace::AccessKind;

const TIER: TierId = TierId(0);
/// Instructions that take about a microsecond.
const MICROSECOND: u64 = 4600;
/// Where a program computes that leaves the pages at [`DATA`] alone.
const ELSEWHERE: u64 = DATA + 16 * GIB;

/// One tier with room for so many pages, page tables included.
fn machine(pages: u64, size: PagePolicy) -> Design {
    let sets = [("os.reserved", "0 B"), ("core.count", "2"), ("os.zero_bandwidth", "1000 GB/s")];
    let mut design = with_pages(design("native-4k", "skylake-6140", &sets), size);
    design.tiers.truncate(1);
    design.tiers[0].capacity = Bytes(pages * PAGE);
    design
}

fn page(number: u64) -> PageId {
    PageId::new(0, (DATA >> 12) + number)
}

/// Pages of the program's at [`DATA`] as they are mapped, and how many frames are used and 2 MiB blocks free.
#[derive(Clone, Debug, PartialEq)]
struct Space {
    pages: Vec<(u64, PageSize, Frame)>,
    /// Base pages that hold what was stored; of larger pages only how many do.
    stored: BTreeSet<u64>,
    stored_in_large: u64,
    used: u64,
    free_blocks: (u64, u64),
}

fn look(memory: &mut dyn MemorySystem) -> Space {
    let mut pages = Vec::new();
    memory.scan(Scope::All, &mut ScanHand::default(), Clear::NOTHING, &mut |view| {
        if view.page.space == page(0).space && view.page < PageId::new(0, ELSEWHERE >> 12) {
            assert!(!view.in_flight, "{:?} is still on the move", view.page);
            pages.push((view.page.vpn - page(0).vpn, view.size, view.frame.unwrap()));
        }
        Step::Keep
    });
    let (mut stored, mut stored_in_large) = (BTreeSet::new(), 0);
    for (at, size, _) in &pages {
        let of = size.base_pages() - memory.zero_pages(page(*at)).unwrap();
        match size {
            PageSize::Base if of == 1 => _ = stored.insert(*at),
            PageSize::Base => {}
            _ => stored_in_large += of,
        }
    }
    let used = memory.topology().tiers[0].used.0 / PAGE;
    let free_blocks = memory.physical().unwrap().free_blocks(TIER, PageSize::Huge);
    Space { pages, stored, stored_in_large, used, free_blocks }
}

/// Maps `bytes`, stores to base pages of it, and computes elsewhere for `micros`; then `event` and as much again.
fn program(bytes: u64, stored: &BTreeSet<u64>, micros: u64, event: impl Fn(&mut Program)) -> Program {
    let mut program = Program::new();
    program.map(DATA, bytes).map(ELSEWHERE, PAGE).write(ELSEWHERE);
    for at in stored {
        program.write(DATA + at * PAGE);
    }
    let compute = |program: &mut Program, micros: u64| {
        for _ in 0..10 {
            program.access(ELSEWHERE, 8, AccessKind::Read, 0, micros * MICROSECOND / 10);
        }
    };
    compute(&mut program, micros);
    event(&mut program);
    compute(&mut program, micros.max(2000));
    program
}

fn step(
    at: u64,
    log: &Arc<Mutex<Vec<Space>>>,
    give: impl Fn(&mut dyn MemorySystem) + Send + 'static,
) -> TimedStep {
    let log = Arc::clone(log);
    (
        at,
        Box::new(move |memory| {
            log.lock().unwrap().push(look(memory));
            give(memory);
        }),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// Whatever was stored is there in the large page and again in the small ones, and without the zeros that came with the
    /// large page the same pages are mapped as before.
    #[test]
    fn demotion_after_promotion_gives_back_what_was_there(
        // Two or so of the six: a page of 1 GiB takes seconds to zero and to copy.
        giant in prop::bool::weighted(0.3),
        pages in prop::collection::btree_set(0..512u64, 1..300),
        spread in 1..512u64,
    ) {
        let size = if giant { PageSize::Giant } else { PageSize::Huge };
        let stored: BTreeSet<u64> = pages.iter().map(|at| if giant { at * spread } else { *at }).collect();
        let millis = if giant { 600 } else { 3 };
        let design = machine(if giant { 3 << 18 } else { 4096 }, PagePolicy::Base);
        let program = program(GIB, &stored, 5 * millis * 1000, |_| {});
        let log = Arc::default();
        let resize = |to: PageSize| move |memory: &mut dyn MemorySystem| {
            memory.resize(&[Resize { page: page(0), to }]);
        };
        let zeros = {
            let stored = stored.clone();
            move |memory: &mut dyn MemorySystem| {
                let zeros: Vec<PageId> =
                    (0..size.base_pages()).filter(|at| !stored.contains(at)).map(page).collect();
                memory.drop_zeros(&zeros);
            }
        };
        let at = |times: u64| (1 + times) * millis * 1_000_000;
        let signals = at_times(&program, &design, vec![
            step(at(0), &log, resize(size)),
            step(at(1), &log, resize(PageSize::Base)),
            step(at(2), &log, zeros),
            step(at(3), &log, |_| {}),
        ]);
        prop_assert!(outcomes(&signals).iter().all(|outcome| *outcome == Outcome::Done), "{signals:?}");
        let log = log.lock().unwrap();
        let [before, promoted, demoted, after] = &log[..] else { panic!("{} looks", log.len()) };
        prop_assert_eq!(&before.stored, &stored);
        prop_assert_eq!(promoted.pages.len(), 1);
        prop_assert_eq!((promoted.pages[0].1, promoted.stored_in_large), (size, stored.len() as u64));
        prop_assert_eq!(demoted.pages.len() as u64, size.base_pages());
        prop_assert_eq!(&demoted.stored, &stored);
        let mapped = |space: &Space| space.pages.iter().map(|(at, size, _)| (*at, *size)).collect::<Vec<_>>();
        prop_assert_eq!(mapped(after), mapped(before));
        prop_assert_eq!(&after.stored, &before.stored);
        // The tables that the large page replaced are used again; where nothing lay there was none, and it is kept.
        let ranges: BTreeSet<u64> = stored.iter().map(|at| at / 512).collect();
        let tables = if giant { 512 - ranges.len() as u64 } else { 0 };
        prop_assert_eq!(after.used, before.used + tables);
    }
}

/// What happens between an order and its end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    NoBlock,
    Unmapped,
    Forked,
}

/// The address space before an order that fails and after, and the answer. The order comes a millisecond after the pages
/// were stored to, the event 150 us after it, while 2 MiB are being copied.
fn failing(
    pages: PagePolicy,
    frames: u64,
    event: Event,
    order: fn(&mut dyn MemorySystem),
) -> (Space, Space, Vec<Outcome>) {
    let design = machine(frames, pages);
    let stored: BTreeSet<u64> = (0..512).collect();
    // Faults: 512 of 0.7 us, or one of 0.84 ms.
    let faults = if pages == PagePolicy::Base { 370 } else { 850 };
    let program = program(2 * MIB, &stored, 1150, |program| match event {
        Event::NoBlock => {}
        Event::Unmapped => _ = program.unmap(DATA + 100 * PAGE, PAGE),
        Event::Forked => {
            program.on(1).spawn(1, 0, Some(0));
            program.read(ELSEWHERE).on(0);
        }
    });
    let log = Arc::default();
    let steps = vec![step((faults + 1000) * 1000, &log, order), step((faults + 3000) * 1000, &log, |_| {})];
    let outcomes = outcomes(&at_times(&program, &design, steps));
    let mut log = log.lock().unwrap();
    let (after, before) = (log.pop().unwrap(), log.pop().unwrap());
    (before, after, outcomes)
}

#[test]
fn a_collapse_that_fails_midway_leaves_all_as_it_was() {
    let collapse = |memory: &mut dyn MemorySystem| {
        memory.resize(&[Resize { page: page(0), to: PageSize::Huge }]);
    };
    // The first 2 MiB hold page tables, and the rest is less.
    let (before, after, outcomes) = failing(PagePolicy::Base, 1000, Event::NoBlock, collapse);
    assert_eq!((outcomes, before.free_blocks), (vec![Outcome::NoSpace], (0, 0)));
    assert_eq!((before.pages.len(), &before), (512, &after));

    let (mut before, after, outcomes) = failing(PagePolicy::Base, 4096, Event::Unmapped, collapse);
    assert_eq!(outcomes, [Outcome::Gone]);
    before.pages.retain(|(at, _, _)| *at != 100);
    before.stored.remove(&100);
    before.used -= 1;
    assert_eq!(
        (before.pages.len(), before),
        (511, after),
        "only the page that the program gave back is gone"
    );

    let (before, after, outcomes) = failing(PagePolicy::Base, 4096, Event::Forked, collapse);
    assert_eq!(outcomes, [Outcome::Busy]);
    assert_eq!((&before.pages, &before.stored), (&after.pages, &after.stored));
    // The child has a root, a table below it, two more for either place, and no block.
    assert_eq!(after.used - before.used, 1 + 1 + 2 * 2);
}

#[test]
fn a_relocation_that_fails_midway_leaves_all_as_it_was() {
    let relocate = |memory: &mut dyn MemorySystem| {
        let from = memory.page(page(0)).unwrap().frame.unwrap();
        let to = Frame(if from.0 == 1024 { 1536 } else { 1024 });
        memory
            .physical()
            .unwrap()
            .relocate(&[Relocate { from, to, exchange: false }], MoveOptions::default());
    };
    let (before, after, outcomes) = failing(PagePolicy::Thp, 4096, Event::Unmapped, relocate);
    assert_eq!(outcomes, [Outcome::Gone]);
    assert_eq!((before.pages.len(), before.stored_in_large), (1, 512));
    // The kernel splits the page to unmap a part of it.
    let first = before.pages[0].2;
    let expected: Vec<_> =
        (0..512).filter(|at| *at != 100).map(|at| (at, PageSize::Base, Frame(first.0 + at))).collect();
    assert_eq!((after.pages, after.stored.len()), (expected, 511));
    assert_eq!(after.free_blocks, before.free_blocks, "the destination is free again");

    let (before, after, outcomes) = failing(PagePolicy::Thp, 4096, Event::Forked, relocate);
    assert_eq!(outcomes, [Outcome::Busy]);
    assert_eq!((before.pages, before.stored_in_large), (after.pages, after.stored_in_large));
    assert_eq!(after.free_blocks, before.free_blocks);
}
