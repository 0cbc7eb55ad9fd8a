//! Threads of the CPU beside kernels.

use super::*;
use terrace_trace::{Agent, Rules};

const SPEC: &str = "gpu-stream,bytes=192 KiB,iterations=3,cpu_threads=3,cpu_accesses=700";

#[test]
fn every_promise_holds_with_threads_beside_every_program_s_kernels() {
    for info in all().iter().filter(|info| info.name.starts_with("gpu-")) {
        let small = SMALL.iter().find(|spec| spec.split(',').next() == Some(info.name)).unwrap();
        promises::check(&format!("{small},cpu_threads=2,cpu_accesses=300,cpu_stores=0.25"));
    }
    promises::check(SPEC);
    promises::check(&format!("{SPEC},cpu_data=own,cpu_bytes=64 KiB"));
}

/// The GPU is the last stream. Each launch comes after it was enqueued, each wait after all of its kernel.
#[test]
fn the_first_thread_enqueues_and_waits() {
    let (mut rules, mut agents, mut order) = (Rules::default(), Vec::new(), Vec::new());
    let mut accesses = [0; 4];
    for batch in batches(SPEC) {
        rules.check(&batch).unwrap();
        let stream = batch.stream.0 as usize;
        for item in batch.items() {
            match item {
                Item::Access(_) => accesses[stream] += 1,
                Item::Event(event) => match &event.event {
                    Event::Spawn { agent, .. } => agents.push(*agent),
                    Event::Mark { kind: MarkKind::KernelEnqueue, .. } => {
                        order.push((stream, "enqueue", accesses[3]))
                    }
                    Event::Mark { kind: MarkKind::KernelLaunch, .. } => {
                        order.push((stream, "launch", accesses[3]))
                    }
                    Event::Mark { kind: MarkKind::KernelWait, value: 0, .. } => {
                        order.push((stream, "wait", accesses[3]));
                    }
                    _ => {}
                },
            }
        }
    }
    assert_eq!(agents, [Agent::Cpu, Agent::Cpu, Agent::Cpu, Agent::Gpu]);
    let lanes = 3 * 16384;
    let of = |launch: u64| {
        let (before, after) = (launch * lanes, (launch + 1) * lanes);
        [(0, "enqueue", before), (3, "launch", before), (0, "wait", after)]
    };
    assert_eq!(order, [of(0), of(1), of(2)].concat());
    assert_eq!(accesses, [2100, 2100, 2100, 3 * lanes]);
}

#[test]
fn every_parameter_has_an_effect() {
    let base = batches(SPEC);
    for (key, value) in [
        ("cpu_threads", "2"),
        ("cpu_accesses", "701"),
        ("cpu_stores", "0.5"),
        ("cpu_data", "own"),
        ("cpu_data=own,cpu_bytes", "64 KiB"),
    ] {
        let pairs = SPEC.split(',').filter(|pair| !pair.starts_with(&format!("{key}=")));
        let changed = format!("{},{key}={value}", pairs.collect::<Vec<_>>().join(","));
        assert!(base != batches(&changed), "{changed}");
    }
    assert!(
        batches(&format!("{SPEC},cpu_data=own")) != batches(&format!("{SPEC},cpu_data=own,cpu_bytes=64 KiB"))
    );
    let threads = "gpu-stream,bytes=192 KiB,cpu_accesses=5,cpu_data=own";
    assert!(batches(threads) == batches("gpu-stream,bytes=192 KiB"), "no threads, nothing of them");
}

#[test]
fn so_many_of_the_accesses_are_stores_and_all_data_is_accessed() {
    let spec = "gpu-stream,bytes=96 KiB,cpu_threads=2,cpu_accesses=1536,cpu_stores=0.25";
    let mut lines = std::collections::BTreeMap::new();
    let (mut stores, mut loads) = (0, 0);
    for batch in batches(spec).iter().filter(|batch| batch.stream.0 < 2) {
        for at in 0..batch.len() {
            *lines.entry(batch.addr[at] / 64).or_insert(0) += 1;
            if batch.kind[at] == AccessKind::Write { stores += 1 } else { loads += 1 }
        }
    }
    assert_eq!((stores, loads), (768, 2304));
    // Three vectors of 32 KiB; each thread goes twice through its half.
    assert_eq!(lines.len(), 1536);
    assert!(lines.values().all(|count| *count == 2));
}
