//! The entry function of the fuzz target: it takes any bytes and panics where a promise about bad input is broken.

use crate::Hints;

/// A file of hints.
///
/// # Panics
/// When a promise is broken: an error says where and what, on one line; what is read is written so that it is read again as
/// it was; policies get every site.
pub fn hints(data: &[u8]) {
    match Hints::parse(&String::from_utf8_lossy(data), "fuzzed") {
        Err(wrong) => {
            let message = wrong.to_string();
            assert!(message.starts_with("fuzzed:") && !message.contains('\n'), "{message:?}");
            assert!(!wrong.problem.trim().is_empty(), "{message:?}");
        }
        Ok(hints) => {
            assert_eq!(hints.profile().objects.len(), hints.sites.len());
            assert_eq!(Hints::parse(&hints.to_text(), "again").as_ref(), Ok(&hints));
        }
    }
}
