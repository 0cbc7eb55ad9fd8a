//! Inputs of a study, from what names them to an open source of events.

mod ending;
mod environment;

pub use ending::Ending;

use crate::programs::{Opener, Regions};
use crate::simulation::Settings;
use crate::threads;
use crate::words::{apart, shell_join};
use crate::{Error, Stop};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use terrace_recorder::{Prepared, RecordOptions};
use terrace_trace::{Checked, EventSource, Header, ReadAhead};
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
        /// What was wrong with it, where other inputs are to be read all the same.
        source: Result<Box<dyn EventSource>, Error>,
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
        Ok(Input::of_trace(path, salvage, Ok(open_trace(path, salvage)?)))
    }

    /// As [`Input::trace`], for one of `inputs` inputs: where there are others, a damaged or foreign file fails the runs on
    /// it and no others.
    ///
    /// # Errors
    /// A file that cannot be opened; where it is the only input also one that holds no trace.
    pub fn trace_among(path: &Path, salvage: bool, inputs: usize) -> Result<Input, Error> {
        match open_trace(path, salvage) {
            Err(error) if inputs < 2 || error.is_request() => Err(error),
            source => Ok(Input::of_trace(path, salvage, source)),
        }
    }

    fn of_trace(path: &Path, salvage: bool, source: Result<Box<dyn EventSource>, Error>) -> Input {
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let mut words = vec!["--trace".to_owned(), path.display().to_string()];
        if salvage {
            words.push("--salvage".to_owned());
        }
        Input::new(name, words, Kind::Trace { path: path.to_owned(), salvage, source })
    }

    /// Whether it can be read, as far as that is known before it is.
    pub(crate) fn is_readable(&self) -> bool {
        !matches!(&self.kind, Kind::Trace { source: Err(_), .. })
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
        let source = ReadAhead::start(source).map_err(|error| Error::failed(threads::refused(&error)))?;
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
        let mut ending = Ending::new(settings.stop.clone(), ends_at_limit);
        let source = match self.kind {
            Kind::Trace { source, .. } => source?,
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
                let stopper = recording.stopper();
                settings.stop.on_request(move || stopper.stop());
                Box::new(Checked::new(self.name, ending.live(recording)))
            }
        };
        Ok((source, ending))
    }
}
