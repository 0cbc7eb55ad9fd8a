//! Traces in the formats of other tools: exact bytes by hand, and there and back again.

mod common;

use common::{drain, small_trace};
use proptest::prelude::*;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use terrace_model::AddressRange;
use terrace_trace::{
    AccessKind, Agent, Batch, Event, EventSource, ExportFile, ExportFormat, Exported, Header, Item, MapKind,
    Protection, StreamId, VecSource, Weight, export, open_any,
};

use AccessKind::{Read, Write as Store};

fn source(batches: Vec<Batch>) -> VecSource {
    VecSource::new(Header { program: "demo".to_owned(), ..Header::default() }, batches)
}

fn exported(source: &mut dyn EventSource, format: ExportFormat, only: Option<u32>) -> (Vec<u8>, Exported) {
    let mut bytes = Vec::new();
    let scratch = tempfile::tempdir().unwrap();
    let done = export(source, format, only.map(StreamId), scratch.path(), &mut bytes).unwrap();
    (bytes, done)
}

/// What the importers make of an export.
fn imported(bytes: &[u8]) -> (String, Vec<Row>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("export");
    std::fs::write(&path, bytes).unwrap();
    let mut source = open_any(&path, false).unwrap();
    let rows = rows(&mut source);
    (source.header().origin.clone(), rows)
}

/// `(address, size, kind, dependence, instructions, pc)` of every access.
type Row = (u64, u8, AccessKind, u8, u16, Option<u64>);

fn rows(source: &mut dyn EventSource) -> Vec<Row> {
    let batches = drain(source).unwrap();
    let items = batches.iter().flat_map(|batch| batch.items());
    items
        .filter_map(|item| match item {
            Item::Access(a) => Some((a.addr, a.size, a.kind, a.depends_on, a.instructions, a.pc)),
            Item::Event(_) => None,
        })
        .collect()
}

/// A stream's batch of `(address, size, kind, dependence, instructions)`, with the instruction address 0x1000.
fn batch(stream: u32, accesses: &[(u64, u8, AccessKind, u8, u16)]) -> Batch {
    let mut batch = Batch { stream: StreamId(stream), ..Batch::default() };
    for &(addr, size, kind, depends_on, instructions) in accesses {
        batch.push(addr, size, kind, depends_on, instructions);
        batch.pc.push(0x1000);
    }
    batch
}

fn record(pc: u64, to: u8, from: &[u8], stores: &[u64], loads: &[u64]) -> Vec<u8> {
    let mut record = vec![0; 64];
    record[..8].copy_from_slice(&pc.to_le_bytes());
    record[10] = to;
    record[12..12 + from.len()].copy_from_slice(from);
    for (at, addr) in stores.iter().enumerate() {
        record[16 + 8 * at..24 + 8 * at].copy_from_slice(&addr.to_le_bytes());
    }
    for (at, addr) in loads.iter().enumerate() {
        record[32 + 8 * at..40 + 8 * at].copy_from_slice(&addr.to_le_bytes());
    }
    record
}

#[test]
fn champsim_by_hand() {
    let mut batch = batch(
        0,
        &[
            (0x5000, 8, Read, 0, 1),
            // Two instructions later, by an address that the first load brought.
            (0x6000, 4, Read, 1, 2),
            // This instruction also writes.
            (0x6000, 4, Store, 0, 0),
            // Wider than a line.
            (0x7000, 128, Store, 0, 1),
        ],
    );
    batch.push_event(0, Event::Wait { nanos: 5 });
    batch.push_event(0, Event::Compute { instructions: 2 });
    let (bytes, done) = exported(&mut source(vec![batch]), ExportFormat::ChampSim, None);
    let expected = [
        record(0x1000, 2, &[], &[], &[0x5000]),
        record(0x1000, 0, &[], &[], &[]),
        record(0x1000, 3, &[2], &[0x6000], &[0x6000]),
        record(0x1000, 0, &[], &[0x7000, 0x7040], &[]),
        record(0x1000, 0, &[], &[], &[]),
        record(0x1000, 0, &[], &[], &[]),
    ];
    assert_eq!(bytes, expected.concat());
    let all =
        Exported { accesses: 4, records: 6, streams_merged: 1, events_left_out: 1, ..Exported::default() };
    assert_eq!(done, all);
}

#[test]
fn what_does_not_fit_into_a_record_of_champsim_begins_another() {
    let mut five = vec![(0x5000, 8, Read, 0, 1)];
    five.extend((1..5).map(|at| (0x5000 + 0x100 * at, 8, Read, 0, 0)));
    // Another instruction's address: not of the same instruction, whatever the count says.
    let mut other = batch(0, &[(0x9000, 8, Store, 0, 0)]);
    other.pc[0] = 0x2000;
    let (bytes, done) = exported(&mut source(vec![batch(0, &five), other]), ExportFormat::ChampSim, None);
    let expected = [
        record(0x1000, 2, &[], &[], &[0x5000, 0x5100, 0x5200, 0x5300]),
        record(0x1000, 3, &[], &[], &[0x5400]),
        record(0x2000, 0, &[], &[0x9000], &[]),
    ];
    assert_eq!(bytes, expected.concat());
    assert_eq!((done.records, done.instructions_added), (3, 2));
}

#[test]
fn dependences_reach_as_far_as_champsim_has_registers() {
    let mut loads: Vec<_> = (0..253).map(|at| (0x5000 + 8 * at, 8, Read, 0, 1)).collect();
    loads.push((0x9000, 8, Read, 252, 1));
    loads.push((0x9008, 8, Read, 253, 1));
    let (bytes, done) = exported(&mut source(vec![batch(0, &loads)]), ExportFormat::ChampSim, None);
    let (_, rows) = imported(&bytes);
    assert_eq!(rows[253..].iter().map(|row| row.3).collect::<Vec<_>>(), [252, 0]);
    assert_eq!(done.dependences_left_out, 1);
}

#[test]
fn streams_keep_their_own_dependences_and_can_be_had_alone() {
    let batches = || {
        vec![
            batch(0, &[(0x5000, 8, Read, 0, 1)]),
            batch(7, &[(0x6000, 8, Read, 0, 1), (0x6100, 8, Read, 1, 1)]),
            batch(0, &[(0x5100, 8, Read, 1, 1)]),
        ]
    };
    let (bytes, done) = exported(&mut source(batches()), ExportFormat::ChampSim, None);
    let dependences: Vec<u8> = imported(&bytes).1.iter().map(|row| row.3).collect();
    assert_eq!((dependences, done.streams_merged), (vec![0, 0, 1, 3], 2));
    for format in [ExportFormat::ChampSim, ExportFormat::Lackey, ExportFormat::Text] {
        let (bytes, done) = exported(&mut source(batches()), format, Some(7));
        let addresses: Vec<u64> = imported(&bytes).1.iter().map(|row| row.0).collect();
        assert_eq!((addresses, done.accesses, done.streams_merged), (vec![0x6000, 0x6100], 2, 1));
    }
    let error = export(
        &mut source(batches()),
        ExportFormat::Text,
        Some(StreamId(3)),
        Path::new("."),
        &mut Vec::new(),
    );
    assert_eq!(error.unwrap_err().to_string(), "the trace has no stream 3; its streams are 0, 7");
}

#[test]
fn oracle_general_by_hand() {
    let mut first = batch(0, &[(0x1000, 8, Read, 0, 60_000), (0x2ffc, 8, Store, 0, 1)]);
    first.push_event(0, Event::Compute { instructions: 2_000_000_000 });
    let spawn = |stream, process| {
        let mut batch = Batch { stream: StreamId(stream), ..Batch::default() };
        let (agent, forked_from, name) = (Agent::Cpu, None, String::new());
        batch.push_event(1, Event::Spawn { process, thread: 0, agent, forked_from, os_id: 0, name });
        batch
    };
    let batches = vec![
        spawn(0, 0),
        spawn(1, 3),
        first,
        batch(1, &[(0x1008, 8, Read, 0, 1)]),
        batch(0, &[(0x1ff0, 8, Read, 0, 1)]),
    ];
    let (bytes, done) = exported(&mut source(batches), ExportFormat::OracleGeneral { block: 4096 }, None);
    let request = |time: u32, object: u64, next: i64| {
        [&time.to_le_bytes()[..], &object.to_le_bytes(), &4096u32.to_le_bytes(), &next.to_le_bytes()].concat()
    };
    let expected = [
        request(0, 1, 5),
        // One access that touches two blocks.
        request(0, 2, -1),
        request(0, 3, -1),
        // Another process has its own block 1.
        request(2, 3 << 50 | 1, -1),
        request(2, 1, -1),
    ];
    assert_eq!(bytes, expected.concat());
    assert_eq!((done.accesses, done.records, done.events_left_out), (4, 5, 2));
}

#[test]
fn folded_stacks_by_hand() {
    let range = AddressRange::new;
    let map = |start, bytes, kind, name: &str| {
        let (protection, name) = (Protection::READ_WRITE, name.to_owned());
        Event::Map { range: range(start, bytes), kind, protection, name }
    };
    let spawn = |process, forked_from: Option<u32>, name: &str| Event::Spawn {
        process,
        thread: 0,
        agent: Agent::Cpu,
        forked_from: forked_from.map(StreamId),
        os_id: 0,
        name: name.to_owned(),
    };
    let mut parent = Batch::default();
    let global = |batch: &mut Batch, event: Event| batch.push_event(u64::from(event.is_global()), event);
    global(&mut parent, spawn(0, None, "/usr/bin/demo"));
    global(&mut parent, map(0x10_0000, 0x1_0000, MapKind::Heap, ""));
    global(&mut parent, map(0x20_0000, 0x1000, MapKind::PrivateFile, "/lib/libc;6.so"));
    global(&mut parent, Event::Site { site: 4, name: "grid".to_owned() });
    global(&mut parent, Event::Alloc { object: 1, site: 4, range: range(0x10_0000, 0x1000) });
    global(&mut parent, Event::Alloc { object: 2, site: 9, range: range(0x10_4000, 0x100) });
    for (addr, kind) in
        [(0x10_0000, Read), (0x10_0fff, Store), (0x10_1000, Read), (0x20_0000, Read), (0x1, Read)]
    {
        parent.push(addr, 1, kind, 0, 1);
    }
    // The object moves, its site goes with it.
    global(&mut parent, Event::Realloc { object: 1, range: range(0x10_8000, 0x1800) });
    parent.push(0x10_0000, 1, Store, 0, 1);
    parent.push(0x10_97ff, 1, Read, 0, 1);
    global(&mut parent, Event::Free { object: 2 });
    parent.push(0x10_4000, 1, Read, 0, 1);
    let mut child = Batch { stream: StreamId(1), ..Batch::default() };
    global(&mut child, spawn(1, Some(0), ""));
    child.push(0x10_8000, 1, Store, 0, 1);
    global(&mut child, Event::Exec { name: "/bin/other".to_owned() });
    child.push(0x10_8000, 1, Store, 0, 1);
    let text = |weight, only| {
        let mut source = source(vec![parent.clone(), child.clone()]);
        String::from_utf8(exported(&mut source, ExportFormat::Folded { weight }, only).0).unwrap()
    };
    assert_eq!(
        text(Weight::Accesses, None),
        "demo;[heap];read 2\n\
         demo;[heap];write 1\n\
         demo;[not mapped];read 1\n\
         demo;grid;read 2\n\
         demo;grid;write 2\n\
         demo;libc,6.so;read 1\n\
         other;[not mapped];write 1\n"
    );
    // What the parent allocated is known, though its accesses were not asked for.
    assert_eq!(text(Weight::Accesses, Some(1)), "demo;grid;write 1\nother;[not mapped];write 1\n");
    assert_eq!(text(Weight::AllocatedBytes, None), "demo;grid 6144\ndemo;site 9 256\n");
}

#[test]
fn a_file_is_compressed_as_its_name_says_and_replaced_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (header, batches) = small_trace();
    let write = |name: &str| {
        let path = folder.path().join(name);
        let mut file = ExportFile::create(&path).unwrap();
        let mut source = VecSource::new(header.clone(), batches.clone());
        export(&mut source, ExportFormat::Text, None, &file.scratch(), &mut file).unwrap();
        file.finish().unwrap();
        path
    };
    let plain = std::fs::read(write("a.txt")).unwrap();
    let begins: [(&str, &[u8]); 3] =
        [("a.gz", b"\x1f\x8b"), ("a.xz", b"\xfd7zXZ\0"), ("a.zst", b"\x28\xb5\x2f\xfd")];
    for (name, begin) in begins {
        let path = write(name);
        assert!(std::fs::read(&path).unwrap().starts_with(begin), "{name}");
        assert_eq!(rows(&mut open_any(&path, false).unwrap()), imported(&plain).1);
    }
    let path = folder.path().join("a.txt");
    let mut file = ExportFile::create(&path).unwrap();
    file.write_all(b"half").unwrap();
    drop(file);
    assert_eq!(std::fs::read(&path).unwrap(), plain);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
}

/// Any records of ChampSim that touch user memory.
fn champsim_records() -> impl Strategy<Value = Vec<u8>> {
    let addr = prop_oneof![2 => Just(0u64), 3 => 1u64..1 << 47];
    let fields = (
        prop_oneof![3 => 0x40_0000u64..0x40_0008, 1 => 1u64..],
        prop::array::uniform2(0u8..40),
        prop::array::uniform4(0u8..40),
        prop::array::uniform2(addr.clone()),
        prop::array::uniform4(addr),
    );
    prop::collection::vec(fields, 12..60).prop_map(|records| {
        let record = |(pc, to, from, stores, loads): &(u64, [u8; 2], [u8; 4], [u64; 2], [u64; 4])| {
            let mut bytes = record(*pc, to[0], from, stores, loads);
            bytes[11] = to[1];
            bytes
        };
        records.iter().flat_map(record).collect()
    })
}

fn import_and_export(bytes: &[u8], format: ExportFormat) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input");
    std::fs::write(&path, bytes).unwrap();
    exported(&mut open_any(&path, false).unwrap(), format, None).0
}

/// The blocks of accesses, numbered as they first appear.
fn renamed(blocks: impl Iterator<Item = u64>) -> Vec<usize> {
    let mut names = HashMap::new();
    blocks
        .map(|block| {
            let next = names.len();
            *names.entry(block).or_insert(next)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn champsim_there_and_back(records in champsim_records()) {
        let again = import_and_export(&records, ExportFormat::ChampSim);
        prop_assert_eq!(again.len(), records.len());
        prop_assert_eq!(imported(&again), imported(&records));
    }

    /// Accesses that bring an instruction each and fit into a line lose only their size.
    #[test]
    fn accesses_come_back_from_champsim(
        accesses in prop::collection::vec((1u64..1 << 47, 1u8..=64, any::<bool>(), 0u8..=252, 1u16..9), 1..300),
    ) {
        let mut loads = 0;
        let (mut given, mut expected) = (Vec::new(), Vec::new());
        for (addr, size, is_store, depends_on, instructions) in accesses {
            let kind = if is_store { Store } else { Read };
            given.push((addr, size, kind, if is_store { 0 } else { depends_on }, instructions));
            let known = !is_store && u64::from(depends_on) <= loads;
            loads += u64::from(!is_store);
            // The import assumes 8 bytes, as far as the page goes.
            let assumed = 8.min(4096 - addr % 4096) as u8;
            expected.push((addr, assumed, kind, if known { depends_on } else { 0 }, instructions, Some(0x1000)));
        }
        let (bytes, done) = exported(&mut source(vec![batch(0, &given)]), ExportFormat::ChampSim, None);
        prop_assert_eq!(imported(&bytes).1, expected);
        prop_assert_eq!(done.instructions_added, 0);
    }

    /// The blocks that a program touches are the objects that come back, and each names its next request.
    #[test]
    fn blocks_come_back_from_oracle_general(
        accesses in prop::collection::vec((1u64..1 << 14, 1u8.., any::<bool>()), 1..400),
        shift in 6u32..14,
    ) {
        let given: Vec<_> = accesses.iter().map(|&(addr, size, write)| {
            (addr, size, if write { Store } else { Read }, 0, 1)
        }).collect();
        let touched: Vec<u64> = given
            .iter()
            .flat_map(|&(addr, size, ..)| addr >> shift..=(addr + u64::from(size) - 1) >> shift)
            .collect();
        let (bytes, done) =
            exported(&mut source(vec![batch(0, &given)]), ExportFormat::OracleGeneral { block: 1 << shift }, None);
        prop_assert_eq!(done.records as usize, touched.len());
        for (at, record) in bytes.chunks(24).enumerate() {
            let later = touched[at + 1..].iter().position(|block| *block == touched[at]);
            let next = i64::from_le_bytes(record[16..].try_into().unwrap());
            prop_assert_eq!(next, later.map_or(-1, |later| (at + 1 + later + 1) as i64));
        }
        // The importer accesses an object from its first byte on, in steps of up to 128 bytes.
        let (origin, rows) = imported(&bytes);
        prop_assert_eq!(origin, "oraclegeneral");
        let back = rows.iter().map(|row| row.0 - 0x1000_0000).filter(|at| at.is_multiple_of(1 << shift));
        prop_assert_eq!(renamed(back.map(|at| at >> shift)), renamed(touched.iter().copied()));
    }

    /// Requests for objects of one size that is a block's come back as they were, but for the objects' names.
    #[test]
    fn requests_come_back_from_a_trace(objects in prop::collection::vec(0u64..40, 2..200)) {
        let mut requests = Vec::new();
        for (at, object) in objects.iter().enumerate() {
            let later = objects[at + 1..].iter().position(|other| other == object);
            let next = later.map_or(-1, |later| (at + 1 + later + 1) as i64);
            requests.extend(0u32.to_le_bytes());
            requests.extend((0xabcd_0000 + object).to_le_bytes());
            requests.extend(64u32.to_le_bytes());
            requests.extend(next.to_le_bytes());
        }
        let again = import_and_export(&requests, ExportFormat::OracleGeneral { block: 64 });
        let objects_of = |bytes: &[u8]| renamed(bytes.chunks(24).map(|r| u64::from_le_bytes(r[4..12].try_into().unwrap())));
        let rest_of = |bytes: &[u8]| bytes.chunks(24).map(|r| [&r[..4], &r[12..]].concat()).collect::<Vec<_>>();
        prop_assert_eq!(objects_of(&again), objects_of(&requests));
        prop_assert_eq!(rest_of(&again), rest_of(&requests));
    }
}
