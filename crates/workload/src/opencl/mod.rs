//! Kernels of the workloads for GPUs on a real device, through OpenCL.
//!
//! Beside its stream of accesses such a workload has its kernels in OpenCL C. They make the same accesses with the same
//! launches, and compute: in whole numbers, so that any device has the same result, which the host computes too.

mod api;
pub(crate) mod device;
pub(crate) mod outcome;
pub(crate) mod session;
mod traffic;

pub use device::DeviceChoice;
pub use outcome::{GpuOutcome, GpuRun, KernelRun};
pub use traffic::LaneTraffic;

use crate::gpu::{LANES, OnGpu};
use crate::layout::Layout;
use crate::memory::Backing;
use device::Device;
use session::Session;

/// Runs the kernels of `work`, which `source` holds in OpenCL C, on the device that is wanted.
pub(crate) fn run<W: OnGpu>(
    work: &W,
    source: &str,
    layout: &Layout,
    memory: &Backing,
    wanted: &DeviceChoice,
) -> Result<GpuOutcome, String> {
    let (opencl, device) = match device::choose(wanted) {
        Ok(found) => found,
        Err(reason) => return Ok(GpuOutcome::NoDevice(reason)),
    };
    let mut session = Session::new(opencl, &device, source)?;
    work.fill(memory);
    for structure in &layout.structures {
        session.fill(structure.range.start.0, memory.bytes(structure.range))?;
    }
    let mut kernels: Vec<KernelRun> = Vec::new();
    for launch in 0..work.launches() {
        let (name, group) = (work.name(launch), W::WARPS * LANES);
        let seconds = session.launch(name, work.groups(launch) * group, group, &work.arguments(launch))?;
        match kernels.iter_mut().find(|kernel| kernel.name == name) {
            Some(kernel) => {
                (kernel.launches, kernel.seconds) = (kernel.launches + 1, kernel.seconds + seconds)
            }
            None => kernels.push(KernelRun { name, launches: 1, seconds }),
        }
    }
    work.compute(memory);
    let (mut checksum, mut different) = (0, Vec::new());
    for structure in &layout.structures {
        let host = memory.bytes(structure.range);
        let mut content = vec![0; host.len()];
        session.read(structure.range.start.0, &mut content)?;
        checksum = sum(checksum, &content);
        if content != host {
            different.push(layout.sites[structure.site as usize].to_owned());
        }
    }
    let Device { name, platform, .. } = device;
    Ok(GpuOutcome::Ran(GpuRun { device: name, platform, kernels, checksum, different }))
}

/// A sum that depends on the order of the words.
fn sum(before: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(before, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (sum.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}
