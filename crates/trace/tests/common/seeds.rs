//! Valid inputs of the fuzz targets, from which mutations start.

use super::small_trace;
use std::io::Write;
use terrace_trace::{AccessKind, Batch, Event, Header, StreamId, TraceWriter, fuzz};

/// A target's entry function.
pub type Entry = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Entry); 11] = [
    ("reader", fuzz::reader),
    ("chunk", fuzz::chunk),
    ("lackey", fuzz::lackey),
    ("champsim", fuzz::champsim),
    ("text", fuzz::text),
    ("drmemtrace", fuzz::drmemtrace),
    ("archive", fuzz::archive),
    ("oracle_general", fuzz::oracle_general),
    ("csv", fuzz::csv),
    ("damon", fuzz::damon),
    ("perf", fuzz::perf),
];

/// The seeds of a target.
///
/// # Panics
/// When there is no such target.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let batches = small_trace().1;
    match target {
        "reader" => vec![file(&batches), file(&varied()), file(&[]), file(&many_chunks())],
        "chunk" => vec![fuzz::chunk_seed(&batches), fuzz::chunk_seed(&varied())],
        "lackey" => with_compressed(LACKEY.as_bytes()),
        "champsim" => with_compressed(&records()),
        "text" => with_compressed(b"# by hand\n\nR 0x1fffff 4\nw 2000\nR DEADbeef 512\r\nW 7ffff000 1"),
        "drmemtrace" => with_compressed(&drmemtrace()),
        "archive" => vec![archive(zip::CompressionMethod::Stored), archive(zip::CompressionMethod::Deflated)],
        "oracle_general" => with_compressed(&oracle_general()),
        "csv" => with_compressed(
            b"time,obj_id,obj_size,op\n1,a,100,get\n1,b,8,set\n2,a,100,get\n# by hand\n3,b,8,SET",
        ),
        "damon" => [with_compressed(DAMON.as_bytes()), vec![damon_in_binary()]].concat(),
        "perf" => with_compressed(PERF.as_bytes()),
        other => panic!("no target {other}"),
    }
}

const LACKEY: &str = "==12== Lackey\n==12==\nI  04001090,3\nI  04001093,5\n S 1ffefffe48,8\nI  04001098,7\n \
                      L 0421f8c0,4\n M 0421f8c4,4\nI  0400109f,1\n==12==\n";

/// Instruction addresses, far and near residuals, many streams.
fn varied() -> Vec<Batch> {
    let mut batches = Vec::new();
    for stream in 0..5u32 {
        let mut batch = Batch { stream: StreamId(stream * 1000), after: 7, ..Batch::default() };
        for step in 0..60u64 {
            let far = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (step % 64);
            let kind = if step % 4 == 0 { AccessKind::Write } else { AccessKind::Read };
            batch.push(far, 1 + (step % 9) as u8, kind, (step % 3) as u8, (step * step) as u16);
            batch.pc.push(0x40_0000 + 4 * (step % 17));
        }
        batch.push_event(0, Event::Compute { instructions: 1 << 40 });
        batches.push(batch);
    }
    batches
}

/// Chunks closed by their number of events.
fn many_chunks() -> Vec<Batch> {
    let bitmap = vec![0; 1 << 17];
    (0..3u64)
        .map(|number| {
            let mut batch = Batch::default();
            batch.push(64 * number, 8, AccessKind::Read, 0, 1);
            batch.push_event(1 + number, Event::Resident { start: 0, bitmap: bitmap.clone() });
            batch
        })
        .collect()
}

fn file(batches: &[Batch]) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("seed.trace");
    let mut writer = TraceWriter::create(&path, &Header::default()).unwrap();
    batches.iter().for_each(|batch| writer.push(batch).unwrap());
    writer.finish().unwrap();
    std::fs::read(&path).unwrap()
}

/// A trace in two members.
fn archive(method: zip::CompressionMethod) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let trace = drmemtrace();
    for (name, part) in [("chunk.0000", &trace[..trace.len() / 2]), ("chunk.0001", &trace[trace.len() / 2..])]
    {
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        archive.start_file(name, options).unwrap();
        archive.write_all(part).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

fn records() -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..20u64 {
        bytes.extend((0x40_0000 + 4 * number).to_le_bytes());
        bytes.extend([u8::from(number % 5 == 0), 0, 10, 25, 10, 11, 0, 0]);
        for slot in 0..6 {
            let used = (number + slot) % 3 == 0;
            bytes.extend((if used { 0x7000_0000 + 4096 * number + 8 * slot } else { 0 }).to_le_bytes());
        }
    }
    bytes
}

const PERF: &str = "ls 14753 [011] 3678.072400: 1 l1d-miss: 7ffdf1391b0c 88000182 |OP LOAD|LVL L1 miss|BLK N/A 401136 main (ls)\n\
                    ls 14753 [011] 3678.072401: 1 stores: 7ffdf1391b10 88000182 |OP STORE|LVL N/A|BLK N/A 5 7 40113c main (ls)\n";

const DAMON: &str = r#"[{"kdamond_idx": null, "target_id": 1, "snapshots": [
  {"start_time": "1,000", "regions": [
    {"start": "4,096", "end": "12,288", "nr_accesses": {"samples": 2}},
    {"start": "20,480", "end": "24,576", "nr_accesses": {"samples": 0}}]},
  {"regions": [{"start": 8192, "end": 12288, "nr_accesses": 1}]}]}]"#;

/// The first snapshot of [`DAMON`] as older versions of damo keep it.
fn damon_in_binary() -> Vec<u8> {
    let mut bytes = b"damon_recfmt_ver".to_vec();
    bytes.extend(2u32.to_le_bytes());
    bytes.extend([1u64, 0].map(u64::to_le_bytes).concat());
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(2u32.to_le_bytes());
    for (start, end, accesses) in [(4096u64, 12288u64, 2u32), (20480, 24576, 0)] {
        bytes.extend([start, end].map(u64::to_le_bytes).concat());
        bytes.extend(accesses.to_le_bytes());
    }
    bytes
}

fn drmemtrace() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut push = |kind: u16, size: u16, value: u64| {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend(value.to_le_bytes());
    };
    push(25, 0, 1);
    push(22, 4, 7);
    for number in 0..20 {
        push(10, 4, 0x40_0000 + 4 * number);
        push((number % 2) as u16, 8, 0x7000_0000 + 4096 * number);
        push(28, 2, number);
    }
    bytes
}

fn oracle_general() -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 0..20u32 {
        bytes.extend((number / 3).to_le_bytes());
        bytes.extend(u64::from(number % 5).to_le_bytes());
        bytes.extend((64 * (number % 7)).to_le_bytes());
        bytes.extend(if number < 15 { i64::from(number) + 6 } else { -1 }.to_le_bytes());
    }
    bytes
}

fn with_compressed(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(bytes).unwrap();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(bytes).unwrap();
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    zlib.write_all(bytes).unwrap();
    let zstd = zstd::bulk::compress(bytes, 1).unwrap();
    vec![bytes.to_vec(), gz.finish().unwrap(), xz.finish().unwrap(), zlib.finish().unwrap(), zstd]
}
