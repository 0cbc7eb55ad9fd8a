//! Entry dropping on real programs: exact to the page, and no byte is lost.
//!
//! The programs are this test binary, started again with the libraries preloaded ([`program`]).

mod helped;
use helped::{
    CHURNED, Dropper, PAGE, PLACE, PLACES, PRIVATE, ROLE, SHARED, Started, TOUCHED, churner, entries, map,
    touched, toucher, until, word,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_handover::entries::{DONE, ELSEWHERE, LOST};
use terrace_live::facts::Facts;
use terrace_live::help::{Help, Trackers};
use terrace_live::kernel::{Kernel, Linux};
use terrace_live::space::Dirtiness;
use terrace_live::world::{Managed, Options, World};
use terrace_policy::{Clear, MemorySystem, ScanHand, Scope, SignalSet, Step};

// --- The programs ---

/// No test, but what the tests watch.
#[test]
fn program() {
    match std::env::var(ROLE).as_deref() {
        Ok("toucher") => toucher(),
        Ok("churner") => churner(),
        Ok("raw") => raw(),
        Ok("forker") => forker(),
        _ => {}
    }
}

/// Replaces shared memory by private memory past every library.
fn raw() {
    let area = map(0, PLACE, SHARED, -1);
    println!("area {area}");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, PRIVATE | libc::MAP_FIXED);
    // SAFETY: over our own mapping, into which nothing refers.
    let at = unsafe { libc::syscall(libc::SYS_mmap, area, PLACE, access, flags, -1, 0) };
    assert_eq!(at as u64, area);
    for number in 0..(PLACE / 8) as usize {
        // SAFETY: inside the mapping.
        unsafe { word(area).add(number).write_volatile(number as u64) };
    }
    println!("replaced");
    std::io::stdin().read_line(&mut line).unwrap();
    for number in 0..(PLACE / 8) as usize {
        // SAFETY: inside the mapping.
        assert_eq!(unsafe { word(area).add(number).read_volatile() }, number as u64);
    }
    println!("intact");
}

/// A child inherits the mapping, and the program waits for it.
fn forker() {
    let area = map(0, PLACE, SHARED, -1);
    // SAFETY: inside the mapping.
    unsafe { word(area).write_volatile(77) };
    // SAFETY: the child reads one line, prints, and ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: plain calls on memory and descriptors of our own; no lock of the parent's other threads is needed.
        unsafe {
            // The child's read gives its page table an entry, which is to be taken out.
            let before = word(area).read_volatile();
            let mut byte = 0u8;
            libc::read(0, (&raw mut byte).cast(), 1);
            libc::_exit(if before == 77 && word(area).read_volatile() == 77 { 0 } else { 1 });
        }
    }
    println!("child {child} {area}");
    let mut status = 0;
    // SAFETY: our own child, waited for once.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    println!("{}", if status == 0 { "intact" } else { "broken" });
}

// --- Watching them ---

/// None where the kernel cannot do it, and that is said.
fn helped() -> Option<(Facts, Help)> {
    let facts = Facts::discover(&Linux);
    if let Err(missing) = facts.drops_entries() {
        eprintln!("not tested: {missing}");
        return None;
    }
    Some((facts, Help::start_with_dropper().unwrap()))
}

fn world_with(facts: &Facts, trackers: &Trackers) -> World {
    let options =
        Options { trackers: Some(trackers.clone()), managed: Managed::EntriesDropped, ..Options::default() };
    let kernel: Arc<dyn Kernel> = Arc::new(Linux);
    let mut world =
        World::new(kernel, facts.tiers.clone(), facts.capabilities_with_entry_dropping(), &options).unwrap();
    world.serve(SignalSet::NONE, Dirtiness::Tracked);
    world
}

/// Page numbers of what the world holds for accessed, and for written.
fn marked(world: &mut World, clear: Clear) -> [BTreeSet<u64>; 2] {
    let mut marked = [BTreeSet::new(), BTreeSet::new()];
    world.scan(Scope::All, &mut ScanHand::default(), clear, &mut |view| {
        let pages = view.page.vpn..view.page.vpn + view.base_pages();
        for (is, set) in [view.accessed, view.dirty].into_iter().zip(&mut marked) {
            set.extend(pages.clone().filter(|_| is));
        }
        Step::Clear
    });
    marked
}

#[test]
fn accesses_and_stores_to_shared_memory_are_exact_to_the_page() {
    let Some((facts, help)) = helped() else { return };
    let mut program = Started::new("toucher", &help);
    let (pid, areas) = (program.child.id(), program.read_until("areas"));
    let mut world = world_with(&facts, help.trackers());
    world.adopt(pid).unwrap();
    assert_eq!(world.spaces().next().unwrap().resident_pages(), 0, "nothing is covered yet");
    let all = areas.len() as u64 * TOUCHED;
    until("all three areas are managed, and nothing else", || {
        world.look_at_entries(false);
        world.refresh();
        (world.spaces().next()?.resident_pages() == all).then_some(())
    });
    for round in 0..6 {
        world.look_at_entries(true);
        until("no entry is left", || {
            let of = |area: &u64| entries(pid, area / PAGE..area / PAGE + TOUCHED);
            (areas.iter().map(of).sum::<usize>() == 0).then_some(())
        });
        // What has no entry is still there.
        world.refresh();
        assert_eq!(world.spaces().next().unwrap().resident_pages(), all);
        marked(&mut world, Clear { accessed: true, dirty: true, ..Clear::NOTHING });
        program.say("touch");
        program.read_until("touched");
        world.look_at_entries(false);
        world.refresh();
        let [accessed, written] = marked(&mut world, Clear::NOTHING);
        let expected = |stores_only: bool| -> BTreeSet<u64> {
            let of = |area: &u64| {
                let first = area / PAGE;
                let some = touched(round, TOUCHED).filter(move |(_, store)| *store || !stores_only);
                some.map(move |(page, _)| first + page)
            };
            areas.iter().flat_map(of).collect()
        };
        assert!(!expected(true).is_empty());
        assert!(accessed == expected(false), "round {round}: accesses with precision and recall 1");
        assert!(written == expected(true), "round {round}: stores with precision and recall 1");
    }
    // Terrace ends while entries are out.
    world.look_at_entries(true);
    drop(world);
    program.say("touch");
    program.read_until("touched");
    until("the thread has ended with Terrace", || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        // The harness's main thread and the test's: the library's own would be the third.
        (names.count() <= 2).then_some(())
    });
    program.say("end");
    program.read_until("intact");
    program.end();
}

#[test]
fn no_byte_is_lost_while_private_and_shared_mappings_take_each_others_place() {
    let Some((_, help)) = helped() else { return };
    let mut program = Started::new("churner", &help);
    let mut dropper = Dropper::of(&help, program.child.id());
    let arena = program.read_until("arena")[0];
    let mut outcomes = [0u64; 4];
    let started = Instant::now();
    let mut random = terrace_policy::Random::new(9);
    while started.elapsed() < CHURNED - Duration::from_millis(500) {
        let at = arena + random.below(2 * PLACES) * PLACE;
        outcomes[dropper.drop_entries(at..at + PLACE) as usize] += 1;
    }
    let turns = program.read_until("intact")[0];
    let [done, elsewhere, busy, lost] = outcomes;
    println!("{turns} turns; drops: {done} done, {elsewhere} of other memory, {busy} busy, {lost} lost");
    assert!(turns > 100 && done > 100 && elsewhere > 100, "too little was tried");
    assert_eq!(lost, 0, "what the library knows is what the kernel has");
    program.end();
}

#[test]
fn memory_that_was_replaced_past_the_library_is_left_alone_from_then_on() {
    let Some((_, help)) = helped() else { return };
    let mut program = Started::new("raw", &help);
    let mut dropper = Dropper::of(&help, program.child.id());
    let area = program.read_until("area")[0];
    assert_eq!(dropper.drop_entries(area..area + PLACE), DONE);
    assert_eq!(dropper.drop_entries(area..area + 2 * PLACE), ELSEWHERE, "only what is an area as a whole");
    program.say("replace");
    program.read_until("replaced");
    assert_eq!(dropper.drop_entries(area..area + PLACE), LOST);
    assert_eq!(dropper.drop_entries(area..area + PLACE), LOST);
    program.say("check");
    program.read_until("intact");
    program.end();
}

#[test]
fn a_child_takes_out_entries_of_its_own() {
    let Some((_, help)) = helped() else { return };
    let mut program = Started::new("forker", &help);
    let values = program.read_until("child");
    let (child, area) = (values[0] as u32, values[1]);
    let page = area / PAGE..area / PAGE + 1;
    until("the child has read", || (entries(child, page.clone()) == 1).then_some(()));
    let mut dropper = Dropper::of(&help, child);
    assert_eq!(dropper.drop_entries(area..area + PLACE), DONE);
    assert_eq!((entries(child, page.clone()), entries(program.child.id(), page)), (0, 1));
    program.say("go on");
    program.read_until("intact");
    program.end();
}
