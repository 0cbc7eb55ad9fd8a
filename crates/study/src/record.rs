//! An input into a trace file.

use crate::figures;
use crate::input::{Ending, Input};
use crate::progress::Watched;
use crate::simulation::{Settings, Simulation};
use crate::{Error, Progress};
use std::path::Path;
use terrace_trace::{EventSource, SourceError, Summary, TraceEnding, TraceWriter};

/// A trace that was written.
pub struct Recorded {
    /// What is in it.
    pub summary: Summary,
    /// The program, which may still run.
    pub ending: Ending,
    /// Why it ended early, if it did; what came before is whole.
    pub failure: Option<SourceError>,
    /// Why there is no access of a program, where there is none.
    pub nothing: Option<String>,
}

/// Writes all that `input` does to the trace `path`. A program is started when the trace can be written, and runs to
/// its end where writing fails later.
///
/// # Errors
/// An input that cannot be opened, a trace that cannot be written.
pub fn write_trace(mut input: Input, path: &Path, progress: &dyn Progress) -> Result<Recorded, Error> {
    let settings = Settings::new(Simulation::default(), progress);
    let (name, is_live) = (input.name.clone(), input.is_live());
    let (stop, options) = (input.stop(&settings.stop), input.words());
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
    if settings.stop.requested() {
        writer.ends(TraceEnding::Stopped);
    }
    // Also after a failure: what came before it is whole.
    match written.and_then(|()| writer.finish()) {
        Ok(summary) => {
            let is_empty = is_live && failure.is_none() && summary.totals.accesses == 0;
            let nothing = is_empty.then(|| nothing_recorded(&name, &options));
            Ok(Recorded { summary, ending, failure, nothing })
        }
        Err(error) => {
            // Why is what the command ends with, when the program is over.
            progress.note("the recording ends here: the trace cannot be written any further");
            ending.wait(&name, progress);
            Err(error.into())
        }
    }
}

/// Why a recording without any access has none, and what to do.
fn nothing_recorded(name: &str, options: &[String]) -> String {
    let why = left_out_by_options(options);
    format!(
        "{name}: {}",
        why.unwrap_or_else(|| "no access was recorded: the program made none that was seen".to_owned())
    )
}

/// Why a recording with these options may have no access, and what to do; none where they leave nothing out.
pub fn left_out_by_options(options: &[String]) -> Option<String> {
    let mut options = options.iter().take_while(|word| *word != "--");
    let mut why = Vec::new();
    while let Some(option) = options.next() {
        match option.as_str() {
            "--region" => why.push(
                "--region keeps what lies between the program's markers, and it made no access there; mark the region \
                 (terrace/marker.h), or leave --region out"
                    .to_owned(),
            ),
            "--skip" => why.push(format!(
                "--skip leaves out the first {}, and it made no more; skip fewer",
                options.next().map_or("", String::as_str)
            )),
            _ => {}
        }
    }
    (!why.is_empty()).then(|| format!("no access was recorded: {}", why.join("; ")))
}

/// A live command into a trace in `folder`, as an input that can be read many times, and how the program ended, if not
/// well: what it did until then is an input all the same.
///
/// # Errors
/// As [`write_trace`], a recording that fails, and a user who stopped it.
pub fn once(input: Input, folder: &Path, progress: &dyn Progress) -> Result<(Input, Option<String>), Error> {
    if !input.is_live() {
        return Ok((input, None));
    }
    let name = input.name.clone();
    let path = folder.join("recorded.trace");
    let Recorded { summary, ending, failure, nothing } = write_trace(input, &path, progress)?;
    if let Some(error) = failure {
        return Err(Error::Read(error));
    }
    let trouble = ending.wait(&name, progress);
    if let Some(why) = nothing.filter(|_| !progress.stop().requested()) {
        return Err(Error::failed(
            trouble.map_or_else(|| why.clone(), |trouble| format!("{trouble}; {why}")),
        ));
    }
    if let Some(trouble) = &trouble {
        progress.note(trouble);
    }
    if progress.stop().requested() {
        return Err(Error::Stopped(format!(
            "stopped while {name} was recorded, which is not kept; for an answer about a part of a program, record it first \
             (terrace record -o FILE -- PROGRAM, which Ctrl-C ends), then take the file (--trace FILE)"
        )));
    }
    progress.note(&format!("{name}: {} accesses recorded", figures::short(summary.totals.accesses as f64)));
    Ok((Input::recorded(&path, &name)?, trouble))
}

/// Refuses to call an answer good whose program ended with `trouble`; asked after the answer was shown.
///
/// # Errors
/// How the program ended, if not well.
pub fn check_ending(trouble: Option<&str>) -> Result<(), Error> {
    trouble.map_or(Ok(()), |trouble| {
        Err(Error::failed(format!("the answer is complete, but the input ended badly: {trouble}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_nothing_was_recorded_is_in_the_options() {
        let why = |options: &[&str]| {
            nothing_recorded("app", &options.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        };
        let region = why(&["--region", "--", "app", "--skip", "3"]);
        assert!(
            region.starts_with("app: no access was recorded: --region keeps what lies between"),
            "{region}"
        );
        assert!(region.contains("terrace/marker.h") && !region.contains("--skip"), "{region}");
        let skip = why(&["--skip", "1000", "--", "app", "--region"]);
        assert!(
            skip.ends_with("--skip leaves out the first 1000, and it made no more; skip fewer"),
            "{skip}"
        );
        assert!(why(&["--", "app"]).ends_with("the program made none that was seen"));
    }

    #[test]
    fn an_answer_of_a_program_that_failed_is_no_success() {
        assert!(check_ending(None).is_ok());
        let error = check_ending(Some("app ended with exit status: 3")).unwrap_err();
        assert!(!error.is_request());
        assert!(
            error.to_string().ends_with("the input ended badly: app ended with exit status: 3"),
            "{error}"
        );
    }
}
