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
mod emulated;
mod emulators;
mod entries;
mod events;
mod filter;
mod folder;
mod keeper;
mod launch;
mod opencl;
mod origins;
mod places;
mod process;
mod recording;
mod session;
mod short;
mod stream;
mod symbols;
mod touched;

use collect::Collector;
use emulated::Emulated;
pub use emulators::{NewerEmulator, newer_emulator};
use folder::Folder;
pub use folder::remove_stale;
pub use launch::{may_start, not_started};
pub use places::{CodePlace, NoPlace, Places};
pub use recording::{Recording, Stopper};
use session::Session;
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_trace::Header;

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
    /// End the program when the limit is reached, with all recorded processes that it has started.
    pub end_at_limit: bool,
    /// QEMU's executable, where it is not `qemu-x86_64` in the search path.
    pub qemu: Option<PathBuf>,
    /// Variables of the program's environment with their values, in place of those of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// An OpenCL program: its kernels run on Oclgrind, a device in software, and what they and the host do to buffers is
    /// recorded.
    pub gpu: bool,
    /// The program's input is empty, and not that of this process.
    pub empty_input: bool,
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
            environment: Vec::new(),
            gpu: false,
            empty_input: false,
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
    /// Oclgrind or what its plugin needs is not installed.
    #[error(
        "{what}; recording OpenCL programs needs Oclgrind, its headers and a C++ compiler: sudo apt-get install oclgrind \
         liboclgrind-dev opencl-c-headers g++"
    )]
    OclgrindMissing {
        /// What was missed.
        what: String,
    },
    /// An option that is for programs of the CPU.
    #[error("{option} does not apply to --gpu; of what is recorded, --limit leaves out the rest")]
    NotForGpu {
        /// The option.
        option: &'static str,
    },
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
        "{}: no permission to execute it; if it is a program, allow that with: chmod +x {}",
        .program.display(),
        launch::quoted(.program)
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
        "{}: built for another processor ({}); Terrace takes x86-64 programs only: build it with cc -m64 on an \
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
    on: On,
    options: RecordOptions,
    header: Header,
}

/// What the program will run on.
#[derive(Debug)]
enum On {
    /// This executable of QEMU.
    Qemu(PathBuf),
    /// Oclgrind.
    Device(opencl::Device),
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
    let header = launch::header(command, options);
    if options.gpu {
        let on = On::Device(opencl::prepare(options)?);
        return Ok(Prepared { program, on, options: options.clone(), header });
    }
    let on = On::Qemu(launch::find_qemu(options)?);
    if terrace_protocol::sanitizer::has_address_sanitizer(&program.executable) {
        return Err(RecordError::AddressSanitizer { program: program.executable });
    }
    Ok(Prepared { program, on, options: options.clone(), header })
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
        let Prepared { program, on, options, header } = self;
        let qemu = match on {
            On::Qemu(qemu) => qemu,
            On::Device(device) => {
                let recording = opencl::start(&program, &device, &options, &header.program)?;
                return Ok(Recording { source: Box::new(recording), header });
            }
        };
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
        if !launch::HAS_PRELOADS && !collector.options.count_only {
            collector.warnings.push(format!(
                "{}: neither allocations nor programs that it executes are recorded, because a Terrace for {} has no \
                 libraries for x86-64 programs; record on an x86-64 machine and bring the trace (terrace record -o)",
                header.program,
                std::env::consts::ARCH
            ));
        } else if collector.options.allocations && !program.is_dynamic {
            collector.warnings.push(format!(
                "{}: allocations are not recorded, because the program is statically linked or does not load \
                 preload libraries",
                header.program
            ));
        }
        let source = Emulated::new(collector, &header.program, child, folder);
        Ok(Recording { source: Box::new(source), header })
    }
}
