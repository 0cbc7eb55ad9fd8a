//! What a run of kernels on a device measured.

/// What a run on a device measured.
#[derive(Clone, Debug)]
pub struct GpuRun {
    /// The device's name.
    pub device: String,
    /// The name of its implementation of OpenCL.
    pub platform: String,
    /// Kernels of the run, in the order in which each came first.
    pub kernels: Vec<KernelRun>,
    /// Checksum of all data structures at the end.
    pub checksum: u64,
    /// Data structures that are not as the host computed them.
    pub different: Vec<String>,
}

impl GpuRun {
    /// Seconds of all kernels.
    pub fn seconds(&self) -> f64 {
        self.kernels.iter().map(|kernel| kernel.seconds).sum()
    }
}

/// What a kernel took.
#[derive(Clone, Debug)]
pub struct KernelRun {
    /// The kernel's name.
    pub name: &'static str,
    /// How often it was launched.
    pub launches: u64,
    /// Seconds of all its launches, by the device's clock.
    pub seconds: f64,
}

/// How an attempt to run kernels on a device ended.
#[derive(Clone, Debug)]
pub enum GpuOutcome {
    /// The kernels ran.
    Ran(GpuRun),
    /// There is no such device: why, and what to do next.
    NoDevice(String),
}
