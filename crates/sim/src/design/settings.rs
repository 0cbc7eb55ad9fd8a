//! Settings of the command line: the order in which they are made, and what is their fault.

use super::error::DesignError;
use super::file::File;
use super::tree;

/// The error of a design with these settings, in the name of those that are at fault. A setting may contradict what a file
/// says; then the setting is wrong, though the rule is about another key. `is_sound` tries other settings.
pub(super) fn blame(
    error: DesignError,
    sets: &[(String, String)],
    is_sound: impl Fn(&[(String, String)]) -> bool,
) -> DesignError {
    if error.is_of_a_setting() {
        return error;
    }
    let one = (0..sets.len()).rev().find(|at| {
        let (before, after) = sets.split_at(*at);
        is_sound(&[before, &after[1..]].concat())
    });
    match one {
        Some(at) => error.blamed_on(&sets[at..=at]),
        None if !sets.is_empty() && is_sound(&[]) => error.blamed_on(sets),
        None => error,
    }
}

/// The error of a user's file, in the name of the line that is at fault: where the rule is about a key of another file, that
/// without which the design is sound. Files of Terrace have no such line. `is_sound` tries the file with other texts.
pub(super) fn blame_line(error: DesignError, top: &File, is_sound: impl Fn(File) -> bool) -> DesignError {
    if top.directory.is_none() {
        return error;
    }
    let File { shown: file, text, .. } = top;
    let is_of_a_key =
        |place: &str| place == "default" || place.contains(".toml:") || place.starts_with("preset ");
    let is_own = |place: &str| place.starts_with(&format!("{file}:")) || place.starts_with("--set ");
    let Some(place) = error.place().filter(|place| is_of_a_key(place) && !is_own(place)) else {
        return error;
    };
    let lines: Vec<&str> = text.lines().collect();
    let without = |at: usize| [&lines[..at], &[""], &lines[at + 1..]].concat().join("\n");
    let says = |at: &usize| !lines[*at].trim().is_empty() && !lines[*at].trim().starts_with("extends");
    match (0..lines.len())
        .rev()
        .filter(says)
        .find(|at| is_sound(File { text: without(*at).into(), ..top.clone() }))
    {
        Some(at) => {
            let place = if place == "default" { "the default" } else { place };
            DesignError::at(format!("{file}:{} contradicts {place}", at + 1), error.message())
        }
        None => error,
    }
}

/// The order in which settings are made. A table or list goes before what is set within it, as a list of groups before a
/// group's model, and what starts anew before the rest: whoever sets a device's preset and its channels means both.
pub(super) fn in_order(sets: &[(String, String)]) -> Vec<&(String, String)> {
    let is_within =
        |other: &str, key: &str| other.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'));
    let mut ordered: Vec<_> = sets.iter().collect();
    ordered.sort_by_key(|(key, _)| match sets.iter().any(|(other, _)| is_within(other, key)) {
        true => (0, key.split('.').count()),
        false => (1 + usize::from(!tree::starts_anew(key)), 0),
    });
    ordered
}

#[cfg(test)]
mod tests {
    use crate::design::Library;

    #[test]
    fn what_a_user_s_file_contradicts_in_what_it_extends_is_its_line_s_fault() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vmrmm.toml");
        std::fs::write(&path, "extends = \"virtual-4k\"\n[translation]\nscheme = \"rmm\"\n").unwrap();
        let said = Library::embedded().design(path.to_str().unwrap(), None, &[]).unwrap_err().to_string();
        assert!(said.contains("vmrmm.toml:3 contradicts designs/virtual-4k.toml:"), "{said}");
        // A mistake of its own has one place.
        std::fs::write(&path, "extends = \"virtual-4k\"\n[translation]\nscheme = \"rmn\"\n").unwrap();
        let said = Library::embedded().design(path.to_str().unwrap(), None, &[]).unwrap_err().to_string();
        assert!(said.contains("vmrmm.toml:3: translation.scheme"), "{said}");
    }

    #[test]
    fn what_an_option_contradicts_in_a_file_is_its_fault() {
        let set = |pairs: &[(&str, &str)]| {
            let pairs: Vec<_> =
                pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
            Library::embedded().design("native-4k", None, &pairs).unwrap_err().to_string()
        };
        let small = ("tier.dram.capacity", "64 MiB");
        for sets in [&[small][..], &[("core.count", "2"), small], &[small, ("core.count", "2")]] {
            let said = set(sets);
            assert!(
                said.starts_with("--set tier.dram.capacity=64 MiB contradicts machines/linux.toml:"),
                "{said}"
            );
            assert!(
                said.contains(": os.reserved: 1 GiB leaves nothing of the 64 MiB of tier dram"),
                "{said}"
            );
        }
        assert_eq!(
            set(&[("core.count", "-1")]),
            "--set core.count=-1: core.count: -1 is not between 1 and 1024"
        );
        assert_eq!(
            set(&[("core.count", "5000000000")]),
            "--set core.count=5000000000: core.count: 5000000000 is not between 1 and 1024"
        );
    }
}
