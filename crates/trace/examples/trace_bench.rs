//! Measures trace files: bytes per access, writing speed, reading speed (decoded to columns, one thread).
//!
//! ```text
//! cargo run --release -p terrace-trace --example trace_bench [FILE…]
//! ```
//!
//! Prints a Markdown table for four built-in access patterns and for each given trace of any format. Writing is timed
//! from the first `push` to the end of `finish`, reading from `open` to the last batch; each is the best of five runs
//! with the file in the page cache. Beside each rate stands the CPU time per access, of all threads (writing uses two,
//! reading one): on a busy machine that is the number to compare.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use terrace_trace::{
    AccessKind, Agent, Batch, BatchBuilder, Event, EventSource, Header, StreamId, TraceReader, TraceWriter,
    open_any,
};

const PATTERN_ACCESSES: usize = 20_000_000;
/// Accesses of a given file that are measured, at most.
const FILE_ACCESSES: usize = 40_000_000;
const RUNS: usize = 5;

fn main() -> Result<(), Box<dyn Error>> {
    println!("| input | M accesses | bytes/access | write M/s | write CPU ns | read M/s | read CPU ns |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for (name, pattern) in PATTERNS {
        measure(name, &generate(pattern))?;
    }
    for path in std::env::args().skip(1) {
        let mut source = open_any(&path, true)?;
        let mut batches = Vec::new();
        let mut accesses = 0;
        while accesses < FILE_ACCESSES
            && let Some(batch) = source.next_batch()?
        {
            accesses += batch.len();
            batches.push(batch);
        }
        let name = Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        if batches.iter().any(|batch| !batch.pc.is_empty()) {
            measure(&format!("{name}, with instruction addresses"), &batches)?;
        }
        let without: Vec<Arc<Batch>> =
            batches.iter().map(|batch| Arc::new(Batch { pc: Vec::new(), ..(**batch).clone() })).collect();
        measure(&name, &without)?;
    }
    Ok(())
}

fn measure(name: &str, batches: &[Arc<Batch>]) -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("bench.trace");
    let (mut write, mut write_cpu, mut read, mut read_cpu) = (f64::MAX, f64::MAX, f64::MAX, f64::MAX);
    let (mut bytes, mut accesses) = (0.0, 0);
    for _ in 0..RUNS {
        let (start, cpu_start) = (Instant::now(), cpu_seconds());
        let mut writer = TraceWriter::create(&path, &Header::default())?;
        for batch in batches {
            writer.push(batch)?;
        }
        let summary = writer.finish()?;
        write = write.min(start.elapsed().as_secs_f64());
        write_cpu = write_cpu.min(cpu_seconds() - cpu_start);
        bytes = summary.bytes_per_access();
        accesses = summary.totals.accesses;
    }
    for _ in 0..RUNS {
        let (start, cpu_start) = (Instant::now(), cpu_seconds());
        let mut reader = TraceReader::open(&path)?;
        let mut found = 0;
        while let Some(batch) = reader.next_batch()? {
            found += std::hint::black_box(&batch).len() as u64;
        }
        assert_eq!(found, accesses);
        read = read.min(start.elapsed().as_secs_f64());
        read_cpu = read_cpu.min(cpu_seconds() - cpu_start);
    }
    let millions = accesses as f64 / 1e6;
    println!(
        "| {name} | {millions:.1} | {bytes:.3} | {:.0} | {:.1} | {:.0} | {:.1} |",
        millions / write,
        1e3 * write_cpu / millions,
        millions / read,
        1e3 * read_cpu / millions
    );
    Ok(())
}

/// User and system time of this process so far, of all its threads.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64
}

type Pattern = fn(&mut BatchBuilder, &mut Xoshiro256PlusPlus, u64);

/// Each call appends one step.
const PATTERNS: [(&str, Pattern); 4] = [
    ("stream: triad of three arrays", |out, _, step| {
        for (array, kind) in [(1, AccessKind::Read), (2, AccessKind::Read), (0, AccessKind::Write)] {
            out.access((array << 40) + 8 * step, 8, kind, 0, 2);
        }
    }),
    ("random: 8-byte loads in 4 GiB", |out, random, _| {
        out.access((1 << 40) + 8 * (random.next_u64() % (1 << 29)), 8, AccessKind::Read, 0, 6);
    }),
    ("chase: dependent lines in 64 MiB", |out, _, step| {
        let line = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        out.access((1 << 40) + 64 * line, 8, AccessKind::Read, 1, 2);
    }),
    ("mixture: stack, fields, table, copies", |out, random, step| {
        let stack = 0x7fff_f000_0000 - 64 * (step % 7);
        out.access(stack, 8, AccessKind::Write, 0, 3);
        let object = (2 << 40) + 48 * (random.next_u64() % 100_000);
        for (field, instructions) in [(0, 1), (8, 2), (24, 5)] {
            out.access(object + field, 8, AccessKind::Read, u8::from(field > 0), instructions);
        }
        if random.next_u64().is_multiple_of(4) {
            let table = (3 << 40) + 4 * (random.next_u64() % (1 << 24));
            out.access(table, 4, AccessKind::Write, 2, 7);
        }
        for word in 0..step % 5 {
            out.access((4 << 40) + 32 * (step % 100_000) + 8 * word, 8, AccessKind::Read, 0, 1);
            out.access((5 << 40) + 32 * (step % 70_000) + 8 * word, 8, AccessKind::Write, 0, 1);
        }
        out.access(stack, 8, AccessKind::Read, 0, 2);
    }),
];

fn generate(pattern: Pattern) -> Vec<Arc<Batch>> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut builder = BatchBuilder::new(StreamId(0));
    let (process, thread, agent) = (0, 0, Agent::Cpu);
    builder.event(
        1,
        Event::Spawn { process, thread, agent, forked_from: None, os_id: 0, name: "bench".to_owned() },
    );
    let mut batches = Vec::new();
    let mut accesses = 0;
    for step in 0.. {
        if accesses >= PATTERN_ACCESSES {
            break;
        }
        pattern(&mut builder, &mut random, step);
        if builder.is_full() {
            accesses += builder.batch().len();
            batches.push(Arc::new(builder.take(1)));
        }
    }
    batches
}
