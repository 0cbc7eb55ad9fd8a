//! `terrace sweep`: results, going on, and the runs as commands.

mod common;
use common::{repository, stderr, stdout, terrace};
use std::path::Path;

const SWEEP: &str = "designs = [\"native-4k\", \"native-2m\"]\nworkloads = [\"gups,bytes=2MiB,updates=2000\"]\n\n\
                     [set]\n\"translation.l2.latency\" = [\"9 cycles\", \"18 cycles\"]\n";

/// Rows of `results.csv` without what the computer decides.
fn rows(folder: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(folder.join("results.csv")).unwrap();
    let rows = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let mut rows: Vec<Vec<String>> = rows.collect();
    for name in ["wall_seconds", "accesses_per_second"] {
        let at = rows[0].iter().position(|own| own == name).unwrap();
        rows.iter_mut().for_each(|row| drop(row.remove(at)));
    }
    rows
}

#[test]
fn a_sweep_writes_its_results_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("s.toml"), folder.path().join("out"));
    std::fs::write(&file, SWEEP).unwrap();
    let shown = stdout(terrace().arg("sweep").arg(&file).arg("-o").arg(&out));
    assert!(
        shown.contains("\n\nAll runs: machine zen4-cxl, input gups.\n\ntranslation.l2.latency  design"),
        "{shown}"
    );
    assert!(shown.starts_with("Machine zen4-cxl: dram 64.0 GiB at 94.3 ns, cxl 64.0 GiB at"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80 || line.starts_with("Results: ")), "{shown}");
    assert!(shown.contains("18 cycles") && shown.contains("results.csv"), "{shown}");
    let before = rows(&out);
    assert_eq!(before.len(), 5);
    assert_eq!(before[0][..3], ["set.translation.l2.latency", "design", "machine"]);
    assert!(std::fs::read(out.join("results.parquet")).unwrap().starts_with(b"PAR1"));

    let lost = std::fs::read_dir(out.join("runs")).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_file(&lost).unwrap();
    let said = stderr(terrace().arg("sweep").arg(&file).arg("-o").arg(&out), 0);
    assert!(said.contains("3 of 4 runs are there already"), "{said}");
    assert!(lost.exists());
    assert_eq!(rows(&out), before);
}

#[test]
fn its_commands_run_it_in_a_shell() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    let file = folder.path().join("a file.toml");
    std::fs::write(&file, SWEEP).unwrap();
    stdout(terrace().arg("sweep").arg(&file).arg("-o").arg(&whole));
    let list = |more: &[&str]| {
        stdout(terrace().arg("sweep").arg(&file).arg("-o").arg(&parts).arg("--print-commands").args(more))
    };
    assert_eq!(list(&["--group", "4"]).lines().count(), 1);
    let commands = list(&["--group", "1"]);
    assert_eq!(commands.lines().count(), 4);
    let binary = std::path::PathBuf::from(env!("CARGO_BIN_EXE_terrace"));
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let ran =
        std::process::Command::new("sh").args(["-e", "-c", &commands]).env("PATH", path).status().unwrap();
    assert!(ran.success() && !parts.join("results.csv").exists());
    assert_eq!(list(&[]), "");
    stdout(terrace().arg("sweep").arg(&file).arg("-o").arg(&parts));
    assert_eq!(rows(&parts), rows(&whole));
}

#[test]
fn what_is_wrong_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("s.toml"), folder.path().join("out"));
    let said = |code: i32, more: &[&str]| {
        stderr(terrace().arg("sweep").arg(&file).arg("-o").arg(&out).args(more), code)
    };
    assert!(said(2, &[]).contains("s.toml"), "no such file");
    std::fs::write(&file, "design = []").unwrap();
    assert!(said(2, &[]).contains("s.toml:1: unknown key \"design\"; did you mean \"designs\"?"));
    std::fs::write(&file, SWEEP).unwrap();
    assert!(said(2, &["--only", "0"]).contains("no run of this sweep is called \"0\""));
    let failing = SWEEP.replace("bytes=2MiB,updates=2000", "bytes=96MiB,updates=1e4").replace(
        "[set]",
        "[set]\n\"native-2m:os.reserved\" = \"0 B\"\n\
                                 \"native-2m:tier.dram.capacity\" = \"32 MiB\"\n\"native-2m:tier.cxl.capacity\" = \"32 MiB\"",
    );
    std::fs::write(&file, failing).unwrap();
    let text = said(1, &[]);
    assert!(text.contains("native-2m on gups: ") && text.contains("2 of 4 runs succeeded"), "{text}");
    assert_eq!(rows(&out).len(), 3);
}

#[test]
fn the_sweep_of_the_book_is_one() {
    let file = repository().join("docs/src/sweep.toml");
    let folder = tempfile::tempdir().unwrap();
    let commands = stdout(terrace().arg("sweep").arg(file).arg("-o").arg(folder.path()).args([
        "--print-commands",
        "--group",
        "1",
    ]));
    assert_eq!(commands.lines().count(), 16);
}

#[test]
fn the_machine_that_was_measured_is_here() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.toml");
    std::fs::write(&file, "machines = [\"here\"]\n".to_owned() + SWEEP).unwrap();
    let sweep = |code| {
        let mut command = terrace();
        command.arg("sweep").arg(&file).arg("-o").arg(folder.path().join("out")).arg("--print-commands");
        stderr(command.env("XDG_DATA_HOME", folder.path()), code)
    };
    assert!(sweep(2).contains("run `terrace calibrate` first"), "{}", sweep(2));
    let machines = folder.path().join("terrace/machines");
    std::fs::create_dir_all(&machines).unwrap();
    let text = "kind = \"machine\"\nsummary = \"the one that was measured\"\nextends = \"zen4-cxl\"\n";
    std::fs::write(machines.join("here.toml"), text).unwrap();
    sweep(0);
    let listed = stdout(terrace().args(["machine", "list"]).env("XDG_DATA_HOME", folder.path()));
    assert!(
        listed.lines().any(|line| line.starts_with("here") && line.contains("the one that was measured")),
        "{listed}"
    );
}
