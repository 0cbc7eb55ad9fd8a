//! Making an entry's input, and recording its program.

use super::manifest::{Figures, Manifest, versions};
use super::{Entry, GAMES, Source, State, Suite, chosen, lacking, missing};
use crate::designs::Changes;
use crate::figures::{readable, short};
use crate::input::Input;
use crate::record::{Recorded, write_trace};
use crate::simulation::{Settings, Simulation};
use crate::{Error, Progress, defaults, run};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use terrace_recorder::RecordOptions;
use terrace_sim::Fidelity;

/// Lines of a failed script's output that its message shows.
const SHOWN_LINES: usize = 3;

/// Records entries that are not recorded yet, with `again` also those that are; without names all that are installed.
/// Returns how many were.
///
/// # Errors
/// As [`record`] has. Where several are recorded, the others still are, and the message has the failures of all.
pub fn record_all(
    suite: &Suite,
    names: &[String],
    again: bool,
    progress: &dyn Progress,
) -> Result<usize, Error> {
    let mut failed = Vec::new();
    let mut recorded = 0;
    for entry in chosen(names)? {
        match suite.state(&entry) {
            State::Recorded(_) if !again => continue,
            State::BuiltIn if names.is_empty() => continue,
            State::Lacks(_) if names.is_empty() => {
                progress.note(&format!("{}: left out, not installed", entry.name));
                continue;
            }
            _ => {}
        }
        match record(suite, &entry, progress) {
            Ok(manifest) => {
                recorded += 1;
                progress.note(&format!("{}: {}", entry.name, in_short(&manifest)));
            }
            Err(error @ Error::Stopped(_)) => return Err(error),
            // The next one may do; what failed is said at the end.
            Err(error) if names.len() != 1 => failed.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    if failed.is_empty() { Ok(recorded) } else { Err(Error::failed(failed.join("\n"))) }
}

fn in_short(manifest: &Manifest) -> String {
    let figures = &manifest.figures;
    format!(
        "{} accesses, {} touched, {:.2} page walks per 1000 instructions",
        short(figures.accesses as f64),
        readable(figures.footprint_bytes),
        figures.walks_per_kilo_instruction
    )
}

/// Makes the entry's input, records its region of interest and what is in that, and puts both in place. What was there
/// before stays until then.
///
/// # Errors
/// Programs that are not installed, an input that cannot be made, a program that fails before its region, a folder that
/// cannot be written, a wish to stop.
pub fn record(suite: &Suite, entry: &Entry, progress: &dyn Progress) -> Result<Manifest, Error> {
    let name = &entry.name;
    let Source::Program(program) = &entry.source else {
        return Err(Error::request(format!(
            "{name} of the suite is a built-in workload; it needs no recording"
        )));
    };
    let lacks = missing(entry);
    if !lacks.is_empty() {
        return Err(lacking(entry, &lacks));
    }
    std::fs::create_dir_all(&suite.folder).map_err(Error::Folder)?;
    // Beside its place, so that it can be renamed into it.
    let folder =
        tempfile::Builder::new().prefix(".making-").tempdir_in(&suite.folder).map_err(Error::Folder)?;
    let work = folder.path().join("work");
    std::fs::create_dir(&work).map_err(Error::Folder)?;
    progress.note(&format!("{name}: makes its input"));
    prepare(name, &program.prepare, &work)?;

    let trace = folder.path().join("recorded.trace");
    let options = RecordOptions {
        skip: program.skip,
        limit: Some(program.length),
        end_at_limit: true,
        allocations: true,
        ..RecordOptions::default()
    };
    let input = Input::command(&command(&program.run, &work), options).named(name, Vec::new());
    let Recorded { summary, ending, failure, .. } = write_trace(input, &trace, progress)?;
    let trouble = ending.wait(name, progress);
    if progress.stop().requested() {
        return Err(Error::Stopped(format!("{name}: stopped before its end")));
    }
    if let Some(error) = failure {
        return Err(Error::Read(error));
    }
    if let Some(trouble) = trouble {
        return Err(Error::failed(format!("{trouble}{}", end_of_output(&work.join("output")))));
    }
    if summary.totals.accesses == 0 {
        return Err(Error::failed(format!(
            "{name}: the program ended before its region of interest, which begins after {} accesses{}",
            program.skip,
            end_of_output(&work.join("output"))
        )));
    }
    let (figures, date) = figures(name, &trace, progress)?;
    let (bytes, sha256) = checksum(&trace).map_err(Error::Folder)?;
    let manifest = Manifest {
        entry: entry.identity(),
        terrace: env!("CARGO_PKG_VERSION").to_owned(),
        packages: versions(&entry.packages),
        date,
        bytes,
        sha256,
        figures,
    };
    std::fs::rename(&trace, suite.trace(entry)).map_err(Error::Folder)?;
    let text = serde_json::to_vec_pretty(&manifest).expect("plain data serializes");
    terrace_report::write_atomically(&suite.manifest(entry), &text)
        .map_err(|error| Error::Folder(error.error))?;
    Ok(manifest)
}

/// Whether the recording of `entry` is the one that its manifest describes.
///
/// # Errors
/// It cannot be read, or is another.
pub fn verify(suite: &Suite, entry: &Entry, manifest: &Manifest) -> Result<(), Error> {
    let path = suite.trace(entry);
    let (bytes, sha256) = checksum(&path).map_err(Error::Folder)?;
    if (bytes, &sha256) == (manifest.bytes, &manifest.sha256) {
        return Ok(());
    }
    Err(Error::failed(format!(
        "{} is not what was recorded: its SHA-256 is {sha256}, not {}; record it again: terrace suite record {}",
        path.display(),
        manifest.sha256,
        entry.name
    )))
}

/// Runs the script that makes the input.
fn prepare(name: &str, script: &str, work: &Path) -> Result<(), Error> {
    let log = work.join("output");
    let output = File::create(&log).map_err(Error::Folder)?;
    let status = Command::new("sh")
        .args(["-eu", "-c", script])
        .current_dir(work)
        .env("PATH", with_games())
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(Error::Folder)?)
        .stderr(output)
        .status()
        .map_err(Error::Folder)?;
    if status.success() {
        return Ok(());
    }
    Err(Error::failed(format!("{name}: its input could not be made ({status}){}", end_of_output(&log))))
}

fn with_games() -> OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":");
    path.push(GAMES);
    path
}

/// The command that runs `script` in `work`, its output in a file there.
fn command(script: &str, work: &Path) -> [OsString; 5] {
    let script = format!("cd \"$1\" && exec >output 2>&1 </dev/null && PATH=$PATH:{GAMES} && {script}");
    ["sh".into(), "-c".into(), script.into(), "sh".into(), work.into()]
}

/// The last lines of a script's output, as the end of a message.
fn end_of_output(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
    if last.is_empty() { String::new() } else { format!("; it said: {}", last.join(" / ")) }
}

/// Reads a recording once: what it does, how often TLBs miss, and its date.
fn figures(name: &str, trace: &Path, progress: &dyn Progress) -> Result<(Figures, String), Error> {
    let input = Input::recorded(trace, name)?;
    let job = Changes::default().resolve("native-4k", Some(defaults::MACHINE))?;
    let simulation = Simulation { fidelity: Fidelity::Translation, ..Simulation::default() };
    let settings = Settings::new(simulation, progress);
    let mut result = run::all_pairs(vec![(input, vec![job])], &settings).remove(0);
    if settings.stop.requested() {
        return Err(Error::Stopped(format!("{name}: stopped before its end")));
    }
    let (Some(summary), Some(run)) = (result.summary.take(), result.runs.pop()) else {
        return Err(Error::failed(result.failures.join("; ")));
    };
    let walks = run.stats.integer("walk.count");
    let figures = Figures {
        accesses: summary.accesses,
        instructions: summary.instructions,
        footprint_bytes: summary.footprint_bytes,
        threads: summary.threads,
        processes: summary.processes,
        walks_per_kilo_instruction: 1000.0 * walks as f64 / summary.instructions.max(1) as f64,
        machine: run.machine,
    };
    Ok((figures, summary.date))
}

/// Length and SHA-256 of a file.
fn checksum(path: &Path) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    let (mut digest, mut bytes, mut piece) = (Sha256::new(), 0, vec![0; 1 << 20]);
    loop {
        match file.read(&mut piece)? {
            0 => break,
            read => {
                digest.update(&piece[..read]);
                bytes += read as u64;
            }
        }
    }
    let digits = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((bytes, digits))
}
