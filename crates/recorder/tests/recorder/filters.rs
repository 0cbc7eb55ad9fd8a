//! Leaving accesses out.

use crate::support::{Recorded, Workshop, options, run, start};
use std::collections::BTreeSet;
use terrace_recorder::{Every, RecordOptions};
use terrace_trace::{Event, EventSource, MarkKind};

/// Touches 300 pages once, then one page many times, in a loop without other accesses.
const PROGRAM: &str = r#"
    #include "terrace/marker.h"
    static char pages[300 * 4096] __attribute__((aligned(4096)));
    static char other[4096] __attribute__((aligned(4096)));
    int main() {
        terrace_mark_alloc(pages, sizeof pages, "pages");
        terrace_mark_alloc(other, sizeof other, "other");
        for (int i = 0; i < 300; i++) ((volatile char *)pages)[i * 4096] = 1;
        terrace_region_begin("loop");
        char *p = other;
        long n = 200000;
        __asm__ volatile("1: mov (%0), %%al\n dec %1\n jnz 1b" : "+r"(p), "+r"(n) : : "rax", "memory");
        terrace_region_end("loop");
        return 0;
    }
"#;

fn resident(recorded: &Recorded) -> BTreeSet<u64> {
    let mut pages = BTreeSet::new();
    for (_, event) in recorded.events() {
        if let Event::Resident { start, bitmap } = &event.event {
            for i in 0..bitmap.len() as u64 * 64 {
                if bitmap[(i / 64) as usize] >> (i % 64) & 1 != 0 {
                    pages.insert(start / 4096 + i);
                }
            }
        }
    }
    pages
}

fn gaps(recorded: &Recorded) -> Vec<u64> {
    recorded
        .events()
        .filter_map(|(_, e)| match e.event {
            Event::Mark { kind: MarkKind::Gap, value, .. } => Some(value),
            _ => None,
        })
        .collect()
}

#[test]
fn a_region_keeps_residency() {
    let workshop = Workshop::new();
    let program = workshop.static_c(PROGRAM);
    let recorded = run(&[&program], &RecordOptions { region: true, ..options() });
    let accesses = recorded.accesses();
    assert!((200_000..200_100).contains(&accesses), "{accesses}");
    let pages = recorded.object("pages").start.0 / 4096;
    let resident = resident(&recorded);
    assert!((pages..pages + 300).all(|page| resident.contains(&page)));
    assert!(!resident.contains(&(recorded.object("other").start.0 / 4096)), "touched only in the region");
    // What was left out before is said, and what there is before it is everything.
    let full = run(&[&program], &options());
    assert_eq!(gaps(&full), [0; 0]);
    let (before, after) = (gaps(&recorded)[0] as usize, gaps(&recorded)[1] as usize);
    assert!(before > 300 && after > 0);
    assert_eq!(before + accesses + after, full.accesses());
}

/// A region belongs to the process: one thread opens and closes it, another's accesses are kept in between.
#[test]
fn a_region_holds_for_all_threads() {
    let workshop = Workshop::new();
    let program = workshop.c(r#"
        #include "terrace/marker.h"
        #include <pthread.h>
        static volatile long before[100], inside[100], after[100];
        static _Atomic int step;
        static void wait_for(int wanted) { while (step != wanted) {} }
        static void *work(void *unused) {
            for (int i = 0; i < 100; i++) before[i] = i;
            step = 1;
            wait_for(2);
            for (int i = 0; i < 100; i++) inside[i] = i;
            step = 3;
            wait_for(4);
            for (int i = 0; i < 100; i++) after[i] = i;
            return 0;
        }
        int main() {
            terrace_mark_alloc((void *)before, sizeof before, "before");
            terrace_mark_alloc((void *)inside, sizeof inside, "inside");
            terrace_mark_alloc((void *)after, sizeof after, "after");
            pthread_t thread;
            pthread_create(&thread, 0, work, 0);
            wait_for(1);
            terrace_region_begin("region");
            step = 2;
            wait_for(3);
            terrace_region_end("region");
            step = 4;
            pthread_join(thread, 0);
            return 0;
        }
        "#);
    let recorded = run(&[&program], &RecordOptions { region: true, ..options() });
    let kept = |name| {
        let object = recorded.object(name);
        let all = recorded.batches.iter().flat_map(|b| &b.addr);
        all.filter(|a| object.contains(terrace_model::VirtAddr(**a))).count()
    };
    assert_eq!((kept("before"), kept("inside"), kept("after")), (0, 100, 0));
    // The marks are in the trace, once each and in the global order.
    let marks: Vec<MarkKind> = recorded
        .events()
        .filter_map(|(_, e)| match e.event {
            Event::Mark { kind: kind @ (MarkKind::RegionBegin | MarkKind::RegionEnd), .. } => {
                assert!(e.sequence > 0);
                Some(kind)
            }
            _ => None,
        })
        .collect();
    assert_eq!(marks, [MarkKind::RegionBegin, MarkKind::RegionEnd]);
}

#[test]
fn skip_and_limit_count_accesses() {
    let workshop = Workshop::new();
    let program = workshop.static_c(PROGRAM);
    let full = run(&[&program], &options());
    let addresses: Vec<u64> = full.batches.iter().flat_map(|b| b.addr.clone()).collect();
    for (skip, limit) in [(0, 1), (1, 1000), (5000, 12_345), (4096, 4096)] {
        let chosen = RecordOptions { skip, limit: Some(limit), ..options() };
        let recorded = run(&[&program], &chosen);
        assert!(recorded.status.success());
        let kept: Vec<u64> = recorded.batches.iter().flat_map(|b| b.addr.clone()).collect();
        assert_eq!(kept.len() as u64, limit);
        let expected = &addresses[skip as usize..(skip + limit) as usize];
        // The initial stack's place depends on the environment's random bytes in its low bits only.
        let same = kept.iter().zip(expected).filter(|(a, b)| a.abs_diff(**b) < 4096).count();
        assert!(same * 10 >= kept.len() * 9, "{same} of {} accesses are in the same place", kept.len());
        // An update's load and store are left out or kept together.
        let gaps = gaps(&recorded);
        match skip {
            0 => assert!(gaps.is_empty(), "{gaps:?}"),
            _ => assert!(matches!(gaps[..], [gap] if gap == skip || gap == skip + 1), "{gaps:?}"),
        }
    }
}

#[test]
fn every_keeps_part_of_each_period() {
    let workshop = Workshop::new();
    let program = workshop.static_c(PROGRAM);
    let full = run(&[&program], &options()).accesses();
    let every = Some(Every { period: 10_000, length: 300 });
    let recorded = run(&[&program], &RecordOptions { every, ..options() });
    let periods = full / 10_000;
    let kept = recorded.accesses();
    assert!((periods * 300..=(periods + 1) * 300).contains(&kept), "{kept} of {full}");
    // The last gap ends with the program.
    let mut gaps = gaps(&recorded);
    let last = gaps.pop().unwrap();
    assert!(last <= 9700 && gaps.iter().all(|&gap| gap == 9700), "{last} {gaps:?}");
    assert_eq!(
        (gaps.iter().sum::<u64>() + last) as usize + kept,
        full,
        "what was left out and what was kept is all"
    );
}

#[test]
fn an_impossible_period_is_refused() {
    let every = Some(Every { period: 5, length: 6 });
    let error = terrace_recorder::record(&["true".into()], &RecordOptions { every, ..options() });
    assert!(error.err().unwrap().to_string().contains("5:6"));
}

#[test]
fn the_program_goes_on_after_the_limit_or_ends_there() {
    let workshop = Workshop::new();
    let program = workshop.static_c("#include <unistd.h>\nint main() { usleep(300000); return 6; }");
    let limit = Some(100);
    let recorded = run(&[&program], &RecordOptions { limit, ..options() });
    assert_eq!((recorded.accesses(), recorded.status.code()), (100, Some(6)));
    let endless = workshop.static_c("int main() { for (volatile long i = 0;; i++) {} }");
    let recorded = run(&[&endless], &RecordOptions { limit, end_at_limit: true, ..options() });
    assert_eq!((recorded.accesses(), recorded.status.success()), (100, false));
}

#[test]
fn servers_that_a_script_starts_end_at_the_limit_with_it() {
    // The shell waits until the server has begun: the pipe ends when its standard output goes elsewhere.
    let script = "x=$( { echo; exec sleep 1000 >/dev/null; } & ); while :; do :; done";
    let options = RecordOptions { limit: Some(3_000_000), end_at_limit: true, ..options() };
    let recorded = run(&[&"/bin/dash", &"-c", &script], &options);
    let spawned = recorded.events().filter_map(|(_, e)| match e.event {
        Event::Spawn { process: 1.., os_id, .. } => Some(os_id),
        _ => None,
    });
    let servers: Vec<u32> = spawned.collect();
    assert!(!servers.is_empty());
    // Where nobody waits for it, what is left is a zombie.
    let stat = |id: u32| std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let has_ended = |id: u32| {
        stat(id).rsplit(')').next().is_some_and(|after| after.is_empty() || after.starts_with(" Z"))
    };
    let ended = (0..250).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        servers.iter().all(|id| has_ended(*id))
    });
    assert!(ended, "{:?}", servers.iter().map(|id| stat(*id)).collect::<Vec<_>>());
}

#[test]
fn a_slow_consumer_holds_the_program_back() {
    let workshop = Workshop::new();
    let program = workshop.static_c(
        "static volatile long a; int main() { for (long i = 0; i < 2000000; i++) a = i; return 0; }",
    );
    let mut recording = start(&[&program], &options());
    let mut accesses = recording.next_batch().unwrap().unwrap().len();
    // However long we look away, the program is at most a queue of chunks ahead, 131,072 records: it comes to rest long
    // before its end.
    let pid = recording.id();
    let state_and_time = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
        (fields[0].to_owned(), fields[11].parse::<u64>().unwrap())
    };
    let rests = (0..60).any(|_| {
        let (_, before) = state_and_time();
        std::thread::sleep(std::time::Duration::from_millis(500));
        state_and_time().1 - before <= 5
    });
    assert!(rests && state_and_time().0 != "Z", "the program goes on without anyone listening");
    while let Some(batch) = recording.next_batch().unwrap() {
        accesses += batch.len();
    }
    assert!(accesses >= 2_000_000);
    assert!(recording.wait().unwrap().success());
}
