//! Settings of the command line: the order in which they are made, and what is their fault.

use super::error::DesignError;
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
