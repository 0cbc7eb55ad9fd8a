//! Inputs named on the command line, from their text to an open source of events.

use crate::error::{Blame, Failure};
use crate::interrupt::Interrupt;
use crate::options::{InputOptions, RecordingOptions};
use crate::progress;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use terrace_recorder::{RecordOptions, Recording};
use terrace_trace::{Batch, EventSource, Header, SourceError};
use terrace_workload::Workload;

/// An input that exists: files were opened and parameters checked, nothing has run yet.
pub struct Input {
    /// Unique within the command, as tables and reports show it.
    pub name: String,
    /// The words of a command that repeats it, without the recorded command itself.
    words: Vec<String>,
    /// The recorded command.
    command: Vec<String>,
    kind: Kind,
}

enum Kind {
    Trace { path: PathBuf, salvage: bool, source: Box<dyn EventSource> },
    Workload { spec: String, workload: Box<dyn Workload> },
    Command(Vec<OsString>, RecordOptions),
}

/// The recorded program after its events are over; nothing for other inputs.
#[derive(Default)]
pub struct Ending {
    recording: Arc<Mutex<Option<Recording>>>,
    interrupt: Interrupt,
}

/// A program that was asked to end by the user gets this long before it is told to.
const GRACE: Duration = Duration::from_secs(1);

impl Ending {
    /// Waits for the program, which may run on after its recording ended, and passes on the recorder's warnings.
    /// Answers how the program ended, if not well.
    pub fn wait(self, name: &str) -> Option<String> {
        let mut recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        for warning in recording.warnings() {
            progress::note(warning);
        }
        let begin = Instant::now();
        let mut told = None;
        loop {
            // The recording is over; this only looks whether the program is, too.
            if let Err(error) = recording.next_batch() {
                return Some(error.to_string());
            }
            if let Some(status) = recording.status() {
                let asked = self.interrupt.requested();
                return (!status.success() && !asked).then(|| format!("{name} ended with {status}"));
            }
            if self.interrupt.requested() && told.is_none_or(|at: Instant| at.elapsed() > GRACE) {
                if told.is_some() || begin.elapsed() > GRACE {
                    terminate(recording.id());
                }
                told = Some(Instant::now());
            } else if told.is_none() && begin.elapsed() > GRACE {
                progress::note(&format!("{name} runs on, unrecorded; waiting for its end"));
                told = Some(Instant::now());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn terminate(id: u32) {
    let Some(id) = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw) else { return };
    // It fails only if the program has just ended.
    let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
}

/// Checks all inputs of a command line, in the order: traces, workloads, the command.
pub fn prepare(options: &InputOptions, recording: &RecordingOptions) -> Result<Vec<Input>, Failure> {
    let mut inputs = Vec::new();
    for path in &options.trace {
        inputs.push(prepare_trace(path, options.salvage)?);
    }
    for spec in &options.workload {
        inputs.push(prepare_workload(spec)?);
    }
    if options.command.is_empty() {
        if let Some(word) = recording.to_words().first() {
            return Err(Failure::usage(format!("{word} applies to a recorded command; add one after --")));
        }
    } else {
        inputs.push(prepare_command(&options.command, recording));
    }
    name_apart(&mut inputs);
    Ok(inputs)
}

/// The one input of `command`; `others` says what takes more than one.
pub fn prepare_one(
    options: &InputOptions,
    recording: &RecordingOptions,
    command: &str,
    others: &str,
) -> Result<Input, Failure> {
    let mut inputs = prepare(options, recording)?;
    match inputs.len() {
        1 => Ok(inputs.remove(0)),
        0 => Err(Failure::usage("no input; give --trace FILE, --workload NAME or a command after --")),
        n => Err(Failure::usage(format!("{command} takes one input, not {n}; {others}"))),
    }
}

/// Checks that a trace exists and can be read.
pub fn prepare_trace(path: &Path, salvage: bool) -> Result<Input, Failure> {
    let source = open_trace(path, salvage)?;
    let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let mut words = vec!["--trace".to_owned(), path.display().to_string()];
    if salvage {
        words.push("--salvage".to_owned());
    }
    let kind = Kind::Trace { path: path.to_owned(), salvage, source };
    Ok(Input { name, words, command: Vec::new(), kind })
}

/// Opens a trace of any kind.
pub fn open_trace(path: &Path, salvage: bool) -> Result<Box<dyn EventSource>, Failure> {
    terrace_trace::open_any(path, salvage).map_err(trace_failure)
}

/// A file that is not there is the command line's fault; one that is damaged or foreign fails the run.
pub fn trace_failure(error: SourceError) -> Failure {
    match error {
        SourceError::Io { .. } => Failure::Usage(error.into()),
        _ => Failure::Run(error.into()),
    }
}

/// Checks the name and parameters of a built-in workload.
pub fn prepare_workload(spec: &str) -> Result<Input, Failure> {
    let workload = terrace_workload::open(spec).or_usage()?;
    let name = workload.info().name.to_owned();
    let words = vec!["--workload".to_owned(), spec.to_owned()];
    Ok(Input { name, words, command: Vec::new(), kind: Kind::Workload { spec: spec.to_owned(), workload } })
}

fn prepare_command(command: &[OsString], recording: &RecordingOptions) -> Input {
    let program: &Path = command[0].as_ref();
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    Input {
        name,
        words: recording.to_words(),
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        kind: Kind::Command(command.to_vec(), recording.to_record_options()),
    }
}

/// Two inputs of one name get numbers: `gups`, `gups-2`.
fn name_apart(inputs: &mut [Input]) {
    for index in 1..inputs.len() {
        let (before, rest) = inputs.split_at_mut(index);
        let base = rest[0].name.clone();
        let mut number = 1;
        while before.iter().any(|other| other.name == rest[0].name) {
            number += 1;
            rest[0].name = format!("{base}-{number}");
        }
    }
}

impl Input {
    /// Whether it records a program while it is read.
    pub fn is_live(&self) -> bool {
        matches!(self.kind, Kind::Command(..))
    }

    /// The same input once more, to be read from its beginning. `why` says who reads it twice.
    ///
    /// # Errors
    /// A live command runs only once; the message says how to record it first.
    pub fn again(&self, why: &str) -> Result<Input, Failure> {
        let mut again = match &self.kind {
            Kind::Trace { path, .. } if !path.is_file() => {
                let shown = path.display();
                return Err(Failure::usage(format!(
                    "{why}, and {shown} is no file; save what it holds to one first"
                )));
            }
            Kind::Trace { path, salvage, .. } => prepare_trace(path, *salvage)?,
            Kind::Workload { spec, .. } => prepare_workload(spec)?,
            Kind::Command(..) => {
                let record = ["terrace", "record", "-o", "app.trace"].map(str::to_owned);
                return Err(Failure::usage(format!(
                    "{why}, and a live command runs only once; record it first: {}; then give --trace app.trace",
                    self.repeat(&record)
                )));
            }
        };
        again.name.clone_from(&self.name);
        Ok(again)
    }

    /// A trace of this name, in place of a command that was recorded to it.
    pub fn recorded(path: &Path, name: &str) -> Result<Input, Failure> {
        Ok(Input { name: name.to_owned(), ..prepare_trace(path, false)? })
    }

    /// The same workload under another seed; nothing for inputs that have none.
    pub fn reseeded(&self, seed: u64) -> Option<Input> {
        let Kind::Workload { spec, workload } = &self.kind else { return None };
        if !workload.info().parameters.iter().any(|parameter| parameter.name == "seed") {
            return None;
        }
        let parts = spec.split(',').filter(|part| !part.trim_start().starts_with("seed="));
        let spec = parts.map(str::to_owned).chain([format!("seed={seed}")]).collect::<Vec<_>>().join(",");
        let reseeded = prepare_workload(&spec).ok()?;
        Some(Input { name: self.name.clone(), ..reseeded })
    }

    /// The words that name this input on a command line.
    pub fn words(&self) -> Vec<String> {
        let separator = (!self.command.is_empty()).then(|| "--".to_owned());
        self.words.iter().cloned().chain(separator).chain(self.command.iter().cloned()).collect()
    }

    /// A command that repeats a run of this input: `before` the input's own words, the recorded command last.
    pub fn repeat(&self, before: &[String]) -> String {
        let separator = if self.command.is_empty() { None } else { Some("--".to_owned()) };
        crate::output::shell_join(before.iter().chain(&self.words).chain(&separator).chain(&self.command))
    }

    /// What ends the reading of this input where the user asks to stop: nothing for a live recording, which ends by itself
    /// then and hands over what is still under way, so that what reads it is complete.
    pub fn stop(&self, interrupt: &Interrupt) -> Interrupt {
        if self.is_live() { Interrupt::default() } else { interrupt.clone() }
    }

    /// Opens it: a recorded command starts to run here.
    pub fn open(self, interrupt: &Interrupt) -> Result<(Box<dyn EventSource>, Ending), Failure> {
        let ending = Ending { recording: Arc::default(), interrupt: interrupt.clone() };
        let source = match self.kind {
            Kind::Trace { source, .. } => source,
            Kind::Workload { workload, .. } => workload.source(),
            Kind::Command(command, options) => {
                // A missing program or a missing QEMU is for the user to put right before anything can run.
                let mut recording = terrace_recorder::record(&command, &options).or_usage()?;
                let stopper = recording.stopper();
                interrupt.on_request(move || stopper.stop());
                let end = Arc::clone(&ending.recording);
                Box::new(Live { header: recording.header().clone(), recording: Some(recording), end })
            }
        };
        Ok((source, ending))
    }
}

/// A recording as a source. At its end, or when nobody reads on, it leaves the program to [`Ending`].
struct Live {
    header: Header,
    recording: Option<Recording>,
    end: Arc<Mutex<Option<Recording>>>,
}

impl Live {
    fn leave(&mut self) {
        if let Some(recording) = self.recording.take() {
            recording.stop();
            *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(recording);
        }
    }
}

impl EventSource for Live {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        let Some(recording) = self.recording.as_mut() else { return Ok(None) };
        let batch = recording.next_batch();
        if !matches!(batch, Ok(Some(_))) {
            self.leave();
        }
        batch
    }

    fn progress(&self) -> Option<f64> {
        self.recording.as_ref().and_then(EventSource::progress)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Shows the progress of a source while it is read, and ends it when the user asks to.
pub struct Watched<'a> {
    source: &'a mut dyn EventSource,
    progress: progress::Progress,
    stop: Option<Interrupt>,
    accesses: u64,
}

impl<'a> Watched<'a> {
    /// Watches `source` under `name`.
    pub fn new(name: &str, source: &'a mut dyn EventSource) -> Watched<'a> {
        Watched { source, progress: progress::Progress::new(name), stop: None, accesses: 0 }
    }

    /// Ends as if the input were over when the user asks to stop.
    pub fn until(mut self, stop: &Interrupt) -> Watched<'a> {
        self.stop = Some(stop.clone());
        self
    }
}

impl EventSource for Watched<'_> {
    fn header(&self) -> &Header {
        self.source.header()
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        if self.stop.as_ref().is_some_and(Interrupt::requested) {
            return Ok(None);
        }
        let batch = self.source.next_batch()?;
        if let Some(batch) = &batch {
            self.accesses += batch.len() as u64;
            let (source, accesses) = (&*self.source, self.accesses);
            self.progress.advance(batch.len() as u64, || share(source.progress(), source.header(), accesses));
        }
        Ok(batch)
    }

    fn progress(&self) -> Option<f64> {
        self.source.progress()
    }
}

/// The share that is done: what the source says of itself, else by the number of accesses it announced.
pub fn share(progress: Option<f64>, header: &Header, accesses: u64) -> Option<f64> {
    let announced = header.expected_accesses.filter(|&expected| expected > 0);
    progress.or_else(|| announced.map(|expected| accesses as f64 / expected as f64))
}
