//! Preload library that places a program's data structures by hints for their allocation sites, or writes down which there
//! are.
//!
//! The functions that allocate are replaced (`terrace_interpose`). What they allocate is placed (`terrace_placing`) by the
//! table that `TERRACE_PLACEMENT` names, and written down in the one that `TERRACE_STRUCTURES` names.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
// The functions replaced are those of the C and C++ libraries, and so are their names.
#![allow(missing_docs, non_snake_case, clippy::missing_safety_doc)]

mod structures;

use std::ffi::{CStr, OsStr};
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use terrace_interpose::{Hooks, Pointer};
use terrace_placement::Table;
use terrace_placing::Placed;

/// The file that a variable of the environment names.
fn file(variable: &CStr) -> Option<File> {
    // SAFETY: the name ends with a zero; the answer is null or a string that stays while nobody changes the environment,
    // which no code of the program has had time for.
    let path = unsafe {
        let path = libc::getenv(variable.as_ptr());
        if path.is_null() {
            return None;
        }
        CStr::from_ptr(path)
    };
    OpenOptions::new().read(true).write(true).open(OsStr::from_bytes(path.to_bytes())).ok()
}

struct Placer;

impl Hooks for Placer {
    /// What is known of a structure that changes its size: how it is placed, and its size if it is written down.
    type Resized = (Option<Placed>, Option<usize>);

    fn start() {
        // The files are closed again; the mappings stay, in children too.
        if let Some(table) = file(terrace_placement::VARIABLE).and_then(|file| Table::open(&file)) {
            terrace_placing::begin(table);
        }
        if let Some(file) = file(terrace_placement::structures::VARIABLE) {
            structures::begin(&file);
        }
    }

    fn allocated(pointer: Pointer, bytes: usize, site: usize) {
        terrace_placing::allocated(pointer as usize, bytes, site);
        structures::allocated(pointer as usize, bytes);
    }

    fn freeing(pointer: Pointer) {
        terrace_placing::freeing(pointer as usize);
        structures::freeing(pointer as usize);
    }

    fn resizing(pointer: Pointer) -> (Option<Placed>, Option<usize>) {
        (terrace_placing::resizing(pointer as usize), structures::freeing(pointer as usize))
    }

    fn resized((placed, written): Self::Resized, old: Pointer, new: Pointer, bytes: usize) {
        terrace_placing::resized(placed, old as usize, new as usize, bytes);
        match (new.is_null(), written) {
            (false, _) => structures::allocated(new as usize, bytes),
            (true, Some(before)) => structures::allocated(old as usize, before),
            (true, None) => {}
        }
    }
}

terrace_interpose::interpose!(Placer);
