//! A program run natively, on base pages, with transparent huge pages or on pages of the hugetlb pool, and what it took.
//!
//! No setting of the system changes. Base pages: the process is started with transparent huge pages switched off for itself
//! and all that it starts (`prctl`, `PR_SET_THP_DISABLE`). Huge pages: nothing is done where the system's setting is
//! `always`; where it is `madvise`, the C library's allocator is set to ask for them (`GLIBC_TUNABLES`), and a preloaded
//! library asks for the program's other anonymous mappings (`crates/preload/pages`). A program that maps its memory by calls
//! of its own is not reached, so the share of memory that lay in huge pages is measured too. Pages of the pool: the C
//! library's allocator is set to map them (`glibc.malloc.hugetlb=2`, from version 2.35), and takes others where the pool has
//! none left.

use crate::region::{HUGE, check_base_page};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The pages that a program gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// 4 KiB.
    Base,
    /// Transparent huge pages.
    Huge,
    /// Pages of 2 MiB that the system keeps in its pool, for what the C library's allocator gives out.
    Pool,
}

const LIBRARY: &[u8] = include_bytes!(env!("TERRACE_PAGES_LIBRARY"));
const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// Free pages of the pool of 2 MiB pages.
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
/// Between two looks at how much of the program's memory lies in huge pages.
const LOOK: Duration = Duration::from_millis(10);
/// Runs of a program that ends before the first look.
const LOOKED_AT: usize = 3;

/// Why a program was not measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The base pages are not those that are measured.
    #[error("{0}")]
    BasePages(io::Error),
    /// The system gives no transparent huge pages.
    #[error(
        "this system gives no transparent huge pages ({SETTING} is \"{0}\"); an administrator can set it to madvise"
    )]
    NoHugePages(String),
    /// The preloaded library found no place.
    #[error("no file for the preloaded library: {0}; set TMPDIR to a folder that can be written")]
    Library(io::Error),
    /// The program did not start.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program's name.
        program: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The program did not succeed.
    #[error("{program} ended with {status}; only programs that succeed can be compared")]
    Failed {
        /// The program's name.
        program: String,
        /// How it ended.
        status: ExitStatus,
    },
}

/// What one run took. Programs that it started and waited for are included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Run {
    /// Seconds from start to end.
    pub elapsed: f64,
    /// Seconds of processors in the program.
    pub user: f64,
    /// Seconds of processors in the kernel for it.
    pub system: f64,
    /// Page faults that read nothing from a disk.
    pub faults: u64,
    /// Most resident bytes of one process.
    pub peak: u64,
}

impl Run {
    /// Seconds of processors.
    pub fn processor(&self) -> f64 {
        self.user + self.system
    }
}

/// How much anonymous memory the program and what it started had when they had most, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// All of it.
    pub anonymous: u64,
    /// In transparent huge pages.
    pub huge: u64,
    /// In pages of the pool, which count as anonymous memory here.
    pub pool: u64,
}

/// Bytes of the pool of 2 MiB pages that nobody has. Zero where the system has no such pool.
pub fn free_in_pool() -> u64 {
    let pages = std::fs::read_to_string(POOL).ok().and_then(|text| text.trim().parse::<u64>().ok());
    pages.unwrap_or(0) * HUGE as u64
}

/// A program that can be run on each kind of pages.
#[derive(Debug)]
pub struct Program {
    command: Vec<OsString>,
    /// Where the preloaded library lies, if the setting requires one.
    library: Option<TempDir>,
}

impl Program {
    /// Finds out how huge pages can be had.
    ///
    /// # Errors
    /// The system gives none, or the library finds no place.
    ///
    /// # Panics
    /// Without a program.
    pub fn new(command: &[OsString]) -> Result<Program, Error> {
        assert!(!command.is_empty(), "a program is needed");
        check_base_page().map_err(Error::BasePages)?;
        let setting = std::fs::read_to_string(SETTING).unwrap_or_default();
        let library = match chosen(&setting) {
            Some("always") => None,
            Some("madvise") => Some(library().map_err(Error::Library)?),
            _ => return Err(Error::NoHugePages(setting.trim().to_owned())),
        };
        Ok(Program { command: command.to_owned(), library })
    }

    /// Whether the program's mappings need a preloaded library to get huge pages.
    pub fn preloads(&self) -> bool {
        self.library.is_some()
    }

    /// Runs it to its end. Its input is empty, and what it prints is thrown away.
    ///
    /// # Errors
    /// It does not start or does not succeed.
    pub fn run(&self, pages: Pages) -> Result<Run, Error> {
        let (begin, child) = self.start(pages)?;
        self.end(begin, wait(child.id()))
    }

    /// As [`Program::run`], and looks meanwhile how much of the program's memory lies in huge pages. The looks take time of
    /// the run. A program that ended before it was seen, as on a busy machine, runs again.
    ///
    /// # Errors
    /// As [`Program::run`].
    pub fn held(&self, pages: Pages) -> Result<Held, Error> {
        let mut held = Held::default();
        for _ in 0..LOOKED_AT {
            held = self.held_once(pages)?;
            if held != Held::default() {
                break;
            }
        }
        Ok(held)
    }

    fn held_once(&self, pages: Pages) -> Result<Held, Error> {
        let (begin, child) = self.start(pages)?;
        let (pid, over) = (child.id(), AtomicBool::new(false));
        let mut most = Held::default();
        let ended = std::thread::scope(|scope| {
            let (over, most) = (&over, &mut most);
            let watcher = scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let held = held(pid);
                    if held.anonymous >= most.anonymous {
                        *most = held;
                    }
                    std::thread::park_timeout(LOOK);
                }
            });
            let ended = wait(pid);
            over.store(true, Ordering::Relaxed);
            watcher.thread().unpark();
            ended
        });
        self.end(begin, ended)?;
        Ok(most)
    }

    /// What the environment of a run in transparent huge pages has that decides in which pieces the program takes and
    /// returns memory. Empty where the system gives them without a setting.
    pub fn layout(&self) -> Vec<(OsString, OsString)> {
        self.library.iter().map(|_| (TUNABLES.into(), tuned(ASK))).collect()
    }

    /// Page faults of a run on base pages with the environment of [`Program::layout`].
    ///
    /// # Errors
    /// As [`Program::run`].
    pub fn faults_laid_out(&self) -> Result<u64, Error> {
        let mut command = self.command(Pages::Base);
        command.envs(self.layout());
        let (begin, child) = self.spawn(&mut command)?;
        Ok(self.end(begin, wait(child.id()))?.faults)
    }

    fn start(&self, pages: Pages) -> Result<(Instant, Child), Error> {
        self.spawn(&mut self.command(pages))
    }

    fn command(&self, pages: Pages) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match (pages, &self.library) {
            (Pages::Base, _) => {
                // SAFETY: A system call without memory of the parent.
                unsafe { command.pre_exec(without_huge_pages) };
            }
            (Pages::Huge, None) => (),
            (Pages::Huge, Some(folder)) => {
                let library = folder.path().join("libterrace_pages.so").into_os_string();
                command.env("LD_PRELOAD", joined(library, " ", std::env::var_os("LD_PRELOAD")));
                command.envs(self.layout());
            }
            (Pages::Pool, _) => {
                command.env(TUNABLES, tuned("glibc.malloc.hugetlb=2"));
            }
        }
        command
    }

    fn spawn(&self, command: &mut Command) -> Result<(Instant, Child), Error> {
        let begin = Instant::now();
        Ok((begin, command.spawn().map_err(|source| Error::Start { program: self.name(), source })?))
    }

    fn end(&self, begin: Instant, ended: io::Result<(ExitStatus, libc::rusage)>) -> Result<Run, Error> {
        let elapsed = begin.elapsed().as_secs_f64();
        let (status, usage) = ended.map_err(|source| Error::Start { program: self.name(), source })?;
        if !status.success() {
            return Err(Error::Failed { program: self.name(), status });
        }
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Ok(Run {
            elapsed,
            user: seconds(usage.ru_utime),
            system: seconds(usage.ru_stime),
            faults: usage.ru_minflt as u64,
            peak: usage.ru_maxrss as u64 * 1024,
        })
    }

    /// The program, as the command names it.
    pub fn name(&self) -> String {
        self.command[0].to_string_lossy().into_owned()
    }
}

/// The chosen word of a setting such as `always [madvise] never`.
fn chosen(setting: &str) -> Option<&str> {
    setting.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

fn library() -> io::Result<TempDir> {
    let place = preloadable(std::env::temp_dir());
    let folder = tempfile::Builder::new().prefix("terrace-pages-").tempdir_in(place)?;
    let path = folder.path().join("libterrace_pages.so");
    std::fs::write(&path, LIBRARY)?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755))?;
    Ok(folder)
}

/// The folder, or `/tmp` where the dynamic linker would part the path of a library in it: blanks and colons part paths.
fn preloadable(folder: PathBuf) -> PathBuf {
    let parts = |byte: &u8| *byte == b':' || byte.is_ascii_whitespace();
    if folder.as_os_str().as_bytes().iter().any(parts) { PathBuf::from("/tmp") } else { folder }
}

/// Variable that tunes the C library.
const TUNABLES: &str = "GLIBC_TUNABLES";

/// Asks for transparent huge pages, for which the heap then grows by whole ones.
const ASK: &str = "glibc.malloc.hugetlb=1";

/// The variable that makes glibc's heap grow by whole huge pages, with its value; none where this process's environment
/// says how the allocator takes huge pages.
pub fn asks_for_huge_pages() -> Option<(OsString, OsString)> {
    let own = std::env::var_os(TUNABLES).unwrap_or_default();
    let is_set = own.to_string_lossy().contains(ALLOCATORS);
    (!is_set).then(|| (TUNABLES.into(), tuned(ASK)))
}

/// Whether a variable with its value (`NAME=VALUE`) says how glibc's allocator takes huge pages.
pub fn tunes_huge_pages(variable: &str) -> bool {
    variable.starts_with(TUNABLES) && variable.contains(ALLOCATORS)
}

/// Whether a variable with its value asks for transparent huge pages, for which the heap grows by whole ones.
pub fn asks_huge_pages_of_glibc(variable: &str) -> bool {
    variable.starts_with(TUNABLES) && variable.contains(ASK)
}

/// The setting of huge pages for glibc's allocator.
const ALLOCATORS: &str = "glibc.malloc.hugetlb=";

/// The variable's value with one more setting. What the caller's environment tunes goes on.
fn tuned(tunable: &str) -> OsString {
    joined(tunable.into(), ":", std::env::var_os(TUNABLES))
}

fn joined(first: OsString, between: &str, rest: Option<OsString>) -> OsString {
    let mut all = first;
    if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
        all.push(between);
        all.push(rest);
    }
    all
}

fn without_huge_pages() -> io::Result<()> {
    // SAFETY: The call takes numbers alone.
    match unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits for a child, whose processor time comes with its end.
fn wait(pid: u32) -> io::Result<(ExitStatus, libc::rusage)> {
    // SAFETY: All zeros is a value of this structure of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let mut status = 0;
    loop {
        // SAFETY: Both places are valid for the call, and the child is this process's and was not waited for.
        let ended = unsafe { libc::wait4(pid as i32, &raw mut status, 0, &raw mut usage) };
        if ended > 0 {
            return Ok((ExitStatus::from_raw(status), usage));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// What a process and all that it started and that still runs hold; pages that several share count for each.
fn held(pid: u32) -> Held {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"));
    let own = text.ok().and_then(|text| parse_held(&text)).unwrap_or_default();
    children(pid).into_iter().map(held).fold(own, |all, one| Held {
        anonymous: all.anonymous + one.anonymous,
        huge: all.huge + one.huge,
        pool: all.pool + one.pool,
    })
}

/// The processes that any thread of this one started. None on a kernel without that list.
fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let of = |thread: io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(thread.ok()?.path().join("children")).ok()
    };
    let lists: Vec<String> = threads.filter_map(of).collect();
    lists.iter().flat_map(|list| list.split_whitespace()).filter_map(|pid| pid.parse().ok()).collect()
}

fn parse_held(text: &str) -> Option<Held> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    };
    // No kernel counts pages of the pool as anonymous, and older ones have no line for them.
    let pool = bytes("Private_Hugetlb:").unwrap_or(0);
    Some(Held { anonymous: bytes("Anonymous:")? + pool, huge: bytes("AnonHugePages:")?, pool })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    /// Touches 64 MiB through the C library's allocator.
    const TOUCH: &str =
        "b = bytearray(64 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\nimport time; time.sleep(0.1)";

    /// What the program holds of those 64 MiB. A busy machine may look too late, so the program runs until it was seen.
    fn held_in_full(program: &Program, pages: Pages) -> Held {
        let seen = |held: &Held| held.anonymous >= 64 << 20;
        std::iter::repeat_with(|| program.held(pages).unwrap()).take(10).find(seen).expect("a look at 64 MiB")
    }

    #[test]
    fn the_library_lies_where_the_linker_does_not_part_its_path() {
        let places = ["/var/a b", "/var/a:b", "/var/a\nb", "/var/ab"].map(|place| preloadable(place.into()));
        assert_eq!(places, ["/tmp", "/tmp", "/tmp", "/var/ab"].map(PathBuf::from));
    }

    #[test]
    fn a_setting_has_one_chosen_word() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("[always] madvise never"), Some("always"));
        assert_eq!(chosen(""), None);
    }

    #[test]
    fn what_is_held_is_read() {
        let text = "00400000-7fff Rollup\nRss:  100 kB\nAnonymous:  96 kB\nAnonHugePages:  64 kB\n";
        assert_eq!(parse_held(text), Some(Held { anonymous: 96 << 10, huge: 64 << 10, pool: 0 }));
        let with_pool = format!("{text}Shared_Hugetlb: 0 kB\nPrivate_Hugetlb: 4096 kB\n");
        let held = Held { anonymous: (96 << 10) + (4 << 20), huge: 64 << 10, pool: 4 << 20 };
        assert_eq!(parse_held(&with_pool), Some(held));
        assert_eq!(parse_held("Rss: 1 kB"), None);
    }

    #[test]
    fn an_allocation_lies_on_the_pages_that_were_asked_for() {
        let program = Program::new(&words(&["python3", "-c", TOUCH])).unwrap();
        let base = held_in_full(&program, Pages::Base);
        assert_eq!(base.huge, 0, "{base:?}");
        let huge = held_in_full(&program, Pages::Huge);
        assert!(huge.huge >= 48 << 20, "{huge:?}");
        // 64 MiB are 16,384 base pages, or 32 huge ones.
        let faults = [Pages::Base, Pages::Huge].map(|pages| program.run(pages).unwrap().faults);
        assert!(faults[0] > faults[1] + 12_000, "{faults:?}");
    }

    #[test]
    fn a_heap_that_shrinks_faults_less_as_it_is_laid_out_for_huge_pages() {
        let shrink = "for i in range(500):\n    b = [bytes(100000) for _ in range(4)]\n    del b";
        // A heap that ends less than 400 kB below the end of a huge page shrinks by one each time. Of two that are 800 kB
        // apart one does not.
        let faults = ["", "a = [bytes(100000) for _ in range(8)]\n"].map(|before| {
            let program = Program::new(&words(&["python3", "-c", &format!("{before}{shrink}")])).unwrap();
            let faults = [program.run(Pages::Base).unwrap().faults, program.faults_laid_out().unwrap()];
            (program.preloads(), faults)
        });
        if faults[0].0 {
            assert!(faults.iter().any(|(_, [base, laid_out])| *laid_out < base / 2), "{faults:?}");
        } else {
            assert!(
                faults.iter().all(|(_, [base, laid_out])| laid_out.abs_diff(*base) < base / 10),
                "{faults:?}"
            );
        }
    }

    #[test]
    fn memory_of_what_it_started_counts() {
        let program = Program::new(&words(&["sh", "-c", &format!("python3 -c '{TOUCH}'; true")])).unwrap();
        let huge = held_in_full(&program, Pages::Huge);
        assert!(huge.huge >= 48 << 20, "{huge:?}");
    }

    #[test]
    fn where_the_pool_is_empty_a_program_runs_on_other_pages() {
        // The tunable is set, and the allocator falls back. What a pool gives is tested in a virtual machine.
        let program = Program::new(&words(&["python3", "-c", TOUCH])).unwrap();
        let held = held_in_full(&program, Pages::Pool);
        assert!(held.pool <= free_in_pool(), "{held:?}");
    }

    #[test]
    fn a_program_that_fails_is_no_measurement() {
        let run = |command: &[&str]| {
            Program::new(&words(command)).unwrap().run(Pages::Base).unwrap_err().to_string()
        };
        assert_eq!(
            run(&["false"]),
            "false ended with exit status: 1; only programs that succeed can be compared"
        );
        assert!(run(&["/nonexistent/program"]).starts_with("cannot start /nonexistent/program: "));
    }

    #[test]
    fn processor_time_of_what_it_started_counts() {
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let program = Program::new(&words(&["sh", "-c", &format!("sh -c '{busy}'; true")])).unwrap();
        assert!(program.run(Pages::Base).unwrap().processor() > 0.0);
    }
}
