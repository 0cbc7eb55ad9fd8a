//! The trace file: what is written is read, damage is named and survived, limits hold.

mod common;

use common::{batch, drain, read, small_trace, write};
use proptest::prelude::*;
use std::fs;
use terrace_trace::{
    AccessKind, Batch, Event, EventSource, Header, SliceOptions, StreamId, TraceEnding, TraceReader,
    TraceWriter, VecSource, convert, info, slice, verify,
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(batches in prop::collection::vec(batch(), 0..12), program in ".{0,20}") {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.trace");
        let header = Header { program, ..Header::default() };
        write(&path, &header, &batches);
        let reader = TraceReader::open(&path).unwrap();
        prop_assert_eq!(reader.header(), &header);
        prop_assert_eq!(read(&path), batches.clone());

        // The index agrees with the content, as far as it can be counted here.
        let totals = info(&path, false).unwrap().totals;
        let accesses: usize = batches.iter().map(Batch::len).sum();
        prop_assert_eq!(totals.accesses, accesses as u64);
        prop_assert_eq!(totals.reads + totals.writes, totals.accesses);
        prop_assert_eq!(totals.batches, batches.len() as u64);

        // Salvage reads a sound file whole and finds no damage.
        let mut reader = TraceReader::salvage(&path).unwrap();
        prop_assert_eq!(drain(&mut reader).unwrap().len(), batches.len());
        prop_assert_eq!(reader.damage(), None);
    }

    #[test]
    fn seeking_finds_the_access(batches in prop::collection::vec(batch(), 1..8), target in any::<prop::sample::Index>()) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.trace");
        write(&path, &Header::default(), &batches);
        let addresses: Vec<u64> = batches.iter().flat_map(|batch| batch.addr.clone()).collect();
        let target = target.index(addresses.len() + 1);
        let mut reader = TraceReader::open(&path).unwrap();
        // From anywhere, also after having read a part.
        reader.next_batch().unwrap();
        reader.seek(target as u64).unwrap();
        let found: Vec<u64> = drain(&mut reader).unwrap().iter().flat_map(|batch| batch.addr.clone()).collect();
        prop_assert_eq!(&found[..], &addresses[target..]);
    }
}

/// Enough accesses for several chunks, of two streams.
fn long_trace(accesses: u64) -> Vec<Batch> {
    let mut batches = Vec::new();
    let mut next = 0;
    while next < accesses {
        let stream = (batches.len() % 2) as u32;
        let mut batch = Batch { stream: StreamId(stream), ..Batch::default() };
        if batches.len() < 2 {
            let agent = terrace_trace::Agent::Cpu;
            let name = String::new();
            let spawn = Event::Spawn { process: 0, thread: stream, agent, forked_from: None, os_id: 1, name };
            batch.push_event(1 + u64::from(stream), spawn);
        }
        for _ in 0..4000 {
            batch.push(0x1000 * (next % 1000) + 8 * next, 8, AccessKind::Read, 0, (next % 11) as u16);
            next += 1;
        }
        batches.push(batch);
    }
    batches
}

#[test]
fn a_trace_of_several_chunks_is_read_sought_and_sliced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.trace");
    let batches = long_trace(700_000);
    write(&path, &Header::default(), &batches);
    assert_eq!(read(&path), batches);
    assert!(verify(&path).unwrap().is_sound());

    let mut reader = TraceReader::open(&path).unwrap();
    assert!(reader.chunks().len() >= 3, "{:?}", reader.chunks());
    assert_eq!(reader.chunks()[0].streams, [0, 1]);
    reader.seek(600_123).unwrap();
    assert_eq!(reader.position(), reader.chunks()[2].first_access);
    assert_eq!(reader.next_batch().unwrap().unwrap().addr[0], 0x1000 * 123 + 8 * 600_123);
    assert_eq!(reader.position(), 604_000);

    // Whole chunks before the part are passed over without decoding; the result is the same as from memory.
    let options = SliceOptions { accesses: 600_123..600_200, residency: false };
    let from_file = drain(&mut slice(TraceReader::open(&path).unwrap(), options.clone())).unwrap();
    let from_memory = drain(&mut slice(VecSource::new(Header::default(), batches), options)).unwrap();
    assert_eq!(from_file, from_memory);
    assert_eq!(from_file.iter().map(|batch| batch.len()).sum::<usize>(), 77);
}

#[test]
fn a_batch_longer_than_a_chunk_may_be_is_split() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.trace");
    let mut batch = Batch::default();
    for index in 0..1_200_000u64 {
        batch.push(index * 64, 8, AccessKind::Write, 0, 1);
        if index % 500_000 == 0 {
            batch.push_event(0, Event::Wait { nanos: index });
        }
    }
    batch.push_event(0, Event::Wait { nanos: 7 });
    write(&path, &Header::default(), std::slice::from_ref(&batch));
    let parts = read(&path);
    assert!(parts.len() == 2 && parts.iter().all(|part| part.validate().is_ok()));
    assert_eq!(parts.iter().flat_map(|part| part.addr.clone()).collect::<Vec<_>>(), batch.addr);
    let mut base = 0;
    let mut events = Vec::new();
    for part in &parts {
        events.extend(part.events.iter().map(|event| (base + event.before, event.event.clone())));
        base += part.len() as u32;
    }
    assert_eq!(
        events,
        batch.events.iter().map(|event| (event.before, event.event.clone())).collect::<Vec<_>>()
    );
}

#[test]
fn many_descriptions_take_wider_codes() {
    // More than 256 and more than 65,536 distinct ones.
    for count in [300u64, 70_000] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.trace");
        let mut batch = Batch::default();
        for index in 0..count {
            batch.push(0x1000, 1 + (index / 65_536) as u8, AccessKind::Read, 0, index as u16);
            batch.pc.push(0x40_0000 + index);
        }
        write(&path, &Header::default(), std::slice::from_ref(&batch));
        assert_eq!(read(&path), [batch]);
    }
}

#[test]
fn addresses_without_a_pattern_are_left_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.trace");
    // A chunk of 60-bit noise, and a shorter one of a walk, for which the longer one's buffers are used again.
    let mut noise = Batch::default();
    let mut state = 1u64;
    for _ in 0..1 << 18 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        noise.push(state >> 4, 8, AccessKind::Read, 0, 1);
    }
    let mut walk = Batch::default();
    (0..1000).for_each(|step| walk.push(0x1000 + 8 * step, 8, AccessKind::Read, 0, 1));
    let batches = [noise, walk];
    write(&path, &Header::default(), &batches);
    assert_eq!(read(&path), batches);
    let bytes = fs::metadata(&path).unwrap().len() as f64 / f64::from(1 << 18);
    assert!((7.5..8.1).contains(&bytes), "{bytes} bytes an access");
}

#[test]
fn the_file_is_what_earlier_versions_wrote() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("small.trace");
    let (header, batches) = small_trace();
    write(&path, &header, &batches);
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small.trace");
    if std::env::var_os("TERRACE_WRITE_GOLDEN").is_some() {
        fs::copy(&path, golden).unwrap();
    }
    // Reading is the promise. The bytes may differ where zstd compresses differently.
    assert_eq!(read(golden.as_ref()), batches);
    assert_eq!(TraceReader::open(golden).unwrap().header(), &header);
    assert!(verify(golden).unwrap().is_sound());
}

#[test]
fn damage_at_any_byte_is_an_error_or_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.trace");
    let (header, batches) = small_trace();
    write(&path, &header, &batches);
    let sound = fs::read(&path).unwrap();
    let damaged = directory.path().join("d.trace");
    for at in 0..sound.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = sound.clone();
            bytes[at] ^= flip;
            fs::write(&damaged, &bytes).unwrap();
            match TraceReader::open(&damaged).and_then(|mut reader| drain(&mut reader)) {
                Ok(read) => {
                    assert!(read.iter().map(|batch| &**batch).eq(&batches), "byte {at} changed the content")
                }
                Err(error) => assert!(error.to_string().contains("d.trace"), "{error}"),
            }
            // Salvage yields a prefix, whatever happens.
            if let Ok(mut reader) = TraceReader::salvage(&damaged) {
                let read = drain(&mut reader).unwrap();
                assert!(read.iter().map(|batch| &**batch).eq(&batches[..read.len()]), "byte {at}");
            }
        }
    }
}

#[test]
fn a_file_cut_anywhere_is_an_error_and_salvage_reads_its_whole_chunks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.trace");
    let batches = long_trace(600_000);
    write(&path, &Header::default(), &batches);
    let sound = fs::read(&path).unwrap();
    let chunks = TraceReader::open(&path).unwrap().chunks().to_vec();
    let cut = directory.path().join("cut.trace");
    let ends = chunks.iter().map(|chunk| chunk.offset as usize + chunk.bytes as usize);
    let mut lengths: Vec<usize> = ends.flat_map(|end| [end - 1, end, end + 1, end + 79, end + 90]).collect();
    lengths.extend([0, 1, 8, 19, 20, 21, sound.len() - 1, sound.len() - 33]);
    for length in lengths.into_iter().filter(|&length| length < sound.len()) {
        fs::write(&cut, &sound[..length]).unwrap();
        let error = TraceReader::open(&cut).err().expect("a cut file is not complete").to_string();
        assert!(error.contains("cut.trace"), "{error}");
        let whole: u64 = chunks
            .iter()
            .filter(|chunk| chunk.offset + u64::from(chunk.bytes) <= length as u64)
            .map(|chunk| u64::from(chunk.accesses))
            .sum();
        match TraceReader::salvage(&cut) {
            Err(_) => assert!(length < chunks[0].offset as usize),
            Ok(mut reader) => {
                let read: usize = drain(&mut reader).unwrap().iter().map(|batch| batch.len()).sum();
                assert_eq!(read as u64, whole, "cut at {length}");
                assert!(reader.damage().is_some());
            }
        }
    }
}

#[test]
fn errors_name_file_chunk_offset_and_expectation() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.trace");
    let batches = long_trace(600_000);
    write(&path, &Header::default(), &batches);
    let offset = TraceReader::open(&path).unwrap().chunks()[1].offset;
    let mut bytes = fs::read(&path).unwrap();
    bytes[offset as usize + 500] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let mut reader = TraceReader::open(&path).unwrap();
    let error = drain(&mut reader).unwrap_err().to_string();
    let expected = format!("t.trace: chunk 1 at byte {offset}: expected checksum 0x");
    assert!(error.contains(&expected), "{error}");
    assert!(reader.next_batch().unwrap().is_none(), "no batch follows an error");
    let report = verify(&path).unwrap();
    assert_eq!(report.problems, [error]);
    let salvaged = info(&path, true).unwrap();
    assert!(salvaged.damage.unwrap().contains("chunk 1"));
    assert_eq!(salvaged.totals.accesses, 264_000);

    let expectations: [(&[u8], &str); 4] = [
        (b"", "the file is empty"),
        (b"\x7fELF\x02\x01\x01", "not a Terrace trace: expected the file to begin with"),
        (b"TERRACE\x1a\x02\0\0\0\0\0\0\0\0\0\0\0", "expected trace version 1, found 2"),
        (b"TERRACE\x1a\x01\0\0\0\xff\xff\xff\xff\0\0\0\0", "it claims 4294967295 bytes of a file of 20"),
    ];
    for (bytes, expected) in expectations {
        fs::write(&path, bytes).unwrap();
        let error = TraceReader::open(&path).err().unwrap().to_string();
        assert!(error.contains(expected) && error.contains("t.trace"), "{error}");
    }
}

#[test]
fn a_trace_says_how_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (header, batches) = small_trace();
    for ending in [TraceEnding::Whole, TraceEnding::Stopped, TraceEnding::Cut, TraceEnding::Damaged] {
        let path = folder.path().join(format!("{ending:?}.trace"));
        let mut writer = TraceWriter::create(&path, &header).unwrap();
        batches.iter().for_each(|batch| writer.push(batch).unwrap());
        writer.ends(ending);
        let written = writer.finish().unwrap();
        let reader = TraceReader::open(&path).unwrap();
        assert_eq!((reader.ending(), reader.totals()), (ending, Some(&written.totals)));
        let copy = folder.path().join("copy.trace");
        convert(&mut TraceReader::open(&path).unwrap(), &copy).unwrap();
        assert_eq!(TraceReader::open(&copy).unwrap().ending(), ending, "a copy ends as what it is a copy of");
    }
}

#[test]
fn a_dropped_writer_leaves_a_file_to_salvage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.trace");
    let (header, batches) = small_trace();
    let mut writer = TraceWriter::create(&path, &header).unwrap();
    batches.iter().for_each(|batch| writer.push(batch).unwrap());
    drop(writer);
    let error = TraceReader::open(&path).err().unwrap().to_string();
    assert!(error.contains("no index at its end") && error.contains("--salvage"), "{error}");
    let mut reader = TraceReader::salvage(&path).unwrap();
    assert_eq!(drain(&mut reader).unwrap().len(), batches.len());
    assert!(reader.damage().unwrap().contains("no index"));
    let salvaged = directory.path().join("salvaged.trace");
    convert(&mut TraceReader::salvage(&path).unwrap(), &salvaged).unwrap();
    assert_eq!(TraceReader::open(&salvaged).unwrap().ending(), TraceEnding::Damaged);
}

#[test]
fn the_writer_refuses_what_breaks_the_rules_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.trace");
    let mut writer = TraceWriter::create(&path, &Header::default()).unwrap();
    let mut zero = Batch::default();
    zero.push(1, 0, AccessKind::Read, 0, 0);
    let error = writer.push(&zero).unwrap_err().to_string();
    assert!(error.contains("t.trace: an access of zero bytes"), "{error}");
    let mut huge = Batch::default();
    huge.push_event(1, Event::Resident { start: 0, bitmap: vec![1; 9 << 20] });
    assert!(writer.push(&huge).unwrap_err().to_string().contains("events take more than"));
    let mut good = Batch::default();
    good.push(1, 1, AccessKind::Read, 0, 0);
    writer.push(&good).unwrap();
    writer.push(&Batch::default()).unwrap();
    assert_eq!(writer.finish().unwrap().totals.batches, 1);
    assert_eq!(read(&path), [good]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_one_clear_error() {
    let mut writer = match TraceWriter::create("/dev/full", &Header::default()) {
        Err(error) => {
            assert!(error.to_string().starts_with("/dev/full: cannot write the trace: "), "{error}");
            return;
        }
        Ok(writer) => writer,
    };
    let (_, batches) = small_trace();
    let failed =
        batches.iter().try_for_each(|batch| writer.push(batch)).err().or_else(|| writer.finish().err());
    assert!(failed.unwrap().to_string().contains("/dev/full: cannot write"));
}

#[test]
fn an_error_of_the_source_ends_a_conversion() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("bad.txt");
    fs::write(&text, "R 1000 8\nX\n").unwrap();
    let mut source = terrace_trace::open_any(&text, false).unwrap();
    let error = convert(&mut source, directory.path().join("t.trace")).unwrap_err();
    assert!(error.to_string().contains("bad.txt: line 2: expected"), "{error}");
}

#[test]
fn verify_and_every_reader_refuse_what_no_program_can_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.trace");
    let mut batch = Batch { stream: StreamId(0), after: 1, ..Batch::default() };
    let (process, thread, agent) = (0, 0, terrace_trace::Agent::Cpu);
    batch.push_event(
        1,
        Event::Spawn { process, thread, agent, forked_from: None, os_id: 1, name: String::new() },
    );
    batch.push(0xffff_ffff_ffff_f000, 8, AccessKind::Read, 0, 1);
    let range = terrace_model::AddressRange::new(0x1000, 1 << 40);
    batch.push_event(0, Event::Kernel { range, kind: terrace_trace::KernelAccess::Write });
    common::write(&path, &Header::default(), &[batch]);
    let report = terrace_trace::verify(&path).unwrap();
    let expected = "stream 0, access 0: 8 bytes at address 0xfffffffffffff000: expected a user address below \
                    0x100000000000000, as 5 levels of page tables have them";
    assert_eq!(report.problems, [format!("batch 0: {expected}")]);
    let mut source = terrace_trace::open_any(&path, false).unwrap();
    assert_eq!(source.next_batch().unwrap_err().to_string(), format!("{}: {expected}", path.display()));
    assert!(source.next_batch().unwrap().is_none());
}
