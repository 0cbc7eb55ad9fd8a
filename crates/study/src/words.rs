//! Commands that repeat a run, as a shell takes them.

/// A word as a shell takes it.
pub fn shell_quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=.,/:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Words as one shell command.
pub fn shell_join<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> String {
    words.into_iter().map(|word| shell_quote(word.as_ref())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_survives_a_shell() {
        let words = ["sh", "-c", "echo 'a b' $HOME", "", "gups,bytes=1 GiB"];
        let command = format!("printf '%s\\n' {}", shell_join(words));
        let out = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
        assert_eq!(String::from_utf8(out.stdout).unwrap(), words.join("\n") + "\n");
    }
}
