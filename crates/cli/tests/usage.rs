//! Wrong usage: exit code 2, and a message that names the thing and the nearest valid one.

mod common;
use common::{SMALL, json, stderr, stdout, terrace};

#[track_caller]
fn refused(arguments: &[&str], parts: &[&str]) {
    let message = stderr(terrace().args(arguments), 2);
    for part in parts {
        assert!(message.contains(part), "{arguments:?} should say {part:?}:\n{message}");
    }
}

#[test]
fn wrong_usage_exits_2_and_says_what_would_be_right() {
    refused(&[], &["Usage: terrace"]);
    refused(&["simulate"], &["unrecognized subcommand"]);
    refused(&["sim", "--workload", SMALL], &["--design"]);
    refused(&["sim", "--design", "native-4k"], &["no input", "--workload"]);
    refused(
        &["sim", "--design", "native-4x", "--workload", SMALL],
        &["native-4x", "did you mean \"native-4k\"?"],
    );
    refused(&["sim", "--design", "native-4k", "--workload", "gubs"], &["gubs", "did you mean \"gups\"?"]);
    refused(&["sim", "--design", "native-4k", "--workload", "gups,byte=1GiB"], &["did you mean \"bytes\"?"]);
    refused(&["sim", "--design", "native-4k", "--machine", "skylake", "--workload", SMALL], &["skylake"]);
    refused(
        &["sim", "--design", "native-4k", "--workload", SMALL, "--workload", SMALL],
        &["one input, not 2"],
    );
    refused(&["sim", "--design", "native-4k", "--workload", SMALL, "--skip", "5"], &["--skip", "after --"]);
    refused(&["sim", "--design", "native-4k", "--workload", SMALL, "--scale", "17"], &["--scale"]);
    refused(&["sim", "--design", "native-4k", "--trace", "/no/such.trace"], &["/no/such.trace"]);
    refused(&["compare", "native-4k", "native-4k", "--workload", SMALL], &["distinct names"]);
    refused(&["trace", "info", "/no/such.trace"], &["/no/such.trace"]);
    refused(&["workload", "show", "gubs"], &["did you mean \"gups\"?"]);
    refused(&["machine", "show", "native-4k"], &["is a design", "terrace design show native-4k"]);
    refused(&["policy", "show", "ambx"], &["ambx", "did you mean \"ambix\"?"]);
    refused(&["policy", "show", "ambix", "--set", "perid=4 s"], &["perid", "did you mean \"period\"?"]);
    refused(
        &["policy", "show", "ambix", "--set", "period=4"],
        &["period = 4: ", "expected a time with its unit"],
    );
    refused(&["record", "--limit", "0", "--", "true"], &["--limit", "give at least 1"]);
    refused(
        &["policy", "show", "ambix", "--set", "dram_limit=2"],
        &["dram_limit = 2.0 is out of range: 0.0 to 1.0"],
    );
    refused(&["record", "-o", "/tmp/x.trace"], &["COMMAND"]);
    refused(&["record", "-o", "/tmp/x.trace", "--every", "10", "--", "true"], &["PERIOD:LENGTH"]);
    refused(
        &["record", "-o", "/tmp/x.trace", "--", "/no/such/program"],
        &["/no/such/program", "no such program"],
    );
    refused(&["reproduce", "ambjx-iwb"], &["did you mean \"ambix-iwb"]);
}

/// A suggestion is something that the option takes.
#[test]
fn a_machine_that_is_not_there_is_nearest_to_a_machine() {
    let with = |machine: &str, hint: &str| {
        let said = format!("there is no machine \"{machine}\"{hint}");
        refused(&["sim", "--design", "native-4k", "--workload", SMALL, "--machine", machine], &[&said]);
    };
    with("hree", "; did you mean \"here\"?");
    with("zen4-cxk", "; did you mean \"zen4-cxl\"?");
    with("qqqq", "; see terrace machine list");
}

#[test]
fn a_folder_is_no_stream_and_a_place_without_files_is_named() {
    refused(&["compare", "native-4k", "--workload", SMALL, "-o", "-"], &["name a directory", "./-"]);
    let arguments = ["compare", "native-4k", "--workload", SMALL, "-o", "/proc/none/such"];
    let message = stderr(terrace().args(arguments), 1);
    assert!(message.contains("/proc takes no files; choose another directory"), "{message}");
}

#[test]
fn a_program_without_its_dashes_is_recognized() {
    refused(&["compare", "ls"], &["\"ls\"", "terrace compare -- ls"]);
    // Near to a name, and a program still.
    refused(&["compare", "sort", "f"], &["did you mean \"spot\"", "terrace compare -- sort f"]);
    // By its path it is read as a file.
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("run it").display().to_string();
    std::fs::write(&script, "#!/bin/sh\nexit 0\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    refused(
        &["compare", &script, "-o", "x"],
        &["is a program, not a design; did you mean", "terrace compare -- '"],
    );
    refused(&["compare", "native-4k", "/bin/true"], &["`terrace compare native-4k -- /bin/true`?"]);
    let message = stderr(terrace().args(["compare", "no-such-design-or-program"]), 2);
    assert!(message.contains("terrace design list") && message.lines().count() == 1, "{message}");
    assert!(message.len() < 200, "no list of all names: {message}");
}

#[test]
fn a_design_that_never_ends_is_refused() {
    refused(&["design", "show", "/dev/zero"], &["/dev/zero", "longer than 4 MiB"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, "extends = \"/dev/zero\"\n").unwrap();
    refused(&["design", "show", path.to_str().unwrap()], &["/dev/zero", "longer than 4 MiB"]);
}

#[test]
fn what_the_engine_refuses_is_wrong_usage_too() {
    let base = ["sim", "--design", "native-4k", "--workload", SMALL];
    let picture = ["--fidelity", "pages", "--access-picture", "a.svg"];
    refused(&[&base[..], &picture].concat(), &["use --fidelity full"]);
}

#[test]
fn an_unknown_key_of_set_names_the_nearest() {
    let base = ["sim", "--design", "native-4k", "--workload", SMALL, "--set"];
    refused(&[&base[..], &["os.page=2m"]].concat(), &["os.page", "did you mean", "pages"]);
    refused(&[&base[..], &["core.frequency=2.3"]].concat(), &["core.frequency", "2.3 GHz"]);
    refused(&[&base[..], &["os.pages"]].concat(), &["KEY=VALUE"]);
}

#[test]
fn a_wrong_design_file_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, "summary = \"mine\"\nextends = \"native-4k\"\n\n[translation]\nl2_tbl = 3\n")
        .unwrap();
    let path = path.to_str().unwrap();
    refused(&["design", "show", path], &["mine.toml:5", "l2_tbl"]);
}

#[test]
fn qemu_that_is_missing_is_one_message_with_the_command_to_fix_it() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("x.trace");
    // Only the program itself can be found.
    std::os::unix::fs::symlink("/bin/true", folder.path().join("true")).unwrap();
    let mut command = terrace();
    command.env("PATH", folder.path()).args(["record", "-o"]).arg(&trace).args(["--", "true"]);
    let message = stderr(&mut command, 2);
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("sudo apt-get install qemu-user"), "{message}");
    assert!(!trace.exists());
}

#[test]
fn set_changes_what_it_says() {
    let show = |set: &[&str]| {
        let shown = json(terrace().args(["design", "show", "native-4k", "--json", "-"]).args(set));
        let parameters = shown["parameters"].as_array().unwrap().clone();
        parameters.into_iter().find(|p| p["key"] == "os.pages").unwrap()
    };
    assert_eq!(show(&[])["value"].as_str().unwrap().trim_matches('"'), "4k");
    let changed = show(&["--set", "os.pages=2m"]);
    assert_eq!(changed["value"].as_str().unwrap().trim_matches('"'), "2m");
    assert!(changed["origin"].as_str().unwrap().contains("--set"));
}

#[test]
fn a_policy_shows_its_document_needs_and_parameters() {
    let shown = json(terrace().args(["policy", "show", "ambix", "--set", "period=4 s", "--json", "-"]));
    assert!(shown["document"].as_str().unwrap().contains("**Left open by the source.**"));
    assert!(shown["needs"].as_array().unwrap().iter().any(|need| need["name"] == "dirty-bits"));
    let parameter = |name: &str| {
        let parameters = shown["parameters"].as_array().unwrap();
        parameters.iter().find(|p| p["name"] == name).unwrap_or_else(|| panic!("no {name}")).clone()
    };
    assert_eq!(parameter("period")["value"], "4 s");
    assert_eq!(parameter("period")["default"], "2 s");
    let delay = parameter("delay");
    assert_eq!((&delay["source"], &delay["kind"]), (&"§5.2".into(), &"time".into()));
    assert_eq!(delay["range"], serde_json::json!({ "low": "0 s", "high": "18000 s" }));
    let text = stdout(terrace().args(["policy", "show", "ambix", "--set", "switch=false"]));
    assert!(stdout(terrace().args(["policy", "show", "oracle"])).contains("Needs a first pass"));
    assert!(text.contains("switch=false  (default true)") && !text.contains("traffic "), "{text}");
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("terrace"))
        .args(["design", "show", "native-4k"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Closed before a byte was read: whatever is written meets a broken pipe.
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn a_full_disk_is_said_and_fails_the_run() {
    let message = stderr(terrace().args(["workload", "list", "--json", "/dev/full"]), 1);
    assert!(message.contains("/dev/full"), "{message}");
    let message = stderr(terrace().args(["record", "--workload", SMALL, "-o", "/dev/full"]), 1);
    assert!(message.contains("/dev/full"), "{message}");
}

#[test]
fn verbosity_goes_to_stderr_only() {
    let mut command = terrace();
    command.args(["-vv", "sim", "--design", "native-4k", "--workload", SMALL, "--json", "-"]);
    let output = command.assert().success().get_output().clone();
    assert!(String::from_utf8_lossy(&output.stderr).contains("run begins"));
    serde_json::from_slice::<serde_json::Value>(&output.stdout).expect("standard output is JSON alone");
    let quiet = terrace().args(["workload", "list"]).assert().success().get_output().clone();
    assert!(quiet.stderr.is_empty());
}

#[test]
fn every_listing_fits_80_columns() {
    for arguments in [
        &["workload", "list"][..],
        &["workload", "show", "kv"],
        &["machine", "list"],
        &["design", "list"],
        &["design", "show", "native-4k"],
        &["design", "show", "trident"],
        &["machine", "show", "xeon-5218-dcpmm"],
        &["machine", "show", "zen4-cxl"],
        &["policy", "list"],
        &["policy", "show", "thermostat"],
        &["policy", "show", "numa-balancing"],
        &["policy", "show", "oracle"],
        &["reproduce", "list"],
        &["sim", "--design", "native-4k", "--workload", SMALL],
    ] {
        let text = stdout(terrace().args(arguments));
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{arguments:?}: {line}");
        }
    }
}
