//! `terrace advise --pages` on a program whose three regions deserve different page sizes.

mod common;
use assert_cmd::Command;
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

/// Filled once and freed again, memory in huge pages costs fewer faults: 4 to 5 times as fast on real machines
/// (docs/src/check.md).
#[test]
fn a_program_that_allocates_and_frees_wants_huge_pages() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("memset");
    let text = "#include <malloc.h>\n#include <stdlib.h>\n#include <string.h>\nint main(void) {\n    \
        mallopt(M_MMAP_THRESHOLD, 1 << 20);\n    for (int i = 0; i < 2; i++) {\n        \
        char *p = malloc(24 << 20);\n        memset(p, i, 24 << 20);\n        __asm__ volatile(\"\" ::\"r\"(p) : \
        \"memory\");\n        free(p);\n    }\n}\n";
    common::compile(&program, text, &["-O2"]);
    let trace = folder.path().join("memset.trace");
    terrace().args(["record", "-o"]).arg(&trace).arg("--").arg(&program).assert().success();
    for machine in ["zen4-cxl", "zen5-turin"] {
        let mut command = terrace();
        command.args(["compare", "native-4k", "native-thp", "--machine", machine, "--json", "-"]);
        command.args(["--no-intervals", "--trace"]);
        let document = json(command.arg(&trace));
        let seconds = |at: usize| document["runs"][at]["seconds_simulated"].as_f64().unwrap();
        assert!(seconds(0) > 2.0 * seconds(1), "{machine}: {} and {}", seconds(0), seconds(1));
    }
    let mut command = terrace();
    command.args([
        "advise",
        "--pages",
        "--no-intervals",
        "--policies",
        "thp",
        "--json",
        "-",
        "--scale",
        "16",
        "--trace",
    ]);
    let document = json(command.arg(&trace));
    let advice = document["verdict"]["advice"].as_str().unwrap();
    assert!(advice.starts_with("Turn huge pages on"), "{advice}");
}

#[test]
fn an_input_without_accesses_has_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("idle.trace");
    TraceWriter::create(&trace, &Header::default()).unwrap().finish().unwrap();
    for fidelity in ["full", "translation"] {
        let arguments = ["advise", "--pages", "--fidelity", fidelity, "--trace"];
        let message = stderr(terrace().args(arguments).arg(&trace), 1);
        assert!(message.contains("idle touches no memory"), "{message}");
    }
}

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

/// An index of 1 GiB and a cache of 16 MiB, both touched everywhere and chased through at random; 256 MiB of which one page
/// in each 2 MiB is touched.
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
    both(&mut advising(trace, more)).0
}

fn advising(trace: &Path, more: &[&str]) -> Command {
    let mut command = terrace();
    // Without caches, which would hold each line that is zeroed: 282,000 pages, for each way and each run.
    command.args(["advise", "--pages", "--fidelity", "translation"]);
    command.args(["--no-intervals", "--policies", "thp", "--scale", "16", "--trace"]);
    command.arg(trace).args(more);
    command
}

/// What one run of a command has for programs, and what it prints.
fn both(command: &mut Command) -> (Value, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = stdout(command.arg("--json").arg(file.path()));
    (serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap(), text)
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
    let longest = |way: &str| cost("index", way)["fault_latency"]["max_ns"].as_u64().unwrap();
    assert!(longest("4k") < longest("2m") && longest("2m") < longest("1g"));
    let seconds = |way: &str| cost("sparse", way)["fault_seconds"].as_f64().unwrap();
    assert!(seconds("2m") > 100.0 * seconds("4k"), "zeroing 2 MiB for each page that is used");
    for way in document["ways"].as_array().unwrap().iter().filter(|way| way["tlb"].is_null()) {
        let of = |name: &str| cost(name, way["name"].as_str().unwrap())["copied_bytes"].as_u64().unwrap();
        let copied = way["figures"]["copied_bytes"].as_u64().unwrap();
        assert_eq!(of("index") + of("cache") + of("sparse"), copied, "{way}");
    }

    // A quarter more memory is over the tenth that is tolerated; the regions that need none are named.
    let verdict = &document["verdict"];
    assert_eq!(verdict["way"], Value::Null, "{verdict}");
    assert_eq!(verdict["regions"], serde_json::json!(["index", "cache"]));
    assert_ne!(advise(&trace, &["--bloat", "30%"])["verdict"]["way"], Value::Null);

    let (again, text) = both(&mut advising(&trace, &[]));
    assert_eq!(document, again);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("MADV_HUGEPAGE") && text.contains("index (1g)"), "{text}");
}

/// The figures of a way of using pages.
fn figure(document: &Value, way: &str, name: &str) -> f64 {
    find(document, "ways", way)["figures"][name].as_f64().unwrap()
}

#[test]
fn each_way_is_shown_with_each_tlb_of_the_user_s() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("ranges.toml");
    std::fs::write(&own, "[translation.contiguity]\nkind = \"range\"\nentries = 64\n").unwrap();
    let own = own.to_str().unwrap();
    let run = |more: &[&str]| {
        let mut command = terrace();
        command.args(["advise", "--pages", "--no-intervals", "--policies", "thp"]);
        command.args(["--machine", "skylake-6140", "--workload", "gups,bytes=32MiB,updates=3e4"]).args(more);
        command
    };
    let tlbs = ["--tlb", "spot", "--tlb", own, "--tlb", "zen5-turin", "--tlb", "rmm", "--tlb", "colt"];
    let (document, text) = both(&mut run(&tlbs));
    let ways = document["ways"].as_array().unwrap();
    assert_eq!(ways.len(), 5 * 6);
    for way in ways {
        let (name, plain) = (way["name"].as_str().unwrap(), way["plain"].as_str().unwrap());
        let tlb = way["tlb"].as_str();
        assert_eq!(name, tlb.map_or(plain.to_owned(), |tlb| format!("{plain}+{tlb}")));
    }
    // One run of frames: a range holds all of it. SpOT walks as often, and does not wait. The other machine has more
    // entries.
    let of = |way: &str, name: &str| figure(&document, way, name);
    for tlb in ["rmm", "ranges"] {
        assert!(of(&format!("4k+{tlb}"), "walks") < 0.001 * of("4k", "walks"), "{tlb}");
    }
    assert_eq!(of("4k+spot", "walks"), of("4k", "walks"));
    assert!(of("4k+zen5-turin", "walks") < 0.9 * of("4k", "walks"));
    assert!(of("4k+zen5-turin", "translation_share") < of("4k", "translation_share"));
    assert_eq!(of("2m+colt", "walks"), of("2m", "walks"), "it coalesces base pages");
    // The verdict names no way with a TLB of the user's, and options reach such a TLB by its name.
    assert!(!document["verdict"]["way"].as_str().unwrap().contains('+'));
    let set = |tlb: &str, option: &str| json(&mut run(&["--tlb", tlb, "--json", "-", "--set", option]));
    let wider = set("colt", "colt:translation.scheme.pages=16");
    assert!(figure(&wider, "4k+colt", "walks") < of("4k+colt", "walks"));
    assert_eq!(figure(&wider, "4k", "walks"), of("4k", "walks"));
    let slower = set("zen5-turin", "zen5-turin:translation.l2.latency=90 cycles");
    assert!(figure(&slower, "4k+zen5-turin", "gain") < of("4k+zen5-turin", "gain"));

    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let heads = text.lines().filter(|line| line.starts_with("TLB ")).collect::<Vec<_>>();
    assert_eq!(heads.len(), 2, "{text}");
    assert!(heads[0].contains("as it is") && heads[1].contains("rmm"), "{text}");
    assert!(!stdout(&mut run(&[])).contains("TLB  "), "thp alone makes no contiguity");
}

#[test]
fn copied_pages_of_files_are_no_region_s_and_the_sum_is_whole() {
    let aged = [
        ("tier.cxl.capacity", "64 MiB"),
        ("os.reserved", "8 MiB"),
        ("os.memory.free_lists", "last-freed-first"),
        ("os.memory.grouping", "true"),
        ("os.memory.aging.kind", "page-cache"),
        ("os.memory.aging.dropped", "0.3"),
        ("thp:os.policy.defrag", "always"),
    ];
    // Nearly all of the second is before its region of interest: copies are of the whole run.
    let programs = [
        ("256 MiB", "slab,bytes=64MiB,keys=2e5,preload=0,reads=0.5,requests=60e3"),
        ("96 MiB", "slab,bytes=24MiB,keys=7e4,preload=1,reads=0.5,requests=1e3"),
    ];
    let run = |(memory, program): (&str, &str)| {
        let mut command = terrace();
        command.args(["advise", "--pages", "--policies", "thp", "--time-scale", "2000", "--no-intervals"]);
        for (key, value) in aged {
            command.args(["--set", &format!("{key}={value}")]);
        }
        command.args(["--set", &format!("tier.dram.capacity={memory}"), "--workload", program]);
        command
    };
    let of = |costs: &Value| {
        costs.as_array().unwrap().iter().find(|cost| cost["way"] == "thp").unwrap()["copied_bytes"].as_u64()
    };
    let results = programs.map(|program| both(&mut run(program)));
    for (document, _) in &results {
        let regions = document["regions"].as_array().unwrap().iter().filter_map(|part| of(&part["costs"]));
        let (regions, cached) = (regions.sum::<u64>(), of(&document["page_cache"]).unwrap());
        assert!(regions > 0 && cached > 0, "{regions} {cached}");
        assert_eq!((regions + cached) as f64, figure(document, "thp", "copied_bytes"));
    }
    let (document, _) = &results[0];

    // A fault waits for a compaction, and the region that it belongs to shows it.
    let longest = |latency: &Value| latency["max_ns"].as_u64().unwrap();
    let all = longest(&find(document, "ways", "thp")["figures"]["fault_latency"]);
    let of_regions = document["regions"].as_array().unwrap().iter().flat_map(|region| {
        let costs = region["costs"].as_array().unwrap();
        costs.iter().filter(|cost| cost["way"] == "thp").map(|cost| longest(&cost["fault_latency"]))
    });
    assert!(all > 1_000_000);
    assert_eq!(of_regions.max(), Some(all));

    let (_, text) = &results[1];
    let row = |name: &str| text.lines().any(|line| line.starts_with(name));
    assert!(row("(page cache) ") && row("all ") && row("copied "), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

/// A recording that begins once the program has touched its memory.
fn late(folder: &Path) -> PathBuf {
    let path = folder.join("late.trace");
    let header = Header { program: "late".to_owned(), origin: "recorded".to_owned(), ..Header::default() };
    let writer = TraceWriter::create(&path, &header).unwrap();
    let mut trace = Recording { writer, builder: BatchBuilder::new(StreamId(0)), sequence: 0, after: 0 };
    let (agent, forked_from, name) = (Agent::Cpu, None, String::new());
    trace.event(Event::Spawn { process: 0, thread: 0, agent, forked_from, os_id: 0, name });
    let (range, kind) = (AddressRange::new(INDEX, 256 * MIB), MapKind::Anonymous);
    trace.event(Event::Map { range, kind, protection: Protection::READ_WRITE, name: String::new() });
    trace.event(Event::Resident { start: INDEX, bitmap: vec![u64::MAX; 1024] });
    let mut random = 1u64;
    for _ in 0..100_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        trace.access((INDEX + (random >> 33) % (256 * MIB)) & !7);
    }
    trace.event(Event::Exit { process_ends: true });
    trace.flush();
    trace.writer.finish().unwrap();
    path
}

#[test]
fn faults_that_a_recording_does_not_have_cost_nobody_knows_what() {
    let folder = tempfile::tempdir().unwrap();
    let (document, text) = both(&mut advising(&late(folder.path()), &[]));
    for way in ["4k", "2m", "1g"] {
        assert_eq!(find(&document, "ways", way)["figures"]["fault_latency"], Value::Null, "{way}");
    }
    let reason = document["verdict"]["reason"].as_str().unwrap();
    assert!(reason.contains("What its page faults cost is not known: the input has none."), "{reason}");
    let remarks = document["remarks"].as_array().unwrap();
    assert!(
        remarks.iter().any(|remark| remark.as_str().unwrap().starts_with("Faults: none are in this input"))
    );
    assert!(!text.contains("0.0/0.0/0.0") && !text.contains("0.00") && !text.contains(" 0 us"), "{text}");
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
        (&["--tlb", "colr"], "did you mean \"colt\"?"),
        (&["--tlb", "native-2m"], "its [translation] is that of zen4-cxl"),
        (&["--tlb", "colt", "--set", "rmm:translation.scheme.entries=8"], "called \"rmm\""),
    ] {
        let mut command = terrace();
        command.args(["advise", "--pages", "--workload", common::SMALL]).args(arguments);
        let message = stderr(&mut command, 2);
        assert!(message.contains(part), "{arguments:?}: {message}");
    }
    // Also beside options that exclude --pages.
    for (option, more) in
        [("--bloat=5%", "--seeds=2"), ("--bloat=5%", "--slowdown=5%"), ("--tlb=colt", "--price=slow=0.3")]
    {
        for more in [&[][..], &[more]] {
            let mut command = terrace();
            let message = stderr(command.args(["advise", option, "--workload", common::SMALL]).args(more), 2);
            assert!(message.contains("add --pages"), "{option} {more:?}: {message}");
        }
    }
}

#[test]
fn gains_have_intervals_unless_they_are_left_out() {
    let run = |more: &[&str]| {
        let mut command = terrace();
        command.args(["advise", "--pages", "--policies", "thp", "--workload", common::SMALL, "--json", "-"]);
        json(command.args(more))
    };
    let document = run(&[]);
    for way in document["ways"].as_array().unwrap() {
        let (figures, name) = (&way["figures"], way["name"].as_str().unwrap());
        let gain = figures["gain"].as_f64().unwrap();
        let ends: Vec<f64> = figures["gain_interval"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|end| end.as_f64().unwrap())
            .collect();
        match (name, way["tlb"].is_null()) {
            ("4k", _) => assert_eq!(ends, [0.0, 0.0]),
            (_, true) => assert!(ends[0] <= gain && gain <= ends[1] && ends[0] < ends[1], "{name}: {ends:?}"),
            (_, false) => assert!(ends.is_empty(), "other hardware is no advice"),
        }
    }
    let plain = run(&["--no-intervals"]);
    assert!(plain["ways"].as_array().unwrap().iter().all(|way| way["figures"]["gain_interval"].is_null()));
    let gain = |document: &Value| figure(document, "2m", "gain");
    assert_eq!(gain(&plain), gain(&document), "what runs beside changes nothing");
}
