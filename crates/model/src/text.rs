//! Text that fits a screen: broken into lines, hanging below its first line, in two columns.

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

/// A number with a comma between thousands: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_broken_between_its_words() {
        let broken = command("See it: ", "terrace compare one two --set 'a b=c d' --scale 2", 30);
        let expected = "See it: terrace compare one \\\n    two --set 'a b=c d' \\\n    --scale 2\n";
        assert_eq!(broken, expected);
        assert!(broken.lines().all(|line| line.len() <= 30));
        assert_eq!(command("", "terrace", 20), "terrace\n");
    }

    #[test]
    fn thousands_are_apart() {
        let texts = [0, 7, 999, 1000, 12_345, 1_234_567, u64::MAX].map(grouped);
        let expected = ["0", "7", "999", "1,000", "12,345", "1,234,567", "18,446,744,073,709,551,615"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn columns_fit_80() {
        let long = "word ".repeat(60);
        let text = two_columns([("short", "text"), ("a-longer-name", long.as_str())]);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.starts_with("short          text\n"));
    }
}
