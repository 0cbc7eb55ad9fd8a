//! Address-space events, kernel copies, waits and allocations.

use crate::support::{Recorded, Workshop, options, run};
use std::collections::HashMap;
use terrace_model::{AddressRange, VirtAddr};
use terrace_recorder::RecordOptions;
use terrace_trace::{Advice, Event, Item, KernelAccess, MapKind, MarkKind, Protection};

fn kernel_bytes(recorded: &Recorded, object: &str, wanted: KernelAccess) -> u64 {
    let object = recorded.object(object);
    recorded
        .events()
        .filter_map(|(_, e)| match e.event {
            Event::Kernel { range, kind } if kind == wanted && object.contains(range.start) => {
                Some(range.bytes)
            }
            _ => None,
        })
        .sum()
}

#[test]
fn initial_mappings_are_there() {
    let workshop = Workshop::new();
    for program in [workshop.c("int main() { return 0; }"), workshop.static_c("int main() { return 0; }")] {
        let recorded = run(&[&program], &options());
        let mut maps: Vec<(AddressRange, MapKind, String)> = Vec::new();
        // Every access of the whole run lies in something mapped, the stack and the binary included.
        for (_, item) in recorded.items() {
            match item {
                Item::Event(event) => {
                    if let Event::Map { range, kind, name, .. } = &event.event {
                        maps.push((*range, *kind, name.clone()));
                    }
                }
                Item::Access(access) => {
                    let mapped = maps.iter().any(|(range, ..)| range.contains(VirtAddr(access.addr)));
                    assert!(mapped, "{:#x} is in no mapping", access.addr);
                }
            }
        }
        assert!(maps.iter().any(|(_, kind, name)| *kind == MapKind::Stack && name == "[stack]"));
        let own = program.to_str().unwrap();
        assert!(maps.iter().any(|(_, kind, name)| *kind == MapKind::PrivateFile && name == own));
        assert!(!maps.iter().any(|(.., name)| name.contains("qemu") || name.contains("plugin")));
    }
}

#[test]
fn address_space_calls_become_events() {
    let workshop = Workshop::new();
    let program = workshop.c(r#"
        #define _GNU_SOURCE
        #include "terrace/marker.h"
        #include <fcntl.h>
        #include <sys/mman.h>
        #include <sys/shm.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            terrace_phase("begin");
            char *a = mmap(0, 10 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            terrace_mark_alloc(a, 1, "a");
            madvise(a + 4096, 8192, MADV_DONTNEED);
            char *b = mremap(a, 10 * 4096, 100 * 4096, MREMAP_MAYMOVE);
            terrace_mark_alloc(b, 1, "b");
            mprotect(b, 4096, PROT_READ);
            munmap(b, 100 * 4096);
            int fd = open(argv[0], O_RDONLY);
            char *f = mmap(0, 5000, PROT_READ, MAP_SHARED, fd, 0);
            terrace_mark_alloc(f, 1, "f");
            munmap(b, 12345);
            munmap(b + 1, 4096);
            mmap((void *)-1, 0, 0, 0, -1, 0);
            int id = shmget(IPC_PRIVATE, 8192, 0600);
            char *s = shmat(id, 0, 0);
            terrace_mark_alloc(s, 1, "s");
            shmdt(s);
            shmctl(id, IPC_RMID, 0);
            sbrk(0x100000);
            sbrk(-0x80000);
            terrace_phase("end");
            return 0;
        }
        "#);
    let recorded = run(&[&program], &options());
    let at = |name| recorded.object(name).start.0;
    let (a, b, f, s) = (at("a"), at("b"), at("f"), at("s"));
    let phase = |wanted: &str| {
        recorded
            .events()
            .position(|(_, e)| {
                matches!(&e.event, Event::Mark { kind: MarkKind::Phase, name, .. } if name == wanted)
            })
            .unwrap()
    };
    let (begin, end) = (phase("begin"), phase("end"));
    let events: Vec<Event> = recorded
        .events()
        .map(|(_, e)| e.event.clone())
        .take(end)
        .skip(begin + 1)
        .filter(|e| e.is_global() && !matches!(e, Event::Alloc { .. } | Event::Free { .. }))
        .collect();
    let map = |start, bytes, kind, protection, name: &str| Event::Map {
        range: AddressRange::new(start, bytes),
        kind,
        protection,
        name: name.to_owned(),
    };
    let file = program.to_str().unwrap();
    let expected = [
        map(a, 10 * 4096, MapKind::Anonymous, Protection::READ_WRITE, ""),
        Event::Advise { range: AddressRange::new(a + 4096, 8192), advice: Advice::DontNeed },
        Event::Remap { from: AddressRange::new(a, 10 * 4096), to: AddressRange::new(b, 100 * 4096) },
        Event::Protect { range: AddressRange::new(b, 4096), protection: Protection::READ },
        Event::Unmap { range: AddressRange::new(b, 100 * 4096) },
        map(f, 8192, MapKind::SharedFile, Protection::READ, file),
        Event::Unmap { range: AddressRange::new(b, 16384) },
        map(s, 8192, MapKind::SharedAnonymous, Protection::READ_WRITE, ""),
        Event::Unmap { range: AddressRange::new(s, 8192) },
    ];
    assert_eq!(events[..expected.len()], expected);
    let heap: i64 = events[expected.len()..]
        .iter()
        .map(|event| match event {
            Event::Map { range, kind: MapKind::Heap, .. } => range.bytes as i64,
            Event::Unmap { range } => -(range.bytes as i64),
            other => panic!("{other:?}"),
        })
        .sum();
    assert!((0x80000..0x80000 + 4 * 0x21000).contains(&heap), "{heap:#x}");
}

#[test]
fn bytes_the_kernel_copies_are_seen() {
    let workshop = Workshop::new();
    let program = workshop.c(r#"
        #define _GNU_SOURCE
        #include "terrace/marker.h"
        #include <sys/random.h>
        #include <sys/socket.h>
        #include <sys/uio.h>
        #include <fcntl.h>
        #include <unistd.h>
        static char in[100000], out[100000];
        int main(int argc, char **argv) {
            terrace_mark_alloc(in, sizeof in, "in");
            terrace_mark_alloc(out, sizeof out, "out");
            int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
            write(fd, out, 1000);
            pwrite(fd, out, 100, 0);
            struct iovec o[2] = {{out, 20}, {out + 50, 3}};
            writev(fd, o, 2);
            lseek(fd, 0, 0);
            read(fd, in, 500);
            read(fd, in, 100000); /* 523 are left */
            pread(fd, in, 10, 0);
            struct iovec i[2] = {{in, 4}, {in + 50, 60}};
            preadv(fd, i, 2, 1013); /* 10 are there: 4 and 6 */
            getrandom(in, 16, 0);
            int pair[2];
            socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
            send(pair[0], out, 7, 0);
            recv(pair[1], in, 100, 0);
            struct msghdr m = {.msg_iov = o, .msg_iovlen = 2};
            sendmsg(pair[0], &m, 0);
            struct msghdr n = {.msg_iov = i, .msg_iovlen = 2};
            recvmsg(pair[1], &n, 0);
            read(fd, (void *)8, 10); /* fails: nothing is copied */
            return 0;
        }
        "#);
    let recorded = run(&[&program, &workshop.path("file")], &options());
    assert!(recorded.status.success());
    assert_eq!(kernel_bytes(&recorded, "out", KernelAccess::Read), 1000 + 100 + 23 + 7 + 23);
    assert_eq!(kernel_bytes(&recorded, "out", KernelAccess::Write), 0);
    assert_eq!(kernel_bytes(&recorded, "in", KernelAccess::Write), 500 + 523 + 10 + 10 + 16 + 7 + 23);
}

#[test]
fn sleeping_is_waiting() {
    let workshop = Workshop::new();
    let program = workshop.c(r#"
        #include <poll.h>
        #include <pthread.h>
        #include <sys/epoll.h>
        #include <sys/select.h>
        #include <unistd.h>
        static void *sleeper(void *unused) { usleep(50000); return 0; }
        int main() {
            usleep(50000);
            poll(0, 0, 50);
            struct timeval t = {0, 50000};
            select(0, 0, 0, 0, &t);
            struct epoll_event e;
            epoll_wait(epoll_create1(0), &e, 1, 50);
            pthread_t thread;
            pthread_create(&thread, 0, sleeper, 0);
            pthread_join(thread, 0);
            return 0;
        }
        "#);
    let recorded = run(&[&program], &options());
    let waits = |stream| -> Vec<u64> {
        recorded
            .events()
            .filter(|(id, _)| id.0 == stream)
            .filter_map(|(_, e)| match e.event {
                Event::Wait { nanos } if nanos > 20_000_000 => Some(nanos),
                _ => None,
            })
            .collect()
    };
    assert_eq!(waits(0).len(), 5, "{:?}", waits(0));
    assert_eq!(waits(1).len(), 1);
}

#[test]
fn a_read_that_blocks_is_waiting() {
    let workshop = Workshop::new();
    let program = workshop.c(r#"
        #define _GNU_SOURCE
        #include "terrace/marker.h"
        #include <fcntl.h>
        #include <pthread.h>
        #include <stdlib.h>
        #include <sys/socket.h>
        #include <sys/uio.h>
        #include <unistd.h>
        static int feet[4];
        static void *writer(void *unused) {
            for (int i = 0; i < 4; i++) { usleep(200000); if (write(feet[i], "ab\n", 3) != 3) exit(1); }
            return 0;
        }
        int main(int argc, char **argv) {
            char b[64];
            int pipes[2], sockets[2], messages[2];
            if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets)
                || socketpair(AF_UNIX, SOCK_DGRAM, 0, messages)) return 1;
            int terminal = posix_openpt(O_RDWR | O_NOCTTY);
            if (terminal < 0 || grantpt(terminal) || unlockpt(terminal)) return 2;
            int user = open(ptsname(terminal), O_RDWR | O_NOCTTY);
            feet[0] = pipes[1]; feet[1] = sockets[1]; feet[2] = messages[1]; feet[3] = terminal;
            pthread_t thread;
            pthread_create(&thread, 0, writer, 0);
            terrace_phase("reads");
            struct iovec v = {b, sizeof b};
            struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
            if (read(pipes[0], b, 64) != 3 || recv(sockets[0], b, 64, 0) != 3 || recvmsg(messages[0], &m, 0) != 3
                || read(user, b, 64) != 3) return 3;
            terrace_phase("ready");
            /* Nothing to wait for: a regular file, also at its end, bytes that are there, a closed pipe, no patience. */
            int file = open(argv[0], O_RDONLY);
            for (int i = 0; i < 3; i++) if (read(file, b, 64) != 64) return 4;
            lseek(file, 0, SEEK_END);
            if (read(file, b, 64) != 0 || readv(file, &v, 1) != 0) return 5;
            if (write(pipes[1], b, 5) != 5 || read(pipes[0], b, 64) != 5) return 6;
            close(pipes[1]);
            if (read(pipes[0], b, 64) != 0 || recv(sockets[0], b, 64, MSG_DONTWAIT) != -1 || read(-1, b, 1) != -1) return 7;
            terrace_phase("end");
            pthread_join(thread, 0);
            return 0;
        }
        "#);
    let recorded = run(&[&program], &options());
    assert!(recorded.status.success(), "{}", recorded.status);
    let mut phase = String::new();
    let mut waits = HashMap::<String, Vec<u64>>::new();
    for (_, event) in recorded.events().filter(|(id, _)| id.0 == 0) {
        match &event.event {
            Event::Mark { kind: MarkKind::Phase, name, .. } => phase.clone_from(name),
            Event::Wait { nanos } => waits.entry(phase.clone()).or_default().push(*nanos),
            _ => {}
        }
    }
    // Timed from when the program waits, so that each is as long as the writer slept, less what came before.
    let long = waits["reads"].iter().filter(|&&nanos| nanos > 20_000_000).count();
    assert_eq!((long, waits["reads"].len()), (4, 4), "{waits:?}");
    assert_eq!(waits.get("ready"), None);
}

const ALLOCATING: &str = r#"
    #include "terrace/marker.h"
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    __attribute__((noinline)) void *make(size_t n) { void *p = malloc(n); memset(p, 1, n); return p; }
    __attribute__((noinline)) void *make_zeroed(size_t n) { void *p = calloc(n, 4); terrace_phase("x"); return p; }
    int main() {
        for (int i = 0; i < 3; i++) free(make(100));
        void *z = make_zeroed(10);
        z = realloc(z, 5000);
        free(z);
        void *m = 0;
        if (posix_memalign(&m, 256, 1000) || (uintptr_t)m % 256) return 1;
        free(m);
        m = aligned_alloc(64, 128);
        if ((uintptr_t)m % 64) return 2;
        free(m);
        free(realloc(0, 77));
        if (realloc(malloc(33), SIZE_MAX / 2)) return 3;
        return 0;
    }
"#;

/// Size and site of each allocation of an interesting size, and how many were freed.
fn allocations(recorded: &Recorded, sizes: &[u64]) -> (Vec<(u64, String)>, usize) {
    let mut names = std::collections::HashMap::new();
    let mut found = Vec::new();
    let mut objects = std::collections::HashSet::new();
    let mut freed = 0;
    for (_, event) in recorded.events() {
        match &event.event {
            Event::Site { site, name } => {
                names.insert(*site, name.clone());
            }
            Event::Alloc { object, site, range } if sizes.contains(&range.bytes) => {
                assert!(objects.insert(*object), "an identity is used once");
                found.push((range.bytes, names[site].clone()));
            }
            Event::Free { object } if objects.contains(object) => freed += 1,
            _ => {}
        }
    }
    (found, freed)
}

#[test]
fn allocations_are_seen_with_their_sites() {
    let workshop = Workshop::new();
    let program = workshop.compile("cc", "allocating.c", ALLOCATING, &["-O1", "-rdynamic", "-fno-builtin"]);
    let with = RecordOptions { allocations: true, ..options() };
    let recorded = run(&[&program], &with);
    assert!(recorded.status.success(), "{}", recorded.status);
    assert_eq!(recorded.warnings, [""; 0]);
    let (found, freed) = allocations(&recorded, &[100, 40, 1000, 128, 77, 33]);
    let sizes: Vec<u64> = found.iter().map(|(bytes, _)| *bytes).collect();
    assert_eq!(sizes, [100, 100, 100, 40, 1000, 128, 77, 33]);
    assert!(found[..3].iter().all(|(_, site)| site.starts_with("make+")), "{found:?}");
    assert!(found[3].1.starts_with("make_zeroed+") && found[4].1.starts_with("main+"), "{found:?}");
    assert_eq!(freed, 7, "all but the one whose resizing failed");
    let resized: Vec<u64> = recorded
        .events()
        .filter_map(
            |(_, e)| if let Event::Realloc { range, .. } = e.event { Some(range.bytes) } else { None },
        )
        .collect();
    assert_eq!(resized, [5000]);
    // Off by default.
    let plain = run(&[&program], &options());
    assert!(!plain.events().any(|(_, e)| matches!(e.event, Event::Alloc { .. })));
}

#[test]
fn cplusplus_objects_have_the_site_of_new() {
    let workshop = Workshop::new();
    let source = r#"
        #include <new>
        #include <vector>
        #include <cstdint>
        struct alignas(128) Wide { char bytes[384]; };
        extern "C" __attribute__((noinline)) char *make_one() { return new char[1234]; }
        extern "C" __attribute__((noinline)) Wide *make_wide() { return new Wide; }
        int main() {
            delete[] make_one();
            Wide *wide = make_wide();
            if ((uintptr_t)wide % 128) return 1;
            delete wide;
            int *quiet = new (std::nothrow) int[999];
            delete[] quiet;
            volatile std::size_t huge = SIZE_MAX / 4;
            try {
                char *p = new char[huge];
                return p != nullptr ? 2 : 3;
            } catch (const std::bad_alloc &) {
            }
            if (new (std::nothrow) char[huge]) return 4;
            return 0;
        }
    "#;
    let program = workshop.compile("c++", "new.cpp", source, &["-O1", "-rdynamic", "-std=c++17"]);
    let recorded = run(&[&program], &RecordOptions { allocations: true, ..options() });
    assert_eq!(recorded.status.code(), Some(0));
    let (found, freed) = allocations(&recorded, &[1234, 384, 999 * 4]);
    let sizes: Vec<u64> = found.iter().map(|(bytes, _)| *bytes).collect();
    assert_eq!(sizes, [1234, 384, 3996]);
    assert!(found[0].1.starts_with("make_one+") && found[1].1.starts_with("make_wide+"), "{found:?}");
    assert!(found[2].1.starts_with("main+"), "{found:?}");
    assert_eq!(freed, 3);
}

#[test]
fn a_static_program_says_that_allocations_are_missing() {
    let workshop = Workshop::new();
    let program = workshop.static_c(ALLOCATING);
    let recorded = run(&[&program], &RecordOptions { allocations: true, ..options() });
    assert_eq!(recorded.warnings.len(), 1, "{:?}", recorded.warnings);
    assert!(recorded.warnings[0].contains("statically linked"));
}

#[test]
fn markers_are_harmless_without_recorder() {
    let workshop = Workshop::new();
    let program = workshop.c(ALLOCATING);
    assert!(std::process::Command::new(program).status().unwrap().success());
}
