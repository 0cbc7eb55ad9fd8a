//! Real programs through the whole path. Needs `qemu-x86_64`; `scripts/test` installs it.

mod common;
use common::{json, stderr, stdout, terrace};

#[test]
fn a_program_is_recorded_and_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("sort.trace");
    let words = folder.path().join("words");
    std::fs::write(&words, "pear\napple\nfig\n").unwrap();
    let sorted = stdout(terrace().args(["record", "-o"]).arg(&trace).args(["--", "sort"]).arg(&words));
    assert_eq!(sorted, "apple\nfig\npear\n", "standard output is the program's");
    let info = json(terrace().args(["trace", "info", "--json", "-"]).arg(&trace));
    assert_eq!(info["header"]["program"], "sort");
    assert_eq!(info["header"]["origin"], "recorded");
    assert!(info["totals"]["accesses"].as_u64().unwrap() > 10_000);
    let run = json(terrace().args(["sim", "--design", "native-4k", "--json", "-", "--trace"]).arg(&trace));
    assert_eq!(run["runs"][0]["accesses"], info["totals"]["accesses"]);
}

#[test]
fn a_program_streams_into_a_comparison_without_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = terrace();
    command.current_dir(folder.path());
    command.args(["compare", "native-4k", "native-thp", "vivt", "--", "sh", "-c", "echo hello"]);
    command.env("XDG_DATA_HOME", folder.path().join("data"));
    let ended = command.output().unwrap();
    let (text, said) = (String::from_utf8(ended.stdout).unwrap(), String::from_utf8(ended.stderr).unwrap());
    assert!(ended.status.success() && text.contains("hello") && text.contains("native-thp"), "{text}{said}");
    let next = "simulated on zen4-cxl; for this one run `terrace calibrate`, then add --machine here";
    assert!(said.contains(next), "{said}");
    let content = std::fs::read_to_string(folder.path().join("terrace-compare/results.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&content).unwrap();
    let accesses: Vec<_> = document["runs"].as_array().unwrap().iter().map(|run| &run["accesses"]).collect();
    assert_eq!(accesses.len(), 3);
    assert!(accesses.iter().all(|n| *n == accesses[0]), "all designs saw the same run: {accesses:?}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["terrace-compare"], "no trace was written");
}

/// The simulated time of a program of C with these arguments, in cycles.
fn cycles(program: &std::path::Path, arguments: &[&str]) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("a.trace");
    terrace().args(["record", "-o"]).arg(&trace).arg("--").arg(program).args(arguments).assert().success();
    let run = json(terrace().args(["sim", "--design", "native-4k", "--json", "-", "--trace"]).arg(&trace));
    run["runs"][0]["cycles"].as_u64().unwrap()
}

#[test]
fn what_waits_for_something_is_simulated_after_it() {
    const PROGRAM: &str = r#"
        #include <pthread.h>
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static void work(long n) { for (volatile long i = 0; i < n; i++) {} }
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static long turn;
        static void *turns(void *unused) {
            for (int i = 0; i < 10; i++) {
                pthread_mutex_lock(&lock);
                work(turn);
                pthread_mutex_unlock(&lock);
            }
            return 0;
        }
        int main(int count, char **arguments) {
            long of_child = atol(arguments[1]), of_parent = atol(arguments[2]);
            int threads = atoi(arguments[3]);
            pthread_t all[4];
            if (threads == 0) {
                if (!fork()) { work(of_child); _exit(0); }
                wait(0);
                work(of_parent);
            }
            turn = of_parent;
            for (int i = 0; i < threads; i++) pthread_create(&all[i], 0, turns, 0);
            for (int i = 0; i < threads; i++) pthread_join(all[i], 0);
            return 0;
        }
    "#;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("waits");
    common::compile(&program, PROGRAM, &["-O1", "-pthread"]);
    let idle = cycles(&program, &["0", "0", "0"]);
    let (child, parent) = (cycles(&program, &["500000", "0", "0"]), cycles(&program, &["0", "500000", "0"]));
    let both = cycles(&program, &["500000", "500000", "0"]);
    let (sum, longer) = (child + parent - idle, child.max(parent));
    assert!(both * 10 > sum * 9 && both < sum * 11 / 10, "{both}: the sum is {sum}, side by side {longer}");
    let (one, four) = (cycles(&program, &["0", "60000", "1"]), cycles(&program, &["0", "60000", "4"]));
    let work = one - idle;
    assert!(work > idle, "{work} {idle}");
    assert!(four > 3 * work, "four threads under one lock take {four}, of which one has {work}");
}

#[test]
fn a_program_runs_natively_and_in_a_virtual_machine() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = terrace();
    command.current_dir(folder.path());
    let program = ["--", "sh", "-c", "echo hello"];
    let text = stdout(command.args(["compare", "native-2m", "virtual-2m", "--no-intervals"]).args(program));
    let head = text.lines().find(|line| line.contains("guest refs")).expect("a table of virtual machines");
    assert!(head.contains("host refs") && head.contains("exits") && head.contains("interr"), "{head}");
    let content = std::fs::read_to_string(folder.path().join("terrace-compare/results.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&content).unwrap();
    let of_run = |run: usize, name: &str| {
        document["runs"][run]["stats"].pointer(name).and_then(|value| value.as_u64())
    };
    assert!(of_run(1, "/walk/host_refs").is_some_and(|references| references > 0), "walks in two dimensions");
    assert!(of_run(1, "/host/ept_violations").is_some_and(|violations| violations > 0));
    assert_eq!(of_run(0, "/walk/host_refs"), None, "no second dimension natively");
}

#[test]
fn a_program_that_fails_is_said_and_its_trace_kept() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("false.trace");
    let message = stderr(terrace().args(["record", "-o"]).arg(&trace).args(["--", "sh", "-c", "exit 3"]), 1);
    assert!(message.contains("exit status: 3") && message.contains("kept"), "{message}");
    terrace().args(["trace", "verify"]).arg(&trace).assert().success();
}

#[test]
fn the_limit_ends_the_recording_and_on_request_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("loop.trace");
    let mut command = terrace();
    command.args(["record", "--limit", "1e6", "--end-at-limit", "-o"]).arg(&trace);
    command.args(["--", "sh", "-c", "while :; do :; done"]);
    // The program was ended by us, so how it ended is no failure.
    command.assert().success();
    let info = json(terrace().args(["trace", "info", "--json", "-"]).arg(&trace));
    assert_eq!(info["totals"]["accesses"], 1_000_000);
}

/// A job of six steps that execute programs. It says what went wrong in `errors`, and writes `done` at its end.
const JOB: &str = "exec 2>errors; for step in 1 2 3 4 5 6; do \
                   seq 1 2000 | sort -rn | head -n $step >result$step || echo step $step failed >&2; done; touch done";

fn assert_job_done(folder: &std::path::Path) {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(read("errors"), "");
    for step in 1..=6 {
        let expected: String = (0..step).map(|i| format!("{}\n", 2000 - i)).collect();
        assert_eq!(read(&format!("result{step}")), expected);
    }
    assert!(folder.join("done").exists(), "terrace waits for the program");
}

/// Works for every user; a disk that is full is the same to the recorder.
#[test]
fn a_trace_that_nobody_takes_any_more_does_the_program_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let script = "mkfifo x.trace && { head -c 3000 x.trace >/dev/null & } && \
                  exec \"$0\" record -o x.trace -- bash -c \"$1\"";
    let mut command = assert_cmd::Command::new("bash");
    command.current_dir(folder.path()).args(["-c", script]);
    command.arg(assert_cmd::cargo::cargo_bin("terrace")).arg(JOB);
    // A reader that has seen enough is no failure.
    let message = stderr(&mut command, 0);
    assert!(message.contains("the recording ends here"), "{message}");
    assert_job_done(folder.path());
}

/// Needs a mount namespace: root, or user namespaces for others.
#[test]
fn a_full_disk_does_the_program_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("disk")).unwrap();
    // SAFETY: this call cannot fail.
    let options: &[&str] = if unsafe { libc::geteuid() } == 0 { &["-m"] } else { &["-Urm"] };
    let mount = "mount -t tmpfs -o size=64k none disk";
    let run = |script: &str| {
        let mut command = assert_cmd::Command::new("unshare");
        command.current_dir(folder.path()).args(options).args(["bash", "-c", script]);
        command.arg(assert_cmd::cargo::cargo_bin("terrace")).arg(JOB);
        command
    };
    if !run(mount).output().unwrap().status.success() {
        eprintln!("not tested: mounting in a namespace is not allowed here");
        return;
    }
    let record = format!("{mount} && exec \"$0\" record -o disk/x.trace -- bash -c \"$1\"");
    let message = stderr(&mut run(&record), 1);
    assert!(message.contains("No space left on device (os error 28)"), "{message}");
    assert!(message.contains("; free some space, or write to another disk"), "{message}");
    assert_eq!(message.matches("No space left").count(), 1, "{message}");
    assert_job_done(folder.path());
}

#[test]
fn a_simulated_machine_without_memory_does_the_program_no_harm() {
    for simulate in [&["sim", "--design", "first-touch"][..], &["compare", "first-touch", "ambix"]] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = terrace();
        command.current_dir(folder.path()).args(simulate);
        for small in ["tier.dram.capacity=\"3 MiB\"", "tier.cxl.capacity=\"1 MiB\"", "os.reserved=\"2 MiB\""]
        {
            command.args(["--set", small]);
        }
        command.args(["--", "bash", "-c", JOB]);
        let message = stderr(&mut command, 1);
        assert!(message.contains("memory"), "{message}");
        assert_job_done(folder.path());
    }
}

#[test]
fn a_program_is_not_started_where_its_trace_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    for (output, code, said) in
        [("no/such/folder/x.trace", 1, "No such file"), ("-", 2, "belongs to the recorded program")]
    {
        let mut command = terrace();
        command.current_dir(folder.path()).args(["record", "-o", output, "--", "touch", "started"]);
        let message = stderr(&mut command, code);
        assert!(message.contains(said), "{message}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_workload_is_recorded_to_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("x.trace");
    let output = terrace().args(["record", "-o", "-", "--workload", common::SMALL]).output().unwrap();
    assert!(output.status.success());
    std::fs::write(&trace, output.stdout).unwrap();
    terrace().args(["trace", "verify"]).arg(&trace).assert().success();
}

#[test]
fn why_a_program_cannot_be_recorded_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let record = |said: &str| {
        let mut command = terrace();
        command.args(["record", "-o"]).arg(folder.path().join("x.trace")).arg("--").arg(&program);
        let message = stderr(&mut command, 2);
        assert!(message.contains(said), "{message}");
    };
    std::fs::create_dir(&program).unwrap();
    record("a directory, not a program");
    std::fs::remove_dir(&program).unwrap();
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    record(&format!(
        "no permission to execute it; if it is a program, allow that with: chmod +x {}",
        program.display()
    ));
    let mut arm = std::fs::read("/proc/self/exe").unwrap();
    arm.truncate(4096);
    for (number, name) in [(3, "i386"), (183, "arm64")] {
        arm[18] = number;
        std::fs::write(&program, &arm).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        record(&format!("built for another processor ({name})"));
        record(
            "build it with cc -m64 on an x86-64 machine, or with x86_64-linux-gnu-gcc (package gcc-x86-64-linux-gnu)",
        );
    }
    std::fs::remove_file(&program).unwrap();
    common::compile(&program, "int main(void) { return 0; }\n", &["-fsanitize=address"]);
    record("AddressSanitizer");
}

#[test]
fn a_directory_by_its_name_alone_is_no_missing_program() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("parts")).unwrap();
    for name in [".", "parts"] {
        let mut command = terrace();
        command.current_dir(folder.path()).args(["record", "-o", "x.trace", "--", name]);
        let message = stderr(&mut command, 2);
        assert!(message.contains(&format!("{name}: a directory, not a program")), "{message}");
    }
}

#[test]
fn a_recording_without_an_access_says_why() {
    let folder = tempfile::tempdir().unwrap();
    for (options, said) in [
        (
            &["--region"][..],
            "true: no access was recorded: --region keeps what lies between the program's markers",
        ),
        (&["--skip", "1e12"], "true: no access was recorded: --skip leaves out the first 1000000000000"),
    ] {
        let mut command = terrace();
        command
            .current_dir(folder.path())
            .args(["record", "-o", "x.trace"])
            .args(options)
            .args(["--", "true"]);
        let message = stderr(&mut command, 1);
        assert!(message.contains(said) && message.contains(" 0 accesses"), "{message}");
        assert!(message.contains("; the trace is kept"), "{message}");
        // Simulations of such a recording have no result either.
        for simulation in
            [&["sim", "--design", "native-4k"][..], &["compare", "native-4k", "native-2m", "-o", "c"]]
        {
            let mut command = terrace();
            command.current_dir(folder.path()).args(simulation).args(options).args(["--", "true"]);
            assert!(stderr(&mut command, 1).contains(said));
        }
    }
}

#[test]
fn an_answer_about_a_program_that_failed_ends_with_1() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["advise", "--policies", "first-touch", "--seeds", "1", "--no-intervals"][..],
        &["advise", "--pages", "--policies", "thp", "--no-intervals"],
        &["tune", "nimble", "--runs", "1", "--parameter", "period"],
    ] {
        let mut command = terrace();
        command.current_dir(folder.path()).args(arguments).args(["--json", "answer.json"]);
        let ended = command.args(["--limit", "1e5", "--", "sh", "-c", "exit 3"]).output().unwrap();
        let (text, said) =
            (String::from_utf8(ended.stdout).unwrap(), String::from_utf8(ended.stderr).unwrap());
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}: {text}{said}");
        assert!(text.contains("zen4-cxl"), "the answer is shown: {text}{said}");
        assert!(
            said.ends_with("the input ended badly: sh ended with exit status: 3\n"),
            "{arguments:?}: {said}"
        );
        let answer = std::fs::read_to_string(folder.path().join("answer.json")).unwrap();
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["trouble"], "sh ended with exit status: 3");
    }
}

#[test]
fn a_program_that_is_run_for_a_comparison_and_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let compare = |arguments: &[&str]| {
        let mut command = terrace();
        command.current_dir(folder.path()).args(["compare", "native-4k", "native-2m"]).args(arguments);
        let message = stderr(&mut command, 2);
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "{arguments:?} wrote something");
        message
    };
    let message = compare(&["--", "./nosuch"]);
    assert!(message.contains("./nosuch: no such program"), "{message}");
    let message = compare(&["--"]);
    assert!(message.contains("no command stands after --"), "{message}");
}

#[test]
fn a_program_that_is_recorded_without_its_privileges_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("program");
    // SAFETY: this call cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let program = if is_root {
        std::fs::copy("/bin/true", &own).unwrap();
        std::os::unix::fs::chown(&own, Some(65_534), Some(65_534)).unwrap();
        std::fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
        own.as_path()
    } else {
        std::path::Path::new("/bin/su")
    };
    let mut command = terrace();
    command.args(["record", "-o"]).arg(folder.path().join("x.trace")).arg("--").arg(program).arg("--version");
    let message = stderr(&mut command, 0);
    let expected =
        format!("{}: set-user-ID: by itself it runs with its owner's privileges", program.display());
    assert!(message.contains(&expected), "{message}");
}

#[test]
fn a_step_of_a_job_with_address_sanitizer_is_refused_before_it_takes_memory() {
    let folder = tempfile::tempdir().unwrap();
    let step = folder.path().join("step");
    let source = "#include <stdio.h>\nint main(void) { puts(\"ran\"); return 0; }\n";
    common::compile(&step, source, &["-fsanitize=address"]);
    let job = format!("{0}; echo status $?; exit 0", step.display());
    let record = |options: &[&str]| {
        let mut command = terrace();
        command.args(["record", "-o"]).arg(folder.path().join("x.trace")).args(options);
        let output = command.args(["--", "sh", "-c", &job]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (said, problems) = record(&[]);
    assert!(said.contains("status 126") && !said.contains("ran"), "{said}");
    let expected = format!("terrace: {}: built with AddressSanitizer", step.display());
    assert!(problems.contains(&expected) && problems.contains("--no-follow-exec"), "{problems}");
    // Outside the recorder it runs as ever.
    let (said, _) = record(&["--no-follow-exec"]);
    assert!(said.contains("ran\nstatus 0"), "{said}");
}

#[test]
fn a_fault_that_may_be_the_emulators_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("x.trace");
    let mut command = terrace();
    command.args(["record", "-o"]).arg(&trace).args(["--", "sh", "-c", "kill -SEGV $$"]);
    let message = stderr(&mut command, 1);
    assert!(message.contains("SIGSEGV") && message.contains("newer qemu-user"), "{message}");

    // One that is installed and not the first of the search path.
    use std::os::unix::fs::PermissionsExt;
    let newer = folder.path().join("qemu-x86_64");
    std::fs::write(&newer, "#!/bin/sh\necho qemu-x86_64 version 99.1.0\n").unwrap();
    std::fs::set_permissions(&newer, PermissionsExt::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap() + ":" + folder.path().to_str().unwrap();
    let message = stderr(command.env("PATH", path), 1);
    let offered = format!("PATH={}:$PATH", folder.path().display());
    assert!(message.contains("99.1.0") && message.contains(&offered), "{message}");
}

#[test]
fn what_a_recording_makes_for_itself_is_private_under_any_mask() {
    use std::os::unix::fs::PermissionsExt;
    for mask in ["000", "077"] {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().canonicalize().unwrap();
        let terrace = assert_cmd::cargo::cargo_bin("terrace");
        let list = "find \"$TMPDIR\" -path '*terrace-record-*' ! -type l -printf '%y%m %f\\n'";
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("umask {mask}; exec \"$0\" record -o x.trace -- sh -c \"$1\"")]);
        let output = shell.arg(terrace).arg(list).current_dir(&place).env("TMPDIR", &place).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let mut made: Vec<&str> = said.lines().collect();
        made.sort_unstable();
        let [recording, plugin, preload, allocations, socket] = &made[..] else { panic!("{made:?}") };
        assert!(recording.starts_with("d700 terrace-record-") && *socket == "s600 socket", "{made:?}");
        let libraries = [plugin, preload, allocations];
        assert!(libraries.iter().all(|library| library.starts_with("f755 lib")), "{made:?}");
        // What the user asked for has the mode that the user's mask leaves.
        let mode = std::fs::metadata(place.join("x.trace")).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o666 & !u32::from_str_radix(mask, 8).unwrap());
    }
}

#[test]
fn restore_removes_what_a_killed_recording_left() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().canonicalize().unwrap();
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("terrace"))
        .args([
            "record",
            "-o",
            "x.trace",
            "--",
            "sh",
            "-c",
            "touch up; while [ ! -e go ]; do sleep 0.02; done",
        ])
        .current_dir(&place)
        .env("TMPDIR", &place)
        .spawn()
        .unwrap();
    let recordings = || {
        let names = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("terrace-record-")).count()
    };
    let restore = || {
        // Settings of other runs may be put back, or not; only the folder is looked at.
        terrace().arg("restore").env("TMPDIR", &place).env("XDG_RUNTIME_DIR", &place).output().unwrap();
    };
    let wait_until = |condition: &dyn Fn() -> bool| {
        for _ in 0..6000 {
            if condition() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("waited in vain");
    };
    wait_until(&|| place.join("up").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    restore();
    assert_eq!(recordings(), 1, "the program uses it");
    std::fs::write(place.join("go"), "").unwrap();
    wait_until(&|| {
        restore();
        recordings() == 0
    });
}
