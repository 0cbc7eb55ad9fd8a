//! Entry functions for fuzzing the importers: any bytes, plain or compressed, taken for each format and as they are.

use super::input::Input;
use super::threads::Threads;
use super::{Format, ImportSource, detect};
use crate::SourceError;
use crate::file::fuzz::{check_error, drain_at_most};
use std::io::{Cursor, Seek, Write};
use std::path::Path;

/// Accesses that are read of an input.
const MOST: u64 = 1 << 12;
/// Bytes of a buffer. A larger one only takes longer, and what compresses well has to fill it again.
const BUFFER: usize = 1 << 14;

fn open(data: &[u8]) -> Result<Input, SourceError> {
    Input::buffered("fuzzed".to_owned(), Cursor::new(data.to_vec()), data.len() as u64, BUFFER)
}

fn import(data: &[u8], format: Format) {
    for salvage in [false, true] {
        match open(data) {
            Ok(input) => {
                drain_at_most(&mut ImportSource::new(input, format, Path::new("fuzzed"), salvage), MOST);
            }
            Err(error) => check_error(&error),
        }
    }
    if let Ok(mut input) = open(data)
        && let Err(error) = detect(&mut input)
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

/// drmemtrace, one file and several.
///
/// # Panics
/// When a promise about damaged input is broken.
pub fn drmemtrace(data: &[u8]) {
    import(data, Format::DrMemTrace);
    let (before, after) = data.split_at(data.len() / 2);
    for salvage in [false, true] {
        let inputs: Vec<Input> =
            [data, before, after].into_iter().filter_map(|part| open(part).ok()).collect();
        if !inputs.is_empty() {
            drain_at_most(&mut Threads::new(inputs, String::new(), salvage), MOST);
        }
    }
}

/// A file that may be a zip archive, of parts of a drmemtrace.
///
/// # Panics
/// When a promise about damaged input is broken.
pub fn archive(data: &[u8]) {
    for salvage in [false, true] {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(data).and_then(|()| file.rewind()).expect("it takes some bytes");
        match Input::of_file("fuzzed".to_owned(), file) {
            Ok(input) => {
                let path = Path::new("fuzzed");
                drain_at_most(&mut ImportSource::new(input, Format::DrMemTrace, path, salvage), MOST);
            }
            Err(error) => check_error(&error),
        }
    }
}

/// oracleGeneral.
///
/// # Panics
/// When a promise about damaged input is broken.
pub fn oracle_general(data: &[u8]) {
    import(data, Format::OracleGeneral);
}

/// Lines of requests.
///
/// # Panics
/// When a promise about damaged input is broken.
pub fn csv(data: &[u8]) {
    import(data, Format::Csv);
}

/// DAMON's records.
///
/// # Panics
/// When a promise about damaged input is broken.
pub fn damon(data: &[u8]) {
    import(data, Format::Damon);
}

/// Samples of perf.
///
/// # Panics
/// When a promise about damaged input is broken.
pub fn perf(data: &[u8]) {
    import(data, Format::Perf);
}
