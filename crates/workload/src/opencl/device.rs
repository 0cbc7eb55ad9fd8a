//! Which device runs the kernels.

use super::api::{Handle, LIBRARY, OpenCl};
use std::ptr::null_mut;
use std::str::FromStr;

const PLATFORM_NAME: u32 = 0x0902;
const DEVICE_TYPE: u32 = 0x1000;
const DEVICE_NAME: u32 = 0x102B;
const ALL: u64 = 0xFFFF_FFFF;
const GPU: u64 = 1 << 2;

/// Which device of OpenCL is to run a workload's kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The first GPU.
    Gpu,
    /// The first device, of whatever kind.
    Any,
    /// The first whose name or platform contains this text.
    Named(String),
}

impl FromStr for DeviceChoice {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<DeviceChoice, Self::Err> {
        Ok(match text {
            "gpu" => DeviceChoice::Gpu,
            "any" => DeviceChoice::Any,
            name => DeviceChoice::Named(name.to_owned()),
        })
    }
}

/// A device of OpenCL.
#[derive(Clone, Debug)]
pub(super) struct Device {
    pub handle: Handle,
    /// The device's own name and its platform's.
    pub name: String,
    pub platform: String,
    is_gpu: bool,
}

/// The device that is wanted, or why there is none and what to do next.
pub(super) fn choose(wanted: &DeviceChoice) -> Result<(&'static OpenCl, Device), String> {
    let Some(opencl) = OpenCl::find() else {
        return Err(format!(
            "{LIBRARY} was not found; install the OpenCL driver of your GPU's maker, or for a processor ocl-icd-libopencl1 and \
             pocl-opencl-icd"
        ));
    };
    let devices = all(opencl);
    let fits = |device: &&Device| match wanted {
        DeviceChoice::Gpu => device.is_gpu,
        DeviceChoice::Any => true,
        DeviceChoice::Named(text) => device.name.contains(text) || device.platform.contains(text),
    };
    if let Some(device) = devices.iter().find(fits) {
        return Ok((opencl, device.clone()));
    }
    let names: Vec<String> =
        devices.iter().map(|device| format!("{} ({})", device.name, device.platform)).collect();
    Err(match (wanted, names.is_empty()) {
        (_, true) => {
            "OpenCL has no device; install the OpenCL driver of your GPU's maker, or for a processor \
                      pocl-opencl-icd"
                .to_owned()
        }
        (DeviceChoice::Named(text), false) => {
            format!("no device of OpenCL is called \"{text}\"; there are {}", names.join(", "))
        }
        _ => format!("OpenCL has {}; --device any takes the first of these", names.join(", ")),
    })
}

/// All devices, platform by platform.
fn all(opencl: &OpenCl) -> Vec<Device> {
    let platforms = handles(|count, found, room| {
        // SAFETY: `room` has as many places as it says.
        unsafe { (opencl.platforms)(count, room, found) }
    });
    let of_platform = |platform: &Handle| {
        let name = text(|bytes, to, length| {
            // SAFETY: the platform is OpenCL's own, and `to` has as many bytes as it says.
            unsafe { (opencl.platform_info)(*platform, PLATFORM_NAME, bytes, to, length) }
        });
        let found = handles(|count, found, room| {
            // SAFETY: as above.
            unsafe { (opencl.devices)(*platform, ALL, count, room, found) }
        });
        found.into_iter().map(|handle| device(opencl, handle, name.clone())).collect::<Vec<_>>()
    };
    platforms.iter().flat_map(of_platform).collect()
}

fn device(opencl: &OpenCl, handle: Handle, platform: String) -> Device {
    let name = text(|bytes, to, length| {
        // SAFETY: the device is OpenCL's own, and `to` has as many bytes as it says.
        unsafe { (opencl.device_info)(handle, DEVICE_NAME, bytes, to, length) }
    });
    let mut kind = 0u64;
    // SAFETY: the kind of a device is a word of 64 bits.
    unsafe { (opencl.device_info)(handle, DEVICE_TYPE, 8, (&raw mut kind).cast(), null_mut()) };
    Device { handle, name, platform, is_gpu: kind & GPU != 0 }
}

/// All that a function gives which is asked twice: how many, then which.
fn handles(ask: impl Fn(u32, *mut u32, *mut Handle) -> i32) -> Vec<Handle> {
    let mut count = 0;
    if ask(0, &raw mut count, null_mut()) != 0 {
        return Vec::new();
    }
    let mut found = vec![null_mut(); count as usize];
    match count == 0 || ask(count, null_mut(), found.as_mut_ptr()) != 0 {
        true => Vec::new(),
        false => found,
    }
}

/// A text, from a function that is asked for its length first; empty where it gives none.
pub(super) fn text(ask: impl Fn(usize, *mut std::ffi::c_void, *mut usize) -> i32) -> String {
    let mut length = 0;
    if ask(0, null_mut(), &raw mut length) != 0 {
        return String::new();
    }
    let mut bytes = vec![0u8; length];
    if ask(length, bytes.as_mut_ptr().cast(), null_mut()) != 0 {
        return String::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    text.trim_end_matches('\0').trim().to_owned()
}
