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
    let arguments = ["sim", "--design", "native-4k", "--fidelity", "pages", "--suite", "milc", "--json", "-"];
    let document = json(command.args(arguments));
    assert_eq!(document["runs"][0]["input"], "milc");
    let repeat = document["runs"][0]["command"].as_str().unwrap();
    assert!(repeat.ends_with("--suite milc"), "{repeat}");
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

const CLAIMS: &str = r#"
source = "a test"

[run.built_in]
machine = "vbi-table1"
design = "native-4k"
fidelity = "pages"
workload = "suite:milc"

[run.recorded]
like = "built_in"
workload = "suite:mcf"

[[claim]]
id = "built-in"
section = "1"
kind = "order"
statement = "It accesses memory."
expression = "0 < built_in.accesses"

[[claim]]
id = "recorded"
section = "1"
kind = "order"
statement = "It accesses memory."
expression = "0 < recorded.accesses"
"#;

#[test]
fn a_claim_about_a_program_is_judged_with_the_readers_recording() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("claims.toml");
    std::fs::write(&path, CLAIMS).unwrap();
    let scoreboard = folder.path().join("verdicts.json");
    let reproduce = || {
        let mut command = terrace();
        command
            .env("XDG_CACHE_HOME", folder.path())
            .arg("reproduce")
            .arg(&path)
            .arg("--scoreboard")
            .arg(&scoreboard);
        command
    };
    let verdicts = || -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(&scoreboard).unwrap()).unwrap()
    };
    // What is not recorded, or not even installed, says so once; the other claim is judged.
    let message = stderr(&mut reproduce(), 1);
    assert_eq!(message.matches("suite:mcf: mcf of the suite").count(), 1, "{message}");
    assert!(
        message.contains("terrace suite record mcf") || message.contains("terrace suite install mcf"),
        "{message}"
    );
    let claims = &verdicts()["claims"];
    assert_eq!(claims["built-in"]["verdict"], "reproduced");
    assert!(claims["recorded"].is_null() && claims["built-in"]["recordings"].is_null());

    // A recording as `suite record` leaves it, of something small.
    let suite = folder.path().join("terrace/suite");
    std::fs::create_dir_all(&suite).unwrap();
    let record = |updates: &str, sum: &str| {
        let trace = suite.join("mcf.trace");
        let workload = format!("gups,bytes=1MiB,updates={updates}");
        stdout(terrace().args(["record", "--workload", &workload, "-o"]).arg(&trace));
        let figures = serde_json::json!({
            "accesses": 0, "instructions": 0, "footprint_bytes": 0, "threads": 1, "processes": 1,
            "walks_per_kilo_instruction": 0.0, "machine": "none"
        });
        let manifest = serde_json::json!({
            "entry": terrace_study::suite::find("mcf").unwrap().identity(), "terrace": "0", "packages": {},
            "date": "2026-01-02", "bytes": std::fs::metadata(&trace).unwrap().len(), "sha256": sum, "figures": figures
        });
        std::fs::write(suite.join("mcf.json"), manifest.to_string()).unwrap();
    };
    record("100", "0123456789abcdef");
    assert!(stdout(&mut reproduce()).contains("2 of 2 claims reproduced"));
    let judged = &verdicts()["claims"]["recorded"];
    assert_eq!(judged["recordings"]["mcf"], "recorded 2026-01-02, SHA-256 0123456789ab");
    let first = judged["ours"].clone();
    assert!(stdout(&mut reproduce()).contains("2 of 2 runs were made before and kept"));
    // Another recording is another run.
    record("200", "fedcba9876543210");
    assert!(stdout(&mut reproduce()).contains("1 of 2 runs were made before and kept"));
    assert_ne!(verdicts()["claims"]["recorded"]["ours"], first);
}

#[test]
fn packages_are_named_by_the_command_that_installs_them() {
    let (_folder, mut command) = with_empty_cache();
    let text = stdout(command.args(["suite", "install", "--print-command", "mcf", "redis"]));
    let words = ["apt-get", "install", "glpk-utils", "redis-server", "redis-tools"];
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}
