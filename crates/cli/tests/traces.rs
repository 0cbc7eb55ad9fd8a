//! Traces on the command line: written, looked into, cut, converted, damaged.

mod common;
use common::{SMALL, json, stderr, stdout, terrace};
use std::path::{Path, PathBuf};

fn write(folder: &Path, workload: &str) -> PathBuf {
    let path = folder.join("input.trace");
    terrace().args(["record", "--workload", workload, "-o"]).arg(&path).assert().success();
    path
}

#[test]
fn a_trace_simulates_as_what_it_was_made_from() {
    let folder = tempfile::tempdir().unwrap();
    let trace = write(folder.path(), SMALL);
    let from_trace =
        json(terrace().args(["sim", "--design", "native-4k", "--json", "-", "--trace"]).arg(&trace));
    let direct = json(terrace().args(["sim", "--design", "native-4k", "--json", "-", "--workload", SMALL]));
    assert_eq!(from_trace["runs"][0]["stats"], direct["runs"][0]["stats"]);
    assert_eq!(from_trace["runs"][0]["cycles"], direct["runs"][0]["cycles"]);
}

#[test]
fn info_head_and_verify_agree() {
    let folder = tempfile::tempdir().unwrap();
    let trace = write(folder.path(), SMALL);
    let info = json(terrace().args(["trace", "info", "--json", "-"]).arg(&trace));
    assert_eq!(info["header"]["program"], "gups");
    let accesses = info["totals"]["accesses"].as_u64().unwrap();
    assert!(stdout(terrace().args(["trace", "info"]).arg(&trace)).contains(&accesses.to_string()));
    let head = stdout(terrace().args(["trace", "head", "-n", "7"]).arg(&trace));
    assert_eq!(head.lines().count(), 7);
    assert!(head.contains("spawn"), "{head}");
    let items = json(terrace().args(["trace", "head", "-n", "2000", "--json", "-"]).arg(&trace));
    let items = items["items"].as_array().unwrap();
    assert_eq!(items[0]["event"]["event"]["Spawn"]["process"], 0);
    let shown: Vec<_> = items.iter().filter_map(|item| item.get("access")).collect();
    assert!(shown.len() > 1000 && shown.iter().enumerate().all(|(at, access)| access["number"] == at));
    assert!(shown.iter().any(|access| access["kind"] == "Write" && access["address"].is_u64()));
    assert!(shown.iter().all(|access| access.get("instruction_address").is_none()), "it is not known");
    let verified = json(terrace().args(["trace", "verify", "--json", "-"]).arg(&trace));
    assert_eq!(verified["sound"], true);
    assert_eq!(verified["totals"]["accesses"], accesses);
}

#[test]
fn slices_and_text_hold_the_accesses_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let trace = write(folder.path(), SMALL);
    let part = folder.path().join("part.trace");
    let mut slice = terrace();
    slice.args(["trace", "slice", "--from", "5000", "--count", "1e3", "-o"]).arg(&part).arg(&trace);
    slice.args(["--json", "-"]);
    assert_eq!(json(&mut slice)["accesses"], 1000);
    terrace().args(["sim", "--design", "native-4k", "--trace"]).arg(&part).assert().success();

    let beyond = folder.path().join("beyond.trace");
    let message =
        stderr(terrace().args(["trace", "slice", "--from", "1e9", "-o"]).arg(&beyond).arg(&trace), 2);
    assert!(message.contains("none is left from number 1000000000 on"), "{message}");
    assert!(!beyond.exists(), "nothing is left behind");

    let none = stderr(terrace().args(["trace", "slice", "--count", "0", "-o"]).arg(&beyond).arg(&trace), 2);
    assert!(none.contains("--count") && none.contains("give at least 1"), "{none}");

    let text =
        |path: &Path| stdout(terrace().args(["trace", "convert", "--to", "text", "-o", "-"]).arg(path));
    let all = text(&trace);
    let cut: Vec<&str> = all.lines().skip(5000).take(1000).collect();
    assert_eq!(text(&part).lines().collect::<Vec<_>>(), cut);

    // And back: text is an input like any other.
    let lines = folder.path().join("lines");
    std::fs::write(&lines, cut.join("\n")).unwrap();
    let back = folder.path().join("back.trace");
    terrace().args(["trace", "convert", "-o"]).arg(&back).arg(&lines).assert().success();
    assert_eq!(text(&back).lines().collect::<Vec<_>>(), cut);
}

#[test]
fn damage_is_named_and_salvage_reads_what_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let trace = write(folder.path(), "gups,bytes=16 MiB,updates=2e6");
    let bytes = std::fs::read(&trace).unwrap();
    let cut = folder.path().join("cut.trace");
    std::fs::write(&cut, &bytes[..bytes.len() * 3 / 4]).unwrap();

    let message = stderr(terrace().args(["trace", "info"]).arg(&cut), 1);
    assert!(message.contains("cut.trace") && message.contains("--salvage"), "{message}");
    stderr(terrace().args(["trace", "verify"]).arg(&cut), 1);
    stderr(terrace().args(["sim", "--design", "native-4k", "--trace"]).arg(&cut), 1);

    let warned = terrace().args(["trace", "info", "--salvage"]).arg(&cut).assert().success();
    let warned = String::from_utf8(warned.get_output().stderr.clone()).unwrap();
    assert!(warned.contains(" WARN ") && !warned.contains("terrace_trace"), "{warned}");
    let info = json(terrace().args(["trace", "info", "--salvage", "--json", "-"]).arg(&cut));
    assert!(info["totals"]["accesses"].as_u64().unwrap() > 0);
    let noted = |path: &Path| {
        let simulate =
            ["sim", "--design", "native-4k", "--fidelity", "pages", "--json", "-", "--salvage", "--trace"];
        let run = &json(terrace().args(simulate).arg(path))["runs"][0];
        run["notes"].to_string().contains("the trace is damaged: only ")
    };
    assert!(noted(&cut) && !noted(&trace));
    let study = folder.path().join("study");
    let compare = ["compare", "native-4k", "--no-intervals", "--fidelity", "pages", "--salvage", "--trace"];
    let shown = stdout(terrace().args(compare).arg(&cut).arg("-o").arg(&study));
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("the trace is damaged: only "), "{shown}");
    // The first chunks of a trace whose damage lies within are read before the damage is seen.
    let mut broken = bytes.clone();
    broken[bytes.len() / 2] ^= 1;
    std::fs::write(&cut, &broken).unwrap();
    assert!(noted(&cut));
    // A copy of what could be read says so for ever, and so does a part of a sound one.
    let copy = folder.path().join("copy.trace");
    stdout(terrace().args(["trace", "convert", "--salvage", "-o"]).arg(&copy).arg(&cut));
    assert!(noted(&copy));
    let part = folder.path().join("part.trace");
    stdout(terrace().args(["trace", "slice", "--from", "1000", "-o"]).arg(&part).arg(&trace));
    let shown = stdout(terrace().args(["trace", "info"]).arg(&part));
    assert!(shown.contains("the trace is a part of "), "{shown}");
    let lines = folder.path().join("cut.lackey");
    std::fs::write(&lines, " L 1000,8\n S 2000,8\n S 30").unwrap();
    assert!(noted(&lines));
    let few =
        ["--no-intervals", "--resolution", "50%", "--policies", "first-touch", "--salvage", "--json", "-"];
    let advice = json(terrace().args(["advise", "--trace"]).arg(&lines).args(few));
    assert!(
        advice["uncertainty"]["remarks"][0].as_str().unwrap().starts_with("Part: the trace is damaged: ")
    );
    let pages = ["--no-intervals", "--pages", "--policies", "thp", "--salvage", "--json", "-"];
    let advice = json(terrace().args(["advise", "--trace"]).arg(&lines).args(pages));
    assert!(advice["remarks"][0].as_str().unwrap().starts_with("Part: the trace is damaged: "));
    std::fs::write(&lines, " L 1000,8\n S 2000,8\n").unwrap();
    assert!(!noted(&lines));

    for (name, content) in [("empty", &b""[..]), ("foreign", b"\x7fELF not a trace at all")] {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let message = stderr(terrace().args(["trace", "info"]).arg(&path), 1);
        assert!(message.contains(name), "{message}");
    }
}

/// Each export goes to a file compressed as its name says, and what can be imported comes back.
#[test]
fn exports_are_read_again_and_say_what_they_lost() {
    let folder = tempfile::tempdir().unwrap();
    let trace = write(folder.path(), SMALL);
    let info = |path: &Path| json(terrace().args(["trace", "info", "--json", "-"]).arg(path));
    let totals = info(&trace)["totals"].clone();
    let export = |name: &str, arguments: &[&str]| {
        let path = folder.path().join(name);
        let mut convert = terrace();
        convert.args(["trace", "convert", "--json", "-", "-o"]).arg(&path).arg(&trace).args(arguments);
        (json(&mut convert), path)
    };
    let (said, path) = export("a.champsim.xz", &["--to", "champsim"]);
    let back = info(&path);
    assert_eq!((&back["format"], &back["totals"]["reads"]), (&"champsim".into(), &totals["reads"]));
    assert_eq!(back["totals"]["instructions"], said["records"]);
    assert!(std::fs::read(&path).unwrap().starts_with(b"\xfd7zXZ"));
    let (said, path) = export("a.zst", &["--to", "oraclegeneral", "--block", "8 KiB"]);
    assert_eq!(info(&path)["format"], "oraclegeneral");
    assert!(said["records"].as_u64() >= totals["accesses"].as_u64());
    let (said, path) = export("a.folded", &["--to", "folded"]);
    let text = std::fs::read_to_string(&path).unwrap();
    let counts = text.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    assert_eq!(Some(counts.sum()), totals["accesses"].as_u64());
    assert!(text.lines().all(|line| line.starts_with("gups;") && line.split(';').count() == 3), "{text}");
    assert_eq!(said["records"], text.lines().count());
    let bytes = stdout(terrace().args(["trace", "convert", "--to", "folded", "-o", "-"]).arg(&trace));
    assert_eq!(bytes, text);

    let refused: [(&[&str], &str); 5] = [
        (&["--to", "text", "--block", "4KiB"], "--block is for --to oraclegeneral"),
        (&["--to", "champsim", "--count", "accesses"], "--count is for --to folded"),
        (&["--stream", "0"], "a Terrace trace keeps all streams"),
        (
            &["--to", "oraclegeneral", "--block", "3KiB"],
            "expected a power of two from 64B to 1GiB, found 3 KiB",
        ),
        (&["--to", "text", "-o", "-", "--json", "-"], "cannot both go to standard output"),
    ];
    for (arguments, expected) in refused {
        let output = if arguments.contains(&"-o") { vec![] } else { vec!["-o", "unused"] };
        let mut convert = terrace();
        convert.args(["trace", "convert"]).arg(&trace).args(arguments).args(output);
        let message = stderr(&mut convert, 2);
        assert!(message.contains(expected), "{message}");
    }
    let (absent, kept) = (folder.path().join("absent"), folder.path().join("a.folded"));
    let alone = |path: &Path| {
        let mut convert = terrace();
        convert.args(["trace", "convert", "--to", "folded", "--stream", "99", "-o"]).arg(path).arg(&trace);
        stderr(&mut convert, 1)
    };
    assert!(alone(&absent).contains("the trace has no stream 99; its streams are 0"));
    assert!(!absent.exists());
    alone(&kept);
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), text);
}

#[test]
fn an_input_is_never_overwritten_by_its_own_output() {
    let folder = tempfile::tempdir().unwrap();
    let trace = write(folder.path(), SMALL);
    let before = std::fs::read(&trace).unwrap();
    for action in ["slice", "convert"] {
        let message = stderr(terrace().args(["trace", action, "-o"]).arg(&trace).arg(&trace), 2);
        assert!(message.contains("is the input"), "{message}");
    }
    assert!(std::fs::read(&trace).unwrap() == before);
}

/// Text says at its end how much it holds, and a mistake is found where it stands.
#[test]
fn what_is_refused_on_the_way_leaves_the_output_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("lines", "R 1000 8\nW 2000 8\n");
    write("broken", &("R 1000 8\n".repeat(100_000) + "X\n"));
    write("kept.trace", "what was there before");
    for (arguments, said) in [
        (&["slice", "lines", "--from", "9"][..], "none is left from number 9 on"),
        (&["slice", "broken", "--from", "9"], "line 100001"),
        (&["convert", "broken"], "line 100001"),
    ] {
        for output in ["kept.trace", "absent.trace"] {
            let mut command = terrace();
            command.current_dir(folder.path()).arg("trace").args(arguments).args(["-o", output]);
            let message = stderr(&mut command, 1);
            assert!(message.contains(said), "{arguments:?}: {message}");
        }
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["broken", "kept.trace", "lines"], "{arguments:?}");
        let kept = std::fs::read_to_string(folder.path().join("kept.trace")).unwrap();
        assert_eq!(kept, "what was there before", "{arguments:?}");
    }
}

/// What Valgrind itself writes is read whole: each of its lines counts, an `M` for a load and a store.
#[test]
fn a_run_under_lackey_is_imported() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("true.lackey");
    let ran = std::process::Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes"])
        .arg(format!("--log-file={}", log.display()))
        .arg("/bin/true")
        .status()
        .expect("valgrind is installed");
    assert!(ran.success());
    let text = std::fs::read_to_string(&log).unwrap();
    let lines = |begin: &str| text.lines().filter(|line| line.starts_with(begin)).count() as u64;
    let (loads, stores, both) = (lines(" L "), lines(" S "), lines(" M "));
    assert!(loads > 1000 && stores > 1000 && both > 100);
    let info = json(terrace().args(["trace", "info", "--json", "-"]).arg(&log));
    assert_eq!(info["format"], "lackey");
    assert_eq!(info["totals"]["accesses"], loads + stores + 2 * both);
    assert_eq!(info["totals"]["writes"], stores + both);
    assert_eq!(info["totals"]["instructions"], lines("I "));
}

#[test]
fn a_hostile_file_name_is_spelled_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a\u{1b}[2Jb.trace");
    stderr_of_record(&path);
    let text = stdout(terrace().args(["trace", "info"]).arg(&path));
    assert!(!text.contains('\u{1b}') && text.contains("a\\u{1b}[2Jb.trace"), "{text}");
    let message = stderr(terrace().args(["trace", "info"]).arg(folder.path().join("c\u{1b}[2J.trace")), 2);
    assert!(!message.contains('\u{1b}') && message.contains("\\u{1b}"), "{message}");
}

fn stderr_of_record(path: &std::path::Path) {
    let output = terrace().args(["record", "--workload", SMALL, "-o"]).arg(path).output().unwrap();
    assert!(output.status.success() && !output.stderr.contains(&0x1b));
}

#[test]
fn the_first_items_fit_80_columns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.trace");
    stderr_of_record(&path);
    let text = stdout(terrace().args(["trace", "head", "-n", "200"]).arg(&path));
    assert!(text.lines().all(|line| line.chars().count() <= 80) && !text.contains('{'), "{text}");
    assert!(text.lines().next().unwrap().contains(" spawn process=0 thread=0"), "{text}");
}

#[test]
fn a_recording_without_dependences_says_so_where_it_matters() {
    let folder = tempfile::tempdir().unwrap();
    let notes = |options: &[&str], set: &[&str]| {
        let trace = folder.path().join("a.trace");
        terrace()
            .args(["record"])
            .args(options)
            .arg("-o")
            .arg(&trace)
            .args(["--", "true"])
            .assert()
            .success();
        let info = stdout(terrace().args(["trace", "info"]).arg(&trace));
        let run = json(
            terrace()
                .args(["sim", "--design", "native-4k", "--json", "-"])
                .args(set)
                .arg("--trace")
                .arg(&trace),
        );
        let notes = run["runs"][0]["notes"].to_string();
        (info.contains("recorded with --no-dependences"), notes.contains("slow memory looks better"))
    };
    let waits = ["--set", "core.model=in-order", "--set", "core.model.loads=1"];
    assert_eq!(notes(&[], &[]), (false, false));
    assert_eq!(notes(&["--no-dependences"], &[]), (true, true));
    assert_eq!(notes(&["--no-dependences"], &waits), (true, false));
}
