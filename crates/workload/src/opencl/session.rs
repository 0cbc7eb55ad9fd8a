//! A device at work: a program built for it, buffers, launches.

use super::api::{Handle, OpenCl};
use super::device::{Device, text};
use std::ffi::CString;
use std::ptr::{null, null_mut};

const PROFILING: u64 = 1 << 1;
const READ_WRITE: u64 = 1;
const BLOCKING: u32 = 1;
const BUILD_LOG: u32 = 0x1183;
const BEGAN: u32 = 0x1282;
const ENDED: u32 = 0x1283;

/// What a kernel is called with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    /// The data structure at this address of the layout.
    Array(u64),
    /// A number of 64 bits.
    Number(u64),
}

/// Something of OpenCL that is given back.
struct Owned {
    handle: Handle,
    release: unsafe extern "C" fn(Handle) -> i32,
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it was created by OpenCL and is released once.
        unsafe { (self.release)(self.handle) };
    }
}

/// What was created, or what could not be.
fn created(
    what: &str,
    release: unsafe extern "C" fn(Handle) -> i32,
    create: impl FnOnce(*mut i32) -> Handle,
) -> Result<Owned, String> {
    let mut status = 0;
    let handle = create(&raw mut status);
    check(what, status)?;
    Ok(Owned { handle, release })
}

fn check(what: &str, status: i32) -> Result<(), String> {
    match status {
        0 => Ok(()),
        _ => Err(format!("{what}: OpenCL error {status}")),
    }
}

/// A queue of a device, a program and its buffers. Fields are released from the first to the last.
pub(super) struct Session {
    opencl: &'static OpenCl,
    /// By the address of the data structure.
    buffers: Vec<(u64, Owned)>,
    program: Owned,
    queue: Owned,
    context: Owned,
}

impl Session {
    /// Builds `source` for a device.
    pub fn new(opencl: &'static OpenCl, device: &Device, source: &str) -> Result<Session, String> {
        let own = &raw const device.handle;
        // SAFETY: here and below handles are OpenCL's own, and pointers lead to what lives through the call.
        let context = created("a context", opencl.release_context, |status| unsafe {
            (opencl.create_context)(null(), 1, own, null(), null_mut(), status)
        })?;
        // SAFETY: as above.
        let queue = created("a queue", opencl.release_queue, |status| unsafe {
            (opencl.create_queue)(context.handle, device.handle, PROFILING, status)
        })?;
        let (begin, length) = (source.as_ptr().cast(), source.len());
        // SAFETY: as above; the source is one text of this length.
        let program = created("a program", opencl.release_program, |status| unsafe {
            (opencl.create_program)(context.handle, 1, &raw const begin, &raw const length, status)
        })?;
        // SAFETY: as above.
        let built =
            unsafe { (opencl.build_program)(program.handle, 1, own, c"".as_ptr(), null(), null_mut()) };
        if built != 0 {
            let log = text(|bytes, to, length| {
                // SAFETY: as above; `to` has as many bytes as it says.
                unsafe { (opencl.build_info)(program.handle, device.handle, BUILD_LOG, bytes, to, length) }
            });
            return Err(format!("the device's compiler rejects the kernels (OpenCL error {built}): {log}"));
        }
        Ok(Session { opencl, buffers: Vec::new(), program, queue, context })
    }

    /// A buffer with this content, for the data structure at `address`.
    pub fn fill(&mut self, address: u64, content: &[u8]) -> Result<(), String> {
        let what = format!("a buffer of {} bytes", content.len());
        // SAFETY: nothing is taken from the host when it is created.
        let buffer = created(&what, self.opencl.release_buffer, |status| unsafe {
            (self.opencl.create_buffer)(self.context.handle, READ_WRITE, content.len(), null_mut(), status)
        })?;
        let (queue, from) = (self.queue.handle, content.as_ptr().cast());
        // SAFETY: the buffer is as long as the content, which is copied before the call returns.
        check(&what, unsafe {
            let write = self.opencl.write_buffer;
            write(queue, buffer.handle, BLOCKING, 0, content.len(), from, 0, null(), null_mut())
        })?;
        self.buffers.push((address, buffer));
        Ok(())
    }

    /// Runs a kernel; gives the seconds that it took by the device's clock.
    pub fn launch(&self, name: &str, items: u64, group: u64, arguments: &[Argument]) -> Result<f64, String> {
        let OpenCl { create_kernel, release_kernel, set_argument, .. } = *self.opencl;
        let text = CString::new(name).map_err(|error| error.to_string())?;
        // SAFETY: the program has been built, and the name ends with a zero.
        let kernel = created(name, release_kernel, |status| unsafe {
            create_kernel(self.program.handle, text.as_ptr(), status)
        })?;
        for (at, argument) in arguments.iter().enumerate() {
            let word = match argument {
                Argument::Array(address) => self.buffer(*address)?.handle as u64,
                Argument::Number(number) => *number,
            };
            let what = format!("{name}: argument {at}");
            // SAFETY: handles and numbers are words of 64 bits, and the call copies them.
            check(&what, unsafe { set_argument(kernel.handle, at as u32, 8, (&raw const word).cast()) })?;
        }
        let mut event = null_mut();
        let (items, group) = (items as usize, group as usize);
        // SAFETY: one dimension has one size each, and an event is asked for.
        check(name, unsafe {
            let launch = self.opencl.launch;
            let (items, group) = (&raw const items, &raw const group);
            launch(self.queue.handle, kernel.handle, 1, null(), items, group, 0, null(), &raw mut event)
        })?;
        let event = Owned { handle: event, release: self.opencl.release_event };
        // SAFETY: the queue is open.
        check(name, unsafe { (self.opencl.finish)(self.queue.handle) })?;
        let time = |which: u32| {
            let mut nanoseconds = 0u64;
            // SAFETY: the kernel has ended, and a time is a word of 64 bits.
            let status = unsafe {
                (self.opencl.event_time)(event.handle, which, 8, (&raw mut nanoseconds).cast(), null_mut())
            };
            check("the time of a kernel", status).map(|()| nanoseconds)
        };
        Ok(time(ENDED)?.saturating_sub(time(BEGAN)?) as f64 * 1e-9)
    }

    /// What the buffer of the data structure at `address` holds, which has as many bytes as `content`.
    pub fn read(&self, address: u64, content: &mut [u8]) -> Result<(), String> {
        let (buffer, bytes) = (self.buffer(address)?.handle, content.len());
        // SAFETY: the buffer has as many bytes, and they are copied before the call returns.
        check("reading a buffer", unsafe {
            let read = self.opencl.read_buffer;
            let to = content.as_mut_ptr().cast();
            read(self.queue.handle, buffer, BLOCKING, 0, bytes, to, 0, null(), null_mut())
        })
    }

    fn buffer(&self, address: u64) -> Result<&Owned, String> {
        let found = self.buffers.iter().find(|(start, _)| *start == address);
        Ok(&found.ok_or_else(|| format!("no data structure begins at {address:#x}"))?.1)
    }
}
