//! `terrace trace convert`: any trace as a Terrace trace, or in the format of another tool.

use super::{TraceInput, name_of, refuse_same_file, stopped, write_trace};
use crate::error::{Blame, CommandResult, Failure};
use crate::options::ResultOptions;
use crate::output::OutputFile;
use crate::progress;
use crate::progress::Terminal;
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use terrace_model::Bytes;
use terrace_study::input::open_trace;
use terrace_study::{Progress as _, Watched};
use terrace_trace::{EventSource, ExportError, ExportFile, ExportFormat, Exported, StreamId, Weight};

const EXAMPLES: &str = "\
Examples:
  terrace trace convert lackey.out -o app.trace
  terrace trace convert app.trace --to text -o - | head
  terrace trace convert app.trace --to champsim --stream 0 -o app.champsim.xz
  terrace trace convert app.trace --to oraclegeneral --block 2MiB -o app.zst
  terrace trace convert app.trace --to folded -o - | flamegraph.pl > app.svg

A name that ends in .gz, .xz or .zst says that the file is to be compressed. A
Terrace trace is compressed in itself, and has no such name.";

/// Turn any trace into a Terrace trace, or into the format of another tool
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    input: TraceInput,
    /// The file to write; - for standard output (not for a Terrace trace)
    #[arg(short, long, value_name = "FILE")]
    output: OutputFile,
    /// What to write
    #[arg(long, value_enum, default_value_t = Target::Terrace, value_name = "FORMAT")]
    to: Target,
    /// Only this stream, by its number in `trace info`; else all of them, merged
    /// in the order of the trace. Not for a Terrace trace
    #[arg(long, value_name = "N")]
    stream: Option<u32>,
    /// oraclegeneral: bytes of an object, a power of two from 64B to 1GiB
    /// [default: 4KiB]
    #[arg(long, value_name = "SIZE")]
    block: Option<Bytes>,
    /// folded: what is counted [default: accesses]
    #[arg(long, value_enum, value_name = "WHAT")]
    count: Option<Count>,
    #[command(flatten)]
    results: ResultOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Target {
    /// Terrace's own compressed file
    Terrace,
    /// Valgrind lackey's lines
    Lackey,
    /// `R|W hexaddress size` lines
    Text,
    /// ChampSim's instruction records
    #[value(name = "champsim")]
    ChampSim,
    /// libCacheSim's requests: each access asks for the block that it touches
    #[value(name = "oraclegeneral")]
    OracleGeneral,
    /// Folded stacks for flame graphs: `program;allocation site;read count`
    Folded,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Count {
    /// Loads and stores of what was allocated at a site
    Accesses,
    /// Bytes that were allocated at a site
    AllocatedBytes,
}

const BLOCK: Bytes = Bytes::kib(4);

/// Carries out the subcommand.
pub fn run(arguments: Arguments) -> CommandResult {
    let format = format_of(&arguments)?;
    let Arguments { input, output, stream, results, .. } = arguments;
    let mut source = open_trace(&input.file, input.salvage)?;
    refuse_same_file(&input.file, &output)?;
    match format {
        None => write_trace(source.as_mut(), &output, &results),
        Some(format) => export(source.as_mut(), format, stream.map(StreamId), &output, &results),
    }
}

/// The format to export, if it is not a Terrace trace that is wanted. An option of another format is a mistake.
fn format_of(arguments: &Arguments) -> Result<Option<ExportFormat>, Failure> {
    let Arguments { output, to, stream, block, count, .. } = arguments;
    let misplaced = |option: &str, format: &str| {
        Failure::usage(format!("{option} is for --to {format}; leave it out, or choose that format"))
    };
    if block.is_some() && *to != Target::OracleGeneral {
        return Err(misplaced("--block", "oraclegeneral"));
    }
    if count.is_some() && *to != Target::Folded {
        return Err(misplaced("--count", "folded"));
    }
    Ok(Some(match to {
        Target::Terrace if stream.is_some() => {
            return Err(Failure::usage(
                "a Terrace trace keeps all streams; leave --stream out, or choose another format with --to",
            ));
        }
        Target::Terrace if output.is_stdout() => {
            return Err(Failure::usage(
                "a Terrace trace cannot go to standard output; name a file, or --to text",
            ));
        }
        Target::Terrace if ExportFile::is_compressed(output) => {
            return Err(Failure::usage(format!(
                "a Terrace trace is compressed in itself: {} would be none; choose another name, or a format with --to",
                output.display()
            )));
        }
        Target::Terrace => return Ok(None),
        Target::Lackey => ExportFormat::Lackey,
        Target::Text => ExportFormat::Text,
        Target::ChampSim => ExportFormat::ChampSim,
        Target::OracleGeneral => {
            let block = block.unwrap_or(BLOCK).0;
            if !block.is_power_of_two() || !(64..=1 << 30).contains(&block) {
                return Err(Failure::usage(format!(
                    "--block: expected a power of two from 64B to 1GiB, found {}",
                    Bytes(block)
                )));
            }
            ExportFormat::OracleGeneral { block }
        }
        Target::Folded => ExportFormat::Folded {
            weight: match count {
                None | Some(Count::Accesses) => Weight::Accesses,
                Some(Count::AllocatedBytes) => Weight::AllocatedBytes,
            },
        },
    }))
}

#[derive(Serialize)]
struct ExportDocument {
    file: String,
    #[serde(flatten)]
    exported: Exported,
}

fn export(
    source: &mut dyn EventSource,
    format: ExportFormat,
    stream: Option<StreamId>,
    path: &Path,
    results: &ResultOptions,
) -> CommandResult {
    let terminal = Terminal::install();
    let mut watched = Watched::new(&name_of(path), source, &terminal).until(&terminal.stop());
    let exported = if path == Path::new("-") {
        if results.owns_stdout() {
            return Err(Failure::usage("the export and the JSON cannot both go to standard output"));
        }
        let scratch = std::env::temp_dir();
        terrace_trace::export(&mut watched, format, stream, &scratch, &mut std::io::stdout().lock())
            .or_run()?
    } else {
        let failed = |error| Failure::run(format!("{}: {error}", path.display()));
        let mut file = ExportFile::create(path).map_err(failed)?;
        let scratch = file.scratch();
        let exported = terrace_trace::export(&mut watched, format, stream, &scratch, &mut file);
        let exported = exported.map_err(|error| match error {
            // With its cause, by which a reader that is gone is known.
            ExportError::Write(_) => {
                Failure::Run(anyhow::Error::new(error).context(path.display().to_string()))
            }
            error => Failure::Run(error.into()),
        })?;
        file.finish().map_err(failed)?;
        exported
    };
    let document = ExportDocument { file: path.display().to_string(), exported };
    results.write(&document)?;
    // On stderr: standard output may be the export itself.
    progress::note(&sentence(&document, format));
    stopped(&terminal.stop(), path)
}

/// What was written, and what was left out.
fn sentence(document: &ExportDocument, format: ExportFormat) -> String {
    let ExportDocument { file, exported } = document;
    let Exported { accesses, records, streams_merged, .. } = *exported;
    let (what, has) = match format {
        ExportFormat::Lackey | ExportFormat::Text => ("lines", "text has"),
        ExportFormat::ChampSim => ("instructions", "ChampSim's records have"),
        ExportFormat::OracleGeneral { .. } => ("requests", "requests have"),
        ExportFormat::Folded { .. } => ("lines", "the lines have"),
    };
    let streams =
        if streams_merged == 1 { "1 stream".to_owned() } else { format!("{streams_merged} streams") };
    let mut text = match format {
        ExportFormat::Folded { weight: Weight::AllocatedBytes } => format!("{file}: {records} {what}"),
        _ => format!("{file}: {accesses} accesses of {streams} as {records} {what}"),
    };
    if exported.events_left_out > 0 {
        let _ = write!(text, "; {has} no place for {} other events", exported.events_left_out);
    }
    if exported.instructions_added > 0 {
        let _ = write!(
            text,
            "; {} instructions were added for accesses that did not fit",
            exported.instructions_added
        );
    }
    if exported.dependences_left_out > 0 {
        let _ = write!(text, "; {} dependences reach too far back", exported.dependences_left_out);
    }
    text
}
