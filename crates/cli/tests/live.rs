//! Live Linux from the command line, with a policy that moves nothing and needs nothing: it runs on any machine, as any
//! user.

mod common;
use common::{json, repository, stderr, stdout, terrace};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// `terrace run` of a command, in the background.
fn run(arguments: &[&str], command: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_terrace"))
        .args(["run", "--policy", "first-touch"])
        .args(arguments)
        .arg("--")
        .args(command)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Only keeps a broken test from hanging, and a machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(180);

fn wait_for_numbers(socket: &Path) {
    let deadline = Instant::now() + TIMEOUT;
    while terrace_live::server::status(socket).is_err() {
        assert!(Instant::now() < deadline, "no status");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn where_nothing_runs_top_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("none.sock");
    let message = stderr(terrace().args(["top", "--once", "--socket"]).arg(&socket), 1);
    assert!(message.contains("no Terrace is running there"), "{message}");
    // No process has such a number.
    let message = stderr(terrace().args(["top", "--once", "--pid", "4000000000"]), 1);
    for part in ["no Terrace is running as process 4000000000", "terrace run", "terrace attach"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_run_can_be_watched_paused_and_read_about() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, report) = (folder.path().join("s.sock"), folder.path().join("report"));
    let (socket_text, report_text) = (socket.to_str().unwrap(), report.to_str().unwrap());
    let arguments = [
        "--socket",
        socket_text,
        "--report",
        report_text,
        "--metrics",
        "127.0.0.1:0",
        "-v",
        "--log-format",
        "json",
    ];
    let child = run(&arguments, &["sleep", "1000"]);
    wait_for_numbers(&socket);
    let top = |arguments: &[&str]| {
        let mut command = terrace();
        command.args(["top", "--socket", socket_text]).args(arguments);
        command
    };

    let frame = stdout(&mut top(&["--once"]));
    for part in ["first-touch", "dram", "pgmigrate_success", "sleep"] {
        assert!(frame.contains(part), "no {part} in\n{frame}");
    }
    assert!(frame.lines().all(|line| line.chars().count() <= 80), "{frame}");
    let status = json(&mut top(&["--json", "-"]));
    assert_eq!((&status["schema"], &status["policy"]), (&1.into(), &"first-touch".into()));
    assert!(status["tiers"][0]["used"].as_u64().unwrap() > 0, "{status}");
    assert!(status["kernel"]["pgmigrate_success"].is_u64(), "{status}");
    let message = stderr(&mut top(&[]), 2);
    assert!(message.contains("needs a terminal"), "{message}");

    terrace_live::server::ask(&socket, "POST", "/pause").unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while json(&mut top(&["--json", "-"]))["state"] != "paused" {
        assert!(Instant::now() < deadline, "never paused");
    }
    let metrics = terrace_live::server::ask(&socket, "GET", "/metrics").unwrap();
    assert!(metrics.contains("terrace_state{state=\"paused\"} 1"), "{metrics}");

    // SAFETY: it is a child that was not waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    while json(&mut top(&["--json", "-"]))["state"] != "stopped" {
        assert!(Instant::now() < deadline, "never stopped");
    }
    assert!(stdout(&mut top(&["--once"])).contains("stopped: the command runs on"));

    let sleeper = i32::try_from(status["processes"][0]["pid"].as_u64().unwrap()).unwrap();
    // SAFETY: the process is a child of the one that this test has started and not yet waited for.
    unsafe { libc::kill(sleeper, libc::SIGTERM) };
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(128 + 15), "the command's own end\n{said}");
    assert!(!socket.exists(), "the socket is gone");

    let joined =
        said.lines().find(|line| line.contains("process joined")).unwrap_or_else(|| panic!("{said}"));
    let joined: serde_json::Value = serde_json::from_str(joined).unwrap();
    assert!(joined["pid"].is_u64() && joined["timestamp"].is_string(), "{joined}");
    for line in said.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        assert!(["timestamp", "level", "message"].iter().all(|key| line[key].is_string()), "{line}");
    }
    assert!(said.contains("metrics: http://127.0.0.1:"), "{said}");

    let results: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(report.join("results.json")).unwrap()).unwrap();
    let run = &results["runs"][0];
    assert_eq!(
        (&run["fidelity"], &run["design"], &run["input"]),
        (&"live".into(), &"first-touch".into(), &"sleep".into())
    );
    assert!(run["stats"]["tier"]["dram"]["mean_pages"].as_f64().unwrap() > 0.0, "{run}");
    assert!(run["stats"]["kernel"]["pgmigrate_success"].is_u64());
    let finding = results["conclusions"][0]["text"].as_str().unwrap();
    assert!(finding.starts_with("first-touch managed sleep for "), "{finding}");
    assert!(report.join("report.html").exists() && report.join("results.csv").exists());
}

/// A terminal of 80 columns and 24 lines: the side of whoever looks at it, and that of a program.
fn terminal() -> (File, OwnedFd) {
    let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let (mut ours, mut its) = (0, 0);
    // SAFETY: two integers are filled, the size is read; a name and settings are not asked for.
    let done =
        unsafe { libc::openpty(&mut ours, &mut its, null_mut(), null_mut(), &raw const size as *mut _) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both were just opened for this process alone.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(its)) }
}

/// The settings of a terminal, such as whether it echoes and waits for whole lines.
fn settings(terminal: &OwnedFd) -> [libc::tcflag_t; 4] {
    // SAFETY: plain numbers, for which zeros are allowed, are filled.
    let settings = unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &mut settings), 0);
        settings
    };
    [settings.c_iflag, settings.c_oflag, settings.c_cflag, settings.c_lflag]
}

/// Reads on until this was shown.
fn wait_for(ours: &mut File, shown: &mut String, part: &str) {
    let mut bytes = [0; 4096];
    while !shown.contains(part) {
        let mut ready = libc::pollfd { fd: ours.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, of a file that is open.
        let count = unsafe { libc::poll(&mut ready, 1, 20_000) };
        assert_eq!(count, 1, "no {part:?} within 20 s: {shown:?}");
        let count = ours.read(&mut bytes).unwrap();
        shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
}

#[test]
fn the_dashboard_gives_the_terminal_back_however_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s.sock");
    let mut managed = run(&["--socket", socket.to_str().unwrap()], &["sleep", "120"]);
    wait_for_numbers(&socket);
    let by_key: fn(&mut File, i32) = |ours, _| ours.write_all(b"q").unwrap();
    // SAFETY: the process is a child of this one that was not yet waited for.
    let by_signal: fn(&mut File, i32) = |_, pid| unsafe { assert_eq!(libc::kill(pid, libc::SIGTERM), 0) };
    for end in [by_key, by_signal] {
        let (mut ours, its) = terminal();
        let before = settings(&its);
        let side = || Stdio::from(its.try_clone().unwrap());
        let mut top = Command::new(env!("CARGO_BIN_EXE_terrace"))
            .args(["top", "--socket", socket.to_str().unwrap()])
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .unwrap();
        let mut shown = String::new();
        wait_for(&mut ours, &mut shown, "pgmigrate_success");
        assert!(shown.contains("\u{1b}[?1049h"), "on a screen of its own: {shown:?}");
        assert_ne!(settings(&its), before, "keys are read at once");
        end(&mut ours, top.id() as i32);
        wait_for(&mut ours, &mut shown, "\u{1b}[?1049l");
        assert!(top.wait().unwrap().success());
        assert_eq!(settings(&its), before);
    }
    let status = terrace_live::server::status(&socket).unwrap();
    // SAFETY: the process is a child of the one that this test has started and not yet waited for.
    unsafe { libc::kill(status.processes[0].pid as i32, libc::SIGTERM) };
    assert_eq!(managed.wait().unwrap().code(), Some(128 + 15), "what it had watched ran on");
}

#[test]
fn a_place_where_nobody_can_listen_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("file");
    std::fs::write(&taken, "mine").unwrap();
    let run = ["run", "--policy", "first-touch", "--socket", taken.to_str().unwrap(), "--", "true"];
    let message = stderr(terrace().args(run), 2);
    assert!(message.contains("cannot listen at") && message.contains("no socket"), "{message}");
    assert_eq!(std::fs::read_to_string(&taken).unwrap(), "mine");
}

#[test]
fn of_two_places_the_one_where_nobody_can_listen_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let run = ["run", "--policy", "first-touch", "--metrics", &address, "--", "true"];
    let message = stderr(terrace().args(run), 2);
    let said = format!("cannot listen at {address}, the address of the metrics: ");
    assert!(message.contains(&said) && !message.contains(".sock"), "{message}");
}

#[test]
fn a_program_s_name_forges_no_log_line() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("x\nERROR evil\u{1b}[2J");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let mut run = terrace();
    run.args(["run", "--policy", "first-touch", "-v", "--"]).arg(&program).arg("1");
    let said = stderr(&mut run, 0);
    assert!(said.contains("evil"), "{said}");
    assert!(said.lines().all(|line| !line.starts_with("ERROR")) && !said.contains('\u{1b}'), "{said}");
}

#[test]
fn a_socket_in_no_folder_is_refused_and_leaves_none() {
    let folder = tempfile::tempdir().unwrap();
    let none = folder.path().join("none");
    let socket = none.join("x.sock");
    let run = ["run", "--policy", "first-touch", "--socket", socket.to_str().unwrap(), "--", "true"];
    let message = stderr(terrace().args(run), 2);
    assert!(message.contains("cannot listen at") && message.contains("No such file"), "{message}");
    assert!(!none.exists());
}

/// With the words of `record`, and before anything is said of policies: without a name some machines have none.
#[test]
fn a_command_that_cannot_start_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let run = |options: &[&str], said: &str| {
        let message = stderr(terrace().arg("run").args(options).arg("--").arg(&program), 2);
        assert!(message.contains(&format!("program: {said}")) && message.lines().count() == 1, "{message}");
        assert!(!message.contains("os error") && !message.contains("policy"), "{message}");
    };
    run(&[], "no such program; give the path of an executable file");
    std::fs::create_dir(&program).unwrap();
    run(&[], "a directory, not a program");
    std::fs::remove_dir(&program).unwrap();
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    run(&[], "no permission to execute it; if it is a program, allow that with: chmod +x");
    let executable = |content: &[u8]| {
        std::fs::write(&program, content).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    executable(b"data");
    run(&["--policy", "first-touch"], "neither an x86-64 Linux program nor a script");
    // A processor for which nobody has registered an emulator.
    let mut other = std::fs::read("/proc/self/exe").unwrap();
    other.truncate(4096);
    other[18] = 22;
    executable(&other);
    run(
        &["--policy", "first-touch"],
        "built for another processor (ELF machine 22); Terrace takes x86-64 programs",
    );
}

/// A process of others is refused at once, not after the time is over. Root's own rights are laid down for the time of the
/// command.
#[test]
fn processes_of_others_are_refused_at_the_first_look() {
    // SAFETY: asks a number.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let program = folder.path().join("terrace");
    std::fs::copy(env!("CARGO_BIN_EXE_terrace"), &program).unwrap();
    let mut process = Command::new("sleep").arg("600").spawn().unwrap();
    for option in ["--pid", "--tree"] {
        let mut command = Command::new(&program);
        command.args(["attach", "--policy", "first-touch", "--seconds", "120", option]);
        command.arg(process.id().to_string());
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
        let begun = Instant::now();
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{option}: {said}");
        assert!(said.contains("none of the processes could be looked into; Terrace needs root"), "{said}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{option}: {:?}", begun.elapsed());
    }
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn the_longest_time_that_can_be_named_is_for_ever() {
    let longest = u64::MAX.to_string();
    stderr(terrace().args(["run", "--policy", "first-touch", "--seconds", &longest, "--", "true"]), 0);
    let mut process = Command::new("sleep").arg("1").spawn().unwrap();
    let pid = process.id().to_string();
    let attach = ["attach", "--policy", "first-touch", "--seconds", "9223372036854775807", "--pid", &pid];
    // Somebody has to wait for the process, or it never ends.
    let waits = std::thread::spawn(move || process.wait().unwrap());
    let output = terrace().args(attach).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("panicked") && output.status.code().is_some_and(|code| code < 2), "{said}");
    waits.join().unwrap();
}

#[test]
fn a_run_that_is_to_stop_lets_its_command_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s.sock");
    let arguments = ["--seconds", "1", "--socket", socket.to_str().unwrap()];
    // Ends when its input does.
    let mut run = Command::new(env!("CARGO_BIN_EXE_terrace"))
        .args(["run", "--policy", "first-touch"])
        .args(arguments)
        .args(["--", "sh", "-c", "read line; exit 7"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + TIMEOUT;
    let stopped = || {
        let status = terrace_live::server::status(&socket);
        status.is_ok_and(|status| status.state == terrace_live::engine::State::Stopped)
    };
    while !stopped() {
        assert!(Instant::now() < deadline, "it does not stop");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(run.try_wait().unwrap().is_none(), "the command runs on");
    run.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(7));
}

#[test]
fn a_process_that_has_ended_is_not_said_to_need_root() {
    let mut zombie = Command::new("true").spawn().unwrap();
    let pid = zombie.id();
    let deadline = Instant::now() + TIMEOUT;
    while !std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z ") {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
    let message = stderr(terrace().args(["attach", "--policy", "first-touch", "--pid", &pid.to_string()]), 2);
    assert!(message.contains("has ended") && !message.contains("needs root"), "{message}");
    zombie.wait().unwrap();
    if let Ok(name) = std::fs::read_to_string("/proc/2/comm")
        && name.trim() == "kthreadd"
    {
        let message = stderr(terrace().args(["attach", "--policy", "first-touch", "--pid", "2"]), 2);
        assert!(message.contains("thread of the kernel"), "{message}");
    }
}

#[test]
fn the_units_sandbox_is_a_tight_one() {
    let unit = repository().join("packaging/terrace@.service");
    let mut analyze = Command::new("systemd-analyze");
    // Tenths: 2.5.
    analyze.args(["security", "--offline=true", "--no-pager", "--threshold=25"]).arg(unit);
    match analyze.output() {
        Ok(output) => {
            let said = [output.stdout, output.stderr]
                .map(|said| String::from_utf8_lossy(&said).into_owned())
                .concat();
            // Older ones know no such options.
            let is_known = !said.contains("unrecognized option");
            assert!(!is_known || output.status.success(), "{said}");
        }
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "machines without systemd are fine")
        }
    }
}

#[test]
fn the_unit_is_one_that_systemd_takes() {
    let folder = tempfile::tempdir().unwrap();
    let unit = std::fs::read_to_string(repository().join("packaging/terrace@.service")).unwrap();
    // The examples name the unit itself: Debian's redis.service is an alias, and an alias and its unit have a Terrace each.
    for file in ["packaging/terrace@.service", "packaging/build", "docs/src/live.md"] {
        let text = std::fs::read_to_string(repository().join(file)).unwrap();
        let [all, own] = ["terrace@redis", "terrace@redis-server"].map(|name| text.matches(name).count());
        assert!(own > 0 && all == own, "{file}");
    }
    // Programs of units have to exist.
    let unit = unit.replace("/usr/local/bin/terrace", "/bin/true");
    std::fs::write(folder.path().join("terrace@.service"), unit).unwrap();
    std::fs::write(folder.path().join("redis-server.service"), "[Service]\nExecStart=/bin/true\n").unwrap();
    let instance = folder.path().join("terrace@redis-server.service");
    std::os::unix::fs::symlink("terrace@.service", &instance).unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]).arg(&instance);
    verify.env("SYSTEMD_UNIT_PATH", format!("{}:", folder.path().display()));
    match verify.output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && !said.contains("terrace@"), "{said}");
        }
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "machines without systemd are fine")
        }
    }
}

/// The pages of a process's own memory, and the runs of them in frames in a row, counted here; none where frames are hidden.
fn recount(pid: u32) -> Option<(u64, u64)> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).ok()?;
    let (mut pages, mut runs) = (0, 0);
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let of_the_kernel = words.get(5).is_some_and(|name| name.starts_with("[v"));
        // Without a file: its inode is 0.
        if words[4] != "0" || of_the_kernel {
            continue;
        }
        let (first, end) = words[0].split_once('-').unwrap();
        let [first, end] = [first, end].map(|addr| u64::from_str_radix(addr, 16).unwrap() / 4096);
        let mut before = None;
        for page in first..end {
            let mut entry = [0; 8];
            std::os::unix::fs::FileExt::read_exact_at(&pagemap, &mut entry, page * 8).unwrap();
            let entry = u64::from_le_bytes(entry);
            let frame = (entry >> 63 == 1).then_some(entry & ((1 << 55) - 1));
            if frame == Some(0) {
                return None;
            }
            pages += u64::from(frame.is_some());
            runs += u64::from(frame.is_some() && before.map(|before| before + 1) != frame);
            before = frame;
        }
    }
    Some((pages, runs))
}

/// Frame numbers are for who may see them (CAP_SYS_ADMIN); everybody else gets a message that says so.
#[test]
fn contiguity_counts_the_runs_of_a_process() {
    let mut process = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = process.id();
    // Until it is in its sleep, its memory grows.
    let asleep = || std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    let begun = Instant::now();
    while !asleep().contains("nanosleep") && begun.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = terrace().args(["contiguity", &pid.to_string(), "--json", "-"]).output().unwrap();
    let expected = recount(pid);
    process.kill().unwrap();
    process.wait().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let Some((pages, regions)) = expected else {
        assert!(!output.status.success() && said.contains("run as root"), "{said}");
        return;
    };
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let sample = &document["samples"][0];
    assert_eq!((&sample["pages"], &sample["regions"]), (&pages.into(), &regions.into()), "{said}");
    let [of_32, of_128] = ["coverage_32", "coverage_128"].map(|key| sample[key].as_f64().unwrap());
    assert!(0.0 < of_32 && of_32 <= of_128 && of_128 <= 1.0, "{sample}");
    assert!(regions > 32 || of_32 == 1.0, "{sample}");
}

/// A user who may not look gets a message that says who may. Root's own rights are laid down for the time of the command.
#[test]
fn contiguity_says_who_may() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let program = folder.path().join("terrace");
    std::fs::copy(env!("CARGO_BIN_EXE_terrace"), &program).unwrap();
    let mut command = Command::new(program);
    command.args(["contiguity", "--pid", &std::process::id().to_string()]);
    // SAFETY: asks a number.
    if unsafe { libc::geteuid() } == 0 {
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("run as root"), "{said}");
}
