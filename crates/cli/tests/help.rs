//! Help, manual pages and completions. The command reference in the book is the help itself, so it cannot go stale:
//! `TERRACE_UPDATE=1 cargo test -p terrace --test help` writes it.

mod common;
use common::{repository, stdout, terrace};
use std::fmt::Write;

/// Every subcommand, as its words.
fn commands() -> Vec<Vec<String>> {
    let mut commands = vec![vec![]];
    let mut next = 0;
    while next < commands.len() {
        let words: Vec<String> = commands[next].clone();
        next += 1;
        let help = help(&words);
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        for line in listed.take_while(|line| !line.is_empty()) {
            // Continuation lines are indented further than names.
            if let Some(name) = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')) {
                let name = name.split(' ').next().unwrap().to_owned();
                commands.push(words.iter().cloned().chain([name]).collect());
            }
        }
    }
    commands
}

fn help(words: &[String]) -> String {
    stdout(terrace().args(words).arg("--help"))
}

#[test]
fn all_subcommands_exist() {
    let found: Vec<String> = commands().iter().map(|words| words.join(" ")).collect();
    for expected in [
        "record",
        "profile",
        "trace info",
        "trace head",
        "trace slice",
        "trace verify",
        "trace convert",
        "workload list",
        "workload show",
        "workload run",
        "machine list",
        "machine show",
        "memory age",
        "memory show",
        "design list",
        "design show",
        "policy list",
        "policy show",
        "doctor",
        "run",
        "attach",
        "top",
        "restore",
        "sim",
        "compare",
        "sweep",
        "diff",
        "advise",
        "tune",
        "reproduce",
        "reproduce list",
        "completions",
        "man",
    ] {
        assert!(found.iter().any(|command| command == expected), "no `terrace {expected}` in {found:?}");
    }
}

#[test]
fn help_fits_80_columns_and_shows_examples() {
    for words in commands() {
        let help = help(&words);
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "terrace {}: {line}", words.join(" "));
        }
        if words.len() <= 1 {
            assert!(help.contains("Examples:"), "terrace {} has no examples", words.join(" "));
        }
    }
}

#[test]
fn commands_offer_the_fidelities_that_they_answer_with() {
    let of = |word: &str| help(&[word.to_owned()]);
    assert!(of("compare").contains("- pages:"));
    for (word, levels) in [("advise", "simulated: full; with --pages also"), ("tune", "simulated: full\n")] {
        let text = of(word);
        assert!(text.contains(levels) && !text.contains("- pages:"), "{word}: {text}");
    }
}

#[test]
fn the_book_shows_the_help() {
    let mut book = "# Command line\n\nWhat `--help` prints; a test keeps this page equal to it.\n".to_owned();
    for words in commands() {
        let name = [&["terrace".to_owned()], words.as_slice()].concat().join(" ");
        // clap pads some lines.
        let help: Vec<&str> = Box::leak(help(&words).into_boxed_str()).lines().map(str::trim_end).collect();
        let _ = write!(book, "\n## `{name}`\n\n```text\n{}\n```\n", help.join("\n").trim_end());
    }
    let path = repository().join("docs/src/reference/commands.md");
    if std::env::var_os("TERRACE_UPDATE").is_some() {
        std::fs::write(&path, &book).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == book, "{} is stale; run with TERRACE_UPDATE=1", path.display());
}

#[test]
fn there_is_a_manual_page_for_every_subcommand() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("man1");
    terrace().arg("man").arg(&target).assert().success();
    for words in commands() {
        let name = [&["terrace".to_owned()], words.as_slice()].concat().join("-");
        let page = std::fs::read_to_string(target.join(format!("{name}.1"))).unwrap_or_default();
        assert!(page.contains(".TH"), "no page {name}.1");
    }
}

#[test]
fn completions_are_accepted_by_the_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(stdout(terrace().args(["completions", shell])).contains("reproduce"), "{shell}");
    }
    let script = stdout(terrace().args(["completions", "bash"]));
    let test = format!("{script}\ncomplete -p terrace");
    let output = std::process::Command::new("bash").args(["-c", &test]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
