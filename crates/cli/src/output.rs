//! Where results go: stdout without panics, and files that appear whole or not at all.

use crate::error::{Blame, Failure};
use std::borrow::Cow;
use std::io::Write;
use std::path::Path;
use terrace_model::parameters::ParameterInfo;

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

/// Two columns: names, and texts that wrap at 80 columns under themselves.
pub fn two_columns<'a>(rows: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let rows: Vec<_> = rows.into_iter().collect();
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, content) in rows {
        for (line, part) in wrap(content, 80usize.saturating_sub(width + 2).max(20)).iter().enumerate() {
            let name = if line == 0 { name } else { "" };
            text.push_str(format!("{name:width$}  {part}").trim_end());
            text.push('\n');
        }
    }
    text
}

/// `text` in lines of at most `width`, the first after `first`, the others as far in as two blanks. Ends with a newline.
pub fn hanging(first: &str, text: &str, width: usize) -> String {
    wrap(text, width)
        .iter()
        .enumerate()
        .map(|(at, line)| format!("{}{line}\n", if at == 0 { first } else { "  " }))
        .collect()
}

/// A command to be copied, after `first`, in lines of at most `width`: each but the last ends with a backslash, the others
/// begin further in. Breaks at spaces outside quotes. Ends with a newline.
pub fn command(first: &str, command: &str, width: usize) -> String {
    let (mut words, mut quoted) = (vec![String::new()], false);
    for letter in command.chars() {
        quoted ^= letter == '\'';
        match letter {
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().expect("there is always a word").push(letter),
        }
    }
    let mut lines = vec![format!("{first}{}", words.remove(0))];
    for word in words {
        let line = lines.last_mut().expect("there is always a line");
        // Room for the backslash, too.
        if line.chars().count() + 1 + word.chars().count() + 2 <= width {
            line.push(' ');
            line.push_str(&word);
        } else {
            lines.push(format!("    {word}"));
        }
    }
    lines.join(" \\\n") + "\n"
}

/// What a parameter means, its words where it has a few, its source and its range.
pub fn parameter_help(info: &ParameterInfo) -> String {
    let range = info.range.as_ref().map(|range| format!(" Range: {} to {}.", range.low, range.high));
    info.explanation() + &range.unwrap_or_default()
}

/// Breaks a text at spaces into lines of `width` characters; a longer word has its own line.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_spelled_out() {
        assert_eq!(printable("plain\n\ttext é"), "plain\n\ttext é");
        assert_eq!(printable("a\x1b[2Jb\r\u{9b}c"), "a\\u{1b}[2Jb\\r\\u{9b}c");
    }

    #[test]
    fn a_command_is_broken_between_its_words() {
        let broken = command("See it: ", "terrace compare one two --set 'a b=c d' --scale 2", 30);
        let expected = "See it: terrace compare one \\\n    two --set 'a b=c d' \\\n    --scale 2\n";
        assert_eq!(broken, expected);
        assert!(broken.lines().all(|line| line.len() <= 30));
        assert_eq!(command("", "terrace", 20), "terrace\n");
    }

    #[test]
    fn columns_fit_80() {
        let long = "word ".repeat(60);
        let text = two_columns([("short", "text"), ("a-longer-name", long.as_str())]);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.starts_with("short          text\n"));
    }
}
