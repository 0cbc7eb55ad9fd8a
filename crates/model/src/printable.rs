//! Text from outside, for a terminal.

use std::borrow::Cow;

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

/// As [`printable`], with line ends spelled out too: what is printed as one line can forge no other.
pub fn one_line(text: &str) -> String {
    printable(text).replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_stays_one() {
        assert_eq!(one_line("x\nERROR evil\x1b[2J\t"), "x\\nERROR evil\\u{1b}[2J\t");
    }

    #[test]
    fn control_characters_are_spelled_out() {
        assert_eq!(printable("plain\n\ttext é"), "plain\n\ttext é");
        assert_eq!(printable("a\x1b[2Jb\r\u{9b}c"), "a\\u{1b}[2Jb\\r\\u{9b}c");
    }
}
