//! Commands that repeat a run, as a shell takes them, and sentences as people read them.

use terrace_model::PoolTraffic;
use terrace_trace::demangled;

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

/// `name` where it is not taken, else with the first number that makes it another: `gups-2`.
pub(crate) fn apart(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let numbered = (2u64..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    names.find(|name| !is_taken(name)).expect("there is always another number")
}

/// A sentence in which the names of functions are as their source has them.
pub fn with_names_demangled(sentence: &str) -> String {
    let readable = |word: &str| {
        let name = word.trim_end_matches([',', '.', ':', ';']);
        format!("{}{}", demangled(name), &word[name.len()..])
    };
    sentence.split(' ').map(readable).collect::<Vec<_>>().join(" ")
}

/// Traffic of structures that have the names that their source gives them.
pub fn of_readable_structures(mut traffic: PoolTraffic) -> PoolTraffic {
    for structure in &mut traffic.structures {
        structure.name = demangled(&structure.name).into_owned();
    }
    traffic
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::StructureTraffic;

    #[test]
    fn names_in_a_sentence_are_readable() {
        let note = "hint BO, in the fast tier: _ZN7Minisat3vecIiE8capacityEi+0x6f, main+0x12, _Zx";
        let expected = "hint BO, in the fast tier: Minisat::vec<int>::capacity(int)+0x6f, main+0x12, _Zx";
        assert_eq!(with_names_demangled(note), expected);
        assert_eq!(with_names_demangled("A run of 1.5 s, and  so on."), "A run of 1.5 s, and  so on.");
    }

    #[test]
    fn structures_of_a_gpu_are_readable() {
        let of =
            |name: &str| StructureTraffic { name: name.to_owned(), bytes: 7, ..StructureTraffic::default() };
        let traffic = |name: &str| PoolTraffic { structures: vec![of(name)], ..PoolTraffic::default() };
        let recorded = traffic("_ZN7Minisat3vecIiE8capacityEi+0x6f");
        assert_eq!(of_readable_structures(recorded), traffic("Minisat::vec<int>::capacity(int)+0x6f"));
    }

    #[test]
    fn quoting_survives_a_shell() {
        let words = ["sh", "-c", "echo 'a b' $HOME", "", "gups,bytes=1 GiB"];
        let command = format!("printf '%s\\n' {}", shell_join(words));
        let out = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
        assert_eq!(String::from_utf8(out.stdout).unwrap(), words.join("\n") + "\n");
    }
}
