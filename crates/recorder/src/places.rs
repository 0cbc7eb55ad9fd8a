//! Where in its file a call site is, found by the name that a recording gave it: for programs that run without the recorder.
//!
//! A name says a function and a distance, or a file and an offset ([`crate::symbols`]). It is looked up in the files
//! that the program had mapped. A file that has changed since has other sites; where a name fits several places, and
//! more than one of them follows a call, none is taken.

use crate::symbols::File;
use std::cell::OnceCell;
use std::fmt;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Where the headers and libraries of systems lie, and the source of Rust's standard library.
const SYSTEM: [&str; 3] = ["/usr/include/", "/usr/lib/", "/rustc/"];

/// An address of code that is the same wherever its file is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodePlace {
    /// The file.
    pub path: PathBuf,
    /// What its linker called this build; empty where it did not.
    pub build_id: Vec<u8>,
    /// The address that the call returns to, as the file numbers its addresses.
    pub offset: u64,
}

/// The files that a program had mapped.
#[derive(Debug, Default)]
pub struct Places {
    files: Vec<Mapped>,
}

/// One of them.
struct Mapped {
    path: PathBuf,
    bytes: fs::File,
    symbols: File,
    /// The module's source lines, read when one is asked for; none where the module has none.
    lines: OnceCell<Option<addr2line::Loader>>,
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.fmt(f)
    }
}

/// Why a site has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// No file has it: it was named by the program, or its file is gone.
    Unknown,
    /// Several places have the name.
    Several,
}

impl Places {
    /// The files among these that are programs or libraries.
    pub fn of<'a>(paths: impl IntoIterator<Item = &'a str>) -> Places {
        let read = |path: &str| {
            let file = File::open(path).filter(File::has_code)?;
            let bytes = fs::File::open(path).ok()?;
            Some(Mapped { path: PathBuf::from(path), bytes, symbols: file, lines: OnceCell::new() })
        };
        Places { files: paths.into_iter().filter_map(read).collect() }
    }

    /// The place of the site that a recording calls `name`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn find(&self, name: &str) -> Result<CodePlace, NoPlace> {
        let (of, distance) = name.rsplit_once("+0x").ok_or(NoPlace::Unknown)?;
        let distance = u64::from_str_radix(distance, 16).map_err(|_| NoPlace::Unknown)?;
        let mut found = Vec::new();
        for Mapped { path, bytes, symbols: file, .. } in &self.files {
            let is_file = path.file_name().is_some_and(|name| name == of);
            let by_offset = is_file.then(|| file.address_of(distance)).flatten();
            for offset in file.addresses_of(of, distance).into_iter().chain(by_offset) {
                if file.offset_of(offset).is_some_and(|at| follows_call(bytes, at)) {
                    found.push(CodePlace { path: path.clone(), build_id: file.build_id().to_vec(), offset });
                }
            }
        }
        match found.len() {
            0 => Err(NoPlace::Unknown),
            1 => Ok(found.remove(0)),
            _ => Err(NoPlace::Several),
        }
    }

    /// Source file and line of the call at a place that was found here, where its file says that: the program's own, where
    /// the call was inlined from a header of the system or a standard library.
    pub fn line(&self, place: &CodePlace) -> Option<String> {
        let file = self.files.iter().find(|file| file.path == place.path)?;
        let lines = file.lines.get_or_init(|| addr2line::Loader::new(&file.path).ok()).as_ref()?;
        // The address is behind the call.
        let mut frames = lines.find_frames(place.offset.checked_sub(1)?).ok()?;
        let mut innermost = None;
        while let Ok(Some(frame)) = frames.next() {
            let Some((path, line)) =
                frame.location.and_then(|location| Some((location.file?, location.line)))
            else {
                continue;
            };
            let name = Path::new(path).file_name()?.to_string_lossy().into_owned();
            let shown = match line {
                Some(line) => format!("{name}:{line}"),
                None => name,
            };
            if !SYSTEM.iter().any(|folder| path.starts_with(folder)) {
                return Some(shown);
            }
            innermost = innermost.or(Some(shown));
        }
        innermost
    }
}

impl CodePlace {
    /// The file's name without its folder.
    pub fn module(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }
}

/// Whether the bytes before a place in a file are a call: with a distance of 32 bits, or through a register or memory.
fn follows_call(file: &fs::File, at: u64) -> bool {
    let mut bytes = [0; 7];
    let Some(start) = at.checked_sub(7) else { return false };
    if file.read_exact_at(&mut bytes, start).is_err() {
        return false;
    }
    let through = |length: usize| bytes[7 - length] == 0xff && bytes[8 - length] >> 3 & 7 == 2;
    bytes[2] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(through)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn a_function_that_calls(argument: u64) -> u64 {
        std::hint::black_box(std::hint::black_box(u64::wrapping_add as fn(u64, u64) -> u64)(argument, 1))
    }

    /// The first place in this test's own function that follows a call.
    #[test]
    fn a_site_is_found_by_its_name() {
        assert_eq!(a_function_that_calls(1), 2);
        let path = std::env::current_exe().unwrap();
        let path = path.to_str().unwrap();
        let places = Places::of([path, "/etc/hostname", "/no/such/file"]);
        assert_eq!(places.files.len(), 1);
        let function = {
            let file = &places.files[0].symbols;
            file.names().find(|name| name.contains("a_function_that_calls")).unwrap().to_owned()
        };
        let found = (1..200).find_map(|distance| {
            let name = format!("{function}+{distance:#x}");
            Some((distance, places.find(&name).ok()?))
        });
        let (distance, place) = found.expect("it calls");
        assert_eq!(place.path, Path::new(path));
        let start = places.files[0].symbols.addresses_of(&function, 0)[0];
        assert_eq!(place.offset, start + distance);
        // The file's offset leads to the place, too.
        let file = &places.files[0].symbols;
        let by_offset = format!("{}+{:#x}", place.module(), file.offset_of(place.offset).unwrap());
        assert_eq!(places.find(&by_offset).as_ref(), Ok(&place));
        for name in ["grid", "grid+0x", "+0x10", "no_such_function+0x10", "0x7f0010"] {
            assert_eq!(places.find(name), Err(NoPlace::Unknown), "{name}");
        }
        let line = places.line(&place).unwrap_or_default();
        assert!(line.is_empty() || line.starts_with("places.rs:") || line.contains(".rs:"), "{line}");
    }

    #[test]
    fn two_files_with_the_same_function_are_distinguished_by_nobody() {
        let path = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy");
        fs::copy(&path, &copy).unwrap();
        let both = Places::of([path.to_str().unwrap(), copy.to_str().unwrap()]);
        let one = Places::of([path.to_str().unwrap()]);
        let file = &one.files[0].symbols;
        let function = file.names().find(|name| name.contains("a_function_that_calls")).unwrap();
        let name = (1..200).map(|at| format!("{function}+{at:#x}")).find(|name| one.find(name).is_ok());
        assert_eq!(both.find(&name.unwrap()), Err(NoPlace::Several));
    }
}
