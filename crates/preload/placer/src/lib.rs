//! Preload library that places a program's data structures by hints for their allocation sites.
//!
//! The functions that allocate are replaced (`terrace_interpose`), and what they allocate is placed (`terrace_placing`) by
//! the table that `TERRACE_PLACEMENT` names.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
// The functions replaced are those of the C and C++ libraries, and so are their names.
#![allow(missing_docs, non_snake_case, clippy::missing_safety_doc)]

use std::ffi::{CStr, OsStr};
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use terrace_interpose::{Hooks, Pointer};
use terrace_placement::{Table, VARIABLE};
use terrace_placing::Placed;

struct ByHints;

impl Hooks for ByHints {
    type Resized = Option<Placed>;

    fn start() {
        // SAFETY: the name ends with a zero; the answer is null or a string that stays while nobody changes the environment,
        // which no code of the program has had time for.
        let path = unsafe {
            let path = libc::getenv(VARIABLE.as_ptr());
            if path.is_null() {
                return;
            }
            CStr::from_ptr(path)
        };
        let file = OpenOptions::new().read(true).write(true).open(OsStr::from_bytes(path.to_bytes()));
        // The file is closed again; the mapping stays, in children too.
        if let Some(table) = file.ok().and_then(|file| Table::open(&file)) {
            terrace_placing::begin(table);
        }
    }

    fn allocated(pointer: Pointer, bytes: usize, site: usize) {
        terrace_placing::allocated(pointer as usize, bytes, site);
    }

    fn freeing(pointer: Pointer) {
        terrace_placing::freeing(pointer as usize);
    }

    fn resizing(pointer: Pointer) -> Option<Placed> {
        terrace_placing::resizing(pointer as usize)
    }

    fn resized(object: Option<Placed>, old: Pointer, new: Pointer, bytes: usize) {
        terrace_placing::resized(object, old as usize, new as usize, bytes);
    }
}

terrace_interpose::interpose!(ByHints);
