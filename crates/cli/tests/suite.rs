//! The suite of real programs on the command line.

mod common;
use common::{json, stderr, stdout, terrace};

/// A folder of recordings that is empty.
fn with_empty_cache() -> (tempfile::TempDir, assert_cmd::Command) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = terrace();
    command.env("XDG_CACHE_HOME", folder.path());
    (folder, command)
}

#[test]
fn programs_are_listed_with_their_state_in_80_columns() {
    let (_folder, mut command) = with_empty_cache();
    let text = stdout(command.args(["suite", "list"]));
    assert!(text.lines().count() > 15 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.lines().any(|line| line.starts_with("lbm ") && line.contains("built in")), "{text}");
    let (_folder, mut command) = with_empty_cache();
    let document = json(command.args(["suite", "list", "--json", "-"]));
    let programs = document["programs"].as_array().unwrap();
    let xz = programs.iter().find(|program| program["name"] == "xz").unwrap();
    assert!(["not recorded", "not installed"].contains(&xz["state"].as_str().unwrap()));
    assert_eq!(xz["packages"][0], "xz-utils");
}

#[test]
fn a_program_says_what_it_stands_for() {
    let (_folder, mut command) = with_empty_cache();
    let text = stdout(command.args(["suite", "show", "mcf"]));
    assert!(
        text.contains("429.mcf") && text.contains("glpk-utils") && text.contains("100 M accesses"),
        "{text}"
    );
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_built_in_program_is_an_input_by_its_name_in_the_suite() {
    let (_folder, mut command) = with_empty_cache();
    let arguments =
        ["sim", "--design", "native-4k", "--fidelity", "pages", "--suite", "astar", "--json", "-"];
    let document = json(command.args(arguments));
    assert_eq!(document["runs"][0]["input"], "astar");
    let repeat = document["runs"][0]["command"].as_str().unwrap();
    assert!(repeat.ends_with("--suite astar"), "{repeat}");
}

#[test]
fn what_is_not_recorded_or_unknown_says_what_to_do() {
    for (arguments, expected) in [
        (&["sim", "--design", "native-4k", "--suite", "bzip"][..], "did you mean \"bzip2\"?"),
        (&["sim", "--design", "native-4k", "--suite", "perl"], "terrace suite record perl"),
        (&["suite", "show", "perl", "--verify"], "there is no recording to verify"),
        (&["suite", "record", "lbm"], "needs no recording"),
    ] {
        let (_folder, mut command) = with_empty_cache();
        let message = stderr(command.args(arguments), 2);
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn packages_are_named_by_the_command_that_installs_them() {
    let (_folder, mut command) = with_empty_cache();
    let text = stdout(command.args(["suite", "install", "--print-command", "mcf", "redis"]));
    let words = ["apt-get", "install", "glpk-utils", "redis-server", "redis-tools"];
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}
