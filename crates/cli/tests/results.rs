//! What `sim`, `compare` and `reproduce` write: schema, names, determinism, completeness.

mod common;
use assert_cmd::Command;
use common::{SMALL, json, stderr, stdout, terrace};
use serde_json::Value;
use std::path::Path;

fn sim(design: &str, input: &[&str]) -> Value {
    json(terrace().args(["sim", "--design", design, "--json", "-"]).args(input))
}

/// Removes the one field that may differ between two equal runs.
fn without_clock(mut document: Value) -> Value {
    let host = document.as_object_mut().unwrap().remove("host").expect("there is a clock to remove");
    for run in host["runs"].as_array().unwrap() {
        for key in ["wall_seconds", "accesses_per_second"] {
            assert!(run[key].as_f64().unwrap() > 0.0, "{key} is {}", run[key]);
        }
    }
    document
}

#[test]
fn the_json_of_a_run_has_the_documented_keys() {
    let document = sim("native-4k", &["--workload", SMALL]);
    assert_eq!(document["schema"], 2);
    let run = &document["runs"][0];
    assert_eq!(run["design"], "native-4k");
    assert_eq!(run["input"], "gups");
    for key in ["accesses", "instructions", "cycles", "seconds_simulated"] {
        assert!(run[key].as_f64().unwrap() > 0.0, "{key} is {}", run[key]);
    }
}

#[test]
fn two_equal_comparisons_are_byte_identical_but_for_the_field_host() {
    let folder = tempfile::tempdir().unwrap();
    let documents = ["one", "two"].map(|name| {
        let out = folder.path().join(name);
        let mut compare = terrace();
        compare.args(["compare", "native-4k", "native-2m", "--workload", SMALL, "-o"]).arg(&out);
        stdout(&mut compare);
        std::fs::read_to_string(out.join("results.json")).unwrap().replace(out.to_str().unwrap(), "OUT")
    });
    let cut = documents.each_ref().map(|text| text.split_once("\n  \"host\": {").unwrap());
    assert_eq!(cut[0].0, cut[1].0);
    // Nothing else follows it.
    for (_, host) in cut {
        let host: Value = serde_json::from_str(&format!("{{\"host\": {{{host}")).unwrap();
        assert_eq!(host["host"]["runs"].as_array().unwrap().len(), 2);
        assert!(host["host"]["date"].as_str().is_some_and(|date| date.len() == 10));
    }
}

#[test]
fn the_names_of_the_statistics_are_stable() {
    let document = sim("native-4k", &["--workload", SMALL]);
    let tier = document["runs"][0]["stats"]["tier"].as_object().unwrap().keys().next().unwrap().clone();
    let mut names: Vec<String> = Vec::new();
    for size in ["4k", "2m", "1g"] {
        names.extend(["hit", "miss"].map(|what| format!("tlb.l1d.{size}.{what}")));
    }
    names.extend(
        ["tlb.l2.hit", "tlb.l2.miss", "walk.count", "walk.memory_refs", "walk.cycles"].map(str::to_owned),
    );
    for level in ["l1", "l2", "llc"] {
        names.extend(["hit", "miss", "writeback"].map(|what| format!("cache.{level}.{what}")));
    }
    for what in ["reads", "writes", "bytes_read", "bytes_written", "pages"] {
        names.push(format!("tier.{tier}.{what}"));
    }
    names.extend(["os.faults", "os.fault_cycles"].map(str::to_owned));
    names.extend(["base", "translation", "cache", "memory", "os"].map(|what| format!("core.cycles.{what}")));
    for name in &names {
        let pointer = format!("/runs/0/stats/{}", name.replace('.', "/"));
        assert!(document.pointer(&pointer).is_some_and(Value::is_number), "no number at {name}");
        assert!(document["units"][name].is_string(), "no unit for {name}");
    }
}

#[test]
fn equal_runs_give_equal_bytes() {
    let run = || without_clock(sim("native-thp", &["--workload", SMALL])).to_string();
    assert_eq!(run(), run());
}

#[test]
fn a_comparison_gives_each_design_what_it_gets_alone() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("study");
    let table = stdout(
        terrace()
            .args(["compare", "native-4k", "native-2m", "interleave", "--workload", SMALL])
            .args(["--workload", "stream,bytes=8 MiB", "--no-intervals", "-o"])
            .arg(&directory),
    );
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert!(table.contains("report.html"));

    let page = std::fs::read_to_string(directory.join("report.html")).unwrap();
    assert!(page.starts_with("<!") && page.contains("native-2m"));
    let rows = std::fs::read_to_string(directory.join("results.csv")).unwrap();
    assert_eq!(rows.lines().count(), 1 + 3 * 2, "a heading and six runs");
    let text = std::fs::read_to_string(directory.join("results.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["schema"], 2);
    assert_eq!(document["baseline"], "native-4k");
    let runs = document["runs"].as_array().unwrap();
    let pairs: Vec<String> = runs
        .iter()
        .map(|run| format!("{} {}", run["input"].as_str().unwrap(), run["design"].as_str().unwrap()))
        .collect();
    assert_eq!(
        pairs,
        [
            "gups native-4k",
            "gups native-2m",
            "gups interleave",
            "stream native-4k",
            "stream native-2m",
            "stream interleave"
        ]
    );
    assert_eq!(document["inputs"].as_array().unwrap().len(), 2);

    for (index, design) in ["native-4k", "native-2m", "interleave"].into_iter().enumerate() {
        let alone = sim(design, &["--workload", SMALL]);
        assert_eq!(alone["runs"][0]["stats"], runs[index]["stats"], "{design}");
        assert_eq!(alone["runs"][0]["cycles"], runs[index]["cycles"], "{design}");
    }
}

#[test]
fn a_comparison_repeated_is_equal_but_for_the_clock() {
    let run = || {
        let folder = tempfile::tempdir().unwrap();
        let mut command = terrace();
        command.args(["compare", "native-4k", "vivt", "--workload", SMALL, "--json", "-", "-o", "study"]);
        command.arg("--no-intervals");
        without_clock(json(command.current_dir(folder.path()))).to_string()
    };
    assert_eq!(run(), run());
}

#[test]
fn the_command_in_a_run_repeats_it() {
    let options =
        ["--machine", "vbi-table1", "--set", "os.pages=2m", "--fidelity", "translation", "--workload", SMALL];
    let document = sim("native-4k", &options);
    let command = document["runs"][0]["command"].as_str().unwrap();
    let binary = assert_cmd::cargo::cargo_bin("terrace");
    let line = format!("{} --json -", command.replacen("terrace", binary.to_str().unwrap(), 1));
    let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
    let again: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(without_clock(document), without_clock(again));
}

#[test]
fn each_fidelity_says_what_it_leaves_out_and_agrees_on_what_it_shares() {
    let counts: Vec<Value> = ["full", "translation", "pages"]
        .into_iter()
        .map(|level| sim("native-4k", &["--workload", SMALL, "--fidelity", level])["runs"][0].clone())
        .collect();
    assert!(counts[0]["left_out"].as_array().unwrap().is_empty());
    assert!(!counts[1]["left_out"].as_array().unwrap().is_empty());
    assert!(
        counts[2]["left_out"].as_array().unwrap().len() > counts[1]["left_out"].as_array().unwrap().len()
    );
    for name in ["/stats/tlb/l2/miss", "/stats/walk/count", "/stats/walk/memory_refs", "/stats/os/faults"] {
        assert_eq!(counts[0].pointer(name), counts[1].pointer(name), "{name}");
    }
    assert_eq!(counts[0].pointer("/stats/os/faults"), counts[2].pointer("/stats/os/faults"));
}

#[test]
fn the_scale_divides_the_machine_and_is_said() {
    let misses = |scale: &str| {
        let document = sim("native-4k", &["--workload", SMALL, "--scale", scale]);
        assert_eq!(document["runs"][0]["scale"].to_string(), scale);
        document.pointer("/runs/0/stats/tlb/l2/miss").unwrap().as_u64().unwrap()
    };
    assert!(misses("16") > misses("1"), "a sixteenth of the TLB reach misses more");
}

#[test]
fn json_goes_to_a_file_beside_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let text =
        stdout(terrace().args(["sim", "--design", "native-4k", "--workload", SMALL, "--json"]).arg(&path));
    assert!(text.contains("native-4k"));
    let document: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(document["schema"], 2);
}

#[test]
fn every_json_carries_its_schema() {
    for arguments in [
        &["workload", "list"][..],
        &["workload", "show", "gups"],
        &["workload", "run", SMALL],
        &["machine", "list"],
        &["machine", "show", "zen4-cxl"],
        &["design", "list"],
        &["design", "show", "vivt"],
        &["reproduce", "list"],
    ] {
        assert_eq!(json(terrace().args(arguments).args(["--json", "-"]))["schema"], 1, "{arguments:?}");
    }
}

const CLAIMS: &str = r#"
source = "this test"

[run.small]
machine = "vbi-table1"
design = "native-4k"
workload = "gups,bytes=16 MiB,updates=2e4"

[run.huge]
machine = "vbi-table1"
design = "native-2m"
workload = "gups,bytes=16 MiB,updates=2e4"

[[claim]]
id = "true"
section = "1"
kind = "order"
statement = "Huge pages walk less."
expression = "huge.walk.count < small.walk.count"

[[claim]]
id = "false"
section = "2"
kind = "value"
statement = "Huge pages make no difference."
expression = "huge.walk.count / small.walk.count"
published = 1
tolerance = 0.01
"#;

#[test]
fn a_claim_that_does_not_hold_is_shown_and_fails_only_when_strict() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("claims.toml");
    std::fs::write(&path, CLAIMS).unwrap();
    let reproduce = || {
        let mut command = terrace();
        command.env("XDG_CACHE_HOME", folder.path().join("cache")).arg("reproduce").arg(&path);
        command
    };
    let text = stdout(&mut reproduce());
    assert!(text.contains("1 of 2 claims reproduced, 1 not reproduced"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains("kept"), "{text}");
    assert!(
        text.contains("\nMachine vbi-table1: ") && text.contains("before a run's settings and scale"),
        "{text}"
    );
    let again = stdout(&mut reproduce());
    assert!(again.ends_with("2 of 2 runs were made before and kept; --fresh makes them anew\n"), "{again}");
    assert_eq!(again.lines().count(), text.lines().count() + 1);
    assert_eq!(stdout(reproduce().arg("--fresh")), text);

    let document = json(reproduce().args(["--json", "-"]));
    assert_eq!(document["schema"], 1);
    let verdicts: Vec<&str> =
        document["claims"].as_array().unwrap().iter().map(|c| c["verdict"].as_str().unwrap()).collect();
    assert_eq!(verdicts, ["reproduced", "not reproduced"]);
    assert!(!document["claims"][1]["reason"].as_str().unwrap().is_empty());
    let message = stderr(reproduce().arg("--strict"), 1);
    assert!(message.contains("1 of 2 claims"), "{message}");

    let scoreboard = folder.path().join("verdicts.json");
    stdout(reproduce().arg("--scoreboard").arg(&scoreboard).args(["--revision", "abc", "--intervals"]));
    let written: Value = serde_json::from_str(&std::fs::read_to_string(&scoreboard).unwrap()).unwrap();
    assert_eq!(written["claims"]["true"]["verdict"], "reproduced");
    assert_eq!(written["claims"]["true"]["version"], "abc");
    assert_eq!(written["claims"]["true"]["around"]["is_stable"], true, "{written}");
    assert_eq!(written["claims"]["true"]["machines"], serde_json::json!(["vbi-table1"]));
    std::fs::write(&scoreboard, "no scoreboard").unwrap();
    let message = stderr(reproduce().arg("--scoreboard").arg(&scoreboard), 2);
    assert!(message.contains("verdicts.json"), "{message}");

    // The name of a claim that comes with Terrace, about another source: its verdict stays.
    std::fs::write(&path, CLAIMS.replace("id = \"true\"", "id = \"ambix-iwb-read-32\"")).unwrap();
    std::fs::write(&scoreboard, written.to_string()).unwrap();
    let message = stderr(reproduce().arg("--scoreboard").arg(&scoreboard), 2);
    assert!(
        message.contains("ambix-iwb-read-32 is the name of a claim about M. Marques, Ambix"),
        "{message}"
    );
}

/// A comparison in which `all-fast` has too little memory.
fn with_too_little_memory(designs: &[&str], directory: &Path) -> Command {
    let mut command = terrace();
    command
        .arg("compare")
        .args(designs)
        .args(["--machine", "zen4-cxl", "--set", "tier.dram.capacity=\"2 GiB\""])
        .args(["--workload", "gups,bytes=3 GiB,updates=1e3", "--fidelity", "pages", "-o"])
        .arg(directory);
    command
}

#[test]
fn a_comparison_without_a_result_leaves_no_directory() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("study");
    let message = stderr(&mut with_too_little_memory(&["all-fast"], &directory), 1);
    assert!(message.contains("0 of 1 runs"), "{message}");
    assert!(!directory.exists());
    // A user who made the folder may want it.
    std::fs::create_dir(&directory).unwrap();
    stderr(&mut with_too_little_memory(&["all-fast"], &directory), 1);
    assert!(directory.exists());
}

#[test]
fn a_tier_that_is_too_small_fails_that_run_and_keeps_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("study");
    let message = stderr(&mut with_too_little_memory(&["all-fast", "native-4k"], &directory), 1);
    assert!(message.contains("all-fast") && message.contains("1 of 2 runs"), "{message}");
    let document: Value =
        serde_json::from_str(&std::fs::read_to_string(directory.join("results.json")).unwrap()).unwrap();
    assert_eq!(document["runs"].as_array().unwrap().len(), 1);
    assert_eq!(document["runs"][0]["design"], "native-4k");
    let failures = document["failures"].as_array().unwrap();
    assert!(
        failures.len() == 1 && failures[0].as_str().unwrap().starts_with("all-fast on gups: "),
        "{failures:?}"
    );
}

#[test]
fn a_difference_of_results_is_shown_and_fails_only_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let compare = |name: &str, latency: &str| {
        let path = folder.path().join(name);
        let set = format!("cache.llc.latency=\"{latency}\"");
        let mut command = terrace();
        command
            .args(["compare", "native-4k", "native-2m", "--workload", SMALL, "--set", &set, "-o"])
            .arg(&path);
        stdout(&mut command);
        path
    };
    let (before, after) = (compare("before", "50 cycles"), compare("after", "200 cycles"));
    let same = stdout(terrace().arg("diff").arg(&before).arg(&before).args(["--fail-on", "0%"]));
    assert!(same.starts_with("Machine zen4-cxl: dram 64.0 GiB at "), "{same}");
    assert!(same.ends_with("\n\n2 runs are equal in every statistic.\n"), "{same}");
    let text = stdout(terrace().arg("diff").arg(&before).arg(&after));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("cache.llc.latency: 50 cycles -> 200 cycles"), "{text}");
    let result = json(terrace().arg("diff").arg(&before).arg(&after).args(["--json", "-"]));
    let seconds = &result["runs"][0]["seconds"];
    assert!(seconds["after"].as_f64() > seconds["before"].as_f64(), "{seconds}");
    let message = stderr(terrace().arg("diff").arg(&before).arg(&after).args(["--fail-on", "2%"]), 1);
    assert!(message.contains("take longer by more than 2.000 %"), "{message}");
    stdout(terrace().arg("diff").arg(&after).arg(&before).args(["--fail-on", "2%"]));
    let message = stderr(terrace().arg("diff").arg(&before).arg(folder.path()), 2);
    assert!(message.contains("results.json"), "{message}");
}

#[test]
fn a_result_is_a_table_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (table, document) = (file("run.csv"), file("run.json"));
    let run =
        ["sim", "--design", "native-4k", "--workload", common::SMALL, "--table", &table, "--json", &document];
    stdout(terrace().args(run));
    let table = std::fs::read_to_string(table).unwrap();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    let column = lines[0].iter().position(|name| *name == "cycles").unwrap();
    let document: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(document).unwrap()).unwrap();
    let cycles = document.pointer("/runs/0/cycles").or(document.pointer("/cycles")).unwrap();
    assert_eq!(lines[1][column], cycles.to_string());
    assert_eq!(lines.len(), 2);

    // A row per entry of a list.
    let designs = file("designs.csv");
    let listed = stdout(terrace().args(["design", "list", "--table", &designs]));
    let designs = std::fs::read_to_string(designs).unwrap();
    assert_eq!(designs.lines().next(), Some("name,summary"));
    assert!(designs.lines().any(|line| line.starts_with("native-4k,")), "{designs}");
    assert!(listed.contains("native-4k"), "the list is printed too");
    let claims = file("claims.parquet");
    stdout(terrace().args(["reproduce", "list", "--table", &claims]));
    assert!(std::fs::read(claims).unwrap().starts_with(b"PAR1"));

    let message = stderr(terrace().args(["design", "list", "--table", &file("designs.txt")]), 2);
    assert!(message.contains("it ends in .parquet or .csv"), "{message}");
    let missing = file("no/such/folder/designs.csv");
    let message = stderr(terrace().args(["design", "list", "--table", &missing]), 2);
    assert!(message.contains("designs.csv"), "{message}");
}
