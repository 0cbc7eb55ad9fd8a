//! However a process ends, what it did is recorded.

use crate::support::{Workshop, options, run, start};
use std::os::unix::process::ExitStatusExt;
use terrace_recorder::RecordOptions;
use terrace_trace::{Event, EventSource};

/// A program that touches an array of 1000 words and then does `end`.
fn touching(end: &str) -> String {
    format!(
        r#"
        #define _GNU_SOURCE
        #include "terrace/marker.h"
        #include <pthread.h>
        #include <signal.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static volatile long array[1000];
        static void *thread(void *unused) {{ usleep(100000); return 0; }}
        int main(int argc, char **argv) {{
            terrace_mark_alloc((void *)array, sizeof array, "array");
            for (int i = 0; i < 1000; i++) array[i] = i;
            {end}
        }}
        "#
    )
}

/// Stores to the array in a recording of a program that ends so.
fn stores(end: &str) -> (usize, crate::support::Recorded) {
    let workshop = Workshop::new();
    let program = workshop.c(&touching(end));
    let recorded = run(&[&program], &options());
    let range = recorded.object("array");
    let stores = recorded
        .batches
        .iter()
        .flat_map(|b| b.addr.iter().zip(&b.kind))
        .filter(|(a, k)| range.contains(terrace_model::VirtAddr(**a)) && **k as u8 == 1)
        .count();
    let ends = recorded.events().filter(|(_, e)| e.event == Event::Exit { process_ends: true }).count();
    assert_eq!(ends, recorded.processes(), "each process ends once");
    (stores, recorded)
}

#[test]
fn by_return_and_by_underscore_exit() {
    assert_eq!(stores("return 7;").0, 1000);
    let (count, recorded) = stores("_exit(7);");
    assert_eq!((count, recorded.status.code()), (1000, Some(7)));
}

#[test]
fn by_signals_that_run_no_callback() {
    for (end, signal) in
        [("abort();", 6), ("raise(SIGTERM);", 15), ("raise(SIGKILL);", 9), ("*(volatile int *)8 = 1;", 11)]
    {
        let (count, recorded) = stores(end);
        assert_eq!(count, 1000, "{end}");
        assert_eq!(recorded.status.signal(), Some(signal), "{end}");
    }
}

#[test]
fn by_the_main_thread_leaving_first() {
    let (count, recorded) = stores("pthread_t t; pthread_create(&t, 0, thread, 0); pthread_exit(0);");
    assert_eq!(count, 1000);
    assert_eq!(recorded.streams(), 2);
}

#[test]
fn by_execve_to_a_recorded_program() {
    let (count, recorded) = stores(r#"execl("/bin/true", "true", (char *)0);"#);
    assert_eq!(count, 1000);
    assert!(recorded.executed("true"));
    assert_eq!((recorded.processes(), recorded.streams()), (1, 1), "the stream goes on");
    assert_eq!(recorded.warnings, [""; 0]);
}

#[test]
fn a_failed_execve_is_no_end() {
    let (count, recorded) = stores(r#"execl("/no/such/program", "x", (char *)0); array[0] = 1; return 5;"#);
    assert_eq!((count, recorded.status.code()), (1001, Some(5)));
    assert!(!recorded.executed("program"));
}

#[test]
fn a_program_that_is_not_followed_is_named_once() {
    let workshop = Workshop::new();
    let end = r#"for (int i = 0; i < 3; i++) { if (fork() == 0) { execl("/bin/true", "true", (char *)0); } wait(0); }"#;
    let program = workshop.static_c(&touching(end));
    let recorded = run(&[&program], &options());
    assert_eq!(recorded.warnings.len(), 1, "{:?}", recorded.warnings);
    assert!(recorded.warnings[0].contains("/bin/true: not recorded"));
    assert!(recorded.status.success());
}

#[test]
fn following_is_an_option() {
    let workshop = Workshop::new();
    let program = workshop.c(&touching(r#"return system("/bin/true");"#));
    let followed = run(&[&program], &options());
    assert!(followed.executed("sh") && followed.executed("true"), "{:?}", followed.warnings);
    let recorded = run(&[&program], &RecordOptions { follow_exec: false, ..options() });
    assert!(!recorded.executed("sh") && !recorded.warnings.is_empty());
    assert!(recorded.status.success());
}

#[test]
fn every_way_to_execute_is_followed() {
    let workshop = Workshop::new();
    let program = workshop.c(
        r#"
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <spawn.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/wait.h>
        #include <unistd.h>
        extern char **environ;
        #define CHILD(call) do { if (fork() == 0) { call; _exit(99); } \
            int s; wait(&s); if (s) { fprintf(stderr, "%s: %x\n", #call, s); return 1; } } while (0)
        int main() {
            char *argv[] = {"sh", "-c", "test \"$1\" = a || exit 9", "sh", "a", 0};
            char *empty[] = {0};
            CHILD(execv("/bin/sh", argv));
            CHILD(execve("/bin/sh", argv, empty));
            CHILD(execvp("sh", argv));
            CHILD(execvpe("sh", argv, environ));
            CHILD(execl("/bin/sh", "sh", "-c", "test $# = 6 -a $5 = e", "0", "a", "b", "c", "d", "e", "f", (char *)0));
            CHILD(execlp("sh", "sh", "-c", "test $3 = c", "0", "a", "b", "c", (char *)0));
            CHILD(execle("/bin/sh", "sh", "-c", "test \"$X\" = y", (char *)0, (char *[]){"X=y", 0}));
            CHILD(fexecve(open("/bin/sh", O_RDONLY), argv, environ));
            int status;
            pid_t pid;
            if (posix_spawn(&pid, "/bin/sh", 0, 0, argv, environ)) return 2;
            waitpid(pid, &status, 0);
            if (status) return 3;
            if (posix_spawnp(&pid, "sh", 0, 0, argv, environ)) return 4;
            waitpid(pid, &status, 0);
            if (status) return 5;
            if (system("exit 6") >> 8 != 6) return 7;
            char text[16] = "";
            FILE *f = popen("echo hello; exit 4", "r");
            if (!fgets(text, 16, f) || strcmp(text, "hello\n") || pclose(f) >> 8 != 4) return 8;
            if (execvp("no-such-program", argv) != -1) return 9;
            return 0;
        }
        "#,
    );
    let recorded = run(&[&program], &options());
    assert_eq!(recorded.status.code(), Some(0));
    assert_eq!(recorded.warnings, [""; 0]);
    let followed = recorded.events().filter(|(_, e)| matches!(e.event, Event::Exec { .. })).count();
    assert_eq!(followed, 12);
}

#[test]
fn a_program_outlives_its_recording() {
    let workshop = Workshop::new();
    let marker = workshop.path("done");
    let source = touching(
        "for (long i = 0; i < 30000000; i++) array[i % 1000]++; \
         FILE *f = fopen(argv[1], \"w\"); fputs(\"done\", f); fclose(f); return 4;",
    );
    let program = workshop.c(&source);
    let mut recording = start(&[&program, &marker], &options());
    let first = recording.next_batch().unwrap();
    assert!(first.is_some());
    assert_eq!(recording.wait().unwrap().code(), Some(4));
    assert_eq!(std::fs::read_to_string(marker).unwrap(), "done");
}

#[test]
fn a_daemon_is_recorded_after_its_parent() {
    let workshop = Workshop::new();
    let end = "if (fork() == 0) { usleep(200000); for (int i = 0; i < 1000; i++) array[i] = i; } return 0;";
    let program = workshop.c(&touching(end));
    let recorded = run(&[&program], &options());
    let range = recorded.object("array");
    let stores = recorded
        .batches
        .iter()
        .filter(|b| b.stream.0 == 1)
        .flat_map(|b| &b.addr)
        .filter(|a| range.contains(terrace_model::VirtAddr(**a)))
        .count();
    assert_eq!(stores, 1000);
}
