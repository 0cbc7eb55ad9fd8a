//! Every workload against what its stream promises: valid batches, mapped addresses, the stated number of accesses,
//! the same stream again, and the same accesses on real memory.

use terrace_model::{AddressRange, VirtAddr};
use terrace_trace::{Access, AccessKind, Batch, Event, Item, MarkKind, StreamId};
use terrace_workload::{Digest, NativePages, WorkloadError, all, open};

/// Small versions, with at most a few million accesses. The slab cache is small enough to evict.
const SMALL: [&str; 27] = [
    "gups,bytes=8 MiB,updates=1e5",
    "chase,bytes=1 MiB,accesses=1e5",
    "stream,bytes=3 MiB",
    "kv,keys=4000,requests=8e3",
    "slab,bytes=64 MiB,keys=200e3,requests=8e3",
    "btree,keys=2e5,lookups=5e3",
    "bfs,scale=12,edges=2e5,list=true",
    "pagerank,scale=12,edgefactor=8",
    "xsbench,gridpoints=200,lookups=2000",
    "cg,rows=10000,nonzeros=7,iterations=2",
    "svm,rows=20e3,features=5e3,nonzeros=20,updates=3e3",
    "bt,bytes=2 MiB,planes=6,iterations=2",
    "ft,bytes=1 MiB,iterations=2",
    "mg,bytes=2 MiB,planes=9,iterations=2",
    "stencil,side=32,iterations=2",
    "hashjoin,build=3e4,probe=5e4",
    "canneal,elements=5e4,moves=5e3",
    "iwb,bytes=16 MiB,threads=1,passes=3",
    "pb,bytes=16 MiB,threads=1",
    "pmbench,bytes=9 MiB,accesses=5e4",
    "service,bytes=8 MiB,requests=5e3,hot=0.01,traffic=0.5,zipf=0.9,chain=2,think=100",
    "lsm,bytes=8 MiB,requests=3e3,reads=0.5,think=100",
    "tpcc,bytes=8 MiB,requests=2e3,think=100",
    "analytics,bytes=1 MiB,think=100",
    "search,bytes=8 MiB,requests=1e3,think=100",
    "growth,bytes=8 MiB,apart=0.1,chunk=512 KiB,accesses=1e4,compute=1e6",
    "churn,bytes=4 MiB,smallest=64 KiB,largest=1 MiB,allocations=40,uses=500",
];

fn with_threads(spec: &str, threads: u32) -> String {
    format!("{},threads={threads}", spec.replace(",threads=1", ""))
}

fn batches(spec: &str) -> Vec<Batch> {
    let workload = open(spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
    let mut source = workload.source();
    let mut batches = Vec::new();
    while let Some(batch) = source.next_batch().unwrap() {
        batches.push((*batch).clone());
    }
    batches
}

/// Accesses after the mark that begins the run, of one stream.
fn run_accesses(spec: &str) -> Vec<Access> {
    let mut running = false;
    let mut accesses = Vec::new();
    for batch in &batches(spec) {
        for item in batch.items() {
            match item {
                Item::Access(access) if running => accesses.push(access),
                Item::Access(_) => {}
                Item::Event(e) => {
                    if let Event::Mark { kind: MarkKind::Phase, name, .. } = &e.event {
                        running = name == "run";
                    }
                }
            }
        }
    }
    accesses
}

/// Plays the address-space events and checks every access against them.
#[derive(Default)]
struct Checker {
    mapped: Vec<AddressRange>,
    sequence: u64,
    streams: Vec<u64>,
    accesses: u64,
    digests: Vec<Digest>,
    process_ended: bool,
    objects: std::collections::HashSet<u64>,
}

impl Checker {
    fn batch(&mut self, batch: &Batch, spec: &str) {
        assert_eq!(batch.validate(), Ok(()), "{spec}");
        assert!(batch.len() <= terrace_trace::BATCH_ACCESSES, "{spec}: {} accesses", batch.len());
        assert_eq!(batch.after, self.sequence, "{spec}: batches are made one after the other");
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
fn check(spec: &str) {
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
        assert!(first == batches(spec), "{spec}: not repeatable");
        if open(spec).unwrap().info().parameters.iter().any(|p| p.name == "seed") {
            assert!(first != batches(&format!("{spec},seed=2")), "{spec}: the seed has no effect");
        }
    }
}

/// Another value for every parameter that is not covered by the tests of seed and threads: each must change the stream.
#[test]
fn every_parameter_has_an_effect() {
    for (spec, info) in SMALL.iter().zip(all()) {
        let base = batches(spec);
        for parameter in info.parameters.iter().filter(|p| !["seed", "threads"].contains(&p.name)) {
            let value = match (info.name, parameter.name) {
                ("pb", "init") => "read-first",
                (_, "init") => "lines",
                ("slab", "bytes") => "20 MiB",
                ("svm", "moves") => "0.5",
                (_, "bytes") => "5 MiB",
                (_, "implicit" | "workspace") => "true",
                (
                    _,
                    "updates" | "accesses" | "requests" | "lookups" | "edges" | "probe" | "moves" | "build",
                ) => "900",
                ("bfs", "list") => "false",
                ("bfs", "first") => "search",
                ("slab", "keys") => "150e3",
                (_, "keys" | "elements" | "rows") => "999",
                (_, "node") => "128 B",
                ("churn", "smallest") => "128 KiB",
                ("churn", "largest") => "768 KiB",
                (_, "value" | "smallest") => "100 B",
                (_, "largest") => "1 KiB",
                (_, "at_once" | "chunked" | "apart") => "0.2",
                (_, "chunk") => "1 MiB",
                (_, "fronts" | "phases") => "2",
                (_, "features") => "4e3",
                (_, "settle") => "1e6",
                (_, "compute") => "1e7",
                (_, "allocations" | "uses") => "30",
                (_, "iterations" | "passes" | "nonzeros" | "edgefactor") => "5",
                (_, "width") => "8",
                (_, "scale") => "10",
                (_, "side") => "24",
                (_, "reads" | "preload" | "accept") => "0.1",
                (_, "zipf" | "skew") => "1.2",
                (_, "nuclides") => "90",
                (_, "gridpoints") => "300",
                (_, "sigma" | "traffic" | "hot" | "old" | "cold" | "input" | "stored") => "0.25",
                (_, "think") => "1e6",
                (_, "planes") => "12",
                (_, "timed") => "yes",
                (_, "values") => "varied",
                (_, "popular") => "together",
                (_, "chain") => "3",
                (_, "row") => "1 KiB",
                (_, "field") => "64 B",
                (_, "line") => "hashed",
                (_, "mode") => "write",
                (_, "order") => "sequential",
                (workload, key) => panic!("{workload}: add a value for {key}"),
            };
            let mut pairs: Vec<String> = spec.split(',').map(str::to_owned).collect();
            pairs.retain(|pair| !pair.starts_with(&format!("{}=", parameter.name)));
            let changed = format!("{},{}={value}", pairs.join(","), parameter.name);
            assert!(base != batches(&changed), "{changed}: the parameter has no effect");
        }
    }
}

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
        let emitted: u64 = batches(spec).iter().map(|b| b.len() as u64).sum();
        assert_eq!(run.accesses + run.init_accesses, emitted, "{spec}");
        assert_eq!(run.accesses, run_accesses(spec).len() as u64, "{spec}");
        assert_eq!(run.checksum, workload.run_native(NativePages::System).unwrap().checksum, "{spec}");
        assert!(run.bytes_touched > 0 && run.seconds > 0.0, "{spec}");
    }
}

#[test]
fn triad_reads_b_and_c_and_writes_a_in_order() {
    let accesses = run_accesses("stream,bytes=384 KiB,width=8,iterations=1,init=none");
    let (a, b, c) = (accesses[2].addr, accesses[0].addr, accesses[1].addr);
    assert_eq!(accesses.len(), 3 * 16384);
    for (i, triple) in accesses.chunks(3).enumerate() {
        let offset = 8 * i as u64;
        assert_eq!([triple[0].addr, triple[1].addr, triple[2].addr], [b + offset, c + offset, a + offset]);
        assert_eq!(triple[2].kind, AccessKind::Write);
        assert!(triple.iter().all(|access| access.depends_on == 0));
    }
}

#[test]
fn gups_loads_and_stores_each_word_it_updates() {
    let accesses = run_accesses("gups,bytes=64 KiB,updates=20e3");
    assert_eq!(accesses.len(), 40_000);
    let mut counts = vec![0u32; 8192];
    let base = accesses.iter().map(|a| a.addr).min().unwrap() & !0xffff;
    for pair in accesses.chunks(2) {
        assert_eq!((pair[0].kind, pair[1].kind), (AccessKind::Read, AccessKind::Write));
        assert_eq!(pair[0].addr, pair[1].addr);
        counts[((pair[0].addr - base) / 8) as usize] += 1;
    }
    // Poisson with mean 2.44: an empty share of exp(-2.44), 8.7 %.
    let empty = counts.iter().filter(|c| **c == 0).count() as f64 / 8192.0;
    assert!((0.07..0.105).contains(&empty), "{empty}");
}

#[test]
fn chase_visits_each_node_once_per_lap_and_depends_on_the_load_before() {
    let nodes = 1000;
    let accesses = run_accesses("chase,bytes=64000 B,accesses=3000");
    let lap = |n: usize| accesses[n * nodes..(n + 1) * nodes].iter().map(|a| a.addr).collect::<Vec<_>>();
    let mut sorted = lap(0);
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), nodes);
    assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] == 64));
    assert_eq!(lap(0), lap(1));
    assert_eq!(lap(0), lap(2));
    assert!(accesses[1..].iter().all(|a| a.depends_on == 1));
}

#[test]
fn iwb_threads_visit_disjoint_pages_one_line_each() {
    let mut visits = [0u32; 64];
    let mut base = u64::MAX;
    for batch in &batches("iwb,bytes=256 KiB,threads=4,passes=2,mode=write,init=none") {
        base = batch.addr.iter().copied().fold(base, u64::min);
        for (pair, kinds) in batch.addr.chunks(2).zip(batch.kind.chunks(2)) {
            assert_eq!(pair[0], pair[1]);
            assert_eq!(kinds, [AccessKind::Read, AccessKind::Write]);
            let page = (pair[0] - base) / 4096;
            assert_eq!((pair[0] - base) % 4096, 0, "always the page's first line");
            assert_eq!(page % 4, u64::from(batch.stream.0), "thread n visits n, n + N, n + 2N");
            visits[page as usize] += 1;
        }
    }
    assert_eq!(visits, [2; 64]);
}

#[test]
fn pb_writes_the_first_half_and_initialises_in_the_order_asked_for() {
    let accesses = run_accesses("pb,bytes=512 KiB,threads=1,passes=1");
    let base = accesses[0].addr;
    for access in &accesses {
        let in_write_half = access.addr - base < 256 << 10;
        assert!(in_write_half || access.kind == AccessKind::Read);
    }
    assert_eq!(accesses.len(), 3 * 64);
    for (init, first) in [("write-first", 0), ("read-first", 256 << 10)] {
        let batches = batches(&format!("pb,bytes=512 KiB,threads=2,init={init}"));
        let order: Vec<u64> = batches.iter().flat_map(|b| b.addr.clone()).take(128).collect();
        assert!(
            order[..64].iter().all(|addr| (first..first + (256 << 10)).contains(&(addr - base))),
            "{init}"
        );
    }
}

#[test]
fn the_store_grows_its_heap_and_its_table_while_it_runs() {
    let (mut heap, mut tables, mut freed) = (0u64, 0, 0);
    for batch in batches("kv,keys=5000,requests=1,preload=1") {
        for event in &batch.events {
            match &event.event {
                Event::Map { range, kind: terrace_trace::MapKind::Heap, .. } => heap += range.bytes,
                Event::Map { .. } => tables += 1,
                Event::Unmap { .. } => freed += 1,
                _ => {}
            }
        }
    }
    // 5000 entries of 32 + 32 + 16 + 512 bytes; tables of 512, 1024, 2048, 4096 and 8192 buckets. A table is given
    // back once all its buckets have moved, one per request: the last move is under way.
    assert!((5000 * 592..5000 * 592 + (256 << 10)).contains(&heap), "{heap}");
    assert_eq!((tables, freed), (5, 3));
}

/// Bytes that the run reads and writes, by the structure they lie in.
fn traffic(spec: &str) -> std::collections::HashMap<String, (u64, u64)> {
    let mut sites = Vec::new();
    let mut structures = Vec::new();
    for event in batches(spec).iter().flat_map(|batch| &batch.events) {
        match &event.event {
            Event::Site { name, .. } => sites.push(name.clone()),
            Event::Alloc { site, range, .. } => structures.push((*range, *site)),
            _ => {}
        }
    }
    structures.sort_by_key(|(range, _)| range.start.0);
    let mut traffic = std::collections::HashMap::new();
    for access in run_accesses(spec) {
        let after = structures.partition_point(|(range, _)| range.start.0 <= access.addr);
        let (range, site) = structures[after - 1];
        assert!(range.contains(VirtAddr(access.addr)), "{spec}: {:x} is in no structure", access.addr);
        let (read, written): &mut (u64, u64) = traffic.entry(sites[site as usize].clone()).or_default();
        *(if access.kind == AccessKind::Read { read } else { written }) += u64::from(access.size);
    }
    traffic
}

#[test]
fn bt_writes_the_right_hand_side_most_and_never_the_forcing() {
    let traffic = traffic("bt,bytes=2 MiB,planes=6,iterations=2");
    let written = |name: &str| traffic[name].1;
    // Three differences, three solves of which each writes twice, against one addition.
    assert_eq!(written("rhs"), 9 * written("u"));
    assert_eq!(written("forcing"), 0);
    assert_eq!(written("us") * 5, written("u"));
    assert!(traffic["u"].0 > 10 * written("u"));
}

#[test]
fn ft_writes_each_array_as_often_as_its_passes_do() {
    let traffic = traffic("ft,bytes=1 MiB,iterations=1");
    let one = traffic["u0"].1;
    assert_eq!(["u0", "u1"].map(|name| traffic[name]), [(one, one), (3 * one, 4 * one)]);
    assert_eq!(traffic["twiddle"], (one / 2, 0));
}

#[test]
fn mg_never_writes_its_right_hand_side_and_sweeps_the_others_as_a_v_cycle_does() {
    let traffic = traffic("mg,bytes=2 MiB,planes=16,iterations=1");
    let grid = traffic["v"].0 / 2;
    assert_eq!(traffic["v"], (2 * grid, 0), "two residuals of the finest grid");
    let (r, u) = (traffic["r"].1 as f64 / grid as f64, traffic["u"].1 as f64 / grid as f64);
    // On the finest grid two residuals, an interpolation and a smoothing; below an eighth, a sixty-fourth, ...
    assert!((2.0..2.5).contains(&r) && (2.0..2.7).contains(&u), "{r} {u}");
}

#[test]
fn cg_s_workspace_is_touched_before_the_matrix_and_never_again() {
    let traffic = |workspace: bool| traffic(&format!("cg,rows=2000,nonzeros=20,workspace={workspace}"));
    let (with, without) = (traffic(true), traffic(false));
    assert_eq!(with.get("workspace").copied().unwrap_or_default(), (0, 0));
    assert_eq!(with["values"], without["values"]);
    let (with, without) = (open("cg,rows=2000,nonzeros=20,workspace=true"), open("cg,rows=2000,nonzeros=20"));
    assert_eq!(with.unwrap().footprint(), without.unwrap().footprint() + 12 * 2000 * 20);
}

#[test]
fn ft_touches_its_arrays_side_by_side() {
    let touched: Vec<u64> = batches("ft,bytes=4 MiB").iter().flat_map(|b| b.addr.clone()).take(500).collect();
    let u0 = touched.iter().filter(|addr| **addr < touched[0] + (1 << 20)).count();
    assert!((190..210).contains(&u0), "two fifths of the pages are u0's: {u0}");
}

#[test]
fn cg_stores_a_row_s_product_once_however_long_the_row() {
    assert_eq!(traffic("cg,rows=2000,nonzeros=200,iterations=2")["q"].1, 2 * 2000 * 8);
}

#[test]
fn pmbench_draws_pages_around_the_middle_after_touching_all_in_order() {
    for (sigma, inside) in [("0.125", 0.6827), ("0.25", 0.6827 / 0.9545)] {
        let spec = format!("pmbench,bytes=16 MiB,accesses=1e5,reads=0.8,sigma={sigma}");
        let touched: Vec<u64> = batches(&spec).iter().flat_map(|b| b.addr.clone()).take(4096).collect();
        assert!(touched.windows(2).all(|pair| pair[1] - pair[0] == 4096));
        let accesses = run_accesses(&spec);
        let middle = touched[2048] as f64;
        let reach = sigma.parse::<f64>().unwrap() * f64::from(16 << 20);
        let near = accesses.iter().filter(|a| (a.addr as f64 - middle).abs() < reach).count() as f64 / 1e5;
        assert!((near - inside).abs() < 0.01, "{sigma}: {near}");
        let reads = accesses.iter().filter(|a| a.kind == AccessKind::Read).count() as f64 / 1e5;
        assert!((reads - 0.8).abs() < 0.01, "{reads}");
    }
}

#[test]
fn pmbench_s_middle_moves_from_phase_to_phase() {
    let accesses = run_accesses("pmbench,bytes=16 MiB,accesses=1e5,sigma=0.02,phases=4");
    let least = accesses.iter().map(|a| a.addr).min().unwrap();
    let means: Vec<u64> = accesses
        .chunks(25_000)
        .map(|phase| (phase.iter().map(|a| a.addr - least).sum::<u64>() / phase.len() as u64) >> 20)
        .collect();
    assert!(means.windows(2).all(|pair| (3..=5).contains(&(pair[1] - pair[0]))), "MiB: {means:?}");
}

/// Accesses of the run to each piece of `bytes` of the structures called `name`, untouched pieces included.
fn pieces(spec: &str, name: &str, bytes: u64) -> Vec<u64> {
    let mut site = u32::MAX;
    let mut counts = std::collections::BTreeMap::new();
    for event in batches(spec).iter().flat_map(|batch| &batch.events) {
        match &event.event {
            Event::Site { site: number, name: found } if found == name => site = *number,
            Event::Alloc { site: of, range, .. } if *of == site => {
                counts.extend((range.start.0 / bytes..range.end().0 / bytes).map(|piece| (piece, 0u64)));
            }
            _ => {}
        }
    }
    for access in run_accesses(spec) {
        if let Some(count) = counts.get_mut(&(access.addr / bytes)) {
            *count += 1;
        }
    }
    counts.into_values().collect()
}

/// Instructions computed, and accesses made, between the end of initialisation and the begin of the run.
fn settled(spec: &str) -> (u64, u64) {
    let (mut instructions, mut accesses) = (0, 0);
    for batch in &batches(spec) {
        for item in batch.items() {
            match item {
                Item::Access(_) if instructions > 0 => accesses += 1,
                Item::Access(_) => {}
                Item::Event(e) => match &e.event {
                    Event::Compute { instructions: more } => instructions += more,
                    Event::Mark { kind: MarkKind::RegionBegin, .. } => return (instructions, accesses),
                    _ => {}
                },
            }
        }
    }
    panic!("{spec}: the run never begins");
}

#[test]
fn programs_settle_with_a_little_of_their_run_between_much_computing() {
    let (instructions, accesses) = settled("gups,bytes=8 MiB,updates=1e6,settle=4e9");
    assert_eq!((instructions, accesses), (4_000_000_000, 2000 * 2 * 64));
    // What fills its own structures does so before.
    let (instructions, accesses) = settled("kv,keys=4000,value=16 B,requests=8e3,settle=1e7");
    assert_eq!(instructions, 10_000_000);
    assert!((2000 * 4..2000 * 40).contains(&accesses), "{accesses}");
    // Less to do than there is time for: the run begins, with nothing left.
    let (instructions, accesses) = settled("gups,bytes=8 MiB,updates=640,settle=4e6,threads=2");
    assert!(instructions < 4_000_000 && accesses > 640, "{instructions} {accesses}");
    for spec in ["gups,bytes=8 MiB,updates=640,settle=4e6,threads=2", "bfs,scale=10,settle=1e6,threads=2"] {
        check(spec);
    }
}

#[test]
fn the_list_of_edges_lies_in_memory_and_is_not_searched() {
    let spec = "bfs,scale=12,edgefactor=8,edges=1e5";
    let listed = format!("{spec},list=true");
    let footprint = |spec: &str| open(spec).unwrap().footprint();
    assert_eq!(footprint(&listed) - footprint(spec), 16 * 8 * 4096);
    let traffic = traffic(&listed);
    assert!(traffic.contains_key("edges") && !traffic.contains_key("list"), "{traffic:?}");
}

#[test]
fn a_classifier_gathers_rows_by_columns_and_updates_one_vector() {
    let spec = "svm,rows=100e3,features=20e3,nonzeros=10,updates=2000,moves=0.5,init=none";
    let traffic = traffic(spec);
    assert!(!traffic.contains_key("data by rows"), "it is made once and never read again");
    let (nodes, gathered) = (traffic["data by columns"], traffic["D"]);
    assert_eq!(gathered, (2000 * 10 * 8, 0), "one look at each row of each column");
    assert_eq!(nodes.1, 0);
    // Columns are read again, and the direction is updated, where the coordinate moves: every second time.
    let moved = nodes.0 / 16 - 2000 * 10;
    assert!((9_000..11_000).contains(&moved), "{moved}");
    assert_eq!(traffic["xTd"], (8 * (2000 * 10 + moved), 8 * moved));
    assert_eq!(traffic["wpd"].1, 8 * moved / 10);
}

#[test]
fn a_service_has_few_hot_pages_scattered_over_huge_pages() {
    let redis = "service,bytes=32 MiB,values=varied,value=320 B,hot=0.0002,requests=2e4,think=0";
    let shares = |popular: &str| {
        let mut pages = pieces(&format!("{redis},popular={popular}"), "records", 4096);
        let huge = pages.chunks(512).filter(|pages| pages.iter().any(|count| *count > 500)).count();
        pages.sort_unstable_by(|a, b| b.cmp(a));
        let total: u64 = pages.iter().sum();
        (pages[..pages.len() / 100].iter().sum::<u64>() as f64 / total as f64, huge)
    };
    let (scattered, huge) = shares("scattered");
    assert!(scattered > 0.8, "a hundredth of the pages take nine tenths of the accesses: {scattered}");
    assert!(huge > 4, "they lie in {huge} huge pages");
    assert_eq!(shares("together").1, 1);
}

#[test]
fn think_time_lies_between_requests() {
    let thought = |think| -> u64 {
        let batches = batches(&format!("service,bytes=1 MiB,requests=100,think={think}"));
        let events = batches.iter().flat_map(|batch| &batch.events);
        events.map(|e| if let Event::Compute { instructions } = e.event { instructions } else { 0 }).sum()
    };
    assert_eq!((thought("0"), thought("1e6")), (0, 100_000_000));
}

#[test]
fn memtables_and_order_lines_grow_and_what_is_old_stays_untouched() {
    let lsm = "lsm,bytes=16 MiB,requests=2e4,reads=0.05,think=0,old=0.5";
    assert!(pieces(lsm, "old files", 4096).iter().all(|count| *count == 0));
    // 19,000 cells of 192 bytes, logged with 160.
    assert_eq!([pieces(lsm, "memtable", 1 << 20).len(), pieces(lsm, "commit log", 1 << 20).len()], [4, 3]);
    let tpcc = "tpcc,bytes=64 MiB,requests=4e3,think=0";
    // 1,800 new orders of ten lines on average.
    assert_eq!(pieces(tpcc, "new order lines", 1 << 20).len(), 2);
    let lines = pieces(tpcc, "order lines", 4096);
    let untouched = lines.iter().filter(|count| **count == 0).count();
    assert!(untouched > lines.len() * 9 / 10, "{untouched} of {}", lines.len());
}

#[test]
fn analytics_reads_its_input_once_and_writes_new_factors_in_each_pass() {
    let spec = "analytics,bytes=1 MiB,iterations=3,think=0";
    let traffic = traffic(spec);
    let input = (1 << 20) * 15 / 100 / 4096 * 4096;
    assert!((input - 32 * 512..=input).contains(&traffic["input"].0), "{}", traffic["input"].0);
    // As many users and items; each pass writes 256 bytes for each.
    let users = traffic["ratings by user"].1 / 1024;
    assert_eq!(traffic["new factors"].1, 2 * 3 * users * 256);
    assert_eq!(
        traffic["item factors"].0,
        64 * users * 256,
        "the first pass gathers those to begin with, later ones do not"
    );
}

#[test]
fn searches_hardly_touch_documents() {
    let traffic = traffic("search,bytes=64 MiB,requests=1e3,think=0");
    let total: u64 = traffic.values().map(|(read, _)| read).sum();
    assert!(traffic["documents"].0 * 8 < total, "{} of {total}", traffic["documents"].0);
    assert!(traffic.values().all(|(_, written)| *written == 0));
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

#[test]
fn wrong_parameters_are_named_with_the_nearest_right_one() {
    let message = |spec: &str| open(spec).err().expect(spec).to_string();
    assert!(message("gupps").contains("did you mean \"gups\"?"));
    assert!(message("gups,byte=1 GiB").contains("did you mean \"bytes\"?"));
    assert!(message("gups,bytes=12").contains("a size with its unit"));
    assert!(message("gups,updates=1.5").contains("a whole number"));
    assert!(message("gups,updates=-1").contains("a whole number"));
    assert!(message("gups,updates=nan").contains("a whole number"));
    assert!(message("gups,bytes").contains("not key=value"));
    assert!(message("gups,seed=1,seed=2").contains("twice"));
    assert!(message("gups,threads=0").contains("from 1 to 1024"));
    assert!(message("stream,width=7").contains("one of 8, 16, 32, 64"));
    assert!(message("kv,reads=1.5").contains("from 0 to 1"));
    assert!(message("gups,bytes=900 TiB").contains("32 TiB"));
    assert!(open("gups, bytes = 4GiB, updates=1_000_000 ,").is_ok());
    assert!(open("gups,seed=18446744073709551615").is_ok());
}

#[test]
fn defaults_parse_and_every_parameter_is_described() {
    for info in all() {
        let workload = open(info.name).unwrap();
        assert_eq!(workload.header().arguments.len(), info.parameters.len());
        assert!(info.description.contains("differs"), "{}", info.name);
        assert!(info.description.contains("Stands for"), "{}", info.name);
        assert!(info.parameters.iter().all(|p| !p.help.is_empty() && !p.unit.is_empty()));
    }
}
