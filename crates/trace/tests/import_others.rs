//! The importers of drmemtrace, of requests to caches, of DAMON's records and of perf's samples, by worked examples.

mod common;

use common::drain;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use terrace_trace::{AccessKind, Event, Item, info, open_any, verify};

fn file(name: &str, content: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, content).unwrap();
    (directory, path)
}

/// `(address, size, kind, instructions, pc)` of every access.
type Row = (u64, u8, AccessKind, u16, Option<u64>);

/// Where it came from, its accesses, and the instructions of the whole.
fn read(content: &[u8]) -> (String, Vec<Row>, u64) {
    let (_directory, path) = file("input", content);
    assert!(verify(&path).unwrap().is_sound());
    let mut source = open_any(&path, false).unwrap();
    let (mut rows, mut instructions) = (Vec::new(), 0);
    for batch in drain(&mut source).unwrap() {
        instructions += batch.instruction_count();
        for item in batch.items() {
            if let Item::Access(a) = item {
                rows.push((a.addr, a.size, a.kind, a.instructions, a.pc));
            }
        }
    }
    (source.header().origin.clone(), rows, instructions)
}

fn error(content: &[u8]) -> String {
    let (_directory, path) = file("input", content);
    open_any(&path, false).and_then(|mut source| drain(&mut source)).unwrap_err().to_string()
}

use AccessKind::{Read, Write as Store};

fn drmemtrace(records: &[(u16, u16, u64)]) -> Vec<u8> {
    let bytes = |&(kind, size, value): &(u16, u16, u64)| {
        [&kind.to_le_bytes()[..], &size.to_le_bytes(), &value.to_le_bytes()].concat()
    };
    records.iter().flat_map(bytes).collect()
}

const RECORDS: [(u16, u16, u64); 14] = [
    (25, 0, 1),                    // version
    (22, 4, 21548),                // thread
    (24, 4, 21548),                // process
    (28, 2, 13_161_000_000),       // a marker: the time
    (10, 4, 0x40_0110),            // an instruction
    (47, 4, 0x1234),               // an encoding
    (10, 7, 0x40_0114),            // an instruction that loads and stores
    (0, 8, 0x7fff_0010),           //
    (1, 4, 0x7fff_0020),           //
    (17, 2, 0x0403),               // a bundle of two instructions
    (29, 2, 0x40_0120),            // a further iteration of a string instruction
    (1, 0, 0x7fff_1000),           // a store of unknown size
    (0, 8, 0xffff_8000_0000_0000), // the kernel's
    (48, 2, 0x40_0122),            // a jump that was taken
];

#[test]
fn drmemtrace_by_hand() {
    let expected = [
        (0x7fff_0010, 8, Read, 2, Some(0x40_0114)),
        (0x7fff_0020, 4, Store, 0, Some(0x40_0114)),
        (0x7fff_1000, 1, Store, 2, Some(0x40_0120)),
    ];
    // The jump, which no access follows, counts too.
    assert_eq!(read(&drmemtrace(&RECORDS)), ("drmemtrace".to_owned(), expected.to_vec(), 5));
}

/// A zip archive of members, which are in it in the order given.
fn archive(members: &[(&str, &[u8])], method: zip::CompressionMethod) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in members {
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        archive.start_file(*name, options).unwrap();
        archive.write_all(content).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

#[test]
fn chunks_of_an_archive_are_read_in_the_order_of_their_names() {
    let whole = drmemtrace(&RECORDS);
    let expected = read(&whole);
    for method in [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated] {
        // The cut lies within a record.
        let (first, second) = whole.split_at(100);
        let zipped = archive(&[("chunk.0001", second), ("chunk.0000", first)], method);
        assert_eq!(read(&zipped), expected);
    }

    let mut damaged = archive(&[("chunk.0000", &whole)], zip::CompressionMethod::Stored);
    let at = damaged.windows(12).position(|bytes| bytes == &whole[84..96]).unwrap();
    damaged[at + 5] ^= 1;
    let message = error(&damaged);
    assert!(message.contains("the member \"chunk.0000\" has another checksum"), "{message}");
    let message = error(&archive(&[("chunk.0000", &whole)], zip::CompressionMethod::Stored)[..150]);
    assert!(message.contains("input"), "{message}");
}

#[test]
fn members_are_in_the_order_of_their_numbers() {
    let names: Vec<String> = (1..=11).map(|number| format!("part.{number}")).collect();
    let lines: Vec<String> = (1..=11).map(|number| format!("R {:x} 8\n", number << 12)).collect();
    let members: Vec<_> =
        names.iter().zip(&lines).map(|(name, line)| (name.as_str(), line.as_bytes())).collect();
    let (_, rows, _) = read(&archive(&members, zip::CompressionMethod::Stored));
    let pages: Vec<u64> = rows.iter().map(|row| row.0 >> 12).collect();
    assert_eq!(pages, (1..=11).collect::<Vec<u64>>());
}

#[test]
fn streams_of_zlib_follow_each_other_and_records_that_begin_like_one_are_records() {
    let zlib = |content: &[u8]| {
        let mut stream = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        stream.write_all(content).unwrap();
        stream.finish().unwrap()
    };
    let two = [zlib(b"R 1000 8\n"), zlib(b"W 2000 8\n")].concat();
    assert_eq!(read(&two).1, [(0x1000, 8, Read, 1, None), (0x2000, 8, Store, 1, None)]);
    let message = error(&[zlib(b"R 1000 8\n"), b"garbage".to_vec()].concat());
    assert!(message.contains("after decompression"), "{message}");
    // Times that begin as zlib's and gzip's files do.
    for time in [0x178, 0x5e78, 0x9c78, 0xda78, 0x8b1f] {
        let requests = oracle_general(&[(time, 77, 200, 2), (time + 1, 77, 200, -1)]);
        assert_eq!(read(&requests).0, "oraclegeneral", "{time:#x}");
    }
}

#[test]
fn records_of_drmemtrace_that_cannot_be_are_named() {
    let with = |record| drmemtrace(&[&RECORDS[..3], &[record]].concat());
    let message = error(&with((24, 4, 99)));
    assert!(message.contains("expected records of process 21548 alone, found process 99"), "{message}");
    let message = error(&with((50, 0, 0)));
    assert!(message.contains("byte 36: expected a type of record from 0 to 49, found 50"), "{message}");
    let message = error(&with((0, 20_000, 0x1000)));
    assert!(message.contains("byte 36: expected an access of 1 to 16384 bytes, found 20000"), "{message}");
    let message = error(&drmemtrace(&RECORDS)[..40]);
    assert!(message.contains("byte 36: expected a record of 12 bytes, only 4 are left"), "{message}");
}

/// Two threads of one process and one of another, in a folder as drmemtrace makes it.
fn threads(files: &[(&str, Vec<u8>)]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drmemtrace.my.app.77.1234.dir");
    fs::create_dir_all(path.join("trace")).unwrap();
    fs::create_dir(path.join("raw")).unwrap();
    for (name, content) in files {
        fs::write(path.join("trace").join(name), content).unwrap();
    }
    (directory, path)
}

/// A thread that loads from its address once after each of these times.
fn thread(process: u64, thread: u64, address: u64, times: &[u64]) -> Vec<(u16, u16, u64)> {
    let head = [(25, 0, 1), (22, 4, thread), (24, 4, process)];
    let each = times.iter().flat_map(|time| [(28, 2, *time), (10, 4, 0x40_0000), (0, 8, address + time)]);
    head.into_iter().chain(each).collect()
}

fn three_threads() -> [(&'static str, Vec<u8>); 5] {
    let zipped = |content| archive(&[("chunk.0000", content)], zip::CompressionMethod::Deflated);
    [
        ("app.77.trace.zip", zipped(&drmemtrace(&thread(70, 77, 0x10_0000, &[100, 200, 500])))),
        ("app.78.trace", drmemtrace(&thread(70, 78, 0x18_0000, &[50, 150, 250, 300]))),
        ("app.90.trace", drmemtrace(&thread(90, 90, 0x10_0000, &[220]))),
        ("cpu_schedule.bin", b"something else".to_vec()),
        ("empty", Vec::new()),
    ]
}

#[test]
fn threads_of_drmemtrace_are_merged_by_their_times() {
    let (_directory, path) = threads(&three_threads());
    for path in [path.clone(), path.join("trace")] {
        assert!(verify(&path).unwrap().is_sound());
        let mut source = open_any(&path, false).unwrap();
        assert_eq!(
            (source.header().program.as_str(), source.header().origin.as_str()),
            ("my.app", "drmemtrace")
        );
        let (mut accesses, mut lives, mut maps) = (Vec::new(), Vec::new(), Vec::new());
        for batch in drain(&mut source).unwrap() {
            for item in batch.items() {
                match item {
                    Item::Access(access) => accesses.push((batch.stream.0, access.addr & 0xffff)),
                    Item::Event(event) => match &event.event {
                        Event::Spawn { process, thread, os_id, .. } => {
                            lives.push((batch.stream.0, *process, *thread, *os_id));
                        }
                        Event::Exit { process_ends } => {
                            lives.push((batch.stream.0, u32::from(*process_ends), 0, 0))
                        }
                        Event::Map { .. } => maps.push(batch.stream.0),
                        _ => {}
                    },
                }
            }
        }
        // The first that begins is stream 0.
        let expected = [(0, 50), (1, 100), (0, 150), (1, 200), (2, 220), (0, 250), (0, 300), (1, 500)];
        assert_eq!(accesses, expected);
        let expected =
            [(0, 0, 0, 78), (1, 0, 1, 77), (2, 1, 0, 90), (2, 1, 0, 0), (0, 0, 0, 0), (1, 1, 0, 0)];
        assert_eq!(lives, expected, "begins and ends");
        // Both threads of the first process lie in one region; the second process has its own.
        assert_eq!(maps, [0, 2]);
    }
    let summary = info(&path, false).unwrap();
    let files = three_threads()[..3].iter().map(|(_, content)| content.len() as u64).sum();
    assert_eq!((summary.totals.accesses, summary.file_bytes), (8, files));
}

#[test]
fn threads_without_times_take_turns() {
    let many = |thread: u64| {
        let accesses = (0..20_000).flat_map(|at| [(10, 4, 0x40_0000), (1, 8, 0x10_0000 + 8 * at)]);
        let head = [(25, 0, 1), (22, 4, thread), (24, 4, 7)];
        drmemtrace(&head.into_iter().chain(accesses).collect::<Vec<_>>())
    };
    let (_directory, path) = threads(&[("a.trace", many(1)), ("b.trace", many(2))]);
    let mut source = open_any(&path, false).unwrap();
    let streams: Vec<u32> = drain(&mut source).unwrap().iter().map(|batch| batch.stream.0).collect();
    assert!(streams.len() > 4 && streams.windows(2).take(4).all(|two| two[0] != two[1]), "{streams:?}");
}

#[test]
fn a_folder_that_is_no_trace_is_said_to_be_none() {
    let message = |files: &[(&str, Vec<u8>)], salvage| {
        let (_directory, path) = threads(files);
        open_any(&path, salvage).and_then(|mut source| drain(&mut source)).unwrap_err().to_string()
    };
    assert!(message(&[("schedule.gz", b"x".to_vec())], false).contains("found a folder without any"));
    let lz4 = [&[0x04, 0x22, 0x4d, 0x18][..], b"rest"].concat();
    assert!(message(&[("a.trace.lz4", lz4)], false).contains("a.trace.lz4: it is compressed with lz4"));
    let foreign = message(&[("a.trace", b"something".to_vec())], false);
    assert!(foreign.contains("a.trace: expected drmemtrace's records"), "{foreign}");
    // Damage of one thread names its file; what the others have is salvaged.
    let mut files = three_threads();
    let length = files[1].1.len();
    files[1].1.truncate(length - 3);
    let damaged = message(&files, false);
    assert!(damaged.contains("app.78.trace: byte 168: expected a record of 12 bytes"), "{damaged}");
    let (_directory, path) = threads(&files);
    let batches = drain(&mut open_any(&path, true).unwrap()).unwrap();
    assert_eq!(batches.iter().map(|batch| batch.len()).sum::<usize>(), 7);
}

#[test]
fn text_is_not_taken_for_requests() {
    let text = [b"1,".as_slice(), &[b'a'; 2000]].concat();
    let message = error(&text);
    assert!(message.contains("no known trace"), "{message}");
}

fn oracle_general(records: &[(u32, u64, u32, i64)]) -> Vec<u8> {
    let bytes = |&(time, object, bytes, next): &(u32, u64, u32, i64)| {
        [&time.to_le_bytes()[..], &object.to_le_bytes(), &bytes.to_le_bytes(), &next.to_le_bytes()].concat()
    };
    records.iter().flat_map(bytes).collect()
}

/// The first object has its place at the beginning of the heap.
const HEAP: u64 = 0x1000_0000;

#[test]
fn the_first_request_of_an_object_writes_it_and_later_ones_read_it() {
    let requests = [
        (10, 77, 200, 3),
        (10, 5, 64, -1),
        (11, 77, 200, 5),
        (11, 9, 0, i64::MAX),
        // Larger than before: it moves behind the others.
        (12, 77, 300, 6),
        (12, 77, 10, -1),
    ];
    let moved = HEAP + 256 + 64;
    let expected = [
        (HEAP, 128, Store, 16, None),
        (HEAP + 128, 72, Store, 16, None),
        (HEAP + 256, 64, Store, 16, None),
        (HEAP, 128, Read, 16, None),
        (HEAP + 128, 72, Read, 16, None),
        (moved, 128, Store, 16, None),
        (moved + 128, 128, Store, 16, None),
        (moved + 256, 44, Store, 16, None),
        (moved, 10, Read, 16, None),
    ];
    let bytes = oracle_general(&requests);
    assert_eq!(read(&bytes), ("oraclegeneral".to_owned(), expected.to_vec(), 9 * 16));
    let zst = zstd::bulk::compress(&bytes, 1).unwrap();
    assert_eq!(read(&zst).1, expected);
}

#[test]
fn large_objects_are_accessed_in_part() {
    let (_, rows, _) = read(&oracle_general(&[(1, 1, 100 << 20, -1), (1, 2, 64, -1)]));
    assert_eq!(rows.len(), (16 << 20) / 128 + 1);
    assert_eq!(rows.last().unwrap().0, HEAP + (16 << 20));
}

#[test]
fn columns_are_found_by_their_names() {
    let expected = [
        (HEAP, 100, Store, 16, None),
        (HEAP + 128, 8, Store, 16, None),
        (HEAP, 100, Read, 16, None),
        (HEAP + 128, 8, Store, 16, None),
    ];
    let texts = [
        "time,obj_id,obj_size,op\n1,a,100,get\n1,b,8,set\n\n2,a,100,get\n3,b,8,SET\n",
        "# made by hand\nop, key, object-size\nget,a,100\nget,b,8\r\nread,a,100\nwrite,b,8\n",
        "version,time,op,size,lbn\n1,5,28,100,7\n1,5,28,8,42932745\n1,6,28,100,7\n1,7,2a,8,42932745\n",
    ];
    for text in texts {
        assert_eq!(read(text.as_bytes()), ("csv".to_owned(), expected.to_vec(), 64), "{text}");
    }
    // A comma within quotes is the field's own, and of two quotes there one is meant.
    let quoted = "\"key\",\"size\",op\n\"a,77,\"\"x\",\"100\",get\n\"a,77,y\",8,get\n\"a,77,\"\"x\",100,get\n\"a,77,y\",8,set\n";
    assert_eq!(read(quoted.as_bytes()).1, expected);
    // A key is the object where there is a row's number too; what is deleted is not accessed; a byte-order mark is passed
    // over.
    let keyed =
        "\u{feff}id,key,size,type\n1,a,100,Read\n2,b,8,Read\n3,a,100,delete\n4,a,100,Read\n5,b,8,Write\n";
    assert_eq!(read(keyed.as_bytes()).1, expected);
    let message = error(b"obj_id,obj_size\na,100\nb\n");
    assert!(message.contains("line 3: expected an object and its size in bytes, found \"b\""), "{message}");
    let message = error(b"obj_id,obj_size\na,-1\n");
    assert!(message.contains("line 2: expected an object"), "{message}");
}

const RECORD: &str = r#"[{"kdamond_idx": null, "target_id": 1, "snapshots": [
  {"start_time": "1,000", "end_time": "2,000", "regions": [
    {"start": "4,096", "end": "12,288", "nr_accesses": {"samples": 2, "percent": null}},
    {"start": "20,480", "end": "24,576", "nr_accesses": {"samples": 1, "percent": null}},
    {"start": "40,960", "end": "45,056", "nr_accesses": {"samples": 0, "percent": null}}]},
  {"regions": []},
  {"regions": [{"start": 8192, "end": 12288, "nr_accesses": 1}]}]}]"#;

#[test]
fn pages_of_a_region_are_read_as_often_as_it_was_found_accessed() {
    let expected: Vec<Row> =
        [4096, 8192, 20480, 4096, 8192, 8192].map(|addr| (addr, 8, Read, 1, None)).to_vec();
    assert_eq!(read(RECORD.as_bytes()), ("damon".to_owned(), expected.clone(), 6));
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    zlib.write_all(RECORD.as_bytes()).unwrap();
    assert_eq!(read(&zlib.finish().unwrap()).1, expected);
}

/// A record in binary: the snapshots of one target.
fn in_binary(version: u32, snapshots: &[&[(u64, u64, u32)]]) -> Vec<u8> {
    let mut bytes = b"damon_recfmt_ver".to_vec();
    bytes.extend(version.to_le_bytes());
    for (second, regions) in snapshots.iter().enumerate() {
        bytes.extend((second as u64).to_le_bytes());
        bytes.extend(500u64.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        if version == 1 {
            bytes.extend(77u32.to_le_bytes())
        } else {
            bytes.extend(77u64.to_le_bytes())
        }
        bytes.extend((regions.len() as u32).to_le_bytes());
        for (start, end, accesses) in *regions {
            bytes.extend(start.to_le_bytes());
            bytes.extend(end.to_le_bytes());
            bytes.extend(accesses.to_le_bytes());
        }
    }
    bytes
}

#[test]
fn older_records_of_damon_are_read_in_binary() {
    let snapshots: [&[_]; 3] = [
        &[(4096, 12288, 2), (20480, 24576, 1), (40960, 45056, 0)],
        &[],
        &[(8192, 12288, 1), (0, 0, u32::MAX)],
    ];
    for version in [1, 2] {
        assert_eq!(read(&in_binary(version, &snapshots)), read(RECORD.as_bytes()), "version {version}");
    }
    let whole = in_binary(2, &snapshots);
    let cases = [
        (in_binary(3, &snapshots), "expected a record of version 1 or 2, found 3"),
        (whole[..18].to_vec(), "expected the version of the record"),
        (whole[..whole.len() - 3].to_vec(), "snapshot 2: the record ends within it"),
        (in_binary(2, &[&[(4096, 4096, 1)]]), "snapshot 0: expected regions with start, end and nr_accesses"),
        ([&whole[..36], &2u32.to_le_bytes()].concat(), "snapshot 0: expected one target, found 2"),
    ];
    for (record, expected) in cases {
        let message = error(&record);
        assert!(message.contains(expected) && message.contains("input"), "{message}");
    }
}

#[test]
fn records_of_damon_that_cannot_be_are_named() {
    let cases = [
        (RECORD.replace("12,288", "4,095"), "snapshot 0: expected regions with start, end and nr_accesses"),
        (RECORD.replace("\"samples\": 2", "\"samples\": -2"), "snapshot 0: expected regions"),
        (RECORD.replace("24,576", "18446744073709551615"), "snapshot 0: expected regions"),
        (RECORD.replacen("[{", "[{}, {", 1), "expected a record of one target, found 2"),
        (RECORD[..RECORD.len() - 2].to_owned(), "EOF while parsing"),
    ];
    for (text, expected) in cases {
        let message = error(text.as_bytes());
        assert!(message.contains(expected) && message.contains("input"), "{message}");
    }
}

const SAMPLES: &str = "\
# perf script of a perf mem record
      memstress  3603 [020]   122.463754:          1   l1d-miss:  7ffdf1391b0c  8688000842 |OP LOAD|LVL L3 or L3 hit|SNP N/A|TLB Walker \
hit|LCK No|BLK  N/A               aaaac17c3e88 [unknown] (/home/memstress)
chromium-browse   46572 [002] 544966.882384:      10000  cpu_core/MEM_UOPS_RETIRED.LOAD_LATENCY/: 7ffdf1391b14     10268100142 \
|OP STORE|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK    N/A    5   7    0   7fad7c47425d main+0x12 (/usr/lib64/libglib-2.0.so)
ls 14753 [011]  3678.072400:          1  l1d-miss: ffffa7c22b4b2a00  88000182 |OP LOAD|LVL L1 miss|BLK  N/A ffffa7c22b4b2a00 [unknown] (k)
ls 14753 [011]  3678.072400:          1  l1d-miss: 0  88000182 |OP LOAD|LVL L1 miss|BLK  N/A 401136 main (ls)
ls 14753 [011]  3678.072400:          1  l1d-miss: 401136  88000182 |OP PFETCH|LVL L1 miss|BLK  N/A 401136 main (ls)
";

#[test]
fn samples_of_loads_and_stores_are_accesses() {
    let expected = [
        (0x7ffd_f139_1b0c, 8, Read, 1, Some(0xaaaa_c17c_3e88)),
        (0x7ffd_f139_1b14, 8, Store, 1, Some(0x7fad_7c47_425d)),
    ];
    assert_eq!(read(SAMPLES.as_bytes()), ("perf".to_owned(), expected.to_vec(), 2));
    // Without `--data` perf records no address.
    let message =
        error(format!("{SAMPLES}ls 14753 [011] 3678.07: 1 loads: |OP LOAD|LVL L1 miss|BLK N/A\n").as_bytes());
    assert!(message.contains("line 7: expected a sample with its address"), "{message}");
}

#[test]
fn what_is_recognised_is_named() {
    let traces =
        [drmemtrace(&RECORDS), oracle_general(&[(1, 2, 3, -1)]), b"key,size\na,1\n".to_vec(), RECORD.into()];
    let names = ["drmemtrace", "oraclegeneral", "csv", "damon"];
    for (content, name) in traces.iter().zip(names) {
        let (_directory, path) = file("input", content);
        assert_eq!(info(&path, false).unwrap().format.name(), name);
        // A mapping comes before the first access, and the end is the last.
        let batches = drain(&mut open_any(&path, false).unwrap()).unwrap();
        let events: Vec<_> = batches.iter().flat_map(|batch| &batch.events).collect();
        assert!(matches!(events[1].event, Event::Map { .. }), "{name}");
        assert_eq!(events.last().unwrap().event, Event::Exit { process_ends: true }, "{name}");
    }
}
