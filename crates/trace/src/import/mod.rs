//! Traces of other tools, and the door to all traces: [`open_any`] looks at the content and picks the reader.
//!
//! | format | recognised by | one record |
//! |---|---|---|
//! | Terrace | `TERRACE\x1a` | see [`crate::TraceReader`] |
//! | Valgrind lackey (`--trace-mem=yes`) | lines `I  hex,size`, ` L hex,size`, ` S hex,size`, ` M hex,size`, `==pid== …` | [`lackey`] |
//! | plain text | lines `R hex [size]`, `W hex [size]`, `#` comments | [`text`] |
//! | DAMON's records (`damo record`) | a list in JSON with `kdamond_idx` or `target_id` | [`damon`] |
//! | memory samples of perf (`perf script`) | lines with `\|OP LOAD\|` or another operation | [`perf`] |
//! | requests to a cache, as lines | a first line that names an object's and a size's column | [`csv`] |
//! | DynamoRIO's drmemtrace | a header's record of 12 bytes; a folder of such files | [`drmemtrace`], [`threads`] |
//! | libCacheSim's oracleGeneral | 24-byte records with times that do not fall and next requests that are later | [`oracle_general`] |
//! | ChampSim | none of the above, plausible 64-byte records | [`champsim`] |
//!
//! All but Terrace's own may be compressed with gzip, xz, zstd or zlib or lie in a zip archive, which is recognised by
//! content as well.
//!
//! **Mappings.** These formats record no address-space events, but a simulated access needs a mapping. The importer
//! maps, before the first access to it, each 2 MiB-aligned region of 2 MiB as private anonymous memory, readable and
//! writable. Adjacent regions thus form one area as they would in a process. 2 MiB, because with less no huge page
//! could ever be simulated on an imported trace; the price is that the untouched rest of a region looks mapped,
//! though it never becomes resident at 4 KiB pages.

mod archive;
mod builder;
mod champsim;
mod csv;
mod damon;
mod drmemtrace;
pub(crate) mod fuzz;
mod input;
mod lackey;
mod objects;
mod oracle_general;
mod perf;
mod text;
mod threads;

use crate::{Batch, Checked, EventSource, Header, SourceError, TraceEnding, TraceReader};
use builder::ImportBuilder;
use champsim::ChampSim;
use csv::Csv;
use damon::Damon;
use drmemtrace::DrMemTrace;
use input::{BYTE_ORDER_MARK, Input};
use lackey::Lackey;
use oracle_general::OracleGeneral;
use perf::Perf;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use terrace_model::text::grouped;
use text::PlainText;
use threads::Threads;

/// The formats that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Terrace's own file.
    Terrace,
    /// Valgrind's lackey with `--trace-mem=yes`.
    Lackey,
    /// ChampSim's 64-byte instruction records.
    ChampSim,
    /// `R|W hexaddress [size]` lines.
    Text,
    /// DynamoRIO's drmemtrace.
    DrMemTrace,
    /// libCacheSim's oracleGeneral.
    OracleGeneral,
    /// Requests to a cache of objects, as lines.
    Csv,
    /// DAMON's records.
    Damon,
    /// Memory samples that `perf script` prints.
    Perf,
}

impl Format {
    /// The name used in headers and options.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Terrace => "terrace",
            Format::Lackey => "lackey",
            Format::ChampSim => "champsim",
            Format::Text => "text",
            Format::DrMemTrace => "drmemtrace",
            Format::OracleGeneral => "oraclegeneral",
            Format::Csv => "csv",
            Format::Damon => "damon",
            Format::Perf => "perf",
        }
    }
}

impl Format {
    /// Whether a trace does not say which loads wait for others: by its header it was recorded without, or comes from a
    /// format that lacks it.
    pub fn lacks_dependences(header: &Header) -> bool {
        const LACKING: [Format; 7] = [
            Format::Lackey,
            Format::Text,
            Format::DrMemTrace,
            Format::OracleGeneral,
            Format::Csv,
            Format::Damon,
            Format::Perf,
        ];
        header.independent_loads || LACKING.iter().any(|format| format.name() == header.origin)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Opens a trace of any known format: a file, or a folder with a file for each thread.
///
/// With `salvage`, a damaged input yields what is whole before the damage (whole chunks of a Terrace trace, whole
/// lines or records of the others), then ends with a logged warning instead of an error.
///
/// # Errors
/// When the file cannot be read, is empty, or is of no known format; a Terrace trace also as in
/// [`TraceReader::open`]. What is read of it ends with an error where it is implausible ([`Rules`](crate::Rules)), with
/// `salvage` too.
pub fn open_any(path: impl AsRef<Path>, salvage: bool) -> Result<Box<dyn EventSource>, SourceError> {
    let path = path.as_ref();
    let name = path.display().to_string();
    Ok(match Opened::open(path, salvage)? {
        Opened::Terrace(reader) => Box::new(Checked::new(name, *reader)),
        Opened::Import(import) => Box::new(Checked::new(name, *import)),
        Opened::Threads(threads) => Box::new(Checked::new(name, *threads)),
    })
}

/// An opened trace whose kind is known.
pub(crate) enum Opened {
    Terrace(Box<TraceReader>),
    Import(Box<ImportSource>),
    Threads(Box<Threads>),
}

impl Opened {
    pub(crate) fn open(path: &Path, salvage: bool) -> Result<Opened, SourceError> {
        if path.is_dir() {
            return Ok(Opened::Threads(Box::new(Threads::open(path, salvage)?)));
        }
        let mut input = Input::open(path)?;
        Ok(match detect(&mut input)? {
            Format::Terrace if input.is_compressed() => {
                return Err(input.malformed(
                    "a Terrace trace in a compressed file or an archive; decompress it first (it is compressed in itself)",
                ));
            }
            Format::Terrace if !path.is_file() => {
                return Err(
                    input.malformed("a Terrace trace is read from a file alone; save it to one first")
                );
            }
            Format::Terrace if salvage => Opened::Terrace(Box::new(TraceReader::salvage(path)?)),
            Format::Terrace => Opened::Terrace(Box::new(TraceReader::open(path)?)),
            format => Opened::Import(Box::new(ImportSource::new(input, format, path, salvage))),
        })
    }

    pub(crate) fn format(&self) -> Format {
        match self {
            Opened::Terrace(_) => Format::Terrace,
            Opened::Import(import) => import.format,
            Opened::Threads(_) => Format::DrMemTrace,
        }
    }

    pub(crate) fn source(&mut self) -> &mut dyn EventSource {
        match self {
            Opened::Terrace(reader) => reader.as_mut(),
            Opened::Import(import) => import.as_mut(),
            Opened::Threads(threads) => threads.as_mut(),
        }
    }

    /// What ended the reading early in salvage mode.
    pub(crate) fn damage(&self) -> Option<&str> {
        match self {
            Opened::Terrace(reader) => reader.damage(),
            Opened::Import(import) => import.damage.as_deref(),
            Opened::Threads(threads) => threads.damage.as_deref(),
        }
    }
}

/// Decides by the first bytes.
fn detect(input: &mut Input) -> Result<Format, SourceError> {
    let format = by_beginning(input)?;
    if matches!(format, Format::Lackey | Format::Text | Format::Csv | Format::Perf) {
        input.pass_mark();
    }
    Ok(format)
}

/// What other files begin with, and what to do with them.
const ELSEWISE: [(&[u8], &str); 3] = [
    (&archive::MARK, "a zip archive is read from a file alone; save it to one first"),
    (b"BZh", "it is compressed with bzip2; decompress it first, or compress it with gzip, xz or zstd"),
    (&threads::LZ4, "it is compressed with lz4; decompress it first, or compress it with gzip, xz or zstd"),
];

fn by_beginning(input: &Input) -> Result<Format, SourceError> {
    let start = input.start();
    let magic = &crate::file::MAGIC;
    if start.is_empty() {
        return Err(input.malformed("the file is empty; expected a trace"));
    }
    // A file cut within the mark is a damaged trace, not a foreign one.
    if start.starts_with(magic) || magic.starts_with(start) {
        return Ok(Format::Terrace);
    }
    let lines = start.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(start);
    let of_valgrind = |line: &[u8]| line.starts_with(b"==") || line.starts_with(b"--");
    let first_line = lines
        .split(|&byte| byte == b'\n')
        .map(<[u8]>::trim_ascii_end)
        .find(|line| !(line.is_empty() || line.starts_with(b"#") || of_valgrind(line)));
    match first_line {
        Some(line) if Lackey::is_line(line) => return Ok(Format::Lackey),
        Some(line) if PlainText::is_line(line) => return Ok(Format::Text),
        Some(line) if Csv::is_line(line) => return Ok(Format::Csv),
        Some(line) if Perf::is_line(line) => return Ok(Format::Perf),
        None if of_valgrind(lines) => return Ok(Format::Lackey),
        None if lines.starts_with(b"#") => return Ok(Format::Text),
        _ => {}
    }
    if DrMemTrace::is_plausible(start) {
        return Ok(Format::DrMemTrace);
    }
    if Damon::is_plausible(start) {
        return Ok(Format::Damon);
    }
    if OracleGeneral::is_plausible(start) {
        return Ok(Format::OracleGeneral);
    }
    if ChampSim::is_plausible(start) {
        return Ok(Format::ChampSim);
    }
    if let Some((_, what)) = ELSEWISE.iter().find(|(mark, _)| start.starts_with(mark)) {
        return Err(input.malformed(what));
    }
    Err(input.malformed(&format!(
        "no known trace: expected a Terrace trace, Valgrind lackey lines (`I  4001000,3`, ` L 1ffe,8`), plain lines \
         (`R 1ffe 8`), lines of requests below the names `obj_id` and `obj_size`, samples of `perf script`, records of ChampSim, drmemtrace, libCacheSim \
         (oracleGeneral) or DAMON, found \"{}\" at byte 0",
        start[..start.len().min(24)].escape_ascii()
    )))
}

/// Says how many accesses were left out, where some were.
fn warn_of(left_out: u64, program: &str) {
    if let Some(words) = left_out_words(left_out) {
        tracing::warn!("{program}: {words}");
    }
}

/// What to say of so many accesses that are [left out](EventSource::left_out); nothing of none.
pub fn left_out_words(left_out: u64) -> Option<String> {
    let why = "the kernel's or not stated";
    match left_out {
        0 => None,
        1 => Some(format!("1 access is left out, since what it touches is {why}")),
        _ => Some(format!("{} accesses are left out, since what they touch is {why}", grouped(left_out))),
    }
}

/// Reads records and hands them to the builder.
trait Parser: Send {
    /// Parses one record. `Ok(false)` at the end of the input.
    ///
    /// # Errors
    /// What was expected and what was found; the caller adds file and place.
    fn step(&mut self, input: &mut Input, out: &mut ImportBuilder) -> Result<bool, SourceError>;
}

/// A trace of another tool as a source of one stream.
pub(crate) struct ImportSource {
    header: Header,
    pub(crate) format: Format,
    input: Input,
    parser: Box<dyn Parser>,
    builder: ImportBuilder,
    ended: bool,
    salvage: bool,
    pub(crate) damage: Option<String>,
}

impl ImportSource {
    fn new(input: Input, format: Format, path: &Path, salvage: bool) -> ImportSource {
        let program = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let header = Header {
            program: program.clone(),
            origin: format.name().to_owned(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            has_pc: matches!(format, Format::Lackey | Format::ChampSim | Format::DrMemTrace | Format::Perf),
            ..Header::default()
        };
        let parser: Box<dyn Parser> = match format {
            Format::ChampSim => Box::new(ChampSim::default()),
            Format::Lackey => Box::new(Lackey::default()),
            Format::DrMemTrace => Box::new(DrMemTrace::default()),
            Format::OracleGeneral => Box::new(OracleGeneral::default()),
            Format::Csv => Box::new(Csv::default()),
            Format::Damon => Box::new(Damon::default()),
            Format::Perf => Box::new(Perf),
            Format::Text | Format::Terrace => Box::new(PlainText),
        };
        let builder = ImportBuilder::new(program);
        ImportSource { header, format, input, parser, builder, ended: false, salvage, damage: None }
    }
}

impl EventSource for ImportSource {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        while !self.ended && !self.builder.is_full() {
            match self.parser.step(&mut self.input, &mut self.builder) {
                Ok(true) => {}
                Ok(false) => {
                    self.ended = true;
                    self.builder.exit(true);
                    warn_of(self.builder.unreported(), &self.header.program);
                }
                Err(error) => {
                    self.ended = true;
                    if !self.salvage {
                        self.builder.clear();
                        return Err(error);
                    }
                    tracing::warn!("{error}; the trace ends here");
                    self.damage = Some(error.to_string());
                }
            }
        }
        let batch = self.builder.take();
        Ok((!batch.is_empty()).then(|| Arc::new(batch)))
    }

    fn progress(&self) -> Option<f64> {
        self.input.progress()
    }

    fn ending(&self) -> TraceEnding {
        if self.damage.is_some() { TraceEnding::Damaged } else { self.header().ending }
    }

    fn left_out(&self) -> u64 {
        self.builder.left_out()
    }
}
