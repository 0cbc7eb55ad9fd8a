//! Entry functions for fuzzing the importers: any bytes, plain or compressed, taken for each format and as they are.

use super::input::Input;
use super::{Format, ImportSource, detect};
use crate::file::fuzz::{check_error, drain};
use std::io::Cursor;
use std::path::Path;

fn import(data: &[u8], format: Format) {
    let open = || Input::new("fuzzed".to_owned(), Cursor::new(data.to_vec()), data.len() as u64);
    for salvage in [false, true] {
        match open() {
            Ok(input) => {
                drain(&mut ImportSource::new(input, format, Path::new("fuzzed"), salvage));
            }
            Err(error) => check_error(&error),
        }
    }
    if let Ok(input) = open()
        && let Err(error) = detect(&input)
    {
        check_error(&error);
    }
}

/// Valgrind lackey.
///
/// # Panics
/// When a promise about damaged input is broken.
pub fn lackey(data: &[u8]) {
    import(data, Format::Lackey);
}

/// ChampSim.
///
/// # Panics
/// When a promise about damaged input is broken.
pub fn champsim(data: &[u8]) {
    import(data, Format::ChampSim);
}

/// Plain text.
///
/// # Panics
/// When a promise about damaged input is broken.
pub fn text(data: &[u8]) {
    import(data, Format::Text);
}
