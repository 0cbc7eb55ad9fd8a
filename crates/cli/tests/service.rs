//! Terrace as a service: priorities of its lines, what it tells the service manager, and services as targets. Stand-ins
//! take the part of systemd; the scenario `unit` has a real one.

mod common;
use common::{send, stderr, terrace, wait_until};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What a command writes to standard error where that is a file, and the exit code. With `named` the environment says that
/// this file is the journal, or else that another one is.
fn said(arguments: &[&str], named: bool) -> (String, Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    let [path, other] = ["said", "other"].map(|name| folder.path().join(name));
    let file = File::create(&path).unwrap();
    let journal = if named { file.metadata() } else { File::create(&other).unwrap().metadata() }.unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_terrace"))
        .args(arguments)
        .env("JOURNAL_STREAM", format!("{}:{}", journal.dev(), journal.ino()))
        .env_remove("TERRACE_LOG")
        .env_remove("NOTIFY_SOCKET")
        .stdout(Stdio::null())
        .stderr(file)
        .status()
        .unwrap();
    (std::fs::read_to_string(&path).unwrap(), status.code())
}

/// The priorities of lines, each at its first appearance.
fn priorities(said: &str) -> Vec<&str> {
    let mut found: Vec<&str> = said.lines().map(|line| line.get(..3).unwrap_or(line)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn in_the_journal_lines_have_priorities_and_elsewhere_none() {
    let run = ["run", "--policy", "first-touch", "-v", "--", "sleep", "1"];
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cgroup.procs"), "").unwrap();
    let group = folder.path().to_str().unwrap();
    let nothing = ["attach", "--policy", "first-touch", "--seconds", "1", "--cgroup", group];
    let no_process = ["attach", "--policy", "first-touch", "--pid", "4000000000"];
    let no_option = ["attach", "--no-such-option"];
    for (arguments, code, expected) in [
        (&run[..], 0, &["<6>"][..]),
        // Waits for a process, and has seen none.
        (&nothing, 1, &["<3>", "<4>"]),
        (&no_process, 2, &["<3>"]),
        // Several lines, by the parser of options.
        (&no_option, 2, &["<3>"]),
    ] {
        let (lines, status) = said(arguments, true);
        let mut found = priorities(&lines);
        // Where no socket can be made, a warning says so.
        found.retain(|one| *one != "<4>" || expected.contains(one));
        assert_eq!((status, &found[..]), (Some(code), expected), "{lines}");
        let (plain, status) = said(arguments, false);
        assert_eq!(status, Some(code), "{plain}");
        assert!(plain.lines().all(|line| !line.starts_with('<')), "{plain}");
    }
    let (lines, _) = said(&no_option, true);
    assert!(lines.lines().count() > 2 && lines.starts_with("<3>error: unexpected argument"), "{lines}");
    let (lines, _) = said(&["attach", "--pid", "4000000000", "--log-format", "json"], true);
    let line: serde_json::Value = serde_json::from_str(lines.trim().strip_prefix("<3>").unwrap()).unwrap();
    assert_eq!(
        (&line["level"], &line["message"]),
        (&"ERROR".into(), &"there is no process 4000000000".into())
    );
    // Help is no error, and goes to standard output.
    assert_eq!(said(&["attach", "--help"], true), (String::new(), Some(0)));
}

/// `terrace attach` to a process, with a service manager that listens at `manager`.
fn attach(pid: &str, manager: &Path, said: Stdio) -> Child {
    Command::new(env!("CARGO_BIN_EXE_terrace"))
        .args(["attach", "--policy", "first-touch", "--pid", pid])
        .env("NOTIFY_SOCKET", manager)
        .stderr(said)
        .spawn()
        .unwrap()
}

#[test]
fn a_service_manager_is_notified_when_the_management_begins_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_nonblocking(true).unwrap();
    let mut reported = Vec::new();
    let mut receive = |last: &str| {
        wait_until(last, || {
            let mut bytes = [0; 4096];
            while let Ok(length) = manager.recv(&mut bytes) {
                reported.push(String::from_utf8(bytes[..length].to_vec()).unwrap());
            }
            reported.iter().any(|message| message.starts_with(last))
        });
        std::mem::take(&mut reported)
    };

    let mut process = Command::new("sleep").arg("600").spawn().unwrap();
    let mut attached = attach(&process.id().to_string(), &path, Stdio::null());
    let begun = receive("STATUS=first-touch: ");
    assert_eq!(begun[..2], ["STATUS=setting up", "READY=1"]);
    assert_eq!(begun[2..], ["STATUS=first-touch: 1 process, 0.0 MiB promoted, 0.0 MiB demoted"]);
    send(&attached, libc::SIGTERM);
    assert_eq!(receive("STATUS=putting back")[..1], ["STOPPING=1"]);
    assert!(attached.wait().unwrap().success());
    process.kill().unwrap();
    process.wait().unwrap();

    // What cannot be managed never is ready, and the status has the reason.
    let output = attach("4000000000", &path, Stdio::piped()).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(receive("STATUS=there"), ["STATUS=setting up", "STATUS=there is no process 4000000000"]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "terrace: there is no process 4000000000\n");
}

#[test]
fn services_are_asked_for_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("systemctl");
    // Answers for every unit as systemd 252 does for one that there is not. Another process writes the program: a file that
    // this one had open for writing could not be executed while another test forks.
    let script = "printf '#!/bin/sh\nfor name; do :; done\n\
                  printf \"Id=%%s.service\\\\nLoadState=not-found\\\\nActiveState=inactive\\\\nControlGroup=\\\\n\" $name\n' >\"$1\"\n\
                  chmod 755 \"$1\"";
    assert!(Command::new("sh").args(["-c", script, "sh"]).arg(&program).status().unwrap().success());
    let attach = |path: &str, arguments: &[&str]| {
        let mut command = terrace();
        command.env("PATH", path).args(["attach", "--policy", "first-touch"]).args(arguments);
        command
    };
    let here = format!("{}:/usr/bin:/bin", folder.path().display());
    let message = stderr(&mut attach(&here, &["--service", "absent"]), 2);
    assert!(message.starts_with("terrace: there is no service absent.service; "), "{message}");
    // --offload is for what has a control group.
    let message = stderr(&mut attach(&here, &["--service=absent", "--offload"]), 2);
    assert!(message.starts_with("terrace: there is no service absent.service; "), "{message}");
    let message = stderr(&mut attach(&here, &["--service=a", "--cgroup=/sys/fs/cgroup"]), 2);
    assert!(message.contains("cannot be used with"), "{message}");
    let message = stderr(&mut attach("/nowhere", &["--service", "a"]), 1);
    assert!(message.contains("there is no systemctl here") && message.contains("--cgroup"), "{message}");
}
