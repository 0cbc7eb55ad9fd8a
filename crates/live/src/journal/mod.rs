//! The journal of changed settings of the system. An entry is written before its setting is changed, so that the setting can
//! be put back at exit, and after a crash by `terrace restore`.
//!
//! A setting is put back only while it still has the value that Terrace gave it: what an administrator has changed since
//! is theirs. A journal is obeyed only where this user alone can have written it ([`Folder`]), and only for what Terrace
//! changes itself ([`allowed`]).

mod allowed;
mod pool;
#[cfg(test)]
mod tests;

use crate::facts::text;
use crate::folder::{Folder, user};
use crate::kernel::{Kernel, read_text};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Pages of 1 GiB in the kernel's pool, which the arena grows on request.
const GIANT_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages";
/// How long a program is waited for that is changing the pool.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// How Terrace has DAMON work: so many threads, with these operations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kdamonds {
    /// Kernel threads.
    pub threads: u64,
    /// What each watches by.
    pub operations: String,
}

impl Kdamonds {
    /// One watches whole processes, in regions that stay as they were given.
    pub(crate) fn watching() -> Kdamonds {
        Kdamonds { threads: 1, operations: "fvaddr".to_owned() }
    }

    /// Two watch physical memory, and move what they find.
    pub(crate) fn moving() -> Kdamonds {
        Kdamonds { threads: 2, operations: "paddr".to_owned() }
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Change {
    /// A value was written into a file.
    Setting {
        /// The file.
        path: PathBuf,
        /// What it held.
        before: String,
        /// What was written.
        after: String,
    },
    /// A folder was made in a control file system.
    Folder {
        /// The folder.
        path: PathBuf,
    },
    /// DAMON was set up: its kernel thread has to be stopped before its number of threads goes back to none.
    Damon {
        /// `…/kdamonds`.
        path: PathBuf,
        /// As what.
        #[serde(default = "Kdamonds::watching")]
        as_what: Kdamonds,
    },
    /// Pages of 1 GiB were added to the kernel's pool, by a program with `libterrace.so` (`crates/arena/src/giant`). A
    /// count: several programs may have added some.
    Pool {
        /// What was added for certain.
        pages: u64,
        /// A growth that its program did not finish.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        growing: Option<Growing>,
    },
}

/// A growth of the pool that had begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growing {
    /// Pages of the pool before.
    pub from: u64,
    /// Pages that were to be added.
    pub by: u64,
}

/// The changes of one run.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    pid: u32,
    /// When the process began, in the kernel's ticks: distinguishes it from a later one of the same number.
    began: u64,
    changes: Vec<Change>,
}

/// Keeps the changes of this run on disk.
pub struct Journal {
    kernel: Arc<dyn Kernel>,
    folder: PathBuf,
    record: Record,
}

/// What `terrace restore` has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Put back, one line each.
    pub done: Vec<String>,
    /// Left alone, with the reason.
    pub left: Vec<String>,
    /// Could not be put back, with the reason.
    pub failed: Vec<String>,
}

/// The folder of journals: in `/run` for root, else where the user's run-time files are.
pub fn folder() -> PathBuf {
    let own = PathBuf::from(format!("/run/user/{}", user()));
    match (user(), std::env::var_os("XDG_RUNTIME_DIR")) {
        (0, _) => PathBuf::from("/run/terrace"),
        (_, Some(folder)) => PathBuf::from(folder).join("terrace"),
        (_, None) if Folder::open(&own).is_ok() => own.join("terrace"),
        // Anybody may have made it: `Folder` refuses it unless it is this user's.
        (user, None) => std::env::temp_dir().join(format!("terrace-{user}")),
    }
}

fn began(kernel: &dyn Kernel, pid: u32) -> Option<u64> {
    let stat = read_text(kernel, format!("/proc/{pid}/stat")).ok()?;
    text::stat_field(&stat, 22)
}

impl Record {
    fn name(&self) -> String {
        format!("{}.json", self.pid)
    }

    fn save(&self, folder: &Folder) -> io::Result<()> {
        folder.write(&self.name(), &serde_json::to_string_pretty(self).map_err(io::Error::other)?)
    }

    /// Keeps what is left to be put back, and no file where that is nothing.
    fn settle(&self, folder: &Folder) -> io::Result<()> {
        if self.changes.is_empty() { folder.remove(&self.name()) } else { self.save(folder) }
    }

    /// A journal as it lies in the folder, if it is one of Terrace's.
    fn load(folder: &Folder, name: &str) -> Result<Record, String> {
        let text = folder.read(name).map_err(|error| error.to_string())?;
        Record::parse(&text, name, &folder.path_of(name))
    }

    /// The journal of this name at this path.
    fn parse(text: &str, name: &str, path: &Path) -> Result<Record, String> {
        let record: Record = serde_json::from_str(text)
            .map_err(|error| format!("{} is no journal of Terrace: {error}", path.display()))?;
        if record.name() != name {
            return Err(format!(
                "{} is no journal of Terrace: it is of process {}",
                path.display(),
                record.pid
            ));
        }
        for change in &record.changes {
            allowed::check(change, record.pid)
                .map_err(|why| format!("{} is not obeyed: {why}; nothing in it was done", path.display()))?;
        }
        Ok(record)
    }
}

/// Any text as the journal of process 7, for fuzzing: it is refused with a reason, or names nothing but what Terrace
/// changes.
///
/// # Panics
/// When a promise is broken.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    match Record::parse(&String::from_utf8_lossy(data), "7.json", Path::new("/run/terrace/7.json")) {
        Err(message) => assert!(message.starts_with("/run/terrace/7.json "), "{message}"),
        Ok(record) => {
            assert_eq!(record.pid, 7);
            for change in &record.changes {
                assert_eq!(allowed::check(change, 7), Ok(()), "{change:?}");
            }
        }
    }
}

impl Journal {
    /// A journal for this process, with nothing in it; its file is made with the first change.
    pub fn new(kernel: Arc<dyn Kernel>, folder: &Path) -> Journal {
        let pid = std::process::id();
        let began = began(&*kernel, pid).unwrap_or(0);
        let record = Record { pid, began, changes: Vec::new() };
        Journal { kernel, folder: folder.to_owned(), record }
    }

    fn note(&mut self, change: Change) -> io::Result<()> {
        // What could not be put back after a crash is not done either.
        allowed::check(&change, self.record.pid)
            .map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        self.record.changes.push(change);
        self.record.save(&Folder::create(&self.folder)?)
    }

    /// Changes a setting, noted before it is done. A setting that has the value already is not changed.
    ///
    /// # Errors
    /// Of noting it, then of changing it.
    pub fn set(&mut self, path: &Path, value: &str) -> io::Result<()> {
        let before = value_in(&read_text(&*self.kernel, path)?).to_owned();
        if before == value {
            return Ok(());
        }
        tracing::info!(path = %path.display(), before, after = value, "setting");
        self.note(Change::Setting { path: path.to_owned(), before, after: value.to_owned() })?;
        self.kernel.write(path, value)
    }

    /// Makes a folder in a control file system, noted before it is done.
    ///
    /// # Errors
    /// Of noting it, then of making it.
    pub fn make_folder(&mut self, path: &Path) -> io::Result<()> {
        self.note(Change::Folder { path: path.to_owned() })?;
        self.kernel.make_folder(path)
    }

    /// Notes that DAMON is about to be set up. Once is enough: it is set up anew again and again.
    ///
    /// # Errors
    /// Of noting it.
    pub fn damon(&mut self, path: &Path, as_what: Kdamonds) -> io::Result<()> {
        let change = Change::Damon { path: path.to_owned(), as_what };
        if self.record.changes.contains(&change) { Ok(()) } else { self.note(change) }
    }

    /// Puts everything back and removes the journal, unless something could not be put back.
    pub fn undo(&mut self) -> Restored {
        let mut restored = Restored::default();
        if self.record.changes.is_empty() {
            return restored;
        }
        undo(&*self.kernel, &mut self.record.changes, &mut restored);
        if let Err(error) = Folder::open(&self.folder).and_then(|folder| self.record.settle(&folder)) {
            restored.failed.push(format!("the journal in {}: {error}", self.folder.display()));
        }
        restored
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        for failed in self.undo().failed {
            tracing::error!("{failed}; `terrace restore` tries again");
        }
    }
}

/// Puts back what runs of Terrace that are no more have left behind.
///
/// # Errors
/// The folder of journals cannot be read, or is not this user's alone. That there is none is no error.
pub fn restore(kernel: &dyn Kernel, folder: &Path) -> io::Result<Restored> {
    let mut restored = Restored::default();
    let folder = match Folder::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(restored),
        folder => folder?,
    };
    // Against programs that change the pool of 1 GiB pages, and another `terrace restore`.
    let _lock = folder.lock(LOCK_TIMEOUT)?;
    let mut records = Vec::new();
    // Somebody's results may lie beside the journals, which are named by process numbers.
    let is_journal = |name: &String| name.strip_suffix(".json").is_some_and(|pid| pid.parse::<u32>().is_ok());
    for name in folder.names()?.into_iter().filter(is_journal) {
        match Record::load(&folder, &name) {
            Ok(record) => records.push(record),
            Err(why) => restored.failed.push(why),
        }
    }
    // First, as what is given back for one changes what can be told of another.
    pool::settle(kernel, records.iter_mut().flat_map(|record| &mut record.changes));
    for mut record in records {
        if began(kernel, record.pid) == Some(record.began) {
            restored
                .left
                .push(format!("process {} is still running and puts back its own changes", record.pid));
            continue;
        }
        undo(kernel, &mut record.changes, &mut restored);
        record.settle(&folder)?;
    }
    Ok(restored)
}

/// Undoes changes, the last first; those that failed stay in the list.
fn undo(kernel: &dyn Kernel, changes: &mut Vec<Change>, restored: &mut Restored) {
    let mut failed = Vec::new();
    while let Some(change) = changes.pop() {
        match undo_one(kernel, &change) {
            Ok(Undone::Back(what)) => restored.done.push(what),
            Ok(Undone::Left(why)) => restored.left.push(why),
            Err(error) => {
                restored.failed.push(format!("{change}: {error}"));
                failed.push(change);
            }
        }
    }
    failed.reverse();
    *changes = failed;
}

enum Undone {
    Back(String),
    Left(String),
}

fn undo_one(kernel: &dyn Kernel, change: &Change) -> io::Result<Undone> {
    match change {
        Change::Setting { path, before, after } => {
            let now = match read_text(kernel, path) {
                // With the file its setting is gone.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Undone::Left(format!("{} is no longer there", path.display())));
                }
                now => now?,
            };
            let now = value_in(&now);
            if now != after {
                let path = path.display();
                return Ok(Undone::Left(format!(
                    "{path} is {now} now, not {after} as Terrace had set it: left alone"
                )));
            }
            kernel.write(path, before)?;
            Ok(Undone::Back(format!("{} is {before} again", path.display())))
        }
        Change::Folder { path } => match kernel.remove_folder(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Undone::Left(format!("{} is no longer there", path.display())))
            }
            result => result.map(|()| Undone::Back(format!("{} is removed", path.display()))),
        },
        Change::Damon { path, as_what } => {
            let count = path.join("nr_kdamonds");
            let threads = read_text(kernel, &count)?;
            if threads.trim() == "0" {
                return Ok(Undone::Back("DAMON is off again".to_owned()));
            }
            let someone_else =
                || Ok(Undone::Left("DAMON is at work for someone else: left alone".to_owned()));
            if threads.trim() != as_what.threads.to_string() {
                return someone_else();
            }
            let of_thread = |thread: u64, file: &str| path.join(format!("{thread}/{file}"));
            for thread in 0..as_what.threads {
                let state = of_thread(thread, "state");
                // A thread that was not set up yet has no state.
                let now = match read_text(kernel, &state) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    now => now?,
                };
                if now.trim() != "off" {
                    // What runs there may be someone else's who began since; Terrace's threads watch so.
                    let operations = read_text(kernel, of_thread(thread, "contexts/0/operations"));
                    if operations.unwrap_or_default().trim() != as_what.operations {
                        return someone_else();
                    }
                    kernel.write(&state, "off")?;
                }
            }
            kernel.write(&count, "0")?;
            Ok(Undone::Back("DAMON is off again".to_owned()))
        }
        Change::Pool { pages, .. } => pool::undo(kernel, *pages),
    }
}

/// The value of a setting: of several that are offered (`always [madvise] never`) the chosen one.
fn value_in(text: &str) -> &str {
    text::chosen(text).unwrap_or(text.trim())
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Change::Setting { path, before, .. } => {
                write!(f, "could not set {} back to {before}", path.display())
            }
            Change::Folder { path } => write!(f, "could not remove {}", path.display()),
            Change::Damon { .. } => write!(f, "could not switch DAMON off"),
            Change::Pool { pages, .. } => write!(f, "could not take {pages} pages out of {GIANT_PAGES}"),
        }
    }
}
