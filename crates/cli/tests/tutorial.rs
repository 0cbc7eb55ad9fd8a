//! The tutorial on OpenCL programs is run as it stands. `TERRACE_UPDATE=1` writes what came out into the page.
//!
//! Needs Oclgrind; `scripts/test` installs it.

mod common;
use common::repository;
use std::path::Path;
use std::process::Command;

const PAGE: &str = "docs/src/gpu-tutorial.md";

/// What a command prints, without what differs from run to run: times that passed, and sizes of files that hold dates.
fn printed(command: &str, folder: &Path, path: &str) -> String {
    let output = Command::new("bash")
        .args(["-c", &format!("{{ {command}; }} 2>&1")])
        .current_dir(folder)
        .env("PATH", path)
        .env("LC_ALL", "C.UTF-8")
        .env_remove("TERRACE_LOG")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{command}: {text}");
    let speed_of_the_simulator = |line: &&str| !line.starts_with("  simulation  ");
    let lines =
        text.lines().filter(speed_of_the_simulator).map(|line| match line.split_once(" accesses in ") {
            Some((before, _)) => format!("{before} accesses in … s, … MiB (… bytes per access)\n"),
            None => format!("{}\n", line.trim_end()),
        });
    lines.collect()
}

#[test]
fn the_tutorial_on_opencl_programs_prints_what_it_says() {
    let page = repository().join(PAGE);
    let text = std::fs::read_to_string(&page).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(repository().join("docs/src/pagerank.c"), folder.path().join("pagerank.c")).unwrap();
    let binary = assert_cmd::cargo::cargo_bin("terrace");
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut found = String::new();
    let mut in_console = false;
    for line in text.lines() {
        in_console = if in_console { line != "```" } else { line == "```console" };
        let is_output = in_console && line != "```console" && !line.starts_with("$ ");
        if !is_output {
            found += &format!("{line}\n");
        }
        if let Some(command) =
            line.strip_prefix("$ ").filter(|command| in_console && !command.starts_with("sudo "))
        {
            found += &printed(command, folder.path(), &path);
        }
    }
    if std::env::var_os("TERRACE_UPDATE").is_some() {
        std::fs::write(&page, &found).unwrap();
        return;
    }
    for (line, (ours, theirs)) in found.lines().zip(text.lines()).enumerate() {
        assert_eq!(ours, theirs, "{PAGE}:{}", line + 1);
    }
    assert_eq!(found, text, "TERRACE_UPDATE=1 writes {PAGE}");
}
