//! The kernel's pool of 1 GiB pages grows on request, where somebody has asked for that by a setting and it is allowed.
//!
//! The pool is the administrator's (`nr_hugepages`), and so is what [`allow`] permits: nothing is written before that.
//! An entry in the journal of Terrace is made before the setting is changed. What was added is given back when the program
//! ends, also what it still has: the kernel frees such pages with the process. After a crash `terrace restore` puts the
//! setting back. After `exec` the new program goes on with the entry, if it knows of this, or `terrace restore` does.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counters of the pool.
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-1048576kB";

/// Why the pool was not grown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Nobody has asked for so many pages.
    NotAllowed,
    /// There is no such pool, or this process may not change it.
    NoRight,
    /// The journal cannot be written, so that the change could not be put back after a crash.
    NoJournal(String),
    /// The kernel has no so many pages in a row.
    NoMemory,
}

/// What this process has added.
#[derive(Debug, Default)]
struct Added {
    /// At most.
    allowed: u64,
    /// Of this process: a forked child gives nothing back.
    process: u32,
    pages: u64,
    /// Pages of the pool before the first growth.
    before: u64,
}

/// Where the pool and the journal are.
#[derive(Debug)]
struct Place {
    pool: PathBuf,
    journals: Option<PathBuf>,
}

static ADDED: Mutex<Added> = Mutex::new(Added { allowed: 0, process: 0, pages: 0, before: 0 });

fn added() -> MutexGuard<'static, Added> {
    ADDED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pages that were added and that nobody uses yet.
#[derive(Debug)]
pub struct Grown(u64);

impl Grown {
    /// Gives them back.
    pub fn undo(self) {
        Place::real().shrink(&mut added(), self.0);
    }
}

/// Permits so many pages of 1 GiB more than there were. What the same process has added before an `exec` is taken over.
pub fn allow(pages: u64) {
    let mut added = added();
    added.allowed = pages;
    Place::real().adopt(&mut added);
}

/// Adds what is missing for so many free pages.
///
/// # Errors
/// Nothing has changed.
pub fn grow(pages: u64) -> Result<Grown, Refused> {
    Place::real().grow(&mut added(), pages).map(Grown)
}

/// Gives all back that this process has added. For its end: what is in use goes when the process does.
pub fn give_back() {
    // Whoever ends the program while another thread grows the pool leaves the entry to `terrace restore`.
    if let Ok(mut added) = ADDED.try_lock()
        && added.pages > 0
        && added.process == std::process::id()
    {
        let all = added.pages;
        Place::real().shrink(&mut added, all);
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
        Place { pool: PathBuf::from(POOL), journals }
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

    /// Returns how many pages were added.
    fn grow(&self, added: &mut Added, pages: u64) -> Result<u64, Refused> {
        if added.allowed == 0 {
            return Err(Refused::NotAllowed);
        }
        if added.process != std::process::id() {
            // A forked child has added nothing.
            (added.process, added.pages) = (std::process::id(), 0);
        }
        let folder = self.folder().map_err(|error| Refused::NoJournal(error.to_string()))?;
        let _lock = Lock::of(&folder.1).map_err(|error| Refused::NoJournal(error.to_string()))?;
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
        let (before, had) = (if added.pages == 0 { now } else { added.before }, added.pages);
        let note = |pages: u64| note(&folder.0, before, before + pages, had > 0 || pages == 0);
        note(had + missing).map_err(|error| Refused::NoJournal(error.to_string()))?;
        let written = self.write(now + missing);
        if written.is_err() || self.read("nr_hugepages").is_none_or(|there| there < now + missing) {
            // What came of it goes again.
            let _ = self.write(now);
            let _ = note(had);
            return Err(if written.is_err() { Refused::NoRight } else { Refused::NoMemory });
        }
        (added.before, added.pages) = (before, had + missing);
        Ok(missing)
    }

    /// Takes so many pages out of the pool again. Others may have changed it meanwhile: only what was added goes.
    fn shrink(&self, added: &mut Added, pages: u64) {
        let Ok(folder) = self.folder() else { return };
        let Ok(_lock) = Lock::of(&folder.1) else { return };
        let pages = pages.min(added.pages);
        let Some(now) = self.read("nr_hugepages") else { return };
        if self.write(now.saturating_sub(pages)).is_ok() {
            added.pages -= pages;
            let _ = note(&folder.0, added.before, added.before + added.pages, true);
        }
    }

    /// Takes over what this process had added before an `exec`.
    fn adopt(&self, added: &mut Added) {
        let Some(path) = self.journals.as_ref().map(|folder| folder.join(name())) else { return };
        let Ok(text) = fs::read_to_string(path) else { return };
        let number = |key: &str| {
            let (_, rest) = text.split_once(&format!("\"{key}\":"))?;
            let digits = rest.trim_start_matches('"');
            digits.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
        };
        if number("began") == Some(began())
            && let (Some(before), Some(after)) = (number("before"), number("after"))
        {
            (added.process, added.before) = (std::process::id(), before);
            added.pages = after.saturating_sub(before);
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

/// Held while the pool is changed, so that two programs do not count the same pages.
struct Lock<'a>(&'a File);

impl Lock<'_> {
    fn of(folder: &File) -> io::Result<Lock<'_>> {
        // SAFETY: An open descriptor.
        let locked = unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX) };
        if locked == 0 { Ok(Lock(folder)) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // SAFETY: As above.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}

fn name() -> String {
    format!("{}.json", std::process::id())
}

/// Makes the entry, or removes it where there is nothing to be put back. `own`: there may be one, and it is this process's.
fn note(folder: &Path, before: u64, after: u64, own: bool) -> io::Result<()> {
    let path = folder.join(name());
    if before == after {
        return match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    if !own && path.exists() {
        return Err(io::Error::other(format!(
            "{} is there already, of a process that is no more; `terrace restore` puts it back",
            path.display()
        )));
    }
    let (process, began) = (std::process::id(), began());
    let text = format!(
        "{{\"pid\":{process},\"began\":{began},\"changes\":[{{\"kind\":\"setting\",\"path\":\"{POOL}/nr_hugepages\",\
         \"before\":\"{before}\",\"after\":\"{after}\"}}]}}\n"
    );
    let new = folder.join(format!("{process}.json.new"));
    let _ = fs::remove_file(&new);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool of files, which takes any number.
    struct Fake {
        place: Place,
        folder: tempfile::TempDir,
    }

    impl Fake {
        fn new(pages: u64, free: u64) -> Fake {
            let folder = tempfile::tempdir().unwrap();
            let fake = Fake {
                place: Place {
                    pool: folder.path().to_owned(),
                    journals: Some(folder.path().join("journals")),
                },
                folder,
            };
            for (name, value) in [("nr_hugepages", pages), ("free_hugepages", free), ("resv_hugepages", 0)] {
                fake.set(name, value);
            }
            fake
        }

        fn set(&self, name: &str, value: u64) {
            fs::write(self.folder.path().join(name), format!("{value}\n")).unwrap();
        }

        fn pages(&self) -> u64 {
            // Files keep what is behind a shorter number.
            let text = fs::read_to_string(self.folder.path().join("nr_hugepages")).unwrap();
            text.lines().next().unwrap().parse().unwrap()
        }

        fn journal(&self) -> Option<String> {
            fs::read_to_string(self.folder.path().join("journals").join(name())).ok()
        }
    }

    fn may(allowed: u64) -> Added {
        Added { allowed, ..Added::default() }
    }

    #[test]
    fn nothing_is_written_unless_it_was_asked_for() {
        let fake = Fake::new(1, 0);
        assert_eq!(fake.place.grow(&mut may(0), 1), Err(Refused::NotAllowed));
        assert_eq!(fake.place.grow(&mut may(1), 2), Err(Refused::NotAllowed));
        assert_eq!((fake.pages(), fake.journal()), (1, None));
        assert!(!fake.folder.path().join("journals").join(name()).exists());
    }

    #[test]
    fn what_is_missing_is_added_noted_and_given_back() {
        let fake = Fake::new(3, 1);
        let mut added = may(4);
        assert_eq!(fake.place.grow(&mut added, 2), Ok(1));
        let expected = format!(
            "{{\"pid\":{},\"began\":{},\"changes\":[{{\"kind\":\"setting\",\"path\":\"{POOL}/nr_hugepages\",\"before\":\"3\",\
             \"after\":\"4\"}}]}}\n",
            std::process::id(),
            began()
        );
        assert_eq!((fake.pages(), fake.journal()), (4, Some(expected)));
        fake.set("free_hugepages", 0);
        assert_eq!(fake.place.grow(&mut added, 3), Ok(3), "all that is allowed");
        assert_eq!(fake.place.grow(&mut added, 1), Err(Refused::NotAllowed));
        assert!(fake.journal().unwrap().contains("\"before\":\"3\",\"after\":\"7\""));
        // The same process after an `exec`.
        let mut later = may(4);
        fake.place.adopt(&mut later);
        assert_eq!((later.pages, later.before, later.process), (4, 3, std::process::id()));
        fake.place.shrink(&mut added, 3);
        assert_eq!(fake.pages(), 4);
        assert!(fake.journal().unwrap().contains("\"after\":\"4\""));
        // The administrator has added two meanwhile.
        fake.set("nr_hugepages", 6);
        fake.place.shrink(&mut added, 9);
        assert_eq!((fake.pages(), fake.journal(), added.pages), (5, None, 0));
    }

    #[test]
    fn what_could_not_be_put_back_is_not_done() {
        let fake = Fake::new(0, 0);
        let journals = fake.folder.path().join("journals");
        fs::create_dir(&journals).unwrap();
        // Of another process that had this number.
        fs::write(journals.join(name()), "{\"pid\":1,\"began\":1}").unwrap();
        let refused = fake.place.grow(&mut may(4), 1).unwrap_err();
        assert!(
            matches!(&refused, Refused::NoJournal(why) if why.contains("terrace restore")),
            "{refused:?}"
        );
        let mut later = may(4);
        fake.place.adopt(&mut later);
        assert_eq!((later.pages, fake.pages()), (0, 0));
        let nowhere = Place { pool: fake.folder.path().to_owned(), journals: None };
        assert!(matches!(nowhere.grow(&mut may(4), 1), Err(Refused::NoJournal(_))));
        fs::remove_file(journals.join(name())).unwrap();
        fs::remove_file(fake.folder.path().join("nr_hugepages")).unwrap();
        assert_eq!(fake.place.grow(&mut may(4), 1), Err(Refused::NoRight));
    }
}
