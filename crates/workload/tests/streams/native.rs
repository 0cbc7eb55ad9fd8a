//! Native runs: pages of every size, and what they count.

use super::*;
use terrace_workload::WorkloadError;

/// One array of its own, a heap that grows, and graph arrays, with the share that large pages can hold.
const ON_PAGES: [&str; 3] =
    ["gups,bytes=8 MiB,updates=1e4", "kv,keys=20e3,value=256 B,requests=1e4", "bfs,scale=14,edges=1e5"];

#[test]
fn every_page_size_the_machine_has_sees_the_same_accesses() {
    let kinds =
        [NativePages::Base, NativePages::TransparentHuge, NativePages::PooledHuge, NativePages::PooledGiant];
    for spec in ON_PAGES {
        let workload = open(spec).unwrap();
        let expected = workload.native_digests(NativePages::System).unwrap();
        for pages in kinds {
            match workload.native_digests(pages) {
                Ok(digests) => assert_eq!(digests, expected, "{spec} on {pages:?}"),
                // Most machines have no pool, and a test grows none.
                Err(WorkloadError::Pages { next, .. }) if pages != NativePages::Base => {
                    assert!(!next.is_empty())
                }
                Err(error) => panic!("{spec} on {pages:?}: {error}"),
            }
        }
    }
}

#[test]
fn native_memory_has_the_pages_asked_for() {
    let workload = open("gups,bytes=64 MiB,updates=1e4").unwrap();
    let run = workload.run_native(NativePages::Base).unwrap();
    assert_eq!((run.pages.huge, run.pages.giant), (0, 0));
    assert!(run.pages.base >= 64 << 20, "{:?}", run.pages);
    if let Ok(run) = workload.run_native(NativePages::PooledHuge) {
        assert_eq!((run.pages.huge, run.pages.base), (64 << 20, 0));
    }
    if let Ok(run) = workload.run_native(NativePages::TransparentHuge) {
        // Fragmented memory may yield fewer.
        assert!(run.pages.total() >= 64 << 20, "{:?}", run.pages);
    }
}

#[test]
fn native_runs_count_what_they_do() {
    for spec in SMALL {
        let workload = open(spec).unwrap();
        let run = workload.run_native(NativePages::System).unwrap();
        let batches = batches(spec);
        let emitted: u64 = batches.iter().map(|b| b.len() as u64).sum();
        assert_eq!(run.accesses + run.init_accesses, emitted, "{spec}");
        assert_eq!(run.accesses, run_accesses_of(&batches).len() as u64, "{spec}");
        assert_eq!(run.checksum, workload.run_native(NativePages::System).unwrap().checksum, "{spec}");
        assert!(run.bytes_touched > 0 && run.seconds > 0.0, "{spec}");
    }
}
