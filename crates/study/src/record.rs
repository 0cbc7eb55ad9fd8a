//! An input into a trace file.

use crate::figures;
use crate::input::{Ending, Input};
use crate::progress::Watched;
use crate::simulation::{Settings, Simulation};
use crate::{Error, Progress};
use std::path::Path;
use terrace_trace::{EventSource, SourceError, Summary, TraceWriter};

/// A trace that was written.
pub struct Recorded {
    /// What is in it.
    pub summary: Summary,
    /// The program, which may still run.
    pub ending: Ending,
    /// Why it ended early, if it did; what came before is whole.
    pub failure: Option<SourceError>,
}

/// Writes all that `input` does to the trace `path`. A program is started when the trace can be written, and runs to
/// its end where writing fails later.
///
/// # Errors
/// An input that cannot be opened, a trace that cannot be written.
pub fn write_trace(mut input: Input, path: &Path, progress: &dyn Progress) -> Result<Recorded, Error> {
    let settings = Settings::new(Simulation::default(), progress);
    let name = input.name.clone();
    let stop = input.stop(&settings.stop);
    let created = input.prepare()?.map(|header| TraceWriter::create(path, &header)).transpose()?;
    let opened = input.open(&settings);
    if opened.is_err() && created.is_some() && path.is_file() {
        // No program ran that it could report.
        let _ = std::fs::remove_file(path);
    }
    let (mut source, ending) = opened?;
    let mut writer = match created {
        Some(writer) => writer,
        None => TraceWriter::create(path, source.header())?,
    };
    let mut watched = Watched::new(&name, source.as_mut(), progress).until(&stop);
    let mut failure = None;
    let written = loop {
        match watched.next_batch() {
            Ok(Some(batch)) => {
                if let Err(error) = writer.push(&batch) {
                    break Err(error);
                }
            }
            Ok(None) => break Ok(()),
            Err(error) => {
                failure = Some(error);
                break Ok(());
            }
        }
    };
    drop(watched);
    drop(source);
    // Also after a failure: what came before it is whole.
    match written.and_then(|()| writer.finish()) {
        Ok(summary) => Ok(Recorded { summary, ending, failure }),
        Err(error) => {
            progress.note(&format!("the recording ends here: {error}"));
            ending.wait(&name, progress);
            Err(error.into())
        }
    }
}

/// A live command into a trace in `folder`, as an input that can be read many times.
///
/// # Errors
/// As [`write_trace`], and a recording that fails.
pub fn once(input: Input, folder: &Path, progress: &dyn Progress) -> Result<Input, Error> {
    let name = input.name.clone();
    let path = folder.join("recorded.trace");
    let Recorded { summary, ending, failure } = write_trace(input, &path, progress)?;
    if let Some(error) = failure {
        return Err(Error::Read(error));
    }
    if let Some(trouble) = ending.wait(&name, progress) {
        // What it did until then is an input all the same.
        progress.note(&trouble);
    }
    progress.note(&format!("{name}: {} accesses recorded", figures::short(summary.totals.accesses as f64)));
    Input::recorded(&path, &name)
}
