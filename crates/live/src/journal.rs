//! What was changed in the system, written down before it is changed, so that it is put back at exit, and after a crash
//! by `terrace restore`.
//!
//! A setting is put back only while it still has the value that Terrace gave it: what an administrator has changed since
//! is theirs.

use crate::facts::text;
use crate::kernel::{Kernel, read_text};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
}

/// The changes of one run.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    pid: u32,
    /// When the process began, in the kernel's ticks: tells it from a later one of the same number.
    began: u64,
    changes: Vec<Change>,
}

/// Keeps the changes of this run on disk.
pub struct Journal {
    kernel: Arc<dyn Kernel>,
    file: PathBuf,
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
    // SAFETY: this call cannot fail.
    let user = unsafe { libc::geteuid() };
    match (user, std::env::var_os("XDG_RUNTIME_DIR")) {
        (0, _) => PathBuf::from("/run/terrace"),
        (_, Some(folder)) => PathBuf::from(folder).join("terrace"),
        (user, None) => std::env::temp_dir().join(format!("terrace-{user}")),
    }
}

fn began(kernel: &dyn Kernel, pid: u32) -> Option<u64> {
    let stat = read_text(kernel, format!("/proc/{pid}/stat")).ok()?;
    text::stat_field(&stat, 22)
}

impl Journal {
    /// A journal for this process, with nothing in it; its file is made with the first change.
    pub fn new(kernel: Arc<dyn Kernel>, folder: &Path) -> Journal {
        let pid = std::process::id();
        let began = began(&*kernel, pid).unwrap_or(0);
        let file = folder.join(format!("{pid}.json"));
        Journal { kernel, file, record: Record { pid, began, changes: Vec::new() } }
    }

    fn note(&mut self, change: Change) -> io::Result<()> {
        self.record.changes.push(change);
        self.save()
    }

    /// Written whole and renamed: a crash leaves the old journal or the new one.
    fn save(&self) -> io::Result<()> {
        if let Some(folder) = self.file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let text = serde_json::to_string_pretty(&self.record).map_err(io::Error::other)?;
        let draft = self.file.with_extension("draft");
        std::fs::write(&draft, text)?;
        std::fs::rename(&draft, &self.file)
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
        undo(&*self.kernel, &mut self.record.changes, &mut restored);
        if self.record.changes.is_empty() {
            let _ = std::fs::remove_file(&self.file);
        } else if let Err(error) = self.save() {
            restored.failed.push(format!("{}: {error}", self.file.display()));
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
/// The folder of journals cannot be read. That there is none is no error.
pub fn restore(kernel: &dyn Kernel, folder: &Path) -> io::Result<Restored> {
    let mut restored = Restored::default();
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(restored),
        entries => entries?,
    };
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    for file in files {
        let record = std::fs::read_to_string(&file)
            .and_then(|text| serde_json::from_str::<Record>(&text).map_err(io::Error::other));
        let mut record = match record {
            Ok(record) => record,
            Err(error) => {
                restored.failed.push(format!("{} is no journal of Terrace: {error}", file.display()));
                continue;
            }
        };
        if began(kernel, record.pid) == Some(record.began) {
            restored
                .left
                .push(format!("process {} is still running and puts back its own changes", record.pid));
            continue;
        }
        undo(kernel, &mut record.changes, &mut restored);
        if record.changes.is_empty() {
            std::fs::remove_file(&file)?;
        } else {
            let text = serde_json::to_string_pretty(&record).map_err(io::Error::other)?;
            std::fs::write(&file, text)?;
        }
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Rooted;

    struct Bench {
        root: tempfile::TempDir,
        kernel: Arc<Rooted>,
        file: PathBuf,
    }

    impl Bench {
        fn new(value: &str) -> Bench {
            let root = tempfile::tempdir().unwrap();
            std::fs::create_dir_all(root.path().join("sys")).unwrap();
            let file = root.path().join("sys/setting");
            std::fs::write(&file, value).unwrap();
            Bench { kernel: Arc::new(Rooted::new(root.path())), file, root }
        }

        fn journal(&self) -> Journal {
            Journal::new(self.kernel.clone(), &self.folder())
        }

        fn folder(&self) -> PathBuf {
            self.root.path().join("journals")
        }

        fn value(&self) -> String {
            std::fs::read_to_string(&self.file).unwrap()
        }
    }

    const SETTING: &str = "/sys/setting";

    #[test]
    fn what_was_set_is_put_back() {
        let bench = Bench::new("always [madvise] never\n");
        let mut journal = bench.journal();
        journal.set(SETTING.as_ref(), "always").unwrap();
        assert_eq!(bench.value(), "always");
        drop(journal);
        assert_eq!(bench.value(), "madvise");
        assert_eq!(std::fs::read_dir(bench.folder()).unwrap().count(), 0);
    }

    #[test]
    fn what_the_administrator_has_set_since_is_left_alone() {
        let bench = Bench::new("1");
        let mut journal = bench.journal();
        journal.set(SETTING.as_ref(), "2").unwrap();
        std::fs::write(&bench.file, "7").unwrap();
        let restored = journal.undo();
        assert_eq!((bench.value().as_str(), restored.done.len(), restored.left.len()), ("7", 0, 1));
        assert!(restored.left[0].contains("is 7 now, not 2"), "{restored:?}");
    }

    #[test]
    fn after_a_crash_restore_does_it() {
        let bench = Bench::new("1");
        let mut journal = bench.journal();
        journal.set(SETTING.as_ref(), "2").unwrap();
        journal.make_folder("/sys/instance".as_ref()).unwrap();
        std::mem::forget(journal);
        let restored = restore(&*bench.kernel, &bench.folder()).unwrap();
        assert_eq!(restored.done.len(), 2, "{restored:?}");
        assert_eq!(bench.value(), "1");
        assert!(!bench.root.path().join("sys/instance").exists());
        assert_eq!(restore(&*bench.kernel, &bench.folder()).unwrap(), Restored::default());
    }

    #[test]
    fn damon_is_switched_off_unless_it_works_for_someone_else() {
        for (operations, nr, off) in [("fvaddr", "1", true), ("vaddr", "1", false), ("fvaddr", "2", false)] {
            let bench = Bench::new("1");
            let folder = bench.root.path().join("sys/kdamonds");
            std::fs::create_dir_all(folder.join("0/contexts/0")).unwrap();
            std::fs::write(folder.join("nr_kdamonds"), nr).unwrap();
            std::fs::write(folder.join("0/state"), "on\n").unwrap();
            std::fs::write(folder.join("0/contexts/0/operations"), operations).unwrap();
            let mut journal = bench.journal();
            for _ in 0..3 {
                journal.damon("/sys/kdamonds".as_ref(), Kdamonds::watching()).unwrap();
            }
            let restored = journal.undo();
            assert_eq!((restored.done.len(), restored.left.len()), (usize::from(off), usize::from(!off)));
            let state = std::fs::read_to_string(folder.join("0/state")).unwrap();
            assert_eq!(state.trim() == "off", off, "{operations} {nr}");
        }
    }

    #[test]
    fn the_journal_of_a_running_process_is_its_own() {
        let bench = Bench::new("1");
        let pid = std::process::id();
        std::fs::create_dir_all(bench.root.path().join(format!("proc/{pid}"))).unwrap();
        let fields = (4..=21).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        let stat = format!("{pid} (a) b) S {fields} 4711 0");
        std::fs::write(bench.root.path().join(format!("proc/{pid}/stat")), stat).unwrap();
        let mut journal = bench.journal();
        assert_eq!(journal.record.began, 4711);
        journal.set(SETTING.as_ref(), "2").unwrap();
        let restored = restore(&*bench.kernel, &bench.folder()).unwrap();
        assert_eq!((restored.done.len(), restored.left.len(), bench.value().as_str()), (0, 1, "2"));
    }

    #[test]
    fn a_file_that_is_no_journal_is_said_and_kept() {
        let bench = Bench::new("1");
        std::fs::create_dir_all(bench.folder()).unwrap();
        std::fs::write(bench.folder().join("9.json"), "{").unwrap();
        let restored = restore(&*bench.kernel, &bench.folder()).unwrap();
        assert!(restored.failed[0].contains("9.json is no journal of Terrace"), "{restored:?}");
        assert!(bench.folder().join("9.json").exists());
    }
}
