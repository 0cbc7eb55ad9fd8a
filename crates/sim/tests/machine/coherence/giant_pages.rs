//! Histories with pages of 1 GiB, in a machine that has room for some: they are made and split, lie on others' pages, and
//! change places.

use super::histories::relocations;
use super::*;

const PAGES_OF_GIB: u64 = GIB / PAGE;

/// A machine of 6 and 4 GiB; its guest, if it has one, of 4 and 3.
fn giant_machine(coherence: &str, pages: PagePolicy, host: Option<PagePolicy>) -> Design {
    let mut design = machine(2, "radix", coherence);
    (design.tiers[0].capacity, design.tiers[1].capacity) = (Bytes::gib(6), Bytes::gib(4));
    design.os.pages = pages;
    let Some(host) = host else { return design };
    design = histories::in_vm(design, host);
    let tiers = &mut design.vm.as_mut().unwrap().tiers;
    (tiers[0].capacity, tiers[1].capacity) = (Bytes::gib(4), Bytes::gib(3));
    let tlb = PageWalkCacheParameters { entries: 8, ..design.translation.page_walk_cache.clone() };
    design.translation.nested = Some(NestedParameters { tlb, ..NestedParameters::default() });
    design
}

/// Two threads read and write in 2 GiB, of which parts are unmapped, dropped, protected and moved, and a child shares them
/// for a while. There are seconds between the changes, as long as it takes to make a page of 1 GiB.
fn churn(seed: u64, rounds: u32) -> Program {
    let mut random = Random(seed);
    let mut program = Program::new();
    program.map(DATA, 2 * GIB).on(1).spawn(0, 1, None);
    let mut forked = false;
    for _ in 0..rounds {
        for thread in 0..2 {
            program.on(thread);
            for _ in 0..75 {
                let addr = DATA + random.below(2 * PAGES_OF_GIB) / 499 * 499 * PAGE + random.below(64) * 64;
                let kind = if random.below(3) == 0 { AccessKind::Write } else { AccessKind::Read };
                program.access(addr, 8, kind, 0, 1 + random.below(20_000_000));
            }
            program.mark(MarkKind::Barrier);
        }
        program.on(random.below(2) as u32);
        let (start, bytes) = (DATA + random.below(PAGES_OF_GIB) * PAGE, (1 + random.below(2000)) * PAGE);
        let range = AddressRange::new(start, bytes);
        let away = DATA + 4 * GIB;
        match random.below(7) {
            0 => _ = program.unmap(start, bytes).map(start, bytes),
            1 => _ = program.event(Event::Advise { range, advice: Advice::DontNeed }),
            2 => _ = program.event(Event::Protect { range, protection: Protection::READ }),
            3 => _ = program.remap((DATA, GIB), (away, GIB)).remap((away, GIB), (DATA, GIB)),
            4 => _ = program.remap((DATA, GIB), (away + PAGE, GIB)).map(DATA, GIB).unmap(away + PAGE, GIB),
            5 if !std::mem::replace(&mut forked, true) => {
                program.on(2).spawn(1, 0, Some(0));
                (0..4).for_each(|page| _ = program.write(DATA + page * 100 * MIB));
                program.exit(true);
            }
            _ => {}
        }
        program.mark(MarkKind::Barrier);
    }
    program
}

/// Makes pages of all sizes of each other, and moves, exchanges and watches them.
fn meddler(seed: u64) -> impl FnMut(Moment, &[Signal], &mut dyn MemorySystem) -> NextTick + Send {
    let mut random = Random(seed);
    move |now, _, memory| {
        let mut pages = Vec::new();
        let clear = Clear { accessed: true, dirty: true, flush: random.below(2) == 0 };
        let mut hand = ScanHand { next: PageId::new(0, (DATA >> 12) + random.below(2 * PAGES_OF_GIB)) };
        memory.scan(Scope::All, &mut hand, clear, &mut |view| {
            pages.push(view.page);
            match random.below(2) {
                // What was split into base pages is many.
                _ if pages.len() > 2000 => Step::Stop,
                0 => Step::Clear,
                _ => Step::Keep,
            }
        });
        if pages.is_empty() {
            return every(now, 1_000_000);
        }
        let mut one = || pages[random.below(pages.len() as u64) as usize];
        let (first, second) = (one(), one());
        let copy = match NonZeroU16::new(random.below(1024) as u16) {
            Some(pairs) if pairs.get() <= 512 => CopyBy::Mapping(pairs),
            _ => CopyBy::Bytes,
        };
        let how = MoveOptions { copy, ..MoveOptions::default() };
        match random.below(8) {
            0..=2 => _ = memory.resize_by(&[giant(first), giant(second)], copy),
            3 => {
                let to = PageSize::Huge;
                memory.resize_by(&[Resize { page: first.aligned(to), to }], copy);
            }
            4 => {
                let to = TierId(random.below(2) as u8);
                memory.migrate(&[Move { page: first.aligned(PageSize::Giant), to }], how);
            }
            5 => _ = memory.exchange(&[Exchange { one: first, other: second }], how),
            6 => {
                let Some(physical) = memory.physical() else { panic!("frames are shown") };
                let moves = relocations(&mut random, physical, PageSize::Giant);
                physical.relocate(&moves, how);
            }
            _ => memory.watch(&[first, second], Watch::Hint),
        }
        every(now, 300_000_000 + random.below(700_000_000))
    }
}

fn giant(page: PageId) -> Resize {
    Resize { page: page.aligned(PageSize::Giant), to: PageSize::Giant }
}

/// Pages of 1 GiB that faults brought, pages that a policy joined, and pages that were split, of either system.
fn came_about(outcome: &Outcome, system: &str) -> [u64; 3] {
    let vmstat = if system == "host" { "host.vmstat" } else { "vmstat" };
    let names = [
        format!("{system}.faults_by_size.1g"),
        format!("{vmstat}.thp_collapse_alloc"),
        format!("{system}.splits"),
    ];
    names.map(|name| count(outcome, &name))
}

#[test]
#[ignore = "weekly"]
fn nobody_goes_on_with_a_page_of_1_gib_that_was() {
    let of_pages = [
        (PagePolicy::Giant, None),
        (PagePolicy::Huge, None),
        (PagePolicy::Huge, Some(PagePolicy::Giant)),
        (PagePolicy::Giant, Some(PagePolicy::Huge)),
    ];
    let mut sum = [[0; 3]; 2];
    for (round, coherence) in histories::COHERENCE_SCHEMES.into_iter().enumerate() {
        for (number, (pages, host)) in of_pages.into_iter().enumerate().skip(round % 2).step_by(2) {
            let seed = (10 * round + number) as u64;
            let design = giant_machine(coherence, pages, host);
            let signals = SignalSet::of(SignalKind::ALL);
            let mut options = Options { whole: true, ..Options::default() };
            if host.is_some() {
                options = on_host(signals, meddler(seed ^ 1));
            }
            let options = in_guest(options, signals, meddler(seed));
            let options = Options { fidelity: Fidelity::Translation, ..options };
            // Two systems that copy pages of 1 GiB are slow.
            let rounds = if host.is_some() { 1 } else { 4 };
            let outcome = run_with(&design, &mut churn(seed, rounds).source(), options).unwrap();
            for (sum, os) in sum.iter_mut().zip(["os", "host"]).take(if host.is_some() { 2 } else { 1 }) {
                let found = came_about(&outcome, os);
                sum.iter_mut().zip(found).for_each(|(sum, found)| *sum += found);
            }
        }
    }
    assert!(
        sum.as_flattened().iter().all(|sum| *sum > 2),
        "{sum:?}: faults, collapses, splits of either system"
    );
}
