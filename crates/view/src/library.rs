//! Results under some folders, read once and again when they change.

use crate::document;
use crate::find::{self, Candidate, LARGEST, Stamp};
use crate::set::{Catalog, Kind, Problem, RunRow, Set};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use terrace_report::{Comparison, RunRecord};
use terrace_study::sweep;

/// Why no library is there.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub struct Error {
    /// The folder or file that was asked for.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub error: io::Error,
}

/// What came of a candidate.
#[derive(Debug)]
enum Content {
    Set(Set),
    Problem(String),
    /// JSON of something else.
    Foreign,
}

#[derive(Debug)]
struct Known {
    stamp: Stamp,
    content: Content,
}

/// All results under some folders.
#[derive(Debug)]
pub struct Library {
    roots: Vec<PathBuf>,
    known: BTreeMap<PathBuf, Known>,
    /// A path keeps its number, even if it goes and comes again.
    numbers: BTreeMap<PathBuf, u32>,
    catalog: Catalog,
}

impl Library {
    /// Looks at folders and files for the first time.
    ///
    /// # Errors
    /// The first of them that is not there or cannot be read.
    pub fn open(roots: Vec<PathBuf>) -> Result<Library, Error> {
        for path in &roots {
            let there = fs::metadata(path).and_then(|data| match data.is_dir() {
                true => fs::read_dir(path).map(|_| ()),
                false => fs::File::open(path).map(|_| ()),
            });
            there.map_err(|error| Error { path: path.clone(), error })?;
        }
        let shown = roots.iter().map(|root| root.display().to_string()).collect();
        let catalog = Catalog { roots: shown, ..Catalog::default() };
        let mut library = Library { roots, known: BTreeMap::new(), numbers: BTreeMap::new(), catalog };
        library.look();
        Ok(library)
    }

    /// Looks again. Returns whether anything is different.
    pub fn look(&mut self) -> bool {
        let found = find::find(&self.roots);
        let there: BTreeSet<&PathBuf> = found.candidates.iter().map(|one| &one.path).collect();
        self.known.retain(|path, _| there.contains(path));
        for candidate in &found.candidates {
            if self.known.get(&candidate.path).is_some_and(|known| known.stamp == candidate.stamp) {
                continue;
            }
            let next = self.numbers.len() as u32;
            let id = *self.numbers.entry(candidate.path.clone()).or_insert(next);
            // A file that was named is reported whatever its name is.
            let is_named = self.roots.contains(&candidate.path);
            let content = read(candidate, id, is_named);
            self.known.insert(candidate.path.clone(), Known { stamp: candidate.stamp, content });
        }
        let mut catalog = Catalog { roots: self.catalog.roots.clone(), ..Catalog::default() };
        for (path, known) in &self.known {
            match &known.content {
                Content::Set(set) => catalog.sets.push(set.clone()),
                Content::Problem(message) => catalog.problems.push(problem(path, message)),
                Content::Foreign => {}
            }
        }
        catalog.problems.extend(found.problems.iter().map(|(path, message)| problem(path, message)));
        let is_new = catalog != self.catalog;
        self.catalog = catalog;
        is_new
    }

    /// What there is.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The document of a set, read now. None where no set has this number.
    ///
    /// # Errors
    /// A file that is gone or damaged by now: in words.
    pub fn document(&self, id: u32) -> Option<Result<String, String>> {
        let set = self.catalog.sets.iter().find(|set| set.id == id)?;
        let (path, _) = self.numbers.iter().find(|(_, number)| **number == id)?;
        Some(match set.kind {
            Kind::Sweep => {
                let found = find::find(std::slice::from_ref(path));
                let files = found.candidates.into_iter().find_map(|one| one.kept).unwrap_or_default();
                let runs = kept(&files).0;
                let title = format!("Sweep in {}", set.path);
                Ok(Comparison { title, runs, ..Comparison::default() }.to_json())
            }
            _ => {
                fs::read_to_string(path).map_err(|error| format!("{}: {error}", set.path)).and_then(|text| {
                    match document::read(&text, false) {
                        Ok(Some(_)) => Ok(text),
                        Ok(None) => Err(format!("{}: no longer results of Terrace", set.path)),
                        Err(message) => Err(format!("{}: {message}", set.path)),
                    }
                })
            }
        })
    }
}

fn problem(path: &Path, message: &str) -> Problem {
    Problem { path: shown(path), message: message.to_owned() }
}

/// A path as it is shown: that of the current folder is the beginning of all that are below it, and says nothing.
fn shown(path: &Path) -> String {
    path.strip_prefix(".").ok().filter(|rest| *rest != Path::new("")).unwrap_or(path).display().to_string()
}

fn read(candidate: &Candidate, id: u32, is_named: bool) -> Content {
    let path = shown(&candidate.path);
    let modified = (candidate.stamp.changed / 1_000_000_000) as u64;
    if let Some(files) = &candidate.kept {
        let (records, damaged) = kept(files);
        let runs = rows(&records);
        let set = Set {
            id,
            path,
            kind: Kind::Sweep,
            title: String::new(),
            command: String::new(),
            tool_version: String::new(),
            date: String::new(),
            modified,
            runs,
        };
        return match (set.runs.is_empty(), damaged) {
            (true, count) => {
                Content::Problem(format!("none of the {count} files is a run that a sweep has kept"))
            }
            (false, _) => Content::Set(set),
        };
    }
    let must = is_named || candidate.must_be_results();
    if !must && !candidate.begins_as_ours() {
        return Content::Foreign;
    }
    if candidate.stamp.bytes > LARGEST {
        return Content::Problem(format!("larger than {} MiB", LARGEST >> 20));
    }
    let text = match fs::read_to_string(&candidate.path) {
        Ok(text) => text,
        Err(error) => return Content::Problem(error.to_string()),
    };
    match document::read(&text, is_named) {
        Ok(Some(document::Summary { kind, title, command, tool_version, date, runs })) => {
            Content::Set(Set { id, path, kind, title, command, tool_version, date, modified, runs })
        }
        Ok(None) if must => Content::Problem("these are no results of Terrace".to_owned()),
        Ok(None) => Content::Foreign,
        Err(message) => Content::Problem(message),
    }
}

/// The whole runs in files of a sweep, and how many files hold none.
fn kept(files: &[PathBuf]) -> (Vec<RunRecord>, usize) {
    let texts = files.iter().filter_map(|path| fs::read_to_string(path).ok());
    let runs: Vec<RunRecord> = texts.filter_map(|text| sweep::kept(&text)).collect();
    let damaged = files.len() - runs.len();
    (runs, damaged)
}

/// Rows of a sweep's runs, each with the parameters in which not all runs agree.
fn rows(records: &[RunRecord]) -> Vec<RunRow> {
    let parameters: Vec<BTreeMap<&str, &str>> = records
        .iter()
        .map(|run| run.parameters.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect())
        .collect();
    let keys: BTreeSet<&str> = parameters.iter().flat_map(|one| one.keys().copied()).collect();
    // Two designs differ in what makes them two; a sweep's values tell runs of the same design apart.
    let varies = |key: &str| {
        let pairs = records.iter().zip(&parameters);
        let mut seen: BTreeMap<(&str, &str), Option<&str>> = BTreeMap::new();
        pairs.into_iter().any(|(run, own)| {
            let value = own.get(key).copied();
            *seen.entry((&run.design, &run.machine)).or_insert(value) != value
        })
    };
    let varied: Vec<&str> = keys.into_iter().filter(|key| varies(key)).collect();
    let row = |(run, own): (&RunRecord, &BTreeMap<&str, &str>)| RunRow {
        design: run.design.clone(),
        machine: run.machine.clone(),
        input: run.input.clone(),
        values: varied
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), (*own.get(key)?).to_owned())))
            .collect(),
        fidelity: run.fidelity.clone(),
        seconds: Some(run.seconds_simulated).filter(|seconds| *seconds > 0.0),
        slowdown: None,
        accesses: Some(run.accesses),
    };
    records.iter().zip(&parameters).map(row).collect()
}
