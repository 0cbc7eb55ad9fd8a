//! Programs with shared memory, started with the libraries preloaded, and how tests talk to them. The programs are the test
//! binary itself, started again in a role.

use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use terrace_handover::entries::DROP;
use terrace_live::help::Help;
use terrace_live::kernel::{Kernel, Linux};

pub const PAGE: u64 = 4096;
/// Says which program the test binary is to be.
pub const ROLE: &str = "TERRACE_TEST_PROGRAM";

/// Pages that the program touches in a round, and whether it stores to each.
pub fn touched(round: u64, pages: u64) -> impl Iterator<Item = (u64, bool)> {
    let mixed = move |page: u64| (page + round * 1_000_003).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..pages).filter(move |page| mixed(*page) % 5 == 0).map(move |page| (page, mixed(page) % 3 == 0))
}

pub fn map(at: u64, bytes: u64, flags: i32, file: i32) -> u64 {
    let fixed = if at == 0 { 0 } else { libc::MAP_FIXED };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping, or one over addresses that the caller has reserved and that nothing refers to.
    let start = unsafe { libc::mmap(at as *mut _, bytes as usize, access, flags | fixed, file, 0) };
    assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    start as u64
}

pub const SHARED: i32 = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
pub const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
pub const TOUCHED: u64 = 3000;

pub fn word(page: u64) -> *mut u64 {
    page as *mut u64
}

/// Shared memory of three kinds, filled; then pages are touched as asked for by line.
pub fn toucher() {
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
pub const PLACE: u64 = 16 * PAGE;
pub const PLACES: u64 = 8;
pub const CHURNED: Duration = Duration::from_secs(4);

/// Two threads map shared and private memory over each other, move and unmap it, and check every word.
pub fn churner() {
    let arena = map(0, 2 * PLACES * PLACE, PRIVATE | libc::MAP_NORESERVE, -1);
    println!("arena {arena}");
    let threads: Vec<_> = (0..2)
        .map(|thread| std::thread::spawn(move || churn(arena + thread * PLACES * PLACE, thread)))
        .collect();
    let turns: Vec<u64> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    println!("intact {}", turns.iter().min().unwrap());
    wait_for_the_end();
}

/// Until the test says a line, or hangs up: it may be behind.
pub fn wait_for_the_end() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
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

pub struct Started {
    pub child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Started {
    pub fn new(role: &str, help: &Help) -> Started {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["program", "--exact", "--nocapture"]).env(ROLE, role).envs(help.environment());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Started { child, stdin, stdout }
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    /// The numbers of the next line that begins with this word.
    pub fn read_until(&mut self, beginning: &str) -> Vec<u64> {
        let mut read = String::new();
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "no line with {beginning}:\n{read}");
            read.push_str(&line);
            // The test harness begins a line of its own.
            let mut words = line.split_whitespace().skip_while(|word| *word != beginning);
            if words.next().is_some() {
                return words.map_while(|word| word.parse().ok()).collect();
            }
        }
    }

    pub fn end(mut self) {
        drop(self.stdin);
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
    }
}

pub fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How many of these pages have a page-table entry.
pub fn entries(pid: u32, pages: Range<u64>) -> usize {
    let process = Linux.open(pid).unwrap();
    let mut entries = vec![0; (pages.end - pages.start) as usize];
    Linux.pagemap(&process, pages.start, &mut entries).unwrap();
    entries.iter().filter(|entry| *entry >> 63 == 1).count()
}

/// Asks for drops without looking at what there is to drop.
pub struct Dropper(UnixStream);

impl Dropper {
    pub fn of(help: &Help, pid: u32) -> Dropper {
        let thread = until("a thread is handed over", || help.trackers().take_dropper(pid));
        Dropper(thread)
    }

    pub fn drop_entries(&mut self, range: Range<u64>) -> u64 {
        let request = [DROP, range.start, range.end].map(u64::to_ne_bytes).concat();
        self.0.write_all(&request).unwrap();
        let mut answer = [0; 32];
        self.0.read_exact(&mut answer).unwrap();
        u64::from_ne_bytes(answer[16..24].try_into().unwrap())
    }
}
