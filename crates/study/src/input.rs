//! Inputs of a study, from what names them to an open source of events.

mod environment;

use crate::programs::{Opener, Regions};
use crate::simulation::Settings;
use crate::words::{apart, shell_join};
use crate::{Error, Progress, Stop};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use terrace_recorder::{Prepared, RecordOptions, Recording};
use terrace_trace::{Batch, Checked, EventSource, Header, ReadAhead, SourceError};
use terrace_workload::Workload;

/// An input that exists: files were opened and parameters checked, nothing has run yet.
pub struct Input {
    /// Unique within the study, as tables and reports show it.
    pub name: String,
    /// The words of a command that repeats it, without the recorded command itself.
    words: Vec<String>,
    /// The recorded command.
    command: Vec<String>,
    /// The recorder ends the program at the limit of the recording.
    ends_at_limit: bool,
    kind: Kind,
}

enum Kind {
    Trace {
        path: PathBuf,
        salvage: bool,
        source: Box<dyn EventSource>,
    },
    Workload {
        spec: String,
        workload: Box<dyn Workload>,
    },
    /// Programs side by side, and which of them mark a region of interest, once that was looked for.
    Mix(Vec<Input>, Regions),
    Command(Vec<OsString>, RecordOptions),
    /// A command that was found, with the emulator it needs.
    Prepared(Box<Prepared>),
}

/// The recorded program after its events are over; nothing for other inputs. It is waited for also where nobody asks
/// how it ended, because the study failed: a job in the foreground stays there.
#[derive(Default)]
pub struct Ending {
    left: Arc<Left>,
    /// Warnings that were passed on when it began.
    warned: usize,
}

/// What a source leaves behind when it is read no further.
#[derive(Default)]
struct Left {
    recording: Mutex<Option<Recording>>,
    stop: Stop,
    /// The recorder ends the program at the limit of the recording.
    ends_at_limit: bool,
}

impl Left {
    /// Whether the recorder ended the program, as it was asked to do at the limit.
    fn was_ended(&self, status: ExitStatus) -> bool {
        self.ends_at_limit && status.signal() == Some(rustix::process::Signal::KILL.as_raw())
    }

    fn take(&self) -> Option<Recording> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits for the program and returns how it ended. Calls `runs_on` if that takes longer than a moment.
    fn wait(&self, recording: &mut Recording, runs_on: impl Fn()) -> Result<ExitStatus, SourceError> {
        let begin = Instant::now();
        let mut noticed = None;
        loop {
            // The recording is over; this only looks whether the program is, too.
            recording.next_batch()?;
            if let Some(status) = recording.status() {
                return Ok(status);
            }
            if self.stop.requested() && noticed.is_none_or(|at: Instant| at.elapsed() > GRACE) {
                if noticed.is_some() || begin.elapsed() > GRACE {
                    terminate(recording.id());
                }
                noticed = Some(Instant::now());
            } else if noticed.is_none() && begin.elapsed() > GRACE {
                runs_on();
                noticed = Some(Instant::now());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        if let Some(mut recording) = self.take() {
            let _ = self.wait(&mut recording, || ());
        }
    }
}

/// A program that the user has asked to end gets this long before Terrace ends it.
const GRACE: Duration = Duration::from_secs(1);

impl Ending {
    /// Waits for the program, which may run on after its recording ended, and passes on the recorder's warnings.
    /// Returns how the program ended, if not well.
    pub fn wait(self, name: &str, progress: &dyn Progress) -> Option<String> {
        let mut recording = self.left.take()?;
        for warning in recording.warnings().iter().skip(self.warned) {
            progress.note(warning);
        }
        let runs_on = || progress.note(&format!("{name} runs on, unrecorded; waiting for its end"));
        match self.left.wait(&mut recording, runs_on) {
            Err(error) => Some(error.to_string()),
            Ok(status) if status.success() || self.left.stop.requested() => None,
            Ok(status) if self.left.was_ended(status) => None,
            Ok(status) => {
                Some(format!("{name} ended with {status}{}", emulators_fault(status, recording.is_gpu())))
            }
        }
    }
}

/// What to try where a fault ended a program that may be the emulator's: it ends by its program's signals and by its
/// own in one way.
fn emulators_fault(status: ExitStatus, gpu: bool) -> String {
    use rustix::process::Signal;
    let faults = [Signal::SEGV, Signal::BUS, Signal::ILL, Signal::ABORT, Signal::TRAP].map(Signal::as_raw);
    if !status.signal().is_some_and(|signal| faults.contains(&signal)) {
        return String::new();
    }
    if gpu {
        return "; whether the program or Oclgrind has crashed, oclgrind PROGRAM shows".to_owned();
    }
    let newer = match terrace_recorder::newer_emulator() {
        Some(newer) => format!(
            "the newer qemu-user that is installed ({}, {} records: PATH={}:$PATH terrace ...)",
            newer.version,
            newer.recording,
            newer.folder.display()
        ),
        None => "a newer qemu-user".to_owned(),
    };
    format!(
        "; if it runs well without the recorder, the emulator (qemu-x86_64) has crashed: check that with \
         qemu-x86_64 PROGRAM, then try {newer} or the program's single-process mode"
    )
}

fn terminate(id: u32) {
    let Some(id) = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw) else { return };
    // The call fails only if the program has just ended.
    let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
}

/// Two inputs of one name get numbers: `gups`, `gups-2`.
pub fn name_apart(inputs: &mut [Input]) {
    for index in 1..inputs.len() {
        let (before, rest) = inputs.split_at_mut(index);
        rest[0].name = apart(&rest[0].name, |name| before.iter().any(|other| other.name == name));
    }
}

/// Opens a trace of any kind.
///
/// # Errors
/// A file that cannot be opened, or holds no trace.
pub fn open_trace(path: &Path, salvage: bool) -> Result<Box<dyn EventSource>, Error> {
    terrace_trace::open_any(path, salvage).map_err(Error::Open)
}

/// What is recorded, as words of a command that repeats the recording; nothing for the default.
pub fn recording_words(options: &RecordOptions) -> Vec<String> {
    let mut words = Vec::new();
    if options.skip > 0 {
        words.extend(["--skip".to_owned(), options.skip.to_string()]);
    }
    if let Some(limit) = options.limit {
        words.extend(["--limit".to_owned(), limit.to_string()]);
    }
    if let Some(every) = options.every {
        words.extend(["--every".to_owned(), format!("{}:{}", every.period, every.length)]);
    }
    let switches = [
        (options.gpu, "--gpu"),
        (options.end_at_limit, "--end-at-limit"),
        (options.region, "--region"),
        (options.program_counters, "--program-counters"),
        (options.allocations, "--allocations"),
        (!options.dependences, "--no-dependences"),
        (!options.follow_exec, "--no-follow-exec"),
    ];
    words.extend(switches.iter().filter(|(on, _)| *on).map(|(_, name)| (*name).to_owned()));
    words
}

impl Input {
    fn new(name: String, words: Vec<String>, kind: Kind) -> Input {
        Input { name, words, command: Vec::new(), ends_at_limit: false, kind }
    }

    /// A trace of any kind that Terrace reads; `salvage` reads what is whole of a damaged one.
    ///
    /// # Errors
    /// A file that cannot be opened, or holds no trace.
    pub fn trace(path: &Path, salvage: bool) -> Result<Input, Error> {
        let source = open_trace(path, salvage)?;
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let mut words = vec!["--trace".to_owned(), path.display().to_string()];
        if salvage {
            words.push("--salvage".to_owned());
        }
        let kind = Kind::Trace { path: path.to_owned(), salvage, source };
        Ok(Input::new(name, words, kind))
    }

    /// A built-in workload with its parameters, such as `gups,bytes=1GiB,seed=7`.
    ///
    /// # Errors
    /// Unknown names and parameters.
    pub fn workload(spec: &str) -> Result<Input, Error> {
        let workload = terrace_workload::open(spec)?;
        let name = workload.info().name.to_owned();
        let words = vec!["--workload".to_owned(), spec.to_owned()];
        Ok(Input::new(name, words, Kind::Workload { spec: spec.to_owned(), workload }))
    }

    /// Several programs side by side on one machine; `word` is what names them after `--mix`. See [`crate::mix`].
    ///
    /// # Errors
    /// No program, a live command, a mix or a trace that is no file: of a mix every program can be begun again.
    pub fn mix(name: &str, word: &str, mut programs: Vec<Input>) -> Result<Input, Error> {
        if programs.is_empty() {
            return Err(Error::request(format!("mix {name}: it has no program")));
        }
        name_apart(&mut programs);
        for program in &programs {
            if matches!(program.kind, Kind::Mix(..)) {
                return Err(Error::request(format!("mix {name}: {} is a mix itself", program.name)));
            }
            program.again(&format!("mix {name}: its programs can begin again"))?;
        }
        let words = vec!["--mix".to_owned(), word.to_owned()];
        let kind = Kind::Mix(programs, Regions::default());
        Ok(Input::new(name.to_owned(), words, kind))
    }

    /// The programs of a mix; none where it is no mix.
    pub fn programs(&self) -> &[Input] {
        match &self.kind {
            Kind::Mix(programs, _) => programs,
            _ => &[],
        }
    }

    /// Accesses that are known beforehand: those of built-in workloads.
    pub(crate) fn known_accesses(&self) -> u64 {
        match &self.kind {
            Kind::Workload { workload, .. } => workload.accesses(),
            Kind::Mix(programs, _) => programs.iter().map(Input::known_accesses).sum(),
            _ => 0,
        }
    }

    /// A program and its arguments, which runs under the recorder while the input is read.
    ///
    /// # Panics
    /// Without a program.
    pub fn command(command: &[OsString], options: RecordOptions) -> Input {
        let program: &Path = command[0].as_ref();
        let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
        Input {
            name,
            words: recording_words(&options),
            command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            ends_at_limit: options.end_at_limit,
            kind: Kind::Command(command.to_vec(), options),
        }
    }

    /// Whether it records a program while it is read.
    pub fn is_live(&self) -> bool {
        matches!(self.kind, Kind::Command(..) | Kind::Prepared(_))
    }

    /// This input once more, to be read from its beginning. `why` says who reads it twice.
    ///
    /// # Errors
    /// A live command runs only once; the message says how to record it first.
    pub fn again(&self, why: &str) -> Result<Input, Error> {
        let mut again = match &self.kind {
            Kind::Trace { path, .. } if !path.is_file() && !path.is_dir() => {
                let shown = path.display();
                return Err(Error::request(format!(
                    "{why}, and {shown} is no file; make one of it first: terrace trace convert {shown} -o app.trace"
                )));
            }
            Kind::Trace { path, salvage, .. } => Input::trace(path, *salvage)?,
            Kind::Workload { spec, .. } => Input::workload(spec)?,
            Kind::Mix(programs, regions) => {
                let programs = programs.iter().map(|program| program.again(why));
                let kind = Kind::Mix(programs.collect::<Result<_, _>>()?, regions.clone());
                Input::new(String::new(), self.words.clone(), kind)
            }
            Kind::Command(..) | Kind::Prepared(_) => {
                let record = ["terrace", "record", "-o", "app.trace"].map(str::to_owned);
                return Err(Error::request(format!(
                    "{why}, and a live command runs only once; record it first: {}; then give --trace app.trace",
                    self.repeat(&record)
                )));
            }
        };
        again.name.clone_from(&self.name);
        Ok(again)
    }

    /// This input under another name, which `words` name on a command line.
    pub(crate) fn named(self, name: &str, words: Vec<String>) -> Input {
        Input { name: name.to_owned(), words, ..self }
    }

    /// This workload under another seed; nothing for inputs that have none.
    pub fn reseeded(&self, seed: u64) -> Option<Input> {
        if let Kind::Mix(programs, _) = &self.kind {
            let others: Vec<Option<Input>> = programs.iter().map(|program| program.reseeded(seed)).collect();
            others.iter().find(|other| other.is_some())?;
            let same = |program: &Input| program.again("its intervals need another run").ok();
            let programs = others.into_iter().zip(programs).map(|(other, own)| other.or_else(|| same(own)));
            let kind = Kind::Mix(programs.collect::<Option<_>>()?, Regions::default());
            return Some(Input::new(self.name.clone(), self.words.clone(), kind));
        }
        let Kind::Workload { spec, workload } = &self.kind else { return None };
        if !workload.info().parameters().iter().any(|parameter| parameter.name == "seed") {
            return None;
        }
        let parts = spec.split(',').filter(|part| !part.trim_start().starts_with("seed="));
        let spec = parts.map(str::to_owned).chain([format!("seed={seed}")]).collect::<Vec<_>>().join(",");
        let reseeded = Input::workload(&spec).ok()?;
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
        shell_join(before.iter().chain(&self.words).chain(&separator).chain(&self.command))
    }

    /// What ends the reading of this input where the caller asks to stop: nothing for a live recording, which ends by
    /// itself then and hands over what is still under way, so that what reads it is complete.
    pub fn stop(&self, stop: &Stop) -> Stop {
        if self.is_live() { Stop::new() } else { stop.clone() }
    }

    /// Finds the program of a live command and the emulator, and returns what the recording will say of itself; nothing
    /// for other inputs. Starts nothing.
    ///
    /// # Errors
    /// A program or an emulator that is not there, or a program that cannot be recorded.
    pub fn prepare(&mut self) -> Result<Option<Header>, Error> {
        if let Kind::Command(command, options) = &self.kind {
            self.kind = Kind::Prepared(Box::new(terrace_recorder::prepare(command, options)?));
        }
        match &self.kind {
            Kind::Prepared(prepared) => Ok(Some(prepared.header().clone())),
            _ => Ok(None),
        }
    }

    /// As [`Input::open`], for one reader: what waits for no program is decoded or generated on another core, where there is
    /// one. (Where several read, [`crate::run::all_pairs`] does so.)
    ///
    /// # Errors
    /// As [`Input::open`].
    pub fn open_ahead(self, settings: &Settings<'_>) -> Result<(Box<dyn EventSource>, Ending), Error> {
        // The simulation of a mix says which of the programs is read next.
        let is_read_here = self.is_live() || !self.programs().is_empty();
        let (source, ending) = self.open(settings)?;
        if is_read_here || std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1) {
            return Ok((source, ending));
        }
        let source = ReadAhead::start(source).map_err(|error| {
            Error::Read(SourceError::Io { what: "a thread to read the input".to_owned(), error })
        })?;
        Ok((Box::new(source), ending))
    }

    /// When the program was recorded, at the latest: now where it is yet to run, and never for what is no program of this
    /// machine.
    pub(crate) fn recorded_at(&self) -> Option<SystemTime> {
        match &self.kind {
            Kind::Trace { path, .. } => path.metadata().and_then(|data| data.modified()).ok(),
            Kind::Command(..) | Kind::Prepared(_) => Some(SystemTime::now()),
            Kind::Workload { .. } | Kind::Mix(..) => None,
        }
    }

    /// What opens it, as often as one likes; nothing for a live command or a mix.
    fn opener(&self) -> Option<Opener> {
        let word = match &self.kind {
            Kind::Trace { path, salvage, .. } => Ok((path.clone(), *salvage)),
            Kind::Workload { spec, .. } => Err(spec.clone()),
            Kind::Mix(..) | Kind::Command(..) | Kind::Prepared(_) => return None,
        };
        Some(Box::new(move || match &word {
            Ok((path, salvage)) => open_trace(path, *salvage),
            Err(spec) => Ok(terrace_workload::open(spec)?.source()),
        }))
    }

    /// Opens it: a recorded command starts to run here.
    ///
    /// # Errors
    /// A program or an emulator that cannot be started.
    pub fn open(mut self, settings: &Settings<'_>) -> Result<(Box<dyn EventSource>, Ending), Error> {
        let ends_at_limit = self.ends_at_limit;
        // A missing program or a missing QEMU is for the user to put right before anything can run.
        self.prepare()?;
        let left = Left { recording: Mutex::default(), stop: settings.stop.clone(), ends_at_limit };
        let mut ending = Ending { left: Arc::new(left), warned: 0 };
        let source = match self.kind {
            Kind::Trace { source, .. } => source,
            Kind::Workload { workload, .. } => workload.source(),
            Kind::Mix(programs, regions) => {
                let opener = |program: Input| Some((program.name.clone(), program.opener()?));
                let openers = programs.into_iter().filter_map(opener).collect();
                Box::new(regions.open(openers, settings.simulation.whole)?)
            }
            Kind::Command(..) => unreachable!("prepared above"),
            Kind::Prepared(prepared) => {
                let mut recording = prepared.start()?;
                recording.warnings().iter().for_each(|warning| settings.progress.note(warning));
                ending.warned = recording.warnings().len();
                let stopper = recording.stopper();
                settings.stop.on_request(move || stopper.stop());
                let left = Arc::clone(&ending.left);
                let live = Live { header: recording.header().clone(), recording: Some(recording), left };
                Box::new(Checked::new(self.name, live))
            }
        };
        Ok((source, ending))
    }
}

/// A recording as a source. At its end, or when nobody reads on, it leaves the program to [`Ending`].
struct Live {
    header: Header,
    recording: Option<Recording>,
    left: Arc<Left>,
}

impl Live {
    fn leave(&mut self) {
        if let Some(recording) = self.recording.take() {
            recording.stop();
            *self.left.recording.lock().unwrap_or_else(PoisonError::into_inner) = Some(recording);
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
