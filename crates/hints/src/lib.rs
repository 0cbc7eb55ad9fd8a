//! Files of hints: how large and how hot the data structures of a program were in one run, by allocation site.
//!
//! `terrace profile` writes such a file; a simulation and a program on live Linux are placed by it, and a person may
//! write a hint into it. A file holds counts and no decision, so that one file serves every machine: what follows from
//! sizes and counts is up to the policy (`annotated`, [`terrace_seam::Policy::hints`]).
//!
//! ```
//! let text = r#"
//! version = 1
//! program = "app"
//!
//! [[site]]
//! name = "main+0x1b4"
//! module = "app"
//! build_id = "9b1f4c"
//! offset = "0x11d4"
//! bytes = 33554432
//! loads = 1200000
//! stores = 40000
//!
//! [[site]]
//! name = "read_all+0x20"
//! bytes = 1048576
//! loads = 10
//! stores = 10
//! hint = "CO"
//! "#;
//! let hints = terrace_hints::Hints::parse(text, "hints.toml")?;
//! let profile = hints.profile();
//! assert_eq!(profile.objects[&terrace_seam::site_number("main+0x1b4")].issued.total(), 1_240_000);
//! assert_eq!(terrace_hints::Hints::parse(&hints.to_text(), "again")?, hints);
//! let wrong = terrace_hints::Hints::parse(&text.replace("CO", "C0"), "hints.toml").unwrap_err();
//! assert!(wrong.to_string().starts_with("hints.toml:19: \"C0\" is no hint"));
//! # Ok::<(), terrace_hints::Wrong>(())
//! ```

#[doc(hidden)]
pub mod fuzz;
mod text;

use std::path::Path;
use terrace_seam::{Heat, Hint, ObjectProfile, Profile, site_number};

/// The version of the files that this Terrace reads and writes.
pub const VERSION: i64 = 1;
/// Largest file that is read.
const LARGEST: u64 = 64 << 20;

/// What one run found out about a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hints {
    /// The program's name, for messages.
    pub program: String,
    /// The command that counted; empty where a person wrote the file.
    pub command: String,
    /// What to know where the run that counted is a part of what the program does; empty where it is whole.
    pub partial: String,
    /// The allocation sites, each name once.
    pub sites: Vec<Site>,
}

/// An allocation site, and all that was allocated there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Site {
    /// The site's name as recordings have it: `function+0x12`, `module+0x1234`, or the name that a marker of the program
    /// gave.
    pub name: String,
    /// Where the call is, for live programs; none for structures that were named otherwise.
    pub place: Option<Place>,
    /// Source file and line, for people.
    pub line: String,
    /// All that was allocated there.
    pub bytes: u64,
    /// Accesses that were issued.
    pub issued: Heat,
    /// Accesses that reached memory.
    pub memory: Heat,
    /// What a person says, whatever was counted.
    pub hint: Option<Hint>,
}

/// An address of code that stays the same wherever its file is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The file's name, without its folder.
    pub module: String,
    /// What its linker called this build; empty where it did not.
    pub build_id: Vec<u8>,
    /// The address that the call returns to, as the file numbers its addresses.
    pub offset: u64,
}

/// Why a file of hints is none, on one line: place, problem and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct Wrong {
    /// The file, and the line where one is known.
    pub place: String,
    /// In words.
    pub problem: String,
}

impl Hints {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read or is no file of hints.
    pub fn read(path: &Path) -> Result<Hints, Wrong> {
        let shown = path.display().to_string();
        let wrong = |problem: String| Wrong { place: shown.clone(), problem };
        let there = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
        // A pipe that nobody writes would be waited for, by a program too that the library is preloaded into.
        if !there.is_file() {
            return Err(wrong(
                "this is no regular file; `terrace profile` writes a file of hints".to_owned(),
            ));
        }
        let length = there.len();
        if length > LARGEST {
            return Err(wrong(format!("{length} bytes are no file of hints; `terrace profile` writes one")));
        }
        let bytes = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| wrong("this is no text; `terrace profile` writes a file of hints".to_owned()))?;
        Hints::parse(&text, &shown)
    }

    /// Reads the text of a file, which messages call `shown`.
    ///
    /// # Errors
    /// Text that is no file of hints.
    pub fn parse(text: &str, shown: &str) -> Result<Hints, Wrong> {
        text::parse(text, shown)
    }

    /// The text of its file.
    pub fn to_text(&self) -> String {
        text::write(self)
    }

    /// As policies take it: nothing is known of pages.
    pub fn profile(&self) -> Profile {
        let mut profile = Profile::default();
        for site in &self.sites {
            let Site { bytes, issued, memory: heat, hint, .. } = *site;
            let number = site_number(&site.name);
            profile.objects.insert(number, ObjectProfile { bytes, heat, issued, hint });
            profile.names.insert(number, site.name.clone());
        }
        profile
    }

    /// The structures that a first pass found, the most accessed first. Nothing is known of places.
    pub fn of(profile: &Profile) -> Vec<Site> {
        let mut sites: Vec<Site> = profile
            .objects
            .iter()
            .filter_map(|(number, one)| {
                let name = profile.names.get(number)?.clone();
                let ObjectProfile { bytes, heat: memory, issued, hint } = *one;
                Some(Site { name, bytes, issued, memory, hint, ..Site::default() })
            })
            .collect();
        sites.sort_by(|a, b| b.issued.total().cmp(&a.issued.total()).then_with(|| a.name.cmp(&b.name)));
        sites
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_becomes_sites_and_sites_a_profile() {
        let heat = |reads| Heat { reads, writes: 1 };
        let mut profile = Profile::default();
        for (name, reads) in [("cold", 1), ("hot", 100), ("none", 0)] {
            let object =
                ObjectProfile { bytes: 4096, heat: heat(reads / 2), issued: heat(reads), hint: None };
            profile.objects.insert(site_number(name), object);
            profile.names.insert(site_number(name), name.to_owned());
        }
        let hints = Hints { sites: Hints::of(&profile), ..Hints::default() };
        let names: Vec<&str> = hints.sites.iter().map(|site| site.name.as_str()).collect();
        assert_eq!(names, ["hot", "cold", "none"]);
        assert_eq!(hints.profile(), profile);
    }

    #[test]
    fn what_is_no_file_of_hints_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let error = Hints::read(&at("none.toml")).unwrap_err().to_string();
        assert!(error.contains("none.toml: No such file"), "{error}");
        for other in [folder.path(), Path::new("/dev/zero")] {
            assert!(Hints::read(other).unwrap_err().problem.contains("this is no regular file"), "{other:?}");
        }
        std::fs::write(at("binary"), [0xff, 0xfe, 0]).unwrap();
        let error = Hints::read(&at("binary")).unwrap_err().to_string();
        assert!(error.ends_with("this is no text; `terrace profile` writes a file of hints"), "{error}");
        let large = std::fs::File::create(at("large")).unwrap();
        large.set_len(LARGEST + 1).unwrap();
        assert!(Hints::read(&at("large")).unwrap_err().problem.contains("are no file of hints"));
    }
}
