//! Sampled faults of real programs: which pages, and that no byte is lost and no call fails. How often is a question of the
//! unit tests of the sampling, and of a scenario on a virtual machine, whose time does not depend on the host's speed.
//!
//! The programs are this test binary, started again with the libraries preloaded ([`program`]).

mod helped;
use helped::{
    CHURNED, Dropper, PAGE, PLACE, PLACES, ROLE, SHARED, Started, TOUCHED, churner, entries, map, touched,
    toucher, until, wait_for_the_end, word,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_handover::entries::DONE;
use terrace_live::facts::Facts;
use terrace_live::help::Help;
use terrace_live::kernel::{Answer, Kernel, Linux};
use terrace_live::space::Dirtiness;
use terrace_live::world::{Managed, Options, World};
use terrace_policy::{
    Clear, MemorySystem, Moment, PageCount, PageId, Random, ScanHand, Scope, Signal, SignalSet, Step, Watch,
};

// --- The programs ---

/// No test, but what the tests watch.
#[test]
fn program() {
    match std::env::var(ROLE).as_deref() {
        Ok("toucher") => toucher(),
        Ok("churner") => churner(),
        Ok("caller") => caller(),
        Ok("mover") => mover(),
        _ => {}
    }
}

const CALLED: Duration = Duration::from_secs(3);
const CALLED_PAGES: u64 = 64;

/// System calls read and fill pages, while threads read all of them.
fn caller() {
    let area = map(0, 2 * CALLED_PAGES * PAGE, SHARED, -1);
    let pattern = |page: u64| page.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for at in 0..2 * CALLED_PAGES {
        // SAFETY: inside the mapping.
        (0..512).for_each(|number| unsafe { word(area + at * PAGE).add(number).write_volatile(pattern(at)) });
    }
    println!("area {area}");
    let over = AtomicBool::new(false);
    let read = || {
        let mut reads = 0u64;
        while !over.load(Ordering::Relaxed) {
            for at in 0..CALLED_PAGES {
                // SAFETY: inside the mapping.
                let found = unsafe { word(area + at * PAGE).add((reads % 512) as usize).read_volatile() };
                assert_eq!(found, pattern(at));
                reads += 1;
            }
        }
        reads
    };
    let (mut ends, mut calls) = ([0; 2], 0u64);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(read)).collect();
        // SAFETY: two numbers are filled.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        let started = Instant::now();
        while started.elapsed() < CALLED {
            for at in 0..CALLED_PAGES {
                let (from, to) = (area + at * PAGE, area + (CALLED_PAGES + at) * PAGE);
                // SAFETY: a page each, inside the mapping; nobody else uses the second.
                let (written, filled) = unsafe {
                    let written = libc::write(ends[1], from as *const _, PAGE as usize);
                    (written, libc::read(ends[0], to as *mut _, PAGE as usize))
                };
                assert_eq!((written, filled), (PAGE as isize, PAGE as isize), "a system call has failed");
                // SAFETY: as above.
                assert_eq!(unsafe { word(to).add(511).read_volatile() }, pattern(at));
                calls += 2;
            }
        }
        over.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| assert!(reader.join().unwrap() > 0));
    });
    println!("intact {calls}");
    wait_for_the_end();
}

/// Pages of a mapping that is moved: more than are registered together.
const MOVED: u64 = 1200;

/// Moves its memory as asked for by a line, and checks it.
fn mover() {
    let area = map(0, MOVED * PAGE, SHARED, -1);
    for page in 0..MOVED {
        // SAFETY: inside the mapping.
        unsafe { word(area + page * PAGE).write_volatile(page) };
    }
    println!("area {area}");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let (bytes, more) = ((MOVED * PAGE) as usize, (2 * MOVED * PAGE) as usize);
    // SAFETY: our own mapping, into which nothing refers.
    let at = unsafe { libc::mremap(area as *mut _, bytes, more, libc::MREMAP_MAYMOVE) };
    assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    for page in 0..MOVED {
        // SAFETY: inside the mapping.
        assert_eq!(unsafe { word(at as u64 + page * PAGE).read_volatile() }, page);
    }
    println!("intact");
}

// --- Watching them ---

/// None where the kernel cannot do it, and that is said.
fn helped() -> Option<(World, Help)> {
    let kernel: Arc<dyn Kernel> = Arc::new(Linux);
    let facts = Facts::discover(&*kernel);
    if let Err(missing) = facts.sampled_faults() {
        eprintln!("not tested: {missing}");
        return None;
    }
    let help = Help::start_with_sampler().unwrap();
    let trackers = Some(help.trackers().clone());
    let options = Options { trackers, managed: Managed::Sampled, ..Options::default() };
    let capabilities = facts.capabilities_with_sampled_faults();
    let mut world = World::new(kernel, facts.tiers.clone(), capabilities, &options).unwrap();
    world.serve(SignalSet::NONE, Dirtiness::Unknown);
    Some((world, help))
}

/// Time as the engine gives it.
fn look(world: &mut World, may: bool) {
    world.set_now(Moment(world.kernel().now().as_nanos() as u64));
    world.sample_faults(&mut || may);
}

fn all_pages(world: &mut World) -> Vec<PageId> {
    let mut pages = Vec::new();
    world.scan(Scope::All, &mut ScanHand::default(), Clear::NOTHING, &mut |view| {
        pages.push(view.page);
        Step::Keep
    });
    pages
}

/// All pages, once so many are managed. `may`: those that are watched are sampled meanwhile.
fn managed(world: &mut World, count: u64, may: bool) -> Vec<PageId> {
    until("all areas are managed", || {
        look(world, may);
        world.refresh();
        let pages = all_pages(world);
        (pages.len() as u64 == count).then_some(pages)
    })
}

fn counts(world: &mut World) -> Vec<PageCount> {
    let mut counts = Vec::new();
    world.counts(&mut |count| counts.push(count));
    counts
}

#[test]
fn accesses_to_sampled_pages_are_exact_to_the_page() {
    let Some((mut world, help)) = helped() else { return };
    let mut program = Started::new("toucher", &help);
    let (pid, areas) = (program.child.id(), program.read_until("areas"));
    world.adopt(pid).unwrap();
    let pages = managed(&mut world, areas.len() as u64 * TOUCHED, false);
    // The kernel reports no minor faults of System V segments; that shows when one is to be sampled.
    let areas = &areas[..2];
    let all = areas.len() as u64 * TOUCHED;
    world.watch(&pages, Watch::Count);
    let pages = managed(&mut world, all, true);
    for round in 0..4 {
        let how = if round % 2 == 0 { Watch::Count } else { Watch::Hint };
        world.watch(&pages, how);
        until("no entry is left", || {
            look(&mut world, true);
            let of = |area: &u64| entries(pid, area / PAGE..area / PAGE + TOUCHED);
            (areas.iter().map(of).sum::<usize>() == 0).then_some(())
        });
        world.refresh();
        assert_eq!(all_pages(&mut world).len() as u64, all, "what has no entry is still there");
        // The last answers, which report that the drops were done.
        std::thread::sleep(Duration::from_millis(20));
        look(&mut world, false);
        counts(&mut world);
        world.take_signals();
        program.say("touch");
        program.read_until("touched");
        // The program reads each page before it stores to it, so the fault is a load's.
        let kind = (how == Watch::Hint).then_some(false);
        let of = |area: u64| touched(round, TOUCHED).map(move |(page, _)| (area / PAGE + page, kind));
        let expected: BTreeMap<u64, Option<bool>> = areas.iter().copied().flat_map(of).collect();
        let mut found: BTreeMap<u64, Option<bool>> = BTreeMap::new();
        // The last fault is answered before it is reported.
        until("as many as were touched are found", || {
            look(&mut world, false);
            let counted = counts(&mut world).into_iter().filter(|count| count.accesses > 0);
            found.extend(counted.map(|count| (count.page.vpn, None)));
            let hint = |signal: Signal| match signal {
                Signal::HintFault { page, write, .. } => Some((page.vpn, Some(write))),
                _ => None,
            };
            found.extend(world.take_signals().into_iter().filter_map(hint));
            (found.len() >= expected.len()).then_some(())
        });
        assert!(found == expected, "round {round}: {} found of {}", found.len(), expected.len());
        world.watch(&pages, Watch::Off);
        look(&mut world, false);
    }
    // Terrace ends while entries are out.
    world.watch(&pages, Watch::Count);
    look(&mut world, true);
    drop(world);
    program.say("touch");
    program.read_until("touched");
    program.say("end");
    program.read_until("intact");
    program.end();
}

#[test]
fn system_calls_and_many_threads_get_through_sampled_pages() {
    let Some((mut world, help)) = helped() else { return };
    let mut program = Started::new("caller", &help);
    program.read_until("area");
    world.adopt(program.child.id()).unwrap();
    let pages = managed(&mut world, 2 * CALLED_PAGES, false);
    world.watch(&pages, Watch::Count);
    let started = Instant::now();
    while started.elapsed() < CALLED {
        look(&mut world, true);
        std::thread::sleep(Duration::from_millis(1));
    }
    let calls = program.read_until("intact")[0];
    let accesses = world.counters().count_faults;
    println!("{calls} calls, {accesses} sampled accesses");
    assert!(calls > 100 && accesses > 100, "too little was tried");
    program.end();
}

#[test]
fn a_mapping_can_be_moved_while_a_part_of_it_is_sampled() {
    let Some((mut world, help)) = helped() else { return };
    let mut program = Started::new("mover", &help);
    program.read_until("area");
    world.adopt(program.child.id()).unwrap();
    let pages = managed(&mut world, MOVED, false);
    // The rest of the mapping is no part of it: 2 MiB at most are registered together.
    world.watch(&pages[..1], Watch::Count);
    until("it is out", || {
        look(&mut world, true);
        (entries(program.child.id(), pages[0].vpn..pages[0].vpn + 1) == 0).then_some(())
    });
    program.say("move");
    for _ in 0..20 {
        look(&mut world, true);
        std::thread::sleep(Duration::from_millis(10));
    }
    program.read_until("intact");
    program.end();
}

/// Past the world, which is too slow for it: mappings of both kinds come and go at a place while it is registered and
/// dropped.
#[test]
fn no_byte_is_lost_while_sampled_mappings_come_and_go() {
    let Some((_, help)) = helped() else { return };
    let mut program = Started::new("churner", &help);
    let pid = program.child.id();
    let mut dropper = Dropper::of(&help, pid);
    let tracker = until("a userfaultfd is handed over", || help.trackers().take(pid));
    let mut faults = Linux.faults(pid, tracker).unwrap();
    let arena = program.read_until("arena")[0];
    let (mut done, mut accesses, mut refused) = (0, 0, 0);
    let started = Instant::now();
    let mut random = Random::new(9);
    while started.elapsed() < CHURNED - Duration::from_millis(500) {
        let at = arena + random.below(2 * PLACES) * PLACE;
        if faults.begin(at, PLACE, Answer::Page).is_err() {
            refused += 1;
        }
        done += u64::from(dropper.drop_entries(at..at + PLACE) == DONE);
        if random.below(4) == 0 {
            // No range is registered for memory that has gone meanwhile.
            let _ = faults.end(at, PLACE);
        }
        assert_eq!(faults.read(&mut |fault| accesses += u64::from(fault.pid == pid)), 0, "lost");
    }
    let turns = program.read_until("intact")[0];
    println!("{turns} turns; {done} drops, {accesses} accesses told, {refused} times private memory");
    assert!(turns > 100 && done > 100 && accesses > 100 && refused > 100, "too little was tried");
    program.end();
}
