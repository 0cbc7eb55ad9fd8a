//! Files of `/proc` and `/sys` by path, and what writing some of them does.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// DAMON's folder, where everything can be written.
const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";
const INSTANCES: &str = "/sys/kernel/tracing/instances";
/// The event's format, as Linux 6.12 states it.
const FORMAT: &str = "name: damon_aggregated
ID: 677
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;

\tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;
\tfield:unsigned long start;\toffset:24;\tsize:8;\tsigned:0;
\tfield:unsigned long end;\toffset:32;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_accesses;\toffset:40;\tsize:4;\tsigned:0;
";

/// Files by path; folders are where there are files below.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(BTreeMap<PathBuf, String>);

impl Files {
    /// The files of `tests/fixtures/NAME.txt`.
    pub fn fixture(name: &str) -> Files {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format!("{name}.txt"));
        let text = std::fs::read_to_string(path).unwrap();
        let files = text.split("=== ").skip(1).map(|file| {
            let (path, content) = file.split_once('\n').unwrap();
            (PathBuf::from(path), content.to_owned())
        });
        Files(files.collect())
    }

    /// Which files differ, with what they say here and there.
    pub fn differences(&self, other: &Files) -> Vec<(PathBuf, Option<String>, Option<String>)> {
        let paths = self.0.keys().chain(other.0.keys().filter(|path| !self.0.contains_key(*path)));
        let both = paths.map(|path| (path.clone(), self.get(path), other.get(path)));
        both.filter(|(_, here, there)| here != there).collect()
    }

    pub fn get(&self, path: &Path) -> Option<String> {
        self.0.get(path).cloned()
    }

    pub fn set(&mut self, path: impl Into<PathBuf>, content: impl Into<String>) {
        self.0.insert(path.into(), content.into());
    }

    fn below<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
        self.0.keys().filter(move |path| path.starts_with(folder))
    }

    /// The processes that DAMON is to watch.
    pub fn targets(&self) -> impl Iterator<Item = u32> {
        let targets = self.below(KDAMONDS.as_ref()).filter(|path| path.ends_with("pid_target"));
        targets.filter_map(|path| self.0[path].trim().parse().ok())
    }

    pub fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let name = |file: &PathBuf| {
            let first = file.strip_prefix(path).ok()?.components().next()?;
            Some(first.as_os_str().to_string_lossy().into_owned())
        };
        let mut names: Vec<String> = self.below(path).filter_map(name).collect();
        names.sort();
        names.dedup();
        if names.is_empty() { Err(io::Error::from_raw_os_error(libc::ENOENT)) } else { Ok(names) }
    }

    pub fn make_folder(&mut self, path: &Path) -> io::Result<()> {
        if path.parent() != Some(Path::new(INSTANCES)) {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        if self.below(path).next().is_some() {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        let event = path.join("events/damon/damon_aggregated");
        self.set(event.join("format"), FORMAT);
        for name in ["buffer_size_kb", "per_cpu/cpu0/trace_pipe_raw"] {
            self.set(path.join(name), "");
        }
        for name in ["filter", "enable"] {
            self.set(event.join(name), "");
        }
        Ok(())
    }

    pub fn remove_folder(&mut self, path: &Path) -> io::Result<()> {
        let before = self.0.len();
        self.0.retain(|file, _| !file.starts_with(path));
        if self.0.len() == before { Err(io::Error::from_raw_os_error(libc::ENOENT)) } else { Ok(()) }
    }

    /// Writes a file that is there; of DAMON's any.
    pub fn write(&mut self, path: &Path, value: &str) -> io::Result<()> {
        let refused = |errno| Err(io::Error::from_raw_os_error(errno));
        let threads = Path::new(KDAMONDS).join("nr_kdamonds");
        if path == threads {
            let is_on = |file: &PathBuf| file.ends_with("state") && self.0[file] == "on\n";
            if self.below(KDAMONDS.as_ref()).any(is_on) {
                return refused(libc::EBUSY);
            }
            self.0.retain(|file, _| !file.starts_with(KDAMONDS));
            for thread in 0..value.parse().unwrap_or(0) {
                let thread = Path::new(KDAMONDS).join(thread.to_string());
                self.set(thread.join("state"), "off\n");
                self.set(thread.join("contexts/0/schemes/0/stats/sz_applied"), "0\n");
            }
        } else if path.starts_with(KDAMONDS) {
            let thread = path.ancestors().find(|folder| folder.parent() == Some(Path::new(KDAMONDS)));
            let state = thread.map(|thread| thread.join("state")).and_then(|state| self.get(&state));
            match (state, path.ends_with("state"), value) {
                (None, ..) => return refused(libc::ENOENT),
                (Some(_), true, "on" | "off") | (Some(_), false, _) => {}
                // Commands to a thread that runs; it runs on.
                (Some(state), true, _) if state == "on\n" => {
                    self.set(path.with_file_name("last_command"), value);
                    return Ok(());
                }
                (Some(_), true, _) => return refused(libc::EINVAL),
            }
        } else if !self.0.contains_key(path) {
            return refused(libc::ENOENT);
        }
        self.set(path, format!("{value}\n"));
        Ok(())
    }
}
