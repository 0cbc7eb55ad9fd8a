//! `terrace advise --pages` on a program whose three regions deserve different page sizes.

mod common;
use common::{json, stderr, stdout, terrace};
use serde_json::Value;
use std::path::{Path, PathBuf};
use terrace_model::AddressRange;
use terrace_trace::{
    AccessKind, Agent, BatchBuilder, Event, Header, MapKind, MarkKind, Protection, StreamId, TraceWriter,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const INDEX: u64 = 64 * GIB;
const CACHE: u64 = 96 * GIB + 512 * MIB;
const SPARSE: u64 = 128 * GIB + 512 * MIB;

/// A trace, written access by access.
struct Recording {
    writer: TraceWriter,
    builder: BatchBuilder,
    sequence: u64,
    after: u64,
}

impl Recording {
    fn event(&mut self, event: Event) {
        self.sequence += u64::from(event.is_global());
        self.builder.event(if event.is_global() { self.sequence } else { 0 }, event);
    }

    fn access(&mut self, addr: u64) {
        self.builder.access(addr, 8, AccessKind::Read, 1, 4);
        if self.builder.is_full() {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let after = std::mem::replace(&mut self.after, self.sequence);
        self.writer.push(&self.builder.take(after)).unwrap();
    }
}

/// An index of 1 GiB and a cache of 16 MiB, both touched everywhere and chased through at random; 256 MiB of which one page in each
/// 2 MiB is touched.
fn program(folder: &Path) -> PathBuf {
    let path = folder.join("three.trace");
    let header = Header { program: "three".to_owned(), origin: "recorded".to_owned(), ..Header::default() };
    let writer = TraceWriter::create(&path, &header).unwrap();
    let mut trace = Recording { writer, builder: BatchBuilder::new(StreamId(0)), sequence: 0, after: 0 };
    let name = String::new();
    let (agent, forked_from) = (Agent::Cpu, None);
    trace.event(Event::Spawn { process: 0, thread: 0, agent, forked_from, os_id: 0, name });
    for (site, (name, start, bytes)) in
        [("index", INDEX, GIB), ("cache", CACHE, 16 * MIB), ("sparse", SPARSE, 256 * MIB)]
            .into_iter()
            .enumerate()
    {
        let (site, range) = (site as u32, AddressRange::new(start, bytes));
        let (kind, protection) = (MapKind::Anonymous, Protection::READ_WRITE);
        trace.event(Event::Map { range, kind, protection, name: String::new() });
        trace.event(Event::Site { site, name: name.to_owned() });
        trace.event(Event::Alloc { object: u64::from(site) + 1, site, range });
    }
    for (start, bytes, step) in [(INDEX, GIB, 4096), (CACHE, 16 * MIB, 4096), (SPARSE, 256 * MIB, 2 * MIB)] {
        (start..start + bytes).step_by(step as usize).for_each(|addr| trace.access(addr));
    }
    trace.event(Event::Mark { kind: MarkKind::RegionBegin, name: String::new(), value: 0 });
    let mut random = 1u64;
    for at in 0..300_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pick = random >> 33;
        match at % 4 {
            0 | 1 => trace.access((INDEX + pick % GIB) & !7),
            2 => trace.access((CACHE + pick % (16 * MIB)) & !7),
            _ => trace.access(SPARSE + pick % 128 * 2 * MIB),
        }
    }
    trace.event(Event::Exit { process_ends: true });
    trace.flush();
    trace.writer.finish().unwrap();
    path
}

fn advise(trace: &Path, more: &[&str]) -> Value {
    let mut command = terrace();
    command
        .args(["advise", "--pages", "--policies", "thp", "--scale", "16", "--json", "-", "--trace"])
        .arg(trace);
    json(command.args(more))
}

fn find<'a>(document: &'a Value, list: &str, name: &str) -> &'a Value {
    let list = document[list].as_array().unwrap();
    list.iter().find(|entry| entry["name"] == name).unwrap_or_else(|| panic!("no {name} in {list:?}"))
}

#[test]
fn three_regions_deserve_three_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let trace = program(folder.path());
    let document = advise(&trace, &[]);
    let touched = GIB + 16 * MIB + 128 * 4096;
    assert_eq!(document["touched_bytes"], touched);
    for (name, size, bytes, mappable_1g) in
        [("index", "1g", GIB, GIB), ("cache", "2m", 16 * MIB, 0), ("sparse", "4k", 128 * 4096, 0)]
    {
        let region = find(&document, "regions", name);
        assert_eq!(
            (region["size"].as_str(), region["touched_bytes"].as_u64()),
            (Some(size), Some(bytes)),
            "{name}"
        );
        assert_eq!(region["sizes"][0]["mappable_bytes"], bytes, "{name}");
        assert_eq!(region["sizes"][1]["mappable_bytes"], mappable_1g, "{name}");
    }
    // By hand: in each 2 MiB of the sparse region all but one page.
    let bloat = 128 * (2 * MIB - 4096);
    assert_eq!(find(&document, "regions", "sparse")["sizes"][0]["bloat_bytes"], bloat);
    assert_eq!(find(&document, "regions", "cache")["sizes"][0]["bloat_bytes"], 0);
    let thp = &find(&document, "ways", "thp-fault")["figures"];
    assert_eq!(thp["resident_bytes"], touched + bloat);
    assert_eq!(thp["bloat"].as_f64().unwrap(), (touched + bloat) as f64 / touched as f64 - 1.0);
    let walks = |name: &str| find(&document, "regions", name)["walks"].as_u64().unwrap();
    let all = find(&document, "ways", "4k")["figures"]["walks"].as_u64().unwrap();
    assert_eq!(walks("index") + walks("cache") + walks("sparse"), all);

    // Each page of a region faults once, whatever its size; no region has no share in the copies.
    let cost = |name: &str, way: &str| {
        let costs = find(&document, "regions", name)["costs"].as_array().unwrap();
        costs.iter().find(|cost| cost["way"] == way).unwrap().clone()
    };
    for (name, way, faults) in [
        ("index", "4k", GIB / 4096),
        ("index", "2m", GIB / (2 * MIB)),
        ("index", "1g", 1),
        ("sparse", "2m", 128),
    ] {
        assert_eq!(cost(name, way)["faults"], faults, "{name} {way}");
    }
    let longest = |way: &str| cost("index", way)["longest_fault_ns"].as_u64().unwrap();
    assert!(longest("4k") < longest("2m") && longest("2m") < longest("1g"));
    let seconds = |way: &str| cost("sparse", way)["fault_seconds"].as_f64().unwrap();
    assert!(seconds("2m") > 100.0 * seconds("4k"), "zeroing 2 MiB for each page that is used");
    for way in document["ways"].as_array().unwrap().iter().filter(|way| way["is_other_hardware"] == false) {
        let of = |name: &str| cost(name, way["name"].as_str().unwrap())["copied_bytes"].as_u64().unwrap();
        let copied = way["figures"]["copied_bytes"].as_u64().unwrap();
        assert_eq!(of("index") + of("cache") + of("sparse"), copied, "{way}");
    }

    // A quarter more memory is over the tenth that is tolerated; the regions that need none are named.
    let verdict = &document["verdict"];
    assert_eq!(verdict["way"], Value::Null, "{verdict}");
    assert_eq!(verdict["regions"], serde_json::json!(["index", "cache"]));
    assert_ne!(advise(&trace, &["--bloat", "30%"])["verdict"]["way"], Value::Null);
    assert_eq!(document, advise(&trace, &[]), "again the same");

    let text = stdout(
        terrace().args(["advise", "--pages", "--policies", "thp", "--scale", "16", "--trace"]).arg(&trace),
    );
    assert!(text.lines().all(|line| line.chars().count() <= 80 || line.starts_with("See it")), "{text}");
    assert!(text.contains("MADV_HUGEPAGE") && text.contains("index (1g)"), "{text}");
}

#[test]
fn huge_pages_stay_off_where_they_do_not_pay() {
    let small = ["--workload", "stream,bytes=1 MiB"];
    let document = json(terrace().args(["advise", "--pages", "--json", "-"]).args(small));
    assert!(document["verdict"]["advice"].as_str().unwrap().contains("Leave huge pages off"), "{document:#}");
}

#[test]
fn wrong_input_is_said() {
    for (arguments, part) in [
        (&["--set", "os.pages=2m"][..], "os.pages is what advise --pages varies"),
        (&["--set", "os.policy.name=thp"], "os.policy.name is what"),
        (&["--fidelity", "pages"], "has no TLBs"),
        (&["--policies", "tridnt"], "did you mean \"trident\"?"),
        (&["--slowdown", "3%"], "--slowdown"),
        (&["--bloat", "much"], "is not a share"),
    ] {
        let mut command = terrace();
        command.args(["advise", "--pages", "--workload", common::SMALL]).args(arguments);
        let message = stderr(&mut command, 2);
        assert!(message.contains(part), "{arguments:?}: {message}");
    }
    let message = stderr(terrace().args(["advise", "--bloat", "5%", "--workload", common::SMALL]), 2);
    assert!(message.contains("--pages"), "{message}");
}
