//! A trace with a file for each thread, or for each core: the folder that drmemtrace makes (`drmemtrace.APP.PID.N.dir`, with
//! the files in its folder `trace`).
//!
//! Each file is a stream. The streams are merged by the times that their records state, as DynamoRIO's own simulator does:
//! the stream whose last time is the earliest goes on until it states one that is later than another's. Between two times
//! it is not known what came first, and nothing is known of why a thread waited. Where no times are stated, the streams take
//! turns. Threads of one process share its memory.

use super::builder::ImportBuilder;
use super::drmemtrace::{Beginning, DrMemTrace};
use super::input::Input;
use super::{Format, Parser, warn_of};
use crate::{Batch, EventSource, Header, SourceError, StreamId, TraceEnding};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a file compressed with lz4 begins.
pub(super) const LZ4: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// What the names of such files have.
const IN_NAMES: &str = ".trace";

/// The files of a folder as a source of a stream each.
pub(crate) struct Threads {
    header: Header,
    threads: Vec<Thread>,
    builder: ImportBuilder,
    salvage: bool,
    pub(crate) damage: Option<String>,
}

struct Thread {
    input: Input,
    parser: DrMemTrace,
    /// Numbers of its process and, within that, of itself.
    process: u32,
    number: u32,
    os_id: u32,
    has_begun: bool,
    has_ended: bool,
    /// Batches so far.
    batches: u64,
}

/// The program's name in that of a folder, `drmemtrace.APP.PID.N.dir`, or the folder's.
fn program(folder: &Path) -> String {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let of_tool = name.strip_prefix("drmemtrace.").and_then(|rest| rest.strip_suffix(".dir"));
    of_tool.and_then(|rest| rest.rsplitn(3, '.').nth(2)).map_or(name.clone(), str::to_owned)
}

impl Threads {
    /// The traces in a folder, or in its folder `trace`.
    pub(crate) fn open(folder: &Path, salvage: bool) -> Result<Threads, SourceError> {
        let inner = folder.join("trace");
        let place = if inner.is_dir() { inner } else { folder.to_owned() };
        let io = |error| SourceError::Io { what: place.display().to_string(), error };
        let mut files: Vec<PathBuf> = Vec::new();
        for entry in std::fs::read_dir(&place).map_err(io)? {
            let entry = entry.map_err(io)?;
            if entry.file_type().map_err(io)?.is_file() {
                files.push(entry.path());
            }
        }
        files.sort();
        let mut inputs = Vec::new();
        for file in files {
            let is_named = file.file_name().is_some_and(|name| name.to_string_lossy().contains(IN_NAMES));
            match Input::open(&file) {
                Ok(input) if DrMemTrace::is_plausible(input.start()) => inputs.push(input),
                Ok(input) if is_named && input.start().starts_with(&LZ4) => {
                    return Err(
                        input.malformed("it is compressed with lz4; have drmemtrace write `-compress gzip`")
                    );
                }
                Ok(input) if is_named => return Err(input.malformed("expected drmemtrace's records")),
                // Schedules and the like lie beside them.
                Ok(_) => {}
                Err(error) if is_named => return Err(error),
                Err(_) => {}
            }
        }
        if inputs.is_empty() {
            return Err(SourceError::Malformed(format!(
                "{}: expected a trace, or a folder with drmemtrace's files (trace/*.trace.zip), found a folder without \
                 any",
                folder.display()
            )));
        }
        let named = if folder.file_name().is_some_and(|name| name == "trace") {
            folder.parent().unwrap_or(folder)
        } else {
            folder
        };
        Ok(Threads::new(inputs, program(named), salvage))
    }

    pub(super) fn new(inputs: Vec<Input>, program: String, salvage: bool) -> Threads {
        let mut inputs: Vec<(Beginning, Input)> =
            inputs.into_iter().map(|input| (Beginning::of(input.start()), input)).collect();
        // Threads that begin first have the lower numbers.
        inputs.sort_by_key(|(beginning, _)| beginning.time);
        let mut processes: BTreeMap<u64, (u32, u32)> = BTreeMap::new();
        let threads = inputs.into_iter().map(|(Beginning { process, thread, time }, input)| {
            let count = processes.len() as u32;
            let (process, threads) = processes.entry(process).or_insert((count, 0));
            *threads += 1;
            Thread {
                input,
                parser: DrMemTrace::since(time),
                process: *process,
                number: *threads - 1,
                os_id: thread as u32,
                has_begun: false,
                has_ended: false,
                batches: 0,
            }
        });
        let threads = threads.collect();
        let header = Header {
            program,
            origin: Format::DrMemTrace.name().to_owned(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            has_pc: true,
            ..Header::default()
        };
        Threads { header, threads, builder: ImportBuilder::of_several(), salvage, damage: None }
    }

    /// Bytes of all files together.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.threads.iter().map(|thread| thread.input.file_bytes()).sum()
    }

    /// The stream whose turn it is, and the earliest time of another one. None where all have ended.
    fn turn(&self) -> Option<(usize, u64)> {
        let left = || self.threads.iter().enumerate().filter(|(_, thread)| !thread.has_ended);
        let (first, _) = left().min_by_key(|(at, thread)| (thread.parser.time, thread.batches, *at))?;
        let others = left().filter(|(at, _)| *at != first).map(|(_, thread)| thread.parser.time);
        Some((first, others.min().unwrap_or(u64::MAX)))
    }

    /// Reads records of a stream until its batch is full, it ends, or it states a time later than `until`.
    fn read(&mut self, at: usize, until: u64) -> Result<(), SourceError> {
        let process = self.threads[at].process;
        self.builder.turn_to(StreamId(at as u32), process);
        let thread = &mut self.threads[at];
        thread.batches += 1;
        if !std::mem::replace(&mut thread.has_begun, true) {
            self.builder.spawn(thread.number, thread.os_id, self.header.program.clone());
        }
        while !self.builder.is_full() {
            let before = thread.parser.time;
            match thread.parser.step(&mut thread.input, &mut self.builder) {
                Ok(true) if thread.parser.time != before && thread.parser.time > until => return Ok(()),
                Ok(true) => {}
                Ok(false) => {
                    thread.has_ended = true;
                    let is_last =
                        self.threads.iter().all(|other| other.process != process || other.has_ended);
                    self.builder.exit(is_last);
                    return Ok(());
                }
                Err(error) => {
                    thread.has_ended = true;
                    if !self.salvage {
                        self.builder.clear();
                        self.threads.iter_mut().for_each(|thread| thread.has_ended = true);
                        return Err(error);
                    }
                    tracing::warn!("{error}; this thread's trace ends here");
                    self.damage.get_or_insert(error.to_string());
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl EventSource for Threads {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        while let Some((at, until)) = self.turn() {
            self.read(at, until)?;
            let batch = self.builder.take();
            if !batch.is_empty() {
                return Ok(Some(Arc::new(batch)));
            }
        }
        warn_of(self.builder.unreported(), &self.header.program);
        Ok(None)
    }

    fn progress(&self) -> Option<f64> {
        let sum: f64 = self.threads.iter().filter_map(|thread| thread.input.progress()).sum();
        Some(sum / self.threads.len() as f64)
    }

    fn ending(&self) -> TraceEnding {
        if self.damage.is_some() { TraceEnding::Damaged } else { self.header().ending }
    }

    fn left_out(&self) -> u64 {
        self.builder.left_out()
    }
}
