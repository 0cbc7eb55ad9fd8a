//! What waits for something comes after it: children, locks, pipes, barriers. Time here is counted in instructions, along
//! the order that the trace states.

use crate::support::{Recorded, Workshop, options, run};
use std::collections::HashMap;
use terrace_recorder::RecordOptions;
use terrace_trace::{Event, Item, MarkKind, StreamId};

/// Instructions of the longest way through the trace, when everything begins as soon as its order allows, and of all.
fn span(recorded: &Recorded) -> (u64, u64) {
    let mut clocks: HashMap<StreamId, u64> = HashMap::new();
    // When all global events up to each number are over: they are delivered in order.
    let mut over = vec![0];
    let mut all = 0;
    for batch in &recorded.batches {
        let clock = clocks.entry(batch.stream).or_default();
        *clock = (*clock).max(over[batch.after as usize]);
        for item in batch.items() {
            let instructions = match item {
                Item::Access(access) => u64::from(access.instructions),
                Item::Event(event) => match event.event {
                    Event::Compute { instructions } => instructions,
                    _ => 0,
                },
            };
            *clock += instructions;
            all += instructions;
            if let Item::Event(event) = item
                && event.sequence != 0
            {
                over.push((*clock).max(over[over.len() - 1]));
            }
        }
    }
    (clocks.values().copied().max().unwrap_or(0), all)
}

fn is_wake(event: &Event) -> bool {
    matches!(event, Event::Mark { kind: MarkKind::Wake, .. })
}

fn wakes(recorded: &Recorded) -> usize {
    recorded.events().filter(|(_, e)| is_wake(&e.event)).count()
}

/// `work(n)` takes some 5 n instructions.
const WORK: &str = r#"
    #define _GNU_SOURCE
    #include "terrace/marker.h"
    #include <pthread.h>
    #include <signal.h>
    #include <spawn.h>
    #include <stdlib.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void work(long n) { for (volatile long i = 0; i < n; i++) {} }
    static int number(const char *text) { return atoi(text); }
    extern char **environ;
"#;
const TURN: u64 = 100_000;
/// The fewest instructions of [`TURN`] rounds of the loop.
const LEAST: u64 = 4 * TURN;

fn record(main: &str, arguments: &[&str]) -> Recorded {
    let workshop = Workshop::new();
    let program = workshop.c(&format!("{WORK}{main}"));
    let mut command: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&program];
    command.extend(arguments.iter().map(|argument| argument as &dyn AsRef<std::ffi::OsStr>));
    let recorded = run(&command, &RecordOptions::default());
    assert!(recorded.status.success(), "{:?}", recorded.status);
    recorded
}

/// In every way to wait for a child, the parent goes on behind the child's end.
#[test]
fn a_parent_that_waited_comes_after_the_end_of_its_child() {
    const MAIN: &str = r#"
        static volatile long after;
        int main(int count, char **arguments) {
            if (count < 2) { work(100000); return 0; }
            int way = number(arguments[1]), status;
            siginfo_t info;
            terrace_mark_alloc((void *)&after, sizeof after, "after");
            char *again[] = {arguments[0], 0};
            if (way == 5) {
                if (system(arguments[0])) return 1;
            } else {
                pid_t child;
                if (way == 6) {
                    if (posix_spawn(&child, arguments[0], 0, 0, again, environ)) return 2;
                } else if (!(child = way == 7 ? vfork() : fork())) {
                    if (way == 7) { execv(arguments[0], again); _exit(3); }
                    work(100000);
                    if (way == 3) raise(SIGKILL);
                    _exit(0);
                }
                if (way == 0 && wait(0) != child) return 4;
                if (way == 1 && waitpid(child, &status, 0) != child) return 5;
                if (way == 2 && waitid(P_PID, child, &info, WEXITED)) return 6;
                if (way == 3 && (waitpid(-1, &status, WUNTRACED) != child || !WIFSIGNALED(status))) return 7;
                if (way == 4) { usleep(200000); while (!waitpid(child, 0, WNOHANG)) {} }
                if (way == 6 || way == 7) if (waitpid(child, &status, 0) != child || status) return 8;
            }
            for (int i = 0; i < 50; i++) after = i;
            work(100000);
            return 0;
        }
    "#;
    let workshop = Workshop::new();
    let program = workshop.c(&format!("{WORK}{MAIN}"));
    for way in 0..8 {
        let recorded = run(&[&program, &way.to_string()], &options());
        assert!(recorded.status.success(), "way {way}: {:?}", recorded.status);
        assert!(recorded.processes() >= 2, "way {way}");
        let parent = StreamId(0);
        let end = recorded
            .events()
            .filter(|(stream, e)| *stream != parent && matches!(e.event, Event::Exit { process_ends: true }))
            .map(|(_, e)| e.sequence)
            .max()
            .expect("the child ends");
        let after = recorded.object("after");
        let mut stores = 0;
        for batch in &recorded.batches {
            let inside = batch.addr.iter().filter(|&&address| address == after.start.0).count();
            assert!(inside == 0 || batch.after >= end, "way {way}: {} is not after {end}", batch.after);
            stores += inside;
        }
        assert_eq!(stores, 50, "way {way}");
        let (longest, all) = span(&recorded);
        assert!(longest >= 2 * LEAST, "way {way}: {longest} of {all} instructions, side by side");
    }
}

/// Children run side by side, and the parent waits for all.
#[test]
fn children_do_not_wait_for_each_other() {
    let recorded = record(
        r#"
        int main() {
            for (int i = 0; i < 4; i++) if (!fork()) { work(400000); _exit(0); }
            while (wait(0) > 0) {}
            work(400000);
            return 0;
        }
        "#,
        &[],
    );
    let (longest, all) = span(&recorded);
    assert!(longest >= 8 * LEAST && 2 * longest < all, "{longest} of {all}");
}

const LOCK: &str = r#"
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int locks;
    static void *turns(void *unused) {
        for (int i = 0; i < 10; i++) {
            if (locks) pthread_mutex_lock(&lock);
            work(100000);
            if (locks) pthread_mutex_unlock(&lock);
        }
        return 0;
    }
    int main(int count, char **arguments) {
        pthread_t threads[4];
        locks = number(arguments[1]);
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, turns, 0);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
        work(100000);
        return 0;
    }
"#;

#[test]
fn critical_sections_of_one_lock_come_one_after_the_other() {
    let recorded = record(LOCK, &["1"]);
    let (longest, all) = span(&recorded);
    assert!(longest * 10 > all * 8, "{longest} of {all}");
    assert!(wakes(&recorded) > 0 && wakes(&recorded) < 200, "{}", wakes(&recorded));
}

#[test]
fn threads_without_a_lock_run_side_by_side() {
    let recorded = record(LOCK, &["0"]);
    let (longest, all) = span(&recorded);
    assert!(longest * 2 < all, "{longest} of {all}");
    assert!(longest > 11 * LEAST, "the join comes after the threads: {longest} of {all}");
}

#[test]
fn a_byte_that_goes_to_and_fro_orders_two_processes() {
    let recorded = record(
        r#"
        int main() {
            int there[2], back[2];
            char c = 0;
            if (pipe(there) || pipe(back)) return 1;
            int is_child = !fork();
            int from = is_child ? there[0] : back[0], to = is_child ? back[1] : there[1];
            for (int turn = 0; turn < 20; turn++) {
                if (is_child && read(from, &c, 1) != 1) return 2;
                work(100000);
                if (write(to, &c, 1) != 1) return 3;
                if (!is_child && read(from, &c, 1) != 1) return 4;
            }
            if (is_child) _exit(0);
            return wait(0) < 0;
        }
        "#,
        &[],
    );
    let (longest, all) = span(&recorded);
    assert!(longest * 10 > all * 9, "{longest} of {all}");
    assert!(longest >= 40 * LEAST);
    // A mark for each byte and each end, and few batches more.
    assert!((40..=44).contains(&wakes(&recorded)), "{}", wakes(&recorded));
}

/// What was read without waiting was written before, too.
#[test]
fn what_is_read_was_written_before() {
    let recorded = record(
        r#"
        int main() {
            int channel[2];
            char c = 0;
            if (pipe(channel)) return 1;
            if (!fork()) {
                work(400000);
                if (write(channel[1], &c, 1) != 1) _exit(2);
                _exit(0);
            }
            usleep(1);
            work(4000000);
            if (read(channel[0], &c, 1) != 1) return 3;
            work(400000);
            return wait(0) < 0;
        }
        "#,
        &[],
    );
    let mut marks = recorded.events().filter(|(stream, e)| *stream == StreamId(1) && is_wake(&e.event));
    let write = marks.next().expect("the child writes").1.sequence;
    let last = recorded.batches.iter().rfind(|batch| batch.stream == StreamId(0)).unwrap();
    assert!(last.after >= write, "{} {write}", last.after);
}

#[test]
fn threads_that_take_turns_at_a_barrier_do_not_overlap() {
    let recorded = record(
        r#"
        static pthread_barrier_t barrier;
        static void *turns(void *own) {
            for (long turn = 0; turn < 10; turn++) {
                if (turn % 2 == (long)own) work(200000);
                pthread_barrier_wait(&barrier);
            }
            return 0;
        }
        int main() {
            pthread_t thread;
            pthread_barrier_init(&barrier, 0, 2);
            pthread_create(&thread, 0, turns, (void *)1);
            turns((void *)0);
            pthread_join(thread, 0);
            return 0;
        }
        "#,
        &[],
    );
    let (longest, all) = span(&recorded);
    assert!(longest * 10 > all * 9, "{longest} of {all}");
}

/// A program of one thread has nobody to wake: no mark, and no batch more.
#[test]
fn one_thread_alone_makes_no_marks() {
    let recorded = record(
        r#"
        int main() {
            int channel[2];
            char c = 0;
            if (pipe(channel)) return 1;
            for (int i = 0; i < 1000; i++)
                if (write(channel[1], &c, 1) != 1 || read(channel[0], &c, 1) != 1) return 2;
            return 0;
        }
        "#,
        &[],
    );
    assert_eq!((recorded.streams(), wakes(&recorded)), (1, 0));
    let full = recorded.accesses() / terrace_trace::BATCH_ACCESSES + recorded.events().count() / 4096;
    assert!(
        recorded.batches.len() < full + 60,
        "{} batches of {} accesses",
        recorded.batches.len(),
        recorded.accesses()
    );
}
