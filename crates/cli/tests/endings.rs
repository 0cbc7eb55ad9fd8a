//! How live commands end: whose exit code counts, what a signal or a terminal that has gone leaves, what a command leaves
//! behind, and what is no process. With a policy that moves nothing, as any user.

mod common;
use common::{json, send, stderr, stdout, terrace, wait_until};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// `terrace run` of a shell's command, in the background.
fn run(arguments: &[&str], command: &str) -> Command {
    let mut terrace = Command::new(env!("CARGO_BIN_EXE_terrace"));
    terrace.args(["run", "--policy", "first-touch"]).args(arguments).args(["--", "sh", "-c", command]);
    terrace.stdout(Stdio::null()).stderr(Stdio::null());
    terrace
}

/// Ends Terrace and its command.
fn end(child: &mut Child) {
    wait_until("the command has ended", || {
        // The first one ends the management, whenever it comes; each later one asks the command.
        send(child, libc::SIGTERM);
        std::thread::sleep(Duration::from_millis(300));
        child.try_wait().unwrap().is_some()
    });
}

/// Waits until a file is there, which a command makes when it has begun.
fn wait_for(file: &Path) {
    wait_until(&format!("{} is there", file.display()), || file.exists());
}

#[test]
fn a_terminal_that_has_gone_leaves_results_and_no_socket() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let arguments = ["--json", &at("x.json"), "--socket", &at("x.sock")];
    let mut child = run(&arguments, &format!("touch {}; sleep 2", at("begun"))).spawn().unwrap();
    wait_for(&folder.path().join("begun"));
    wait_for(&folder.path().join("x.sock"));
    send(&child, libc::SIGHUP);
    assert_eq!(child.wait().unwrap().code(), Some(0), "the command goes on to its end");
    assert!(folder.path().join("x.json").exists() && !folder.path().join("x.sock").exists());
}

#[test]
fn where_hangups_are_ignored_they_stay_so() {
    let folder = tempfile::tempdir().unwrap();
    let begun = folder.path().join("begun");
    let socket = folder.path().join("x.sock");
    let command = format!("touch {}; exec sleep 1000", begun.display());
    let mut nohup = Command::new("nohup");
    nohup
        .arg(env!("CARGO_BIN_EXE_terrace"))
        .args(["run", "--policy", "first-touch", "--socket"])
        .arg(&socket);
    nohup.args(["--", "sh", "-c", &command]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = nohup.spawn().unwrap();
    wait_for(&begun);
    send(&child, libc::SIGHUP);
    wait_until("numbers come", || terrace_live::server::status(&socket).is_ok());
    std::thread::sleep(Duration::from_secs(1));
    let state = terrace_live::server::status(&socket).unwrap().state;
    assert_ne!(state, terrace_live::engine::State::Stopped, "it goes on");
    end(&mut child);
}

#[test]
fn a_second_request_ends_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let begun = folder.path().join("begun");
    let command = format!("touch {}; exec sleep 1000", begun.display());
    let mut child = run(&[], &command).spawn().unwrap();
    wait_for(&begun);
    end(&mut child);
    assert_eq!(child.wait().unwrap().code(), Some(128 + libc::SIGTERM));
}

#[test]
fn a_reader_that_has_gone_takes_nothing_from_the_exit_code() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = run(&["--json", "-"], "exit 5");
    assert_eq!(child.stdout(writer).status().unwrap().code(), Some(5));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut child = run(&["--json", "-"], "exit 5");
    assert_eq!(child.stdout(full).status().unwrap().code(), Some(5));
}

/// Pages in use in all tiers, on average over the run.
fn mean_pages(document: &serde_json::Value) -> f64 {
    let entries = document["statistics"]["entries"].as_object().unwrap();
    let means = entries.iter().filter(|(name, _)| name.starts_with("tier.") && name.ends_with(".mean_pages"));
    let means: Vec<f64> = means.map(|(_, entry)| entry["value"].as_f64().unwrap()).collect();
    assert!(!means.is_empty());
    means.iter().sum()
}

#[test]
fn what_a_command_leaves_behind_is_managed() {
    let behind = "import time; held = bytearray(30 << 20); time.sleep(4)";
    let command = format!("(setsid python3 -c '{behind}' &) ; exit 0");
    let mut terrace = terrace();
    terrace.args(["run", "--policy", "first-touch", "--json", "-", "--", "sh", "-c", &command]);
    let pages = mean_pages(&json(&mut terrace));
    // The Python behind has 30 MiB, 7,680 pages, for most of the time; the shell has some hundred, for a moment.
    assert!(pages > 1000.0, "{pages}");
}

#[test]
fn memory_in_use_is_the_command_s_however_short_it_runs() {
    for command in ["true", "sleep 1"] {
        let mut terrace = terrace();
        terrace.args(["run", "--policy", "first-touch", "--json", "-", "--", "sh", "-c", command]);
        let pages = mean_pages(&json(&mut terrace));
        assert!(pages < 10_000.0, "{command}: {pages} pages");
    }
}

#[test]
fn a_dry_run_leaves_the_commands_memory_policy() {
    let maps = |more: &[&str]| {
        let mut terrace = terrace();
        terrace.args(["run", "--policy", "interleave"]).args(more);
        stdout(terrace.args(["--", "cat", "/proc/self/numa_maps"]))
    };
    assert!(maps(&[]).contains("interleave"));
    let dry = maps(&["--dry-run"]);
    assert!(!dry.contains("interleave") && dry.contains("default"), "{dry}");
}

#[test]
fn a_thread_is_no_process() {
    let thread = std::thread::spawn(|| {
        // SAFETY: takes nothing and gives a number.
        let number = unsafe { libc::syscall(libc::SYS_gettid) }.to_string();
        let own = format!("is a thread of process {}", std::process::id());
        for arguments in
            [&["attach", "--policy", "first-touch", "--pid", &number][..], &["contiguity", &number]]
        {
            let message = stderr(terrace().args(arguments), 2);
            assert!(message.contains(&own), "{message}");
        }
    });
    thread.join().unwrap();
}

#[test]
fn contiguity_of_no_process_is_an_error_of_the_user_s() {
    let said = stderr(terrace().args(["contiguity", "--pid", "4194304"]), 2);
    assert!(said.contains("there is no process 4194304"), "{said}");
}

#[test]
fn an_input_without_a_region_is_not_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("plain.trace"), "R 1000 8\nW 2000 8\n").unwrap();
    for question in [
        &["sim", "--design", "native-4k"][..],
        &["compare", "native-4k", "native-2m", "-o", "c"],
        &["advise", "--policies", "first-touch"],
        &["advise", "--pages"],
        &["tune", "nimble", "--runs", "1"],
    ] {
        let mut command = terrace();
        command.current_dir(folder.path()).args(question).args(["--fast-forward", "--trace", "plain.trace"]);
        let output = command.output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap().replace('\n', " ");
        assert!(
            message.contains("this input marks none: leave --fast-forward out"),
            "{question:?}: {message}"
        );
        assert!(!output.status.success(), "{question:?}");
    }
}
