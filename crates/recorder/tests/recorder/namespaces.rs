//! Programs that make namespaces: they know themselves, and see the file system, otherwise than the recorder does.

use crate::support::example;
use std::process::Command;

/// What the example `dump` says of a recorded command, or `None` where this user may not make such namespaces. An
/// ordinary user becomes root of a user namespace first, in which the recorder runs too: QEMU's threads keep the
/// recorded program from making one.
fn recorded(namespaces: &[&str], command: &[&str]) -> Option<String> {
    // SAFETY: this call cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let outside: &[&str] = if is_root { &["env"] } else { &["unshare", "-Ur"] };
    recorded_below(outside, namespaces, command)
}

fn recorded_below(outside: &[&str], namespaces: &[&str], command: &[&str]) -> Option<String> {
    let run = |words: &[&str]| {
        let output = Command::new("timeout").arg("-v").arg("300").args(words).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let inside = [&["unshare"], namespaces].concat();
    if !run(&[outside, &inside, &["true"]].concat()).0 {
        eprintln!("not tested: {outside:?} {inside:?} is not allowed here");
        return None;
    }
    let dump = example("dump");
    let (succeeded, said) = run(&[outside, &[dump.to_str().unwrap()], &inside, command].concat());
    assert!(succeeded, "{}", gist(&said));
    Some(said)
}

fn executed(said: &str, program: &str) -> bool {
    said.lines().any(|line| line.contains(&format!("Exec {{ name: \"{program}\" }}")))
}

/// What there is besides accesses and mappings, of which there are too many to find the rest among them.
fn gist(said: &str) -> String {
    let is_of_interest = |line: &&str| {
        !line.starts_with("stream ")
            && !["Kernel {", "Map {", "Unmap {"].iter().any(|often| line.contains(often))
    };
    said.lines().filter(is_of_interest).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_pid_namespace() {
    let Some(said) = recorded(&["-fp"], &["/bin/sh", "-c", "/bin/true; exit 0"]) else { return };
    assert!(executed(&said, "/bin/sh") && executed(&said, "/bin/true"), "{}", gist(&said));
    assert!(said.contains("exit status: 0"), "{}", gist(&said));
}

/// The path by which the shared memory is opened elsewhere leads nowhere.
#[test]
fn a_pid_namespace_with_its_own_proc() {
    let Some(said) = recorded(&["-fp", "--mount-proc"], &["/bin/sh", "-c", "/bin/true; exit 0"]) else {
        return;
    };
    assert!(executed(&said, "/bin/sh") && executed(&said, "/bin/true"), "{}", gist(&said));
}

/// The recorder's own process id is unknown in there, too, so this hangs on the kernel's word that it lives.
#[test]
fn a_busy_program_in_a_pid_namespace() {
    let script = "i=0; while [ $i -lt 1500 ]; do i=$((i + 1)); done; exit 0";
    let Some(said) = recorded(&["-fp"], &["/bin/dash", "-c", script]) else { return };
    let last = said.lines().rev().find(|line| line.contains(" accesses, ")).unwrap();
    let accesses: u64 = last.split(' ').next().unwrap().parse().unwrap();
    // Many times its queue of 131,072 records: only a program that waits for room asks whether its recorder lives.
    assert!(accesses > 2_000_000, "recorded to its end: {last}");
}

#[test]
fn a_network_namespace() {
    let Some(said) = recorded(&["-n"], &["/bin/sh", "-c", "/bin/true; exit 0"]) else { return };
    assert!(executed(&said, "/bin/sh") && executed(&said, "/bin/true"), "{}", gist(&said));
}

/// The recorder's files are out of sight: programs run as they are, and that is said.
#[test]
fn a_mount_namespace_that_hides_the_recorder() {
    let script = "chroot=$(command -v chroot); mkdir -p \"$1/bin\" && cp \"$2\" \"$1/bin/\" && \
                  exec \"$chroot\" \"$1\" /bin/program";
    let workshop = crate::support::Workshop::new();
    let program = workshop.static_c("int main() { return 0; }");
    let root = workshop.path("root");
    let command = ["/bin/sh", "-c", script, "sh", root.to_str().unwrap(), program.to_str().unwrap()];
    let Some(said) = recorded(&["-m"], &command) else { return };
    assert!(said.contains("warning: /bin/program: not recorded"), "{}", gist(&said));
    assert!(!said.contains("Could not load"), "{}", gist(&said));
}

/// A child of a program that has changed its root directory is recorded all the same.
#[test]
fn a_fork_in_another_root_directory() {
    let workshop = crate::support::Workshop::new();
    let program = workshop.c(r#"
        #include <sys/wait.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            if (chroot(argv[1]) || chdir("/")) return 1;
            if (fork() == 0) _exit(7);
            int status;
            wait(&status);
            return WEXITSTATUS(status) != 7;
        }
        "#);
    let folder = workshop.path("");
    let Some(said) = recorded(&["-fp"], &[program.to_str().unwrap(), folder.to_str().unwrap()]) else {
        return;
    };
    assert_eq!(said.matches("Spawn {").count(), 3, "unshare, the program, its child: {}", gist(&said));
    assert!(!said.contains("warning"), "{}", gist(&said));
}

#[test]
fn a_recorder_in_user_and_pid_namespaces() {
    let outside = ["unshare", "-Urfp", "--mount-proc"];
    let command = ["/bin/sh", "-c", "/bin/true; exit 0"];
    let Some(said) = recorded_below(&outside, &["-fp", "--mount-proc"], &command) else { return };
    assert!(executed(&said, "/bin/true"), "{}", gist(&said));
}
