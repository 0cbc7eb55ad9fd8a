//! Where and when a result came to be.

use crate::output;

/// The command line as it was given, for people to repeat.
pub fn own_command() -> String {
    let arguments = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    output::shell_join(std::iter::once("terrace".to_owned()).chain(arguments))
}
