//! Files under a folder that may hold results.

use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use terrace_study::sweep::KEPT;

/// Folders below a root that are looked into.
const DEPTH: usize = 8;
/// Files and folders that are looked at in one look; who gives a root of more gets a message.
const ENTRIES: usize = 50_000;
/// Larger files are not read.
pub const LARGEST: u64 = 256 << 20;
/// The beginning of a file that says whether it is of Terrace: its documents have their schema first.
const BEGINNING: u64 = 256;
/// The file that a comparison's folder has. What it holds is always reported.
const RESULTS: &str = "results.json";

/// What tells a file from its earlier and later contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Last change, in nanoseconds since 1970. Of a folder that of its youngest file.
    pub changed: u128,
    /// Length. Of a folder that of its files together.
    pub bytes: u64,
    /// Files.
    pub files: u64,
}

/// A file, or a folder of a sweep's runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where it lies.
    pub path: PathBuf,
    /// The stamp of the contents.
    pub stamp: Stamp,
    /// The files of a sweep's folder; none of a file.
    pub kept: Option<Vec<PathBuf>>,
}

impl Candidate {
    /// Whether it is reported when it cannot be read: its name says that it holds results.
    pub fn must_be_results(&self) -> bool {
        self.kept.is_some() || self.path.file_name().is_some_and(|name| name == RESULTS)
    }

    /// Whether it begins as Terrace's documents do. An unreadable one does: whoever reads it learns why.
    pub fn begins_as_ours(&self) -> bool {
        let beginning = || {
            let mut text = Vec::new();
            fs::File::open(&self.path)?.take(BEGINNING).read_to_end(&mut text)?;
            Ok::<_, io::Error>(text)
        };
        beginning().map_or(true, |text| String::from_utf8_lossy(&text).contains("\"schema\""))
    }
}

/// What a look at the roots has found.
#[derive(Debug, Default)]
pub struct Found {
    /// Files and folders, by path.
    pub candidates: Vec<Candidate>,
    /// Folders that could not be read, and why.
    pub problems: Vec<(PathBuf, String)>,
    entries: usize,
}

/// Looks at files and below folders. Hidden folders, and folders behind symbolic links, are left out.
pub fn find(roots: &[PathBuf]) -> Found {
    let mut found = Found::default();
    for root in roots {
        match fs::metadata(root) {
            Ok(data) if data.is_dir() => found.folder(root, 0),
            Ok(data) => found.file(root, &data),
            Err(error) => found.problems.push((root.clone(), error.to_string())),
        }
    }
    found.candidates.sort_by(|a, b| a.path.cmp(&b.path));
    found.candidates.dedup_by(|a, b| a.path == b.path);
    found
}

impl Found {
    fn file(&mut self, path: &Path, data: &Metadata) {
        let stamp = Stamp { changed: changed(data), bytes: data.len(), files: 1 };
        self.candidates.push(Candidate { path: path.to_owned(), stamp, kept: None });
    }

    fn folder(&mut self, folder: &Path, depth: usize) {
        let mut entries: Vec<(PathBuf, Metadata)> = Vec::new();
        match fs::read_dir(folder) {
            // What is gone by now is no concern of ours, and a link's own metadata is neither of a file nor of a folder.
            Ok(all) => {
                let all = all.flatten().filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)));
                entries.extend(all.filter(|(path, _)| !is_hidden(path)));
            }
            Err(error) => self.problems.push((folder.to_owned(), error.to_string())),
        }
        self.entries += entries.len();
        if self.entries > ENTRIES {
            let message = format!("more than {ENTRIES} files and folders; name the folders with the results");
            if self.problems.last().is_none_or(|(_, last)| *last != message) {
                self.problems.push((folder.to_owned(), message));
            }
            return;
        }
        let is_json = |path: &Path| path.extension().is_some_and(|ending| ending == "json");
        if folder.file_name().is_some_and(|name| name == KEPT) {
            let kept = entries.iter().filter(|(path, data)| data.is_file() && is_kept(path));
            let kept: Vec<&(PathBuf, Metadata)> = kept.collect();
            if !kept.is_empty() {
                let stamp = Stamp {
                    changed: kept.iter().map(|(_, data)| changed(data)).max().unwrap_or_default(),
                    bytes: kept.iter().map(|(_, data)| data.len()).sum(),
                    files: kept.len() as u64,
                };
                let mut files: Vec<PathBuf> = kept.into_iter().map(|(path, _)| path.clone()).collect();
                files.sort();
                self.candidates.push(Candidate { path: folder.to_owned(), stamp, kept: Some(files) });
                return;
            }
        }
        for (path, data) in &entries {
            if data.is_file() && is_json(path) {
                self.file(path, data);
            } else if data.is_dir() && depth < DEPTH {
                self.folder(path, depth + 1);
            }
        }
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// Whether a sweep names its runs so: sixteen hexadecimal digits.
fn is_kept(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".json"));
    name.is_some_and(|name| name.len() == 16 && name.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

fn changed(data: &Metadata) -> u128 {
    let time = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}
