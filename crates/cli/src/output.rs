//! Where results go: stdout without panics, and files that appear whole or not at all.

use crate::error::{Blame, CommandResult, Failure};
use crate::options::ResultOptions;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use terrace_model::text::two_columns;
use terrace_study::catalog::Listed;

pub use terrace_study::words::shell_join;

/// `text` with its control characters spelled out, line ends and tabs apart: names of files and programs come from
/// outside, and a terminal obeys what it is sent.
pub fn printable(text: &str) -> Cow<'_, str> {
    let harmless = |letter: char| !letter.is_control() || matches!(letter, '\n' | '\t');
    if text.chars().all(harmless) {
        return Cow::Borrowed(text);
    }
    let shown = |letter: char| match harmless(letter) {
        true => letter.to_string(),
        false => letter.escape_debug().to_string(),
    };
    Cow::Owned(text.chars().map(shown).collect())
}

/// Writes `text` to stdout; a closed pipe becomes an error that ends the process quietly.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(printable(text).as_bytes())?;
    stdout.flush()?;
    Ok(())
}

/// Writes `text` and a line end to stdout.
pub fn print_line(text: &str) -> Result<(), Failure> {
    print(&format!("{}\n", text.trim_end_matches('\n')))
}

/// Names with their summaries, for `list` of a command; `key` is their name in documents.
pub fn list(results: &ResultOptions, key: &str, entries: Vec<Listed>) -> CommandResult {
    results.write_rows(&BTreeMap::from([(key, &entries)]), key)?;
    results.print(|| two_columns(entries.iter().map(|entry| (entry.name.as_str(), entry.summary.as_str()))))
}

/// Writes a text to `destination`: a file, or stdout for `-`.
pub fn write_text(destination: &str, text: &str) -> Result<(), Failure> {
    if destination == "-" {
        return print_line(text);
    }
    write_file(Path::new(destination), text)
}

/// Writes a file whole or not at all; its last line ends.
pub fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    let text = format!("{}\n", text.trim_end_matches('\n'));
    terrace_report::write_atomically(path, text.as_bytes()).or_run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_spelled_out() {
        assert_eq!(printable("plain\n\ttext é"), "plain\n\ttext é");
        assert_eq!(printable("a\x1b[2Jb\r\u{9b}c"), "a\\u{1b}[2Jb\\r\\u{9b}c");
    }
}
