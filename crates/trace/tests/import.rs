//! The importers, by worked examples, and the tools on their results.

mod common;

use common::drain;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use terrace_model::VirtAddr;
use terrace_trace::{
    AccessKind, Event, EventSource, ExportFormat, Format, Item, TraceReader, convert, export, head, info,
    open_any, verify,
};

const LACKEY: &str = "\
==12== Lackey, an example Valgrind tool
==12==
I  04001090,3
I  04001093,5
 S 1ffefffe48,8
I  04001098,7
 L 0421f8c0,4
 M 0421f8c4,4
I  0400109f,1
==12==
";

fn file(name: &str, content: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, content).unwrap();
    (directory, path)
}

/// `(address, size, kind, dependence, instructions, pc)` of every access.
type Row = (u64, u8, AccessKind, u8, u16, Option<u64>);

fn rows(source: &mut dyn EventSource) -> Vec<Row> {
    let mut rows = Vec::new();
    for batch in drain(source).unwrap() {
        batch.validate().unwrap();
        for item in batch.items() {
            if let Item::Access(a) = item {
                rows.push((a.addr, a.size, a.kind, a.depends_on, a.instructions, a.pc));
            }
        }
    }
    rows
}

use AccessKind::{Read, Write as Store};

fn lackey_rows() -> [Row; 4] {
    [
        (0x1f_fefffe48, 8, Store, 0, 2, Some(0x400_1093)),
        (0x421_f8c0, 4, Read, 0, 1, Some(0x400_1098)),
        // `M` is a load, then a store.
        (0x421_f8c4, 4, Read, 0, 0, Some(0x400_1098)),
        (0x421_f8c4, 4, Store, 0, 0, Some(0x400_1098)),
    ]
}

#[test]
fn lackey_by_hand() {
    let (_directory, path) = file("ls.lackey", LACKEY.as_bytes());
    let mut source = open_any(&path, false).unwrap();
    assert_eq!((source.header().origin.as_str(), source.header().program.as_str()), ("lackey", "ls"));
    assert_eq!(rows(&mut source), lackey_rows());

    let batches = drain(&mut open_any(&path, false).unwrap()).unwrap();
    assert_eq!(batches.iter().map(|batch| batch.instruction_count()).sum::<u64>(), 4);
    // Spawn, a mapping before each newly touched 2 MiB region, the trailing instruction, the end.
    let events: Vec<_> = batches.iter().flat_map(|batch| &batch.events).collect();
    assert!(matches!(events[0].event, Event::Spawn { .. }));
    let Event::Map { range, .. } = &events[1].event else { panic!("{events:?}") };
    assert_eq!((range.start, range.bytes, events[1].before), (VirtAddr(0x1f_fee00000), 2 << 20, 0));
    let Event::Map { range, .. } = &events[2].event else { panic!("{events:?}") };
    assert_eq!((range.start, events[2].before), (VirtAddr(0x420_0000), 1));
    assert_eq!(events[3].event, Event::Compute { instructions: 1 });
    assert_eq!(events[4].event, Event::Exit { process_ends: true });
    assert!(verify(&path).unwrap().is_sound());
}

#[test]
fn compressed_text_is_recognised() {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(LACKEY.as_bytes()).unwrap();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(LACKEY.as_bytes()).unwrap();
    let zst = zstd::bulk::compress(LACKEY.as_bytes(), 1).unwrap();
    for bytes in [gz.finish().unwrap(), xz.finish().unwrap(), zst] {
        // The name says nothing: only the content counts.
        let (_directory, path) = file("trace.bin", &bytes);
        assert_eq!(rows(&mut open_any(&path, false).unwrap()), lackey_rows());
        let (_directory, cut) = file("cut.bin", &bytes[..bytes.len() - 6]);
        let error = open_any(&cut, false).and_then(|mut source| drain(&mut source)).unwrap_err();
        assert!(error.to_string().contains("cut.bin"), "{error}");
    }
}

/// A record with its address, destination and source registers, stores and loads.
fn record(ip: u64, to: [u8; 2], from: [u8; 4], stores: [u64; 2], loads: [u64; 4]) -> Vec<u8> {
    let mut bytes = ip.to_le_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(to);
    bytes.extend(from);
    bytes.extend(stores.into_iter().chain(loads).flat_map(u64::to_le_bytes));
    assert_eq!(bytes.len(), 64);
    bytes
}

fn champsim_records() -> Vec<u8> {
    [
        // r10 = [0x5000]
        record(0x400_000, [10, 0], [11, 0, 0, 0], [0, 0], [0x5000, 0, 0, 0]),
        // r12 = r10 + r11
        record(0x400_004, [12, 25], [10, 11, 0, 0], [0, 0], [0; 4]),
        // r13 = [0x6000], whose address comes from r12
        record(0x400_008, [13, 0], [12, 0, 0, 0], [0, 0], [0x6000, 0, 0, 0]),
        // [0x7000] = r13, with a load whose address register was never loaded
        record(0x400_00c, [0, 0], [14, 6, 0, 0], [0x7000, 0], [0x7100, 0, 0, 0]),
    ]
    .concat()
}

#[test]
fn champsim_by_hand() {
    let expected = [
        (0x5000, 8, Read, 0, 1, Some(0x400_000)),
        // Two instructions since; through r12 it depends on the previous load.
        (0x6000, 8, Read, 1, 2, Some(0x400_008)),
        // Loads come before stores.
        (0x7100, 8, Read, 0, 1, Some(0x400_00c)),
        (0x7000, 8, Store, 0, 0, Some(0x400_00c)),
    ];
    let records = champsim_records();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(&records).unwrap();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&records).unwrap();
    for bytes in [records.clone(), xz.finish().unwrap(), gz.finish().unwrap()] {
        let (_directory, path) = file("600.perlbench", &bytes);
        let mut source = open_any(&path, false).unwrap();
        assert_eq!(source.header().origin, "champsim");
        assert_eq!(rows(&mut source), expected);
    }
}

#[test]
fn an_assumed_size_ends_with_its_page_and_loads_of_the_kernel_are_left_out() {
    let kernel = 0xffff_8880_0000_0000;
    let records = [
        record(0x400_000, [10, 0], [9, 0, 0, 0], [0x6fff, 0], [0x5ffc, 0, 0, 0]),
        record(0x400_004, [0, 0], [9, 0, 0, 0], [0, 0], [kernel, 0, 0, 0]),
        record(0x400_008, [11, 0], [10, 0, 0, 0], [0, 0], [0x7000, 0, 0, 0]),
    ];
    let (_directory, path) = file("x.champsimtrace", &records.concat());
    let expected = [
        (0x5ffc, 4, Read, 0, 1, Some(0x400_000)),
        (0x6fff, 1, Store, 0, 0, Some(0x400_000)),
        // The load before it that is in the trace is the one that it depends on.
        (0x7000, 8, Read, 1, 1, Some(0x400_008)),
    ];
    assert_eq!(rows(open_any(&path, false).unwrap().as_mut()), expected);
}

#[test]
fn a_damaged_champsim_record_is_named_and_the_records_before_it_salvaged() {
    let mut records = champsim_records();
    records.extend(std::iter::repeat_n(champsim_records(), 30).flatten());
    let at = 64 * 100;
    records[at + 8] = 7;
    let (_directory, path) = file("x.champsimtrace", &records);
    let error = open_any(&path, false).and_then(|mut source| drain(&mut source)).unwrap_err().to_string();
    assert!(error.contains(&format!("byte {at}: expected branch flags 0 or 1, found 7 and 0")), "{error}");
    let mut source = open_any(&path, true).unwrap();
    assert_eq!(rows(&mut source).len(), 100);
    assert!(info(&path, true).unwrap().damage.unwrap().contains("branch flags"));

    let (_directory, path) = file("cut", &champsim_records()[..200]);
    let error = open_any(&path, false).and_then(|mut source| drain(&mut source)).unwrap_err().to_string();
    assert!(error.contains("byte 192: expected a record of 64 bytes, only 8 are left"), "{error}");
}

#[test]
fn plain_text_by_hand() {
    let text = "# produced by hand\n\nR 0x1fffff 4\nw 2000\nR DEADbeef 512\n";
    let (_directory, path) = file("a.txt", text.as_bytes());
    let mut source = open_any(&path, false).unwrap();
    assert_eq!(
        rows(&mut source),
        [
            (0x1f_ffff, 4, Read, 0, 1, None),
            (0x2000, 8, Store, 0, 1, None),
            // Wider than a column holds: parts of one instruction.
            (0xdead_beef, 128, Read, 0, 1, None),
            (0xdead_bf6f, 128, Read, 0, 0, None),
            (0xdead_bfef, 128, Read, 0, 0, None),
            (0xdead_c06f, 128, Read, 0, 0, None),
        ]
    );
    // The first access straddles two regions: both are mapped before it.
    let first = open_any(&path, false).unwrap().next_batch().unwrap().unwrap();
    let maps = first.events.iter().filter(|e| e.before == 0 && matches!(e.event, Event::Map { .. })).count();
    assert_eq!(maps, 2);
}

#[test]
fn what_tools_and_editors_add_is_passed_over() {
    let read = |content: &[u8]| {
        let (_directory, path) = file("input", content);
        rows(open_any(&path, false).unwrap().as_mut())
    };
    let verbose = format!("--12-- Valgrind options:\n--12--    -v\n{LACKEY}");
    assert_eq!(read(verbose.as_bytes()), lackey_rows());
    let marked = [&b"\xef\xbb\xbf"[..], b"R 1000 8 # first\r\n# all\nW 0x2000\n"].concat();
    let expected = [(0x1000, 8, Read, 0, 1, None), (0x2000, 8, Store, 0, 1, None)];
    assert_eq!(read(&marked), expected);
    // Accesses to the kernel's half are left out, and what they counted is kept.
    let kernel = b"R 1000 8\nR ffff888000000000 8\nW 2000 8\n";
    assert_eq!(read(kernel), expected);
    let (_directory, path) = file("input", kernel);
    assert_eq!(info(&path, false).unwrap().totals.instructions, 3);
}

#[test]
fn a_line_is_too_long_wherever_it_lies() {
    for before in [0, 1, 40_000] {
        let content = format!("{}#{}\n", "R 1000\n".repeat(before), "x".repeat(5000));
        let (_directory, path) = file("input", content.as_bytes());
        let read = open_any(&path, false).and_then(|mut source| drain(source.as_mut()));
        let message = read.unwrap_err().to_string();
        assert!(
            message.contains(&format!("line {}: expected a line of at most 4096 bytes", before + 1)),
            "{message}"
        );
    }
}

#[test]
fn foreign_and_broken_input_is_named() {
    let cases: [(&[u8], &str); 8] = [
        (b"", "the file is empty"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "no known trace: expected a Terrace trace, Valgrind lackey lines"),
        (b"hello\nworld\n", "no known trace"),
        (b"R 10 0\n", "line 1: expected an access of 1 to 16384 bytes, found 0"),
        (b"R 10 8\nR 10 99999\n", "line 2: expected an access of 1 to 16384 bytes"),
        (b"R fedcba9876543210 8\n", "line 1: expected a user-space address below 0x100000000000000"),
        (b" L 10,8\n L zz,8\n", "line 2: expected `I  hex,size`"),
        (b"TERRA", "expected 20 bytes before the header, the file has 5"),
    ];
    for (bytes, expected) in cases {
        let (_directory, path) = file("input", bytes);
        let error = open_any(&path, false).and_then(|mut source| drain(&mut source)).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("input"), "{error}");
    }
    let error = open_any("/no/such/file", false).err().unwrap().to_string();
    assert!(error.contains("/no/such/file"), "{error}");
}

#[test]
fn conversions_there_and_back_keep_every_access() {
    let (directory, path) = file("ls.lackey", LACKEY.as_bytes());
    let trace = directory.path().join("ls.trace");
    let summary = convert(&mut open_any(&path, false).unwrap(), &trace).unwrap();
    assert_eq!((summary.totals.accesses, summary.totals.reads, summary.totals.instructions), (4, 2, 4));
    assert_eq!(rows(&mut TraceReader::open(&trace).unwrap()), lackey_rows());
    assert_eq!(info(&trace, false).unwrap().format, Format::Terrace);

    let mut lackey = Vec::new();
    let scratch = directory.path();
    let mut source = open_any(&trace, false).unwrap();
    let done = export(&mut source, ExportFormat::Lackey, None, scratch, &mut lackey).unwrap();
    assert_eq!((done.accesses, done.records, done.streams_merged), (4, 8, 1));
    let (_directory, back) = file("back", &lackey);
    assert_eq!(rows(&mut open_any(&back, false).unwrap()), lackey_rows());

    let mut plain = Vec::new();
    let mut source = open_any(&trace, false).unwrap();
    export(&mut source, ExportFormat::Text, None, scratch, &mut plain).unwrap();
    assert_eq!(
        String::from_utf8(plain).unwrap(),
        "W 0x1ffefffe48 8\nR 0x421f8c0 4\nR 0x421f8c4 4\nW 0x421f8c4 4\n"
    );
}

#[test]
fn head_shows_rows_and_events() {
    let (_directory, path) = file("ls.lackey", LACKEY.as_bytes());
    let items = head(&mut open_any(&path, false).unwrap(), 3).unwrap();
    let lines: Vec<String> = items.iter().map(ToString::to_string).collect();
    assert!(lines[0].starts_with("- 0 #1 spawn process=0 "), "{lines:?}");
    assert!(lines[1].starts_with("- 0 #2 map 0x"), "{lines:?}");
    assert_eq!(lines[2], "0 0 W 0x1ffefffe48 8 +2 pc=0x4001093");
    assert_eq!(lines.len(), 3);
}
