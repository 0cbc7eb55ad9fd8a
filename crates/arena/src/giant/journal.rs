//! The entry that a process has in Terrace's journal: how many pages it has added to the pool. `terrace restore` reads
//! it too (`crates/live/src/journal`).

use super::{PAUSE, Refused};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A growth that has begun. Who is killed meanwhile has added any number of the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Growing {
    /// Pages of the pool before.
    pub from: u64,
    /// Pages that are to be added.
    pub by: u64,
}

/// The entry of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub process: u32,
    /// When the process began: distinguishes it from a later one of the same number.
    pub began: u64,
    /// What it has added, without what is being added.
    pub pages: u64,
    pub growing: Option<Growing>,
}

fn name(process: u32) -> String {
    format!("{process}.json")
}

impl Entry {
    fn text(&self) -> String {
        let Entry { process, began, pages, growing } = self;
        let growing = growing.map_or(String::new(), |Growing { from, by }| {
            format!(",\"growing\":{{\"from\":{from},\"by\":{by}}}")
        });
        format!(
            "{{\"pid\":{process},\"began\":{began},\"changes\":[{{\"kind\":\"pool\",\"pages\":{pages}{growing}}}]}}\n"
        )
    }

    /// An entry for the pool; none where the text is another one.
    fn parse(text: &str) -> Option<Entry> {
        let text: String = text.split_whitespace().collect();
        let number = |key: &str| {
            let (_, rest) = text.split_once(&format!("\"{key}\":"))?;
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
        };
        text.contains("\"kind\":\"pool\"").then_some(())?;
        Some(Entry {
            process: number("pid")?.try_into().ok()?,
            began: number("began")?,
            pages: number("pages")?,
            growing: number("from").zip(number("by")).map(|(from, by)| Growing { from, by }),
        })
    }

    pub(super) fn load(folder: &Path, process: u32) -> Option<Entry> {
        let entry = Entry::parse(&fs::read_to_string(folder.join(name(process))).ok()?)?;
        (entry.process == process).then_some(entry)
    }

    /// Counts what came of a growth that its process did not finish. The pool has `now` pages, and nobody has changed it
    /// since: whoever does, settles this first.
    pub(super) fn settle(&mut self, now: u64) {
        if let Some(Growing { from, by }) = self.growing.take() {
            self.pages += now.saturating_sub(from).min(by);
        }
    }

    /// Makes the entry, or removes it where there is nothing to be given back. `own`: there may be one, and it is this
    /// process's.
    pub(super) fn save(&self, folder: &Path, own: bool) -> io::Result<()> {
        let path = folder.join(name(self.process));
        if self.pages == 0 && self.growing.is_none_or(|growing| growing.by == 0) {
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
        let new = folder.join(format!("{}.json.new", self.process));
        let _ = fs::remove_file(&new);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(self.text().as_bytes())?;
        fs::rename(new, path)
    }
}

/// Counts what came of growths of others that did not finish them. For whoever has the lock and is about to change the pool.
pub(super) fn settle(folder: &Path, own: u32, now: u64) {
    let Ok(names) = fs::read_dir(folder) else { return };
    for name in names.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
        let number = name.strip_suffix(".json").and_then(|number| number.parse().ok());
        let Some(process) = number.filter(|process| *process != own) else { continue };
        if let Some(mut entry) = Entry::load(folder, process).filter(|entry| entry.growing.is_some()) {
            entry.settle(now);
            let _ = entry.save(folder, true);
        }
    }
}

/// Held while the pool is changed, so that two programs do not count the same pages.
pub(super) struct Lock<'a>(&'a File);

impl Lock<'_> {
    pub(super) fn of(folder: &File, timeout: Duration) -> Result<Lock<'_>, Refused> {
        let begin = Instant::now();
        loop {
            // SAFETY: An open descriptor.
            if unsafe { libc::flock(folder.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                return Ok(Lock(folder));
            }
            match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => {}
                error => return Err(Refused::NoJournal(error.to_string())),
            }
            if begin.elapsed() >= timeout {
                return Err(Refused::Busy);
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // SAFETY: As above.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}
