//! Records the memory accesses of any x86-64 Linux program.
//!
//! The program runs, unmodified, under QEMU's user-mode emulator with a plugin that writes each load and store into
//! shared memory; [`record`] starts it and returns a [`Recording`], an [`EventSource`] that takes them out as they
//! come. Nothing is written to disk but the plugin itself, in a private temporary folder, and the memory in between
//! is bounded: a program that runs ahead of its consumer waits.
//!
//! ```no_run
//! use terrace_recorder::{RecordOptions, record};
//! use terrace_trace::EventSource;
//!
//! let mut recording = record(&["ls".into(), "-l".into()], &RecordOptions::default())?;
//! let mut accesses = 0;
//! while let Some(batch) = recording.next_batch()? {
//!     accesses += batch.len();
//! }
//! println!("{accesses} accesses, {}", recording.wait()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blocks;
mod collect;
mod entries;
mod events;
mod filter;
mod folder;
mod keeper;
mod launch;
mod origins;
mod process;
mod session;
mod short;
mod stream;
mod symbols;
mod touched;

use collect::Collector;
use folder::Folder;
pub use folder::remove_stale;
use session::Session;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use terrace_trace::{Batch, EventSource, Header, SourceError};

/// The first `length` of each `period` accesses are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every {
    /// Accesses from the start of one kept run to the next.
    pub period: u64,
    /// Accesses kept in a run; at least 1 and at most `period`.
    pub length: u64,
}

/// What is recorded. The default: every access of the program and of all it starts, with dependences.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Accesses left out at the start, counted over all threads. The pages they touch are kept as
    /// [`terrace_trace::Event::Resident`].
    pub skip: u64,
    /// Recording ends after this many accesses. The program runs on, unrecorded, unless
    /// [`RecordOptions::end_at_limit`] says otherwise.
    pub limit: Option<u64>,
    /// Only part of each period is kept.
    pub every: Option<Every>,
    /// Only accesses between the program's own markers are kept; the counts above count only those.
    pub region: bool,
    /// Follow loaded values into the addresses of later accesses.
    pub dependences: bool,
    /// Ask QEMU only for addresses that do not follow from another's of the same block. Off, it is asked for all: slower,
    /// with the same result.
    pub derive_addresses: bool,
    /// Record instruction addresses.
    pub program_counters: bool,
    /// Record allocations, by a preload library in the program.
    pub allocations: bool,
    /// Record programs that the program executes, by a preload library in the program.
    pub follow_exec: bool,
    /// End the program when the limit is reached.
    pub end_at_limit: bool,
    /// QEMU's executable, where it is not `qemu-x86_64` in the search path.
    pub qemu: Option<PathBuf>,
    /// Record nothing and only count accesses; see [`Recording::counted`]. The floor for speed measurements.
    pub count_only: bool,
}

impl Default for RecordOptions {
    fn default() -> RecordOptions {
        RecordOptions {
            skip: 0,
            limit: None,
            every: None,
            region: false,
            dependences: true,
            derive_addresses: true,
            program_counters: false,
            allocations: false,
            follow_exec: true,
            end_at_limit: false,
            qemu: None,
            count_only: false,
        }
    }
}

/// The name of a processor that ELF numbers so.
fn processor(machine: u16) -> String {
    match machine {
        3 => "i386".to_owned(),
        40 => "32-bit Arm".to_owned(),
        62 => "x32".to_owned(),
        183 => "arm64".to_owned(),
        243 => "RISC-V".to_owned(),
        _ => format!("ELF machine {machine}"),
    }
}

/// Why nothing could be recorded. Each message says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// No command was given.
    #[error("no program to record was given")]
    NoProgram,
    /// The emulator is not installed.
    #[error("qemu-x86_64 was not found; install it with: sudo apt-get install qemu-user")]
    QemuMissing,
    /// There is no such program.
    #[error(
        "{}: no such program; give the path of an executable file, or a name in the search path (see: echo $PATH)",
        .program.to_string_lossy()
    )]
    NotFound {
        /// As it was given, or as a script names its interpreter.
        program: OsString,
    },
    /// The file is neither a program nor a script.
    #[error("{}: neither an x86-64 Linux program nor a script with an interpreter line", .program.display())]
    NotAProgram {
        /// The file.
        program: PathBuf,
    },
    /// A directory was given.
    #[error("{}: a directory, not a program; give the path of a program in it", .path.display())]
    IsDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The file may not be executed.
    #[error(
        "{}: no permission to execute it; if it is a program, allow that with: chmod +x FILE",
        .program.display()
    )]
    NotExecutable {
        /// The file.
        program: PathBuf,
    },
    /// The program would take the machine's memory.
    #[error(
        "{}: built with AddressSanitizer, for whose shadow memory the emulator takes more than 20 GB of this \
         machine's; build it without -fsanitize=address to record it",
        .program.display()
    )]
    AddressSanitizer {
        /// The file.
        program: PathBuf,
    },
    /// The program is for another processor.
    #[error(
        "{}: built for another processor ({}); only x86-64 programs can be recorded: build it with cc -m64 on an \
         x86-64 machine, or with x86_64-linux-gnu-gcc (package gcc-x86-64-linux-gnu) elsewhere",
        .program.display(),
        processor(*.machine)
    )]
    OtherMachine {
        /// The file.
        program: PathBuf,
        /// The processor, as ELF numbers it.
        machine: u16,
    },
    /// An impossible choice of what to keep.
    #[error("every {period}:{length}: the length must be at least 1 and at most the period")]
    BadPeriod {
        /// [`Every::period`].
        period: u64,
        /// [`Every::length`].
        length: u64,
    },
    /// The system refused something.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        #[source]
        error: std::io::Error,
    },
}

/// Starts `command` under the recorder.
///
/// # Errors
/// When the emulator or the program cannot be found or started.
pub fn record(command: &[OsString], options: &RecordOptions) -> Result<Recording, RecordError> {
    prepare(command, options)?.start()
}

/// A program that can be recorded, and has not been started.
#[derive(Debug)]
pub struct Prepared {
    program: launch::Program,
    qemu: PathBuf,
    options: RecordOptions,
    header: Header,
}

/// Finds the program and the emulator, and starts neither.
///
/// # Errors
/// When one of them cannot be found, or the program cannot run under the emulator.
pub fn prepare(command: &[OsString], options: &RecordOptions) -> Result<Prepared, RecordError> {
    if let Some(Every { period, length }) = options.every
        && (length == 0 || length > period)
    {
        return Err(RecordError::BadPeriod { period, length });
    }
    let program = launch::resolve(command)?;
    let qemu = launch::find_qemu(options)?;
    if terrace_protocol::sanitizer::has_address_sanitizer(&program.executable) {
        return Err(RecordError::AddressSanitizer { program: program.executable });
    }
    let header = launch::header(command, options);
    Ok(Prepared { program, qemu, options: options.clone(), header })
}

impl Prepared {
    /// What the trace will say about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Starts the program.
    ///
    /// # Errors
    /// When the system refuses what the recorder needs.
    pub fn start(self) -> Result<Recording, RecordError> {
        let Prepared { program, qemu, options, header } = self;
        let failed = |what: &str| {
            let what = what.to_owned();
            move |error| RecordError::Io { what, error }
        };
        let folder = Folder::new().map_err(failed("cannot unpack the recorder's libraries"))?;
        let session =
            Session::new(folder.path()).map_err(failed("cannot make the recorder's shared memory"))?;
        let child = launch::start(&program, &qemu, folder.path(), &options)?;
        let mut collector = Collector::new(session, options, header.program.clone());
        collector.warnings.extend(launch::lost_privileges(&program.executable));
        if collector.options.allocations && !program.is_dynamic {
            collector.warnings.push(format!(
                "{}: allocations are not recorded, because the program is statically linked or does not load \
                 preload libraries",
                header.program
            ));
        }
        Ok(Recording { collector, header, child, status: None, _folder: folder })
    }
}

/// A program being recorded.
///
/// Its batches come live. Dropping it ends the recording, not the program.
pub struct Recording {
    collector: Collector,
    header: Header,
    child: Child,
    status: Option<ExitStatus>,
    /// Last: it stays as long as a process uses it.
    _folder: Folder,
}

/// Ends a recording from another thread, or from a signal handler.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<std::sync::atomic::AtomicBool>);

impl Stopper {
    /// Ends the recording: the source delivers what is complete, then ends. The program runs on.
    pub fn stop(&self) {
        self.0.store(true, SeqCst);
    }
}

impl Recording {
    /// Ends the recording. [`EventSource::next_batch`] delivers what is complete, then ends; the program runs on.
    pub fn stop(&self) {
        self.collector.session.stop();
    }

    /// A handle that ends the recording from elsewhere.
    pub fn stopper(&mut self) -> Stopper {
        Stopper(Arc::clone(&self.collector.stop_wanted))
    }

    /// Waits for the program to end and returns its exit status. Ends the recording, if it has not ended.
    ///
    /// # Errors
    /// When the system cannot wait.
    pub fn wait(mut self) -> std::io::Result<ExitStatus> {
        self.collector.session.stop();
        match self.status {
            Some(status) => Ok(status),
            None => self.child.wait(),
        }
    }

    /// The program's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit status of the program, once it is known.
    pub fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    /// Accesses delivered so far.
    pub fn accesses(&self) -> u64 {
        self.collector.accesses
    }

    /// Accesses counted by [`RecordOptions::count_only`], in processes that ended by themselves.
    pub fn counted(&self) -> u64 {
        self.collector.session.shared().header().counted.load(SeqCst)
    }

    /// What the recording could not see, each said once. Complete when the source has ended.
    pub fn warnings(&self) -> &[String] {
        &self.collector.warnings
    }

    fn look_at_child(&mut self) -> Result<(), SourceError> {
        if self.status.is_none() {
            self.status = self
                .child
                .try_wait()
                .map_err(|error| SourceError::Io { what: self.header.program.clone(), error })?;
            self.collector.child_ended = self.status.is_some();
        }
        Ok(())
    }
}

impl EventSource for Recording {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        loop {
            if let Some(batch) = self.collector.poll() {
                return Ok(Some(batch));
            }
            if self.collector.is_finished() {
                self.look_at_child()?;
                if self.collector.options.end_at_limit
                    && self.collector.reached_limit()
                    && self.status.is_none()
                {
                    // Errors mean that it has just ended by itself.
                    let _ = self.child.kill();
                }
                let nothing_ran = !self.collector.has_started() && !self.collector.options.count_only;
                return match self.status {
                    Some(status) if nothing_ran => Err(SourceError::Recorder(format!(
                        "{}: ended before its first instruction under {} ({status})",
                        self.header.program,
                        launch::QEMU
                    ))),
                    _ => Ok(None),
                };
            }
            self.look_at_child()?;
            self.collector.nap();
        }
    }

    fn progress(&self) -> Option<f64> {
        let limit = self.header.expected_accesses?;
        Some((self.collector.accesses as f64 / limit.max(1) as f64).min(1.0))
    }
}
