//! Entry functions of the fuzz targets: each takes any bytes and panics where a promise about bad input is broken.

use crate::Snapshot;
use crate::design::{Library, claims};

const NAME: &str = "fuzzed";

/// An error says something, and says it on one line.
fn check(message: &str) {
    assert!(!message.trim().is_empty() && !message.contains('\n'), "{message:?}");
}

/// A saved memory.
///
/// # Panics
/// When a promise is broken.
pub fn snapshot(data: &[u8]) {
    match Snapshot::parse(data) {
        Err(message) => check(&message),
        Ok(snapshot) => {
            let mut bytes = Vec::new();
            snapshot.write(&mut bytes).expect("memory takes all of it");
            assert_eq!(Snapshot::parse(&bytes).as_ref(), Ok(&snapshot), "what is written is read");
        }
    }
}

/// A machine, a design, or a policy with its keys, as a file.
///
/// # Panics
/// When a promise is broken.
pub fn design(data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    if let Err(error) = Library::embedded().with(NAME, text).design(NAME, None, &[]) {
        check(error.message());
    }
}

/// A setting, as `--set` takes it: the key, and its value behind the first equals sign.
///
/// # Panics
/// When a promise is broken.
pub fn setting(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (key, value) = text.split_once('=').unwrap_or((&text, ""));
    let sets = [(key.to_owned(), value.to_owned())];
    if let Err(error) = Library::embedded().design("native-4k", None, &sets) {
        check(error.message());
    }
}

/// A file of claims.
///
/// # Panics
/// When a promise is broken.
pub fn claims_file(data: &[u8]) {
    if let Err(error) = claims::parse(&String::from_utf8_lossy(data), NAME) {
        check(error.message());
    }
}
