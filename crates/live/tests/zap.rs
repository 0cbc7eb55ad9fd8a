//! Zap-and-look on real programs: exact to the page, and no byte is lost.
//!
//! The programs are this test binary, started again with the libraries preloaded ([`program`]).

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_handover::zap::{DONE, ELSEWHERE, LOST, ZAP};
use terrace_live::facts::Facts;
use terrace_live::help::{Help, Trackers};
use terrace_live::kernel::{Kernel, Linux};
use terrace_live::space::Dirtiness;
use terrace_live::world::{Options, World};
use terrace_policy::{Clear, MemorySystem, ScanHand, Scope, SignalSet, Step};

const PAGE: u64 = 4096;
/// Says which program the test binary is to be.
const ROLE: &str = "TERRACE_TEST_PROGRAM";

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

/// Pages that the program touches in a round, and whether it stores to each.
fn touched(round: u64, pages: u64) -> impl Iterator<Item = (u64, bool)> {
    let mixed = move |page: u64| (page + round * 1_000_003).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..pages).filter(move |page| mixed(*page) % 5 == 0).map(move |page| (page, mixed(page) % 3 == 0))
}

fn map(at: u64, bytes: u64, flags: i32, file: i32) -> u64 {
    let fixed = if at == 0 { 0 } else { libc::MAP_FIXED };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, or one over addresses that the caller has reserved and that nothing refers to.
    let start = unsafe { libc::mmap(at as *mut _, bytes as usize, access, flags | fixed, file, 0) };
    assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    start as u64
}

const SHARED: i32 = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
const TOUCHED: u64 = 3000;

fn word(page: u64) -> *mut u64 {
    page as *mut u64
}

/// Shared memory of three kinds, filled; then pages are touched as asked for by line.
fn toucher() {
    // SAFETY: the name is a string; the file gets its size before it is mapped.
    let file = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: a plain call.
    assert_eq!(unsafe { libc::ftruncate(file, (TOUCHED * PAGE) as i64) }, 0);
    // SAFETY: a segment of our own, that goes when the program has ended.
    let segment = unsafe {
        let id = libc::shmget(libc::IPC_PRIVATE, (TOUCHED * PAGE) as usize, 0o600);
        let at = libc::shmat(id, std::ptr::null(), 0);
        libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
        at as u64
    };
    let bytes = TOUCHED * PAGE;
    let areas = [map(0, bytes, SHARED, -1), map(0, bytes, libc::MAP_SHARED, file), segment];
    for page in areas.iter().flat_map(|area| (*area..area + bytes).step_by(PAGE as usize)) {
        // SAFETY: inside the mappings made above.
        unsafe { word(page).write_volatile(page) };
    }
    println!("areas {} {} {}", areas[0], areas[1], areas[2]);
    for (round, line) in std::io::stdin().lines().enumerate() {
        match line.unwrap().as_str() {
            "touch" => {
                for area in areas {
                    for (page, store) in touched(round as u64, TOUCHED) {
                        let at = word(area + page * PAGE);
                        // SAFETY: inside the mappings made above.
                        unsafe {
                            assert_eq!(at.read_volatile(), at as u64, "its contents have changed");
                            if store {
                                at.write_volatile(at as u64);
                            }
                        }
                    }
                }
                println!("touched");
            }
            _ => break,
        }
    }
    println!("intact");
}

/// Bytes of the places at which mappings come and go.
const PLACE: u64 = 16 * PAGE;
const PLACES: u64 = 8;
const CHURNED: Duration = Duration::from_secs(4);

/// Two threads map shared and private memory over each other, move and unmap it, and check every word.
fn churner() {
    let arena = map(0, 2 * PLACES * PLACE, PRIVATE | libc::MAP_NORESERVE, -1);
    println!("arena {arena}");
    let threads: Vec<_> = (0..2)
        .map(|thread| std::thread::spawn(move || churn(arena + thread * PLACES * PLACE, thread)))
        .collect();
    let turns: Vec<u64> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    println!("intact {}", turns.iter().min().unwrap());
}

fn churn(first: u64, seed: u64) -> u64 {
    let mut random = terrace_policy::Random::new(seed);
    let mut turns = 0;
    let started = Instant::now();
    let pattern = |turn: u64, word: u64| (turn << 32 | word).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = PLACE / 8;
    let check = |at: u64, turn: u64| {
        for number in 0..words {
            // SAFETY: callers pass a place that they have mapped and filled.
            let found = unsafe { word(at).add(number as usize).read_volatile() };
            assert_eq!(found, pattern(turn, number), "word {number} of turn {turn}");
        }
    };
    while started.elapsed() < CHURNED {
        turns += 1;
        let mut at = first + random.below(PLACES) * PLACE;
        map(at, PLACE, if random.below(2) == 0 { SHARED } else { PRIVATE }, -1);
        for number in 0..words {
            // SAFETY: mapped just now, and this thread's own.
            unsafe { word(at).add(number as usize).write_volatile(pattern(turns, number)) };
        }
        for _ in 0..4 {
            check(at, turns);
        }
        let to = first + random.below(PLACES) * PLACE;
        if to != at && random.below(2) == 0 {
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
            let (from, there) = (at as *mut libc::c_void, to as *mut libc::c_void);
            // SAFETY: both are places of this thread's.
            let moved = unsafe { libc::mremap(from, PLACE as usize, PLACE as usize, flags, there) };
            assert_eq!(moved as u64, to, "{}", std::io::Error::last_os_error());
            // What is left at the old place is an empty mapping of either kind.
            at = to;
            check(at, turns);
        }
        if random.below(3) == 0 {
            // In one call with what comes there, for in between another thread's allocator could settle.
            map(at, PLACE, PRIVATE, -1);
        }
    }
    turns
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
            // Its entry, to be taken out.
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

struct Started {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Started {
    fn new(role: &str, help: &Help) -> Started {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["program", "--exact", "--nocapture"]).env(ROLE, role).envs(help.environment());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Started { child, stdin, stdout }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    /// The numbers of the next line that begins with this word.
    fn hear(&mut self, beginning: &str) -> Vec<u64> {
        let mut heard = String::new();
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "no line with {beginning}:\n{heard}");
            heard.push_str(&line);
            // The test harness begins a line of its own.
            let mut words = line.split_whitespace().skip_while(|word| *word != beginning);
            if words.next().is_some() {
                return words.map_while(|word| word.parse().ok()).collect();
            }
        }
    }

    fn end(mut self) {
        drop(self.stdin);
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
    }
}

fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// None where the kernel cannot do it, and that is said.
fn helped() -> Option<(Facts, Help)> {
    let facts = Facts::discover(&Linux);
    if let Err(missing) = facts.zaps() {
        eprintln!("not tested: {missing}");
        return None;
    }
    Some((facts, Help::start_with_zapper().unwrap()))
}

fn world_with(facts: &Facts, trackers: &Trackers) -> World {
    let options = Options { trackers: Some(trackers.clone()), zaps: true, ..Options::default() };
    let kernel: Arc<dyn Kernel> = Arc::new(Linux);
    let mut world =
        World::new(kernel, facts.tiers.clone(), facts.capabilities_with_zaps(), &options).unwrap();
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

fn entries(pid: u32, pages: Range<u64>) -> usize {
    let process = Linux.open(pid).unwrap();
    let mut entries = vec![0; (pages.end - pages.start) as usize];
    Linux.pagemap(&process, pages.start, &mut entries).unwrap();
    entries.iter().filter(|entry| *entry >> 63 == 1).count()
}

#[test]
fn accesses_and_stores_to_shared_memory_are_exact_to_the_page() {
    let Some((facts, help)) = helped() else { return };
    let mut program = Started::new("toucher", &help);
    let (pid, areas) = (program.child.id(), program.hear("areas"));
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
        program.hear("touched");
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
    program.hear("touched");
    until("the thread has ended with Terrace", || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        // The harness's main thread and the test's: the library's own would be the third.
        (names.count() <= 2).then_some(())
    });
    program.say("end");
    program.hear("intact");
    program.end();
}

/// Asks for zaps without looking at what there is to zap.
struct Zapper(UnixStream);

impl Zapper {
    fn of(help: &Help, pid: u32) -> Zapper {
        let thread = until("a thread is handed over", || help.trackers().take_zapper(pid));
        Zapper(thread)
    }

    fn zap(&mut self, range: Range<u64>) -> u64 {
        let request = [ZAP, range.start, range.end].map(u64::to_ne_bytes).concat();
        self.0.write_all(&request).unwrap();
        let mut answer = [0; 32];
        self.0.read_exact(&mut answer).unwrap();
        u64::from_ne_bytes(answer[16..24].try_into().unwrap())
    }
}

#[test]
fn no_byte_is_lost_while_private_and_shared_mappings_take_each_others_place() {
    let Some((_, help)) = helped() else { return };
    let mut program = Started::new("churner", &help);
    let mut zapper = Zapper::of(&help, program.child.id());
    let arena = program.hear("arena")[0];
    let mut outcomes = [0u64; 4];
    let started = Instant::now();
    let mut random = terrace_policy::Random::new(9);
    while started.elapsed() < CHURNED - Duration::from_millis(500) {
        let at = arena + random.below(2 * PLACES) * PLACE;
        outcomes[zapper.zap(at..at + PLACE) as usize] += 1;
    }
    let turns = program.hear("intact")[0];
    let [done, elsewhere, busy, lost] = outcomes;
    println!("{turns} turns; zaps: {done} done, {elsewhere} of other memory, {busy} busy, {lost} lost");
    assert!(turns > 100 && done > 100 && elsewhere > 100, "too little was tried");
    assert_eq!(lost, 0, "what the library knows is what the kernel has");
    program.end();
}

#[test]
fn memory_that_was_replaced_past_the_library_is_left_alone_from_then_on() {
    let Some((_, help)) = helped() else { return };
    let mut program = Started::new("raw", &help);
    let mut zapper = Zapper::of(&help, program.child.id());
    let area = program.hear("area")[0];
    assert_eq!(zapper.zap(area..area + PLACE), DONE);
    assert_eq!(zapper.zap(area..area + 2 * PLACE), ELSEWHERE, "only what is an area as a whole");
    program.say("replace");
    program.hear("replaced");
    assert_eq!(zapper.zap(area..area + PLACE), LOST);
    assert_eq!(zapper.zap(area..area + PLACE), LOST);
    program.say("check");
    program.hear("intact");
    program.end();
}

#[test]
fn a_child_takes_out_entries_of_its_own() {
    let Some((_, help)) = helped() else { return };
    let mut program = Started::new("forker", &help);
    let told = program.hear("child");
    let (child, area) = (told[0] as u32, told[1]);
    let page = area / PAGE..area / PAGE + 1;
    until("the child has read", || (entries(child, page.clone()) == 1).then_some(()));
    let mut zapper = Zapper::of(&help, child);
    assert_eq!(zapper.zap(area..area + PLACE), DONE);
    assert_eq!((entries(child, page.clone()), entries(program.child.id(), page)), (0, 1));
    program.say("go on");
    program.hear("intact");
    program.end();
}
