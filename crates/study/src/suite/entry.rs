//! What an entry of the suite is.

use crate::Error;
use crate::keeping::short_name;
use serde::Deserialize;
use terrace_model::parameters::{did_you_mean, nearest};

/// One program of the suite, as its file in `suite/` says.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Name of the file without its ending.
    pub name: String,
    /// What runs, in one line.
    pub summary: String,
    /// The published programs that it stands for.
    pub stands_for: Vec<String>,
    /// How it differs from them.
    pub differs: String,
    /// Packages of Debian that bring what it needs.
    pub packages: Vec<String>,
    /// Commands, or absolute paths of files, that have to be there.
    pub commands: Vec<String>,
    /// What runs.
    pub source: Source,
    /// The text of its file.
    text: String,
}

/// What an entry runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A program of the system.
    Program(Program),
    /// A built-in workload with its parameters.
    Workload(String),
}

/// A program with its input and its region of interest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// A shell script that makes the input, run once in an empty folder.
    pub prepare: String,
    /// A shell script that ends in the program, run in that folder.
    pub run: String,
    /// Accesses before the region of interest.
    pub skip: u64,
    /// Accesses in it, at most.
    pub length: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    summary: String,
    stands_for: Vec<String>,
    differs: String,
    #[serde(default)]
    packages: Vec<String>,
    #[serde(default)]
    commands: Vec<String>,
    #[serde(default)]
    prepare: String,
    run: Option<String>,
    skip: Option<u64>,
    length: Option<u64>,
    workload: Option<String>,
}

impl Entry {
    /// Reads a file of the suite.
    ///
    /// # Errors
    /// What is no TOML, an unknown or missing key, or both or none of `run` and `workload`.
    pub(super) fn parse(name: &str, text: &str) -> Result<Entry, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        let source = match (file.run, file.workload, file.length) {
            (Some(run), None, Some(length)) if length > 0 => {
                Source::Program(Program { prepare: file.prepare, run, skip: file.skip.unwrap_or(0), length })
            }
            (None, Some(spec), None) if file.skip.is_none() => Source::Workload(spec),
            _ => return Err("needs either run and length, or workload alone".to_owned()),
        };
        Ok(Entry {
            name: name.to_owned(),
            summary: file.summary,
            stands_for: file.stands_for,
            differs: file.differs,
            packages: file.packages,
            commands: file.commands,
            source,
            text: text.to_owned(),
        })
    }

    /// A short name of all that its file says: another one has another recording.
    pub fn identity(&self) -> String {
        short_name(&self.text)
    }
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// Name and text of each entry's file. The folder is a link in this crate, so that its package holds it.
        const FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../suite/", $name, ".toml")))),*];
    };
}

files![
    "astar",
    "bwaves",
    "bzip2",
    "chess",
    "fdtd",
    "gcc",
    "go",
    "graph500",
    "image",
    "lbm",
    "mcf",
    "md",
    "memcached",
    "milc",
    "perl",
    "povray",
    "python",
    "redis",
    "sqlite",
    "x264",
    "xz",
];

/// All entries, by name.
pub fn entries() -> Vec<Entry> {
    FILES.iter().map(|(name, text)| Entry::parse(name, text).expect("a test reads every entry")).collect()
}

/// The entry of this name.
///
/// # Errors
/// There is none; the message names the nearest.
pub fn find(name: &str) -> Result<Entry, Error> {
    let Some((name, text)) = FILES.iter().find(|(known, _)| *known == name) else {
        let near = did_you_mean(nearest(name, FILES.iter().map(|(known, _)| *known)));
        return Err(Error::request(format!("the suite has no program \"{name}\"{near}")));
    };
    Ok(Entry::parse(name, text).expect("a test reads every entry"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_suite_is_an_entry_that_says_what_it_is() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../suite");
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap().replace(".toml", ""))
            // What runs side by side.
            .filter(|name| name != "mixes")
            .collect();
        names.sort();
        let listed: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        let mut sorted = listed.clone();
        sorted.sort_unstable();
        assert_eq!(names, sorted);
        for (name, text) in FILES {
            let entry = Entry::parse(name, text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(entry.summary.len() <= 60, "{name}: {}", entry.summary);
            assert!(!entry.stands_for.is_empty() && entry.differs.ends_with('.'), "{name}");
            match &entry.source {
                Source::Program(program) => {
                    assert!(!entry.packages.is_empty() && !entry.commands.is_empty(), "{name}");
                    assert!(program.length <= 200_000_000, "{name}: recordings are a byte per access");
                }
                Source::Workload(spec) => drop(terrace_workload::open(spec).unwrap()),
            }
        }
    }

    #[test]
    fn what_is_no_entry_says_why() {
        let whole = "summary = \"s\"\nstands_for = []\ndiffers = \"d.\"\n";
        for wrong in [
            "",
            "run = \"x\"\n",
            "run = \"x\"\nlength = 0\n",
            "workload = \"gups\"\nlength = 5\n",
            "workload = \"gups\"\nskip = 5\n",
            "run = \"x\"\nlength = 5\nworkload = \"gups\"\n",
            "run = \"x\"\nlength = 5\nlimit = 5\n",
        ] {
            assert!(Entry::parse("x", &format!("{whole}{wrong}")).is_err(), "{wrong}");
        }
        assert!(Entry::parse("x", &format!("{whole}workload = \"gups\"\n")).is_ok());
    }

    #[test]
    fn unknown_names_are_answered_with_the_nearest() {
        assert_eq!(
            find("bzip").unwrap_err().to_string(),
            "the suite has no program \"bzip\"; did you mean \"bzip2\"?"
        );
        assert_eq!(find("bzip2").unwrap().name, "bzip2");
    }
}
