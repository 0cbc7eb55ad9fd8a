//! Built-in workloads: each can emit its event stream *and* run natively on real memory, with the same accesses.
//!
//! [`all`] lists them, [`open`] reads one with its parameters. A workload is one kernel, written once in its file under
//! `programs/`; emission and native runs hand that kernel a different memory, so they cannot differ in what they access.
//!
//! ```
//! let workload = terrace_workload::open("gups,bytes=64 MiB,updates=1e4,seed=7")?;
//! let mut source = workload.source();
//! let mut accesses = 0;
//! while let Some(batch) = source.next_batch()? {
//!     accesses += batch.len() as u64;
//! }
//! assert_eq!(accesses, workload.accesses());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod any;
mod beside;
mod emitter;
mod gpu;
mod gpu_program;
mod graph;
mod layout;
mod memory;
mod native;
mod opencl;
mod pages;
mod parameters;
mod program;
mod programs;
mod random;
mod requests;
mod runner;
mod source;
mod thread;

pub use memory::Digest;
pub use native::NativeRun;
pub use opencl::{DeviceChoice, GpuOutcome, GpuRun, KernelRun, LaneTraffic};
pub use pages::{NativePages, ResidentPages};
pub use terrace_model::parameters::ParameterInfo;

use parameters::{did_you_mean, nearest};
use terrace_model::Bytes;
use terrace_model::parameters::ParameterError;
use terrace_trace::{EventSource, Header};

/// What a workload says about itself: its help text and its documentation page.
#[derive(Debug)]
pub struct WorkloadInfo {
    /// The name [`open`] takes.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// What it does, which published benchmark it stands for and how it differs.
    pub description: &'static str,
    /// See [`WorkloadInfo::parameters`].
    pub(crate) parameters: fn() -> Vec<ParameterInfo>,
    /// Whether [`Workload::accesses`] is exact; otherwise it is an expectation.
    pub exact: bool,
}

impl WorkloadInfo {
    /// The parameters as they were declared, in the order in which they are shown.
    pub fn parameters(&self) -> Vec<ParameterInfo> {
        (self.parameters)()
    }
}

/// A workload with its parameters.
pub trait Workload: Send {
    /// What it says about itself.
    fn info(&self) -> &'static WorkloadInfo;
    /// Header of its event stream, with every parameter as it was resolved.
    fn header(&self) -> Header;
    /// Threads, and so streams.
    fn threads(&self) -> u32;
    /// Accesses of the whole stream, initialisation included: exact or expected ([`WorkloadInfo::exact`]).
    fn accesses(&self) -> u64;
    /// Bytes of its data structures; what a native run needs, and at most what a simulation maps.
    fn footprint(&self) -> u64;
    /// The event stream. Where the accesses depend on the content of memory, the content is built at the first batch.
    fn source(&self) -> Box<dyn EventSource>;
    /// Runs on real memory of these pages and times the run phase.
    ///
    /// # Errors
    /// When the machine has too little memory or too few of the pages available, or refuses them.
    fn run_native(&self, pages: NativePages) -> Result<NativeRun, WorkloadError>;
    /// Runs its kernels on a device of OpenCL, and computes on the host what they should.
    ///
    /// # Errors
    /// When the workload has no kernels for GPUs, memory is missing, or the device refuses something. A device that is
    /// not there is no error.
    fn run_on_gpu(&self, device: &DeviceChoice) -> Result<GpuOutcome, WorkloadError>;
    /// Runs on real memory and hashes every stream's accesses on the way (see [`Digest`]): equal to the digests of the
    /// emitted streams, which is the proof that both are the same program.
    ///
    /// # Errors
    /// As for [`Workload::run_native`].
    fn native_digests(&self, pages: NativePages) -> Result<Vec<u64>, WorkloadError>;
}

/// A workload that cannot be opened or run.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// No workload has that name.
    #[error("unknown workload \"{name}\"{}; there are {valid}", did_you_mean(.nearest.as_deref()))]
    UnknownWorkload {
        /// As given.
        name: String,
        /// The most similar name.
        nearest: Option<String>,
        /// All names.
        valid: String,
    },
    /// There is no such parameter, or its value cannot be used.
    #[error("workload {workload}: {problem}")]
    Parameter {
        /// The workload.
        workload: &'static str,
        /// The parameter, its value and what would do.
        problem: ParameterError,
    },
    /// Something between two commas is not `key=value`.
    #[error("workload {workload}: \"{text}\" is not key=value")]
    NotAPair {
        /// The workload.
        workload: &'static str,
        /// As given.
        text: String,
    },
    /// A parameter is given twice.
    #[error("workload {workload}: \"{key}\" is given twice")]
    Twice {
        /// The workload.
        workload: &'static str,
        /// The parameter.
        key: String,
    },
    /// The workload is none for GPUs, or has no kernels for real ones.
    #[error("workload {workload}: it has no kernels for a GPU; these have: {}", with_kernels())]
    NoKernels {
        /// The workload.
        workload: &'static str,
    },
    /// A device refused something.
    #[error("workload {workload}: {problem}")]
    Gpu {
        /// The workload.
        workload: &'static str,
        /// What was refused.
        problem: String,
    },
    /// The machine has less memory available than a native run touches.
    #[error(
        "workload {workload}: a native run needs {}, and {} are available; give it a smaller size",
        Bytes(*.footprint), Bytes(*.available & !((1 << 28) - 1))
    )]
    NotEnoughMemory {
        /// The workload.
        workload: &'static str,
        /// Bytes needed.
        footprint: u64,
        /// Bytes available.
        available: u64,
    },
    /// The system has no or too few pages of the size that a native run asks for.
    #[error("pages of {wanted}: {problem}; {next}")]
    Pages {
        /// The page size.
        wanted: Bytes,
        /// What is missing.
        problem: String,
        /// What to do.
        next: String,
    },
    /// The system refused memory.
    #[error("reserving {} of memory: {error}", Bytes(*.bytes))]
    Memory {
        /// Bytes asked for.
        bytes: u64,
        /// What the system said.
        #[source]
        error: std::io::Error,
    },
}

/// The names of those that have kernels in OpenCL C.
fn with_kernels() -> String {
    let with = programs::ALL.iter().filter(|entry| entry.in_opencl).map(|entry| entry.info.name);
    with.collect::<Vec<_>>().join(", ")
}

/// All workloads, in the order of the documentation.
pub fn all() -> &'static [&'static WorkloadInfo] {
    const INFOS: [&WorkloadInfo; programs::ALL.len()] = {
        let mut infos = [programs::ALL[0].info; programs::ALL.len()];
        let mut i = 0;
        while i < infos.len() {
            infos[i] = programs::ALL[i].info;
            i += 1;
        }
        infos
    };
    &INFOS
}

/// Opens `name` or `name,key=value,…`.
///
/// # Errors
/// An unknown name or key, with the nearest valid one; a value that cannot be used, with what would do.
pub fn open(spec: &str) -> Result<Box<dyn Workload>, WorkloadError> {
    let (name, parameters) = spec.split_once(',').unwrap_or((spec, ""));
    let name = name.trim();
    match programs::ALL.iter().find(|entry| entry.info.name == name) {
        Some(entry) => (entry.open)(parameters),
        None => {
            let valid: Vec<&str> = programs::ALL.iter().map(|entry| entry.info.name).collect();
            let nearest = nearest(name, valid.iter().copied()).map(str::to_owned);
            let name = name.to_owned();
            Err(WorkloadError::UnknownWorkload { name, nearest, valid: valid.join(", ") })
        }
    }
}
