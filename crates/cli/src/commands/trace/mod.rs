//! `terrace trace`: look into, check, cut and convert traces.

mod convert;

use crate::error::{Blame, CommandResult, Failure};
use crate::options::{ResultOptions, parse_count, parse_some};
use crate::output::{self, OutputFile};
use crate::progress;
use crate::progress::{Progress, Terminal};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use terrace_model::text::two_columns;
use terrace_study::figures::readable;
use terrace_study::input::open_trace;
use terrace_study::{Error, Progress as _, Stop, Watched, partial};
use terrace_trace::{EventSource, Format, HeadItem, SliceOptions, TraceInfo, VerifyReport};

const EXAMPLES: &str = "\
Examples:
  terrace trace info app.trace
  terrace trace head -n 50 app.trace
  terrace trace slice app.trace -o part.trace --from 1e6 --count 1e5
  terrace trace verify app.trace
  terrace trace convert lackey.out -o app.trace
  terrace trace convert app.trace --to champsim -o app.champsim.xz

Wherever a trace is read, these are read too, plain or inside gzip, xz, zstd,
zlib or a zip archive: Valgrind lackey output, ChampSim traces, DynamoRIO's
drmemtrace, DAMON's records (damo record), memory samples (perf script),
libCacheSim's oracleGeneral, requests to a cache as CSV, and text of
`R|W hexaddress [size]` lines. The content decides, not the file's name.";

/// Look into, check, cut and convert trace files
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show what a trace is and holds: program, accesses, streams, size
    Info {
        #[command(flatten)]
        input: TraceInput,
        #[command(flatten)]
        results: ResultOptions,
    },
    /// Print the first accesses and events as text
    ///
    /// An access is `number stream R|W address size +instructions`, then dep=N
    /// where its address depends on the load N loads back, and pc=… where the
    /// instruction's address is known. An event is `- stream #sequence event`.
    Head {
        #[command(flatten)]
        input: TraceInput,
        /// This many lines
        #[arg(short = 'n', long, value_name = "N", default_value = "20", value_parser = parse_count)]
        lines: u64,
        #[command(flatten)]
        results: ResultOptions,
    },
    /// Cut a part out, as a trace of its own
    ///
    /// Mappings and threads from before the part are kept, and the pages that
    /// were touched before it are marked as resident.
    Slice {
        #[command(flatten)]
        input: TraceInput,
        /// The trace to write
        #[arg(short, long, value_name = "FILE")]
        output: OutputFile,
        /// First access of the part, counted from 0
        #[arg(long, value_name = "N", default_value = "0", value_parser = parse_count)]
        from: u64,
        /// Accesses in the part; to the end where absent
        #[arg(long, value_name = "N", value_parser = parse_some)]
        count: Option<u64>,
        /// Start cold: do not mark pages touched before the part. Faster, since
        /// what comes before is skipped instead of read
        #[arg(long)]
        cold: bool,
        #[command(flatten)]
        results: ResultOptions,
    },
    /// Check every checksum, chunk and rule of a trace
    ///
    /// Exit code 1 if there is a problem. A damaged trace can often be read up
    /// to the damage: see --salvage of the other commands.
    Verify {
        /// The trace
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        results: ResultOptions,
    },
    Convert(convert::Arguments),
}

#[derive(Debug, Args)]
struct TraceInput {
    /// The trace
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Read every whole chunk before the damage of a truncated or corrupt trace
    #[arg(long)]
    salvage: bool,
}

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    match arguments.action {
        Action::Info { input, results } => info(&input, &results),
        Action::Head { input, lines, results } => head(&input, lines, &results),
        Action::Slice { input, output, from, count, cold, results } => {
            slice(&input, &output, from, count, cold, &results)
        }
        Action::Verify { file, results } => verify(&file, &results),
        Action::Convert(arguments) => convert::run(arguments),
    }
}

fn info(input: &TraceInput, results: &ResultOptions) -> CommandResult {
    let mut progress = Progress::new(name_of(&input.file));
    let info = terrace_trace::info_watched(&input.file, input.salvage, |accesses, share| {
        progress.advance(accesses, || share);
    });
    drop(progress);
    let info = info.map_err(Error::Open)?;
    results.write(&info)?;
    results.print(|| describe(&info))
}

/// Streams listed one by one at most; a trace of 800 threads has its totals.
const LISTED_STREAMS: usize = 16;

fn describe(info: &TraceInfo) -> String {
    let (header, totals) = (&info.header, &info.totals);
    let command = std::iter::once(&header.program).chain(&header.arguments);
    let mut rows: Vec<(&str, String)> = vec![
        ("trace", info.path.clone()),
        ("format", info.format.to_string()),
        ("program", output::shell_join(command)),
        ("origin", header.origin.clone()),
        ("recorded", [header.date.as_str(), header.machine.as_str()].join(" ").trim().to_owned()),
        ("environment", header.environment.join(" ")),
        ("written by", header.tool_version.clone()),
        ("seed", header.seed.map(|seed| seed.to_string()).unwrap_or_default()),
        ("accesses", format!("{} ({} reads, {} writes)", totals.accesses, totals.reads, totals.writes)),
        ("instructions", totals.instructions.to_string()),
        ("events", totals.events.to_string()),
        ("loads", partial::unsaid(header).unwrap_or_default()),
        ("size", format!("{} ({:.2} bytes per access)", readable(info.file_bytes), info.bytes_per_access)),
        ("chunks", info.chunks.map(|chunks| chunks.to_string()).unwrap_or_default()),
        ("streams", totals.streams.len().to_string()),
        ("damage", info.damage.clone().unwrap_or_default()),
        ("note", partial::remark(header, totals.accesses, header.ending).unwrap_or_default()),
    ];
    rows.retain(|(_, text)| !text.is_empty());
    let mut text = two_columns(rows.iter().map(|(name, content)| (*name, content.as_str())));
    for (number, stream) in totals.streams.iter().enumerate().take(LISTED_STREAMS) {
        let _ = writeln!(
            text,
            "  stream {number}: process {}, thread {}, {} accesses, {} instructions",
            stream.process,
            stream.thread,
            progress::short(stream.accesses as f64),
            progress::short(stream.instructions as f64)
        );
    }
    if totals.streams.len() > LISTED_STREAMS {
        let _ =
            writeln!(text, "  … and {} more (all of them: --json -)", totals.streams.len() - LISTED_STREAMS);
    }
    text
}

#[derive(Serialize)]
struct HeadDocument {
    items: Vec<HeadItem>,
}

fn head(input: &TraceInput, lines: u64, results: &ResultOptions) -> CommandResult {
    let mut source = open_trace(&input.file, input.salvage)?;
    let most = usize::try_from(lines).unwrap_or(usize::MAX);
    let items = terrace_trace::head(source.as_mut(), most).or_run()?;
    if !results.owns_stdout() && !items.is_empty() {
        let lines: Vec<String> = items.iter().map(HeadItem::to_string).collect();
        output::print_line(&lines.join("\n"))?;
    }
    results.write_rows(&HeadDocument { items }, "items")
}

#[derive(Serialize)]
struct WrittenDocument {
    trace: String,
    accesses: u64,
    bytes: u64,
    bytes_per_access: f64,
}

fn slice(
    input: &TraceInput,
    output: &Path,
    from: u64,
    count: Option<u64>,
    cold: bool,
    results: &ResultOptions,
) -> CommandResult {
    let source = open_trace(&input.file, input.salvage)?;
    refuse_same_file(&input.file, output)?;
    let end = count.map_or(u64::MAX, |count| from.saturating_add(count));
    // Other formats do not say before they are read to the end.
    if let Some(all) = source.header().expected_accesses.filter(|all| from >= *all) {
        let name = input.file.display();
        return Err(Failure::usage(format!("{name} has {all} accesses: none is left from number {from} on")));
    }
    let options = SliceOptions { accesses: from..end, residency: !cold };
    write_trace(&mut terrace_trace::slice(source, options), output, results)
}

fn refuse_same_file(input: &Path, output: &Path) -> CommandResult {
    let same = match (input.canonicalize(), output.canonicalize()) {
        (Ok(input), Ok(output)) => input == output,
        _ => false,
    };
    if same {
        return Err(Failure::usage(format!("{} is the input; write to another file", output.display())));
    }
    Ok(())
}

fn write_trace(source: &mut dyn EventSource, path: &Path, results: &ResultOptions) -> CommandResult {
    let terminal = Terminal::install();
    let name = name_of(path);
    let mut watched = Watched::new(&name, source, &terminal).until(&terminal.stop());
    let summary = terrace_trace::convert(&mut watched, path).or_run()?;
    let document = WrittenDocument {
        trace: path.display().to_string(),
        accesses: summary.totals.accesses,
        bytes: summary.file_bytes,
        bytes_per_access: summary.bytes_per_access(),
    };
    results.write(&document)?;
    if !results.owns_stdout() {
        output::print_line(&format!(
            "{}: {} accesses, {} ({:.2} bytes per access)",
            document.trace,
            document.accesses,
            readable(document.bytes),
            document.bytes_per_access
        ))?;
    }
    stopped(&terminal.stop(), path)
}

fn stopped(stop: &Stop, path: &Path) -> CommandResult {
    if stop.requested() {
        return Err(Failure::run(format!("stopped; {} holds what came before", path.display())));
    }
    Ok(())
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

#[derive(Serialize)]
struct VerifyDocument<'a> {
    sound: bool,
    #[serde(flatten)]
    report: &'a VerifyReport,
}

fn verify(file: &Path, results: &ResultOptions) -> CommandResult {
    let mut progress = Progress::new(name_of(file));
    let report = terrace_trace::verify_watched(file, |accesses, share| progress.advance(accesses, || share));
    drop(progress);
    let report = report.map_err(Error::Open)?;
    results.write(&VerifyDocument { sound: report.is_sound(), report: &report })?;
    if report.is_sound() {
        if !results.owns_stdout() {
            let checked =
                if report.format == Format::Terrace { "every checksum is right" } else { "it can be read" };
            let accesses = report.totals.accesses;
            output::print_line(&format!("{}: sound: {checked}, {accesses} accesses", report.path))?;
        }
        return Ok(());
    }
    for problem in &report.problems {
        progress::note(problem);
    }
    let many = report.problems.len();
    let more = if many >= VerifyReport::MAX_PROBLEMS { " or more" } else { "" };
    let noun = if many == 1 { "problem" } else { "problems" };
    Err(Failure::run(format!("{}: {many}{more} {noun}", report.path)))
}
