//! What every stream promises: valid batches, mapped addresses, the stated number of accesses, the same stream again,
//! and the same accesses on real memory.

use super::*;
use terrace_trace::{SequencedEvent, StreamId};
use terrace_workload::Digest;

/// Plays the address-space events and checks every access against them.
#[derive(Default)]
struct Checker {
    mapped: Vec<AddressRange>,
    sequence: u64,
    order: Order,
    streams: Vec<u64>,
    accesses: u64,
    digests: Vec<Digest>,
    process_ended: bool,
    objects: std::collections::HashSet<u64>,
}

/// What the batches of each stream must come after, and what they must not wait for.
#[derive(Default)]
struct Order {
    /// Barriers that each stream has come to: numbers of their marks in the global order.
    barriers: Vec<Vec<u64>>,
    exits: Vec<u64>,
    /// Number of the last event that is neither, which all batches that begin later come after.
    last: u64,
}

impl Order {
    fn begins(&mut self, batch: &Batch, spec: &str) {
        let stream = batch.stream.index();
        self.barriers.resize_with(self.barriers.len().max(stream + 1), Vec::new);
        let passed = self.barriers[stream].len();
        let released = self.barriers.iter().filter_map(|marks| marks.get(..passed)?.last().copied()).max();
        let mut expected = released.unwrap_or(0).max(self.last);
        if stream == 0
            && batch.addr.is_empty()
            && matches!(batch.events[..], [SequencedEvent { event: Event::Exit { .. }, .. }])
        {
            expected = self.exits.iter().copied().max().unwrap_or(0).max(expected);
        }
        assert_eq!(batch.after, expected, "{spec}: what a batch of stream {stream} comes after");
    }

    fn event(&mut self, stream: u32, event: &SequencedEvent) {
        match event.event {
            Event::Mark { kind: MarkKind::Barrier, .. } => {
                self.barriers[stream as usize].push(event.sequence);
            }
            Event::Exit { .. } => self.exits.push(event.sequence),
            _ => self.last = event.sequence,
        }
    }
}

impl Checker {
    fn batch(&mut self, batch: &Batch, spec: &str) {
        assert_eq!(batch.validate(), Ok(()), "{spec}");
        assert!(batch.len() <= terrace_trace::BATCH_ACCESSES, "{spec}: {} accesses", batch.len());
        self.order.begins(batch, spec);
        assert!(!self.process_ended, "{spec}: nothing follows the end of the process");
        let StreamId(stream) = batch.stream;
        if stream as usize == self.streams.len() {
            let Some(Event::Spawn { process: 0, thread, .. }) = batch.events.first().map(|e| &e.event) else {
                panic!("{spec}: stream {stream} does not begin with its spawn");
            };
            assert_eq!((*thread, batch.events[0].before), (stream, 0), "{spec}");
            self.streams.push(0);
            self.digests.push(Digest::default());
        }
        let mut loads = self.streams[stream as usize];
        for item in batch.items() {
            match item {
                Item::Access(access) => {
                    let range = AddressRange::new(access.addr, access.size.into());
                    let inside = |m: &&AddressRange| m.contains(range.start) && range.end() <= m.end();
                    assert!(self.mapped.iter().rev().any(|m| inside(&m)), "{spec}: {range:?} is not mapped");
                    assert!(
                        u64::from(access.depends_on) <= loads,
                        "{spec}: depends on a load before the first"
                    );
                    loads += u64::from(access.kind == AccessKind::Read);
                    self.accesses += 1;
                    self.digests[stream as usize].add(access.addr, access.size, access.kind);
                }
                Item::Event(event) => {
                    if event.event.is_global() {
                        self.sequence += 1;
                        assert_eq!(event.sequence, self.sequence, "{spec}");
                        self.order.event(stream, event);
                    }
                    self.event(&event.event, spec);
                }
            }
        }
        self.streams[stream as usize] = loads;
    }

    fn event(&mut self, event: &Event, spec: &str) {
        match event {
            Event::Map { range, .. } => {
                assert_eq!((range.start.0 % 4096, range.bytes % 4096), (0, 0), "{spec}: {range:?}");
                assert!(!self.mapped.iter().any(|m| m.overlaps(range)), "{spec}: {range:?} is mapped twice");
                // A growing heap is one mapping.
                match self.mapped.iter_mut().find(|m| m.end() == range.start) {
                    Some(grown) => grown.bytes += range.bytes,
                    None => self.mapped.push(*range),
                }
            }
            Event::Unmap { range } => {
                let whole = self.mapped.iter().position(|m| m.contains(range.start)).expect("was mapped");
                let old = self.mapped.remove(whole);
                for part in [
                    AddressRange::new(old.start.0, range.start.0 - old.start.0),
                    AddressRange::new(range.end().0, old.end().0 - range.end().0),
                ] {
                    if part.bytes > 0 {
                        self.mapped.push(part);
                    }
                }
            }
            Event::Alloc { object, range, .. } => {
                assert!(self.objects.insert(*object), "{spec}: object {object} twice");
                let last = VirtAddr(range.end().0 - 1);
                assert!(self.mapped.iter().any(|m| m.contains(range.start) && m.contains(last)), "{spec}");
            }
            Event::Free { object } => assert!(self.objects.remove(object), "{spec}: freed twice"),
            Event::Exit { process_ends } => self.process_ended = *process_ends,
            _ => {}
        }
    }
}

/// Everything that a workload promises.
pub fn check(spec: &str) {
    let workload = open(spec).unwrap();
    let mut checker = Checker::default();
    for batch in batches(spec) {
        checker.batch(&batch, spec);
    }
    assert!(checker.process_ended, "{spec}");
    assert_eq!(checker.streams.len(), workload.threads() as usize, "{spec}");
    assert_eq!(workload.header().expected_accesses, Some(workload.accesses()));
    if workload.info().exact {
        assert_eq!(checker.accesses, workload.accesses(), "{spec}");
    } else {
        let ratio = workload.accesses() as f64 / checker.accesses as f64;
        assert!((0.75..1.25).contains(&ratio), "{spec}: expected / real = {ratio}");
    }
    let emitted: Vec<u64> = checker.digests.iter().map(|d| d.value()).collect();
    assert_eq!(
        emitted,
        workload.native_digests(NativePages::System).unwrap(),
        "{spec}: native and emitted accesses differ"
    );
}

#[test]
fn streams_keep_their_promises_and_equal_the_native_run() {
    assert_eq!(
        SMALL.map(|spec| spec.split(',').next().unwrap()),
        *all().iter().map(|i| i.name).collect::<Vec<_>>()
    );
    for spec in SMALL {
        for threads in [1, 3] {
            check(&with_threads(spec, threads));
        }
    }
}

/// Sizes that divide badly, more threads than work, the ends of parameters' ranges.
#[test]
fn promises_hold_at_odd_sizes() {
    for spec in [
        "cg,rows=2000,nonzeros=200,iterations=2",
        "cg,rows=3000,nonzeros=160,threads=3",
        "bt,bytes=1 MiB,planes=5,threads=7",
        "ft,bytes=256 KiB,threads=32",
        "mg,bytes=1 MiB,planes=4,threads=32",
        "mg,bytes=3 MiB,planes=77,threads=3",
        "pmbench,bytes=5000 KiB,accesses=999,threads=32,sigma=10,reads=1",
        "service,bytes=9 MiB,chain=32,value=4 KiB,values=varied,requests=99,threads=5,think=0",
        "service,bytes=1 MiB,value=1 B,hot=1,traffic=1,requests=500,think=0",
        "lsm,bytes=32 MiB,threads=32,old=0.9,requests=100,reads=0,think=0",
        "lsm,bytes=16 MiB,threads=5,row=16 KiB,field=16 KiB,requests=500,reads=0.3,think=0",
        "tpcc,bytes=32 MiB,threads=32,cold=0.9,requests=3000,think=0",
        "tpcc,bytes=4 MiB,threads=3,cold=0.05,requests=1000,think=0",
        "analytics,bytes=2 MiB,threads=32,input=0,think=0",
        "analytics,bytes=320 KiB,threads=5,input=0.9,zipf=0,iterations=3,think=0",
        "tunkrank,scale=10,implicit=true,edges=90e3,threads=5",
        "facesim,side=5,visits=99,threads=7",
        "facesim,side=4,visits=1001,threads=40",
        "search,bytes=1 MiB,stored=0.9,requests=600,threads=3,think=0",
        "search,bytes=1 MiB,stored=0.05,requests=300,zipf=4,think=0",
    ] {
        check(spec);
    }
}

#[test]
fn the_same_parameters_give_the_same_stream_and_another_seed_another() {
    for spec in SMALL {
        let first = batches(spec);
        assert!(!differs(&first, spec), "{spec}: not repeatable");
        if open(spec).unwrap().info().parameters().iter().any(|p| p.name == "seed") {
            assert!(differs(&first, &format!("{spec},seed=2")), "{spec}: the seed has no effect");
        }
    }
}

#[test]
fn hundreds_of_gigabytes_need_no_memory() {
    for spec in [
        "gups,bytes=512 GiB,updates=1e4,init=none",
        "chase,bytes=512 GiB,accesses=1e4,init=none",
        "iwb,bytes=512 GiB,init=none,passes=1",
        "pb,bytes=512 GiB,init=none,passes=1",
        "stream,bytes=300 GiB,init=none",
        "stencil,side=2048,init=none",
        "bfs,scale=30,edges=1e4,implicit=true,init=none",
        "pagerank,scale=30,implicit=true,init=none",
        "tunkrank,scale=30,edges=1e4,implicit=true,init=none",
        "facesim,side=480,visits=1e4,init=none",
        "canneal,elements=4e9,moves=1000,init=none",
        "cg,rows=6e7,nonzeros=256,init=none",
        "svm,rows=3e8,features=11e7,init=none",
        "bt,bytes=300 GiB,init=none",
        "ft,bytes=300 GiB,init=none",
        "mg,bytes=300 GiB,init=none",
        "pmbench,bytes=300 GiB,accesses=1e4,init=none",
        "service,bytes=300 GiB,requests=1e4,init=none",
        "lsm,bytes=300 GiB,requests=1e4,init=none",
        "tpcc,bytes=300 GiB,requests=1e4,init=none",
        "analytics,bytes=300 GiB,init=none",
        "xsbench,nuclides=2000,gridpoints=11303,lookups=10,init=none",
    ] {
        let workload = open(spec).unwrap();
        assert!(workload.footprint() > 100 << 30, "{spec}: {}", workload.footprint());
        let mut source = workload.source();
        let mut accesses = 0;
        while accesses < 5000
            && let Some(batch) = source.next_batch().unwrap()
        {
            accesses += batch.len();
        }
        assert!(accesses > 100, "{spec}");
        let message = workload.run_native(NativePages::System).unwrap_err().to_string();
        assert!(message.contains("smaller size"), "{message}");
    }
}
