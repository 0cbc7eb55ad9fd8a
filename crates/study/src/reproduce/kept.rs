//! Results of runs, kept for the next time.
//!
//! A run's result follows from the simulator's source, the design and the input, so it is looked up by these: a study that
//! was stopped goes on where it was, and one whose claims have changed makes only the runs that are new. A build from
//! another source of what decides results (`build.rs`) keeps results of its own.

use crate::keeping::{Exact, ExactStats, cache_folder, short_name};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use terrace_model::ContiguityPoint;
use terrace_report::{WriteError, write_atomically};
use terrace_sim::design::claims::RunNumbers;

/// Results of builds that nobody ran for so long are removed.
const LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The folder of one build's results.
#[derive(Clone, Debug)]
pub struct Kept {
    folder: PathBuf,
}

/// A result with all that it follows from, so that another of the same short name is told apart.
#[derive(serde::Serialize, serde::Deserialize)]
struct Entry {
    key: String,
    accesses: u64,
    instructions: u64,
    cycles: u64,
    seconds: Exact,
    stats: ExactStats,
    contiguity: Vec<Sample>,
}

/// A sample of contiguity.
#[derive(serde::Serialize, serde::Deserialize)]
struct Sample {
    seconds: Exact,
    regions: u64,
    coverage_32: Exact,
    coverage_128: Exact,
}

impl Sample {
    fn of(point: &ContiguityPoint) -> Sample {
        Sample {
            seconds: Exact::of(point.seconds),
            regions: point.regions,
            coverage_32: Exact::of(point.coverage_32),
            coverage_128: Exact::of(point.coverage_128),
        }
    }

    fn point(&self) -> Option<ContiguityPoint> {
        Some(ContiguityPoint {
            seconds: self.seconds.value()?,
            regions: self.regions,
            coverage_32: self.coverage_32.value()?,
            coverage_128: self.coverage_128.value()?,
        })
    }
}

impl Kept {
    /// The results of this program, in `$XDG_CACHE_HOME/terrace/runs` (`~/.cache` where that is not set). `None` where there
    /// is no such folder or the program cannot be read: then every run is made.
    pub fn of_this_program() -> Option<Kept> {
        let identity = match env!("TERRACE_SOURCE") {
            "" => identity(Path::new("/proc/self/exe")).ok()?,
            source => source.to_owned(),
        };
        let kept = Kept::in_folder(&cache_folder()?.join("terrace/runs"), &identity);
        kept.remove_old();
        Some(kept)
    }

    /// The results of the build called `identity`, in a folder for all builds.
    pub fn in_folder(folder: &Path, identity: &str) -> Kept {
        Kept { folder: folder.join(identity) }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{}.json", short_name(key)))
    }

    /// The result of this run, if it is here and whole.
    pub fn get(&self, key: &str) -> Option<RunNumbers> {
        let text = fs::read(self.path(key)).ok()?;
        let entry: Entry = serde_json::from_slice(&text).ok()?;
        if entry.key != key {
            return None;
        }
        Some(RunNumbers {
            accesses: entry.accesses,
            instructions: entry.instructions,
            cycles: entry.cycles,
            seconds: entry.seconds.value()?,
            stats: entry.stats.into_stats()?,
            contiguity: entry.contiguity.iter().map(Sample::point).collect::<Option<_>>()?,
        })
    }

    /// Keeps the result of a run.
    ///
    /// # Errors
    /// The folder cannot be written. Nothing half-written is left under the result's name.
    pub fn put(&self, key: &str, numbers: &RunNumbers) -> Result<(), WriteError> {
        let path = self.path(key);
        fs::create_dir_all(&self.folder).map_err(|error| WriteError { path: path.clone(), error })?;
        let entry = Entry {
            key: key.to_owned(),
            accesses: numbers.accesses,
            instructions: numbers.instructions,
            cycles: numbers.cycles,
            seconds: Exact::of(numbers.seconds),
            stats: ExactStats::of(&numbers.stats),
            contiguity: numbers.contiguity.iter().map(Sample::of).collect(),
        };
        let text = serde_json::to_vec(&entry).expect("plain data with string keys always serializes");
        write_atomically(&path, &text)
    }

    /// Removes the folders of other builds in which nothing was written for long.
    fn remove_old(&self) {
        let Some(folders) = self.folder.parent().and_then(|all| fs::read_dir(all).ok()) else { return };
        for folder in folders.flatten().map(|entry| entry.path()).filter(|path| *path != self.folder) {
            let written = fs::metadata(&folder).and_then(|data| data.modified());
            let age = written.ok().and_then(|written| SystemTime::now().duration_since(written).ok());
            if age.is_some_and(|age| age > LIFE) {
                // What another process removes or uses meanwhile is no concern of this one.
                let _ = fs::remove_dir_all(&folder);
            }
        }
    }
}

/// What tells a build from another: the size and a checksum of its file.
fn identity(program: &Path) -> io::Result<String> {
    let mut file = fs::File::open(program)?;
    let (mut sum, mut bytes, mut piece) = (crc32fast::Hasher::new(), 0, vec![0; 1 << 20]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(format!("{bytes:x}-{:08x}", sum.finalize())),
            read => {
                sum.update(&piece[..read]);
                bytes += read;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::{Stats, Unit};

    fn numbers() -> RunNumbers {
        let mut stats = Stats::new();
        stats.count("walk.count", 7, Unit::Count);
        stats.real("whole", 3.0, Unit::Ratio);
        // Numbers that a decimal text keeps only if all digits are read.
        stats.real("tenth", 0.1 + 0.2, Unit::Ratio);
        stats.real("never", f64::INFINITY, Unit::Nanoseconds);
        let mut sizes = terrace_model::Histogram::default();
        sizes.record(5);
        stats.histogram("sizes", sizes, Unit::Bytes);
        let contiguity = vec![ContiguityPoint {
            seconds: 0.1,
            regions: 7,
            coverage_32: 0.1 + 0.2,
            coverage_128: 1.0 / 3.0,
        }];
        RunNumbers { accesses: 1, instructions: 2, cycles: u64::MAX, seconds: 1.0 / 3.0, stats, contiguity }
    }

    #[test]
    fn a_result_comes_back_to_the_last_digit() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::in_folder(folder.path(), "build");
        assert_eq!(kept.get("run"), None);
        kept.put("run", &numbers()).unwrap();
        assert_eq!(kept.get("run"), Some(numbers()));
        assert_eq!(kept.get("another run"), None);
        assert_eq!(Kept::in_folder(folder.path(), "another build").get("run"), None);
    }

    #[test]
    fn a_damaged_result_and_one_of_another_run_are_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::in_folder(folder.path(), "build");
        kept.put("run", &numbers()).unwrap();
        let path = kept.path("run");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("\"key\":\"run\"", "\"key\":\"nur\"")).unwrap();
        assert_eq!(kept.get("run"), None);
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert_eq!(kept.get("run"), None);
    }

    #[test]
    fn builds_differ_by_what_is_in_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let of = |content: &str| {
            fs::write(&path, content).unwrap();
            identity(&path).unwrap()
        };
        assert_eq!(of("one"), of("one"));
        assert_ne!(of("one"), of("two"));
    }
}
