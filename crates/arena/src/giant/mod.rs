//! The kernel's pool of 1 GiB pages grows on request, where somebody has asked for that by a setting and it is allowed.
//!
//! The pool is the administrator's (`nr_hugepages`), and so is what [`allow`] permits: nothing is written before that.
//! An entry in the journal of Terrace is made before the setting is changed: how many pages this process has added. It is a
//! count, since several programs may grow the pool, and any of them may be the first to end. What was added is given back
//! when the program ends, also what it still has: the kernel frees such pages with the process. After a crash `terrace
//! restore` gives it back. After `exec` the new program goes on with the entry, if it knows of this, or `terrace
//! restore` does.

mod journal;
#[cfg(test)]
mod tests;

use journal::{Entry, Growing, Lock};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};
use std::time::{Duration, Instant};

/// Counters of the pool.
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-1048576kB";
/// How long this program waits for another one that is changing the pool. To make one such page, the kernel may have to move
/// much.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(5);

/// Why the pool was not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Nobody has asked for so many pages.
    NotAllowed,
    /// There is no such pool, or this process may not change it.
    NoRight,
    /// The journal cannot be written, so that the change could not be put back after a crash.
    NoJournal(String),
    /// Somebody else is changing the pool, for longer than one waits.
    Busy,
    /// The kernel has no so many pages in a row.
    NoMemory,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NotAllowed => f.write_str("more pages are wanted than were allowed"),
            Refused::NoRight => f.write_str("there is no such pool, or this process may not change it"),
            Refused::NoJournal(why) => write!(f, "the change cannot be noted: {why}"),
            Refused::Busy => {
                write!(f, "another program has been changing it for {} s", LOCK_TIMEOUT.as_secs())
            }
            Refused::NoMemory => f.write_str("the kernel has no gibibyte in one piece"),
        }
    }
}

/// What this process has added.
#[derive(Debug, Default)]
struct Added {
    /// At most.
    allowed: u64,
    /// The process that added the pages: a forked child gives nothing back.
    process: u32,
    pages: u64,
}

/// Where the pool and the journal are, and whose entry it is.
#[derive(Debug)]
struct Place {
    pool: PathBuf,
    journals: Option<PathBuf>,
    process: u32,
    began: u64,
    lock_timeout: Duration,
}

static ADDED: Mutex<Added> = Mutex::new(Added { allowed: 0, process: 0, pages: 0 });
static LISTENER: OnceLock<fn(&Refused)> = OnceLock::new();

/// The state. None where another thread has it for too long, or had it when this process was forked.
fn added(timeout: Duration) -> Option<MutexGuard<'static, Added>> {
    let begin = Instant::now();
    loop {
        match ADDED.try_lock() {
            Ok(added) => return Some(added),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if begin.elapsed() >= timeout => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
        }
    }
}

/// Pages that were added and that nobody uses yet.
#[derive(Debug)]
pub struct Grown(u64);

impl Grown {
    /// Gives them back.
    pub fn undo(self) {
        if let Some(mut added) = added(LOCK_TIMEOUT) {
            let _ = notify(Place::real().shrink(&mut added, self.0));
        }
    }
}

/// Permits so many pages of 1 GiB more than there were. What the same process has added before an `exec` is taken over.
pub fn allow(pages: u64) {
    if let Some(mut added) = added(LOCK_TIMEOUT) {
        added.allowed = pages;
        Place::real().adopt(&mut added);
    }
}

/// Sets the function that is notified of why the pool was not changed. The first one stays.
pub fn listen(listener: fn(&Refused)) {
    let _ = LISTENER.set(listener);
}

fn notify<T>(result: Result<T, Refused>) -> Result<T, Refused> {
    if let (Err(refused), Some(listener)) = (&result, LISTENER.get()) {
        listener(refused);
    }
    result
}

/// Adds what is missing for so many free pages.
///
/// # Errors
/// Nothing has changed.
pub fn grow(pages: u64) -> Result<Grown, Refused> {
    let Some(mut added) = added(LOCK_TIMEOUT) else { return notify(Err(Refused::Busy)) };
    if added.allowed == 0 {
        return Err(Refused::NotAllowed);
    }
    notify(Place::real().grow(&mut added, pages)).map(Grown)
}

/// Gives all back that this process has added. For its end: what is in use goes when the process does.
pub fn give_back() {
    // Whoever ends the program while another thread grows the pool leaves the entry to `terrace restore`.
    if let Ok(mut added) = ADDED.try_lock()
        && added.pages > 0
        && added.process == std::process::id()
    {
        let all = added.pages;
        let _ = notify(Place::real().shrink(&mut added, all));
    }
}

/// When the process began, in the kernel's ticks, as the journal has it.
fn began() -> u64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name.split_whitespace().nth(19).and_then(|word| word.parse().ok()).unwrap_or(0)
}

impl Place {
    fn real() -> Place {
        // SAFETY: This call cannot fail.
        let user = unsafe { libc::geteuid() };
        let journals = if user == 0 {
            Some(PathBuf::from("/run/terrace"))
        } else {
            std::env::var_os("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join("terrace"))
        };
        let (pool, process) = (PathBuf::from(POOL), std::process::id());
        Place { pool, journals, process, began: began(), lock_timeout: LOCK_TIMEOUT }
    }

    fn read(&self, name: &str) -> Option<u64> {
        fs::read_to_string(self.pool.join(name)).ok()?.trim().parse().ok()
    }

    fn write(&self, pages: u64) -> io::Result<()> {
        OpenOptions::new()
            .write(true)
            .open(self.pool.join("nr_hugepages"))?
            .write_all(pages.to_string().as_bytes())
    }

    fn entry(&self, pages: u64, growing: Option<Growing>) -> Entry {
        Entry { process: self.process, began: self.began, pages, growing }
    }

    /// Returns how many pages were added.
    fn grow(&self, added: &mut Added, pages: u64) -> Result<u64, Refused> {
        if added.allowed == 0 {
            return Err(Refused::NotAllowed);
        }
        if added.process != self.process {
            // A forked child has added nothing.
            (added.process, added.pages) = (self.process, 0);
        }
        let folder = self.folder().map_err(|error| Refused::NoJournal(error.to_string()))?;
        let _lock = Lock::of(&folder.1, self.lock_timeout)?;
        let count = |name| self.read(name).ok_or(Refused::NoRight);
        let (now, free, reserved) =
            (count("nr_hugepages")?, count("free_hugepages")?, count("resv_hugepages")?);
        let missing = pages.saturating_sub(free.saturating_sub(reserved));
        if added.pages + missing > added.allowed {
            return Err(Refused::NotAllowed);
        }
        if OpenOptions::new().write(true).open(self.pool.join("nr_hugepages")).is_err() {
            return Err(Refused::NoRight);
        }
        let had = added.pages;
        let note = |entry: Entry| {
            entry.save(&folder.0, had > 0).map_err(|error| Refused::NoJournal(error.to_string()))
        };
        journal::settle(&folder.0, self.process, now);
        note(self.entry(had, Some(Growing { from: now, by: missing })))?;
        let written = self.write(now + missing);
        if written.is_err() || self.read("nr_hugepages").is_none_or(|there| there < now + missing) {
            // What came of it goes again.
            let _ = self.write(now);
            let _ = self.entry(had, None).save(&folder.0, true);
            return Err(if written.is_err() { Refused::NoRight } else { Refused::NoMemory });
        }
        added.pages = had + missing;
        // An entry that says that the pool is growing is right, too, as long as nobody else changes it.
        let _ = self.entry(added.pages, None).save(&folder.0, true);
        Ok(missing)
    }

    /// Takes so many pages out of the pool again. Others may have changed it meanwhile: only what was added goes, and
    /// nothing where the pool is smaller than that by now.
    fn shrink(&self, added: &mut Added, pages: u64) -> Result<(), Refused> {
        let folder = self.folder().map_err(|error| Refused::NoJournal(error.to_string()))?;
        let _lock = Lock::of(&folder.1, self.lock_timeout)?;
        let pages = pages.min(added.pages);
        let now = self.read("nr_hugepages").ok_or(Refused::NoRight)?;
        journal::settle(&folder.0, self.process, now);
        if let Some(left) = now.checked_sub(pages) {
            self.write(left).map_err(|_| Refused::NoRight)?;
        }
        added.pages -= pages;
        self.entry(added.pages, None)
            .save(&folder.0, true)
            .map_err(|error| Refused::NoJournal(error.to_string()))
    }

    /// Takes over what this process had added before an `exec`.
    fn adopt(&self, added: &mut Added) {
        let entry = || Entry::load(self.journals.as_ref()?, self.process);
        if entry().is_none_or(|entry| entry.began != self.began) {
            return;
        }
        let Ok(folder) = self.folder() else { return };
        let Ok(_lock) = Lock::of(&folder.1, self.lock_timeout) else { return };
        if let (Some(mut entry), Some(now)) = (entry(), self.read("nr_hugepages")) {
            entry.settle(now);
            let _ = entry.save(&folder.0, true);
            (added.process, added.pages) = (self.process, entry.pages);
        }
    }

    /// The folder of journals, made if need be: of this user alone.
    fn folder(&self) -> io::Result<(PathBuf, File)> {
        let path = self.journals.clone().ok_or_else(|| io::Error::other("XDG_RUNTIME_DIR is not set"))?;
        match fs::DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let folder = File::options().read(true).custom_flags(flags).open(&path)?;
        let there = folder.metadata()?;
        // SAFETY: This call cannot fail.
        if there.uid() != unsafe { libc::geteuid() } || there.mode() & 0o022 != 0 {
            return Err(io::Error::other(format!("{} is not this user's alone", path.display())));
        }
        Ok((path, folder))
    }
}
