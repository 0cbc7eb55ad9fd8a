//! Many threads, forks, and the order between them.

use crate::support::{Workshop, options, run};
use std::collections::{HashMap, HashSet};
use terrace_model::VirtAddr;
use terrace_trace::{Event, Item, SequencedEvent, StreamId};

#[test]
fn eight_hundred_threads_are_distinguished() {
    let workshop = Workshop::new();
    let program = workshop.c(r#"
        #include "terrace/marker.h"
        #include <pthread.h>
        #define N 800
        static volatile long cells[N];
        static pthread_barrier_t barrier;
        static void *work(void *cell) {
            pthread_barrier_wait(&barrier);
            for (int i = 0; i < 100; i++) *(volatile long *)cell = i;
            return 0;
        }
        int main() {
            pthread_t threads[N];
            pthread_attr_t attributes;
            pthread_attr_init(&attributes);
            pthread_attr_setstacksize(&attributes, 65536);
            terrace_mark_alloc((void *)cells, sizeof cells, "cells");
            pthread_barrier_init(&barrier, 0, N);
            for (int i = 0; i < N; i++)
                if (pthread_create(&threads[i], &attributes, work, (void *)&cells[i])) return 1;
            for (int i = 0; i < N; i++) pthread_join(threads[i], 0);
            return 0;
        }
        "#);
    let recorded = run(&[&program], &options());
    assert!(recorded.status.success());
    assert_eq!((recorded.streams(), recorded.processes()), (801, 1));
    let cells = recorded.object("cells");
    let mut by_cell: HashMap<u64, (HashSet<StreamId>, u32)> = HashMap::new();
    for (stream, item) in recorded.items() {
        if let Item::Access(access) = item
            && cells.contains(VirtAddr(access.addr))
        {
            let entry = by_cell.entry(access.addr).or_default();
            entry.0.insert(stream);
            entry.1 += 1;
        }
    }
    assert_eq!(by_cell.len(), 800);
    assert!(by_cell.values().all(|(streams, stores)| streams.len() == 1 && *stores == 100));
}

/// Threads that sleep where the recorder expects none, each holding on to records, leave room for the others.
#[test]
fn sleeping_threads_do_not_starve_the_others() {
    let workshop = Workshop::new();
    let program = workshop.c(r#"
        #include <pthread.h>
        #include <unistd.h>
        #define N 1100
        static int gate[2];
        static void *work(void *unused) { char c; return (void *)(read(gate[0], &c, 1)); }
        int main() {
            pthread_t threads[N];
            pthread_attr_t attributes;
            pthread_attr_init(&attributes);
            pthread_attr_setstacksize(&attributes, 65536);
            if (pipe(gate)) return 1;
            for (int i = 0; i < N; i++)
                if (pthread_create(&threads[i], &attributes, work, 0)) return 2;
            for (volatile long i = 0; i < 200000; i++) {}
            for (int i = 0; i < N; i++)
                if (write(gate[1], "x", 1) != 1) return 3;
            for (int i = 0; i < N; i++) pthread_join(threads[i], 0);
            return 0;
        }
        "#);
    let recorded = run(&[&program], &options());
    assert!(recorded.status.success());
    assert_eq!((recorded.streams(), recorded.processes()), (1101, 1));
    assert_eq!(recorded.warnings, [""; 0]);
}

#[test]
fn a_vcpu_used_again_is_another_thread() {
    let workshop = Workshop::new();
    let program = workshop.c(r#"
        #include "terrace/marker.h"
        #include <pthread.h>
        static volatile long cell;
        static void *work(void *unused) { for (int i = 0; i < 50; i++) cell = i; return 0; }
        int main() {
            terrace_mark_alloc((void *)&cell, sizeof cell, "cell");
            for (int i = 0; i < 40; i++) {
                pthread_t thread;
                pthread_create(&thread, 0, work, 0);
                pthread_join(thread, 0);
            }
            return 0;
        }
        "#);
    let recorded = run(&[&program], &options());
    assert_eq!(recorded.streams(), 41);
    let cell = recorded.object("cell");
    let mut per_stream: HashMap<StreamId, u32> = HashMap::new();
    for (stream, item) in recorded.items() {
        if matches!(item, Item::Access(a) if a.addr == cell.start.0) {
            *per_stream.entry(stream).or_default() += 1;
        }
    }
    assert_eq!(per_stream.len(), 40);
    assert!(per_stream.values().all(|&stores| stores == 50), "{per_stream:?}");
}

#[test]
fn a_forked_child_starts_with_empty_buffers() {
    let workshop = Workshop::new();
    let program = workshop.c(r#"
        #include "terrace/marker.h"
        #include <sys/wait.h>
        #include <unistd.h>
        static volatile long before, child, parent;
        int main() {
            terrace_mark_alloc((void *)&before, 8, "before");
            terrace_mark_alloc((void *)&child, 8, "child");
            terrace_mark_alloc((void *)&parent, 8, "parent");
            for (int i = 0; i < 500; i++) before = i;
            for (int n = 0; n < 5; n++) {
                if (fork() == 0) {
                    for (int i = 0; i < 70; i++) child = i;
                    _exit(0);
                }
                for (int i = 0; i < 30; i++) parent = i;
            }
            while (wait(0) > 0) {}
            return 0;
        }
        "#);
    let recorded = run(&[&program], &options());
    assert_eq!((recorded.processes(), recorded.streams()), (6, 6));
    let mut counts: HashMap<(u32, &str), u32> = HashMap::new();
    for (stream, item) in recorded.items() {
        let Item::Access(access) = item else { continue };
        for name in ["before", "child", "parent"] {
            if recorded.object(name).start.0 == access.addr {
                *counts.entry((stream.0, name)).or_default() += 1;
            }
        }
    }
    let mut expected = HashMap::from([((0, "before"), 500), ((0, "parent"), 150)]);
    expected.extend((1..6).map(|child| ((child, "child"), 70)));
    assert_eq!(counts, expected);
    for (_, event) in recorded.events() {
        if let Event::Spawn { process, thread, forked_from, .. } = event.event {
            assert_eq!(thread, 0);
            assert_eq!(forked_from, (process > 0).then_some(StreamId(0)));
        }
    }
}

/// One thread maps pages and hands them to another, which touches and unmaps them: no access may come before the map
/// it needs, in the order in which a consumer sees batches and events.
#[test]
fn no_access_comes_before_its_map() {
    let workshop = Workshop::new();
    let program = workshop.c(r#"
        #define _GNU_SOURCE
        #include "terrace/marker.h"
        #include <pthread.h>
        #include <sys/mman.h>
        #include <sched.h>
        #define ROUNDS 1000
        static _Atomic(char *) handed;
        /* Only where the other thread has no processor for long is a system call made between its map and a touch. */
        static void spin(int *turns) { if (++*turns % 1000 == 0) sched_yield(); }
        static void *touch(void *unused) {
            for (int i = 0, turns = 0; i < ROUNDS; i++) {
                char *page;
                while (!(page = handed)) spin(&turns);
                page[8] = 1;
                munmap(page, 4096);
                handed = 0;
            }
            return 0;
        }
        int main() {
            pthread_t thread;
            pthread_create(&thread, 0, touch, 0);
            for (int i = 0, turns = 0; i < ROUNDS; i++) {
                char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                page[0] = 1;
                handed = page;
                while (handed) spin(&turns);
            }
            pthread_join(thread, 0);
            return 0;
        }
        "#);
    let recorded = run(&[&program], &options());
    assert!(recorded.status.success());
    // Maps in force by sequence number: an access is checked against all events up to its batch's `after` and its
    // own stream's, whichever is later.
    let mut history: Vec<(u64, &Event)> =
        recorded.events().filter(|(_, e)| e.sequence != 0).map(|(_, e)| (e.sequence, &e.event)).collect();
    history.sort_by_key(|(sequence, _)| *sequence);
    let mut mapped: HashMap<u64, Vec<(u64, bool)>> = HashMap::new();
    for &(sequence, event) in &history {
        let (range, is_map) = match event {
            Event::Map { range, .. } => (range, true),
            Event::Unmap { range } => (range, false),
            _ => continue,
        };
        for page in (range.start.0 >> 12)..(range.end().0 >> 12) {
            mapped.entry(page).or_default().push((sequence, is_map));
        }
    }
    let mut own: HashMap<StreamId, u64> = HashMap::new();
    let mut checked = 0;
    for batch in &recorded.batches {
        let reached = own.entry(batch.stream).or_default();
        *reached = (*reached).max(batch.after);
        for item in batch.items() {
            match item {
                Item::Event(SequencedEvent { sequence, .. }) => *reached = (*reached).max(*sequence),
                Item::Access(access) => {
                    let states = &mapped[&(access.addr >> 12)];
                    let at = states.partition_point(|(sequence, _)| *sequence <= *reached);
                    assert!(at > 0 && states[at - 1].1, "{:#x} is not mapped after {reached}", access.addr);
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 10_000);
    let unmaps = history.iter().filter(|(_, e)| matches!(e, Event::Unmap { .. })).count();
    assert!(unmaps >= 1000);
}
