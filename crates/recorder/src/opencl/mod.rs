//! Records OpenCL programs without a GPU: they run on Oclgrind, an OpenCL device in software.
//!
//! | file | what |
//! |---|---|
//! | `plugin.rs` | the plugin of Oclgrind, compiled on first use |
//! | `wire.rs` | what the plugin sends |
//! | `flow.rs`, `warps.rs` | warps from single work-items |
//! | `collect.rs` | batches of two streams: the host and the GPU |
//! | `deed.rs` | what the host does between kernels |
//! | `queues.rs` | kernels that run while the host goes on |

mod collect;
mod deed;
mod flow;
mod plugin;
mod queues;
mod warps;
mod wire;

use crate::recording::{Source, Stopper};
use crate::{RecordError, RecordOptions, launch};
use collect::Collector;
use std::fs::File;
use std::io::BufReader;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use terrace_trace::{Batch, SourceError};
use wire::Wire;

/// Starts what its arguments say with the file that is called like this script in front of all libraries.
const PRELOADED: &str = "LD_PRELOAD=\"$0:$LD_PRELOAD\" exec \"$@\"";

/// Bytes of the file that the program's processes share (`process.h`), and where one says that its kernels are left out.
const SHARED: u64 = 8;
const LEFT_OUT: u64 = 4;

/// What is needed besides the program.
#[derive(Debug)]
pub struct Device {
    plugin: plugin::Plugin,
}

/// Finds Oclgrind and its plugin, and checks that no option is set that means nothing for a GPU.
///
/// # Errors
/// Something is missing: the message names the packages.
pub fn prepare(options: &RecordOptions) -> Result<Device, RecordError> {
    let defaults = RecordOptions::default();
    let unfit = [
        (options.skip != 0, "--skip"),
        (options.every.is_some(), "--every"),
        (options.region, "--region"),
        (options.program_counters, "--program-counters"),
        (options.allocations, "--allocations"),
        (options.dependences != defaults.dependences, "--no-dependences"),
        (options.follow_exec != defaults.follow_exec, "--no-follow-exec"),
    ];
    if let Some((_, option)) = unfit.iter().find(|(set, _)| *set) {
        return Err(RecordError::NotForGpu { option });
    }
    Ok(Device { plugin: plugin::compiled(&plugin::version()?)? })
}

/// An OpenCL program being recorded.
pub struct Recording {
    wire: Wire<BufReader<UnixStream>>,
    /// Closed to end the recording from elsewhere.
    stop: Arc<Stop>,
    /// What the program's processes share.
    shared: File,
    collector: Collector,
    child: Child,
    status: Option<ExitStatus>,
    program: String,
    warnings: Vec<String>,
    end_at_limit: bool,
    ended: bool,
}

/// Ends a recording.
#[derive(Debug)]
struct Stop {
    socket: UnixStream,
    stopped: AtomicBool,
}

impl Stop {
    /// Stops reading; the program runs on unrecorded.
    fn stop(&self) {
        self.stopped.store(true, SeqCst);
        // Fails where the program has ended, which is as good.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}

/// Starts a program on Oclgrind.
///
/// # Errors
/// The system refuses what is needed.
pub fn start(
    program: &launch::Program,
    device: &Device,
    options: &RecordOptions,
    name: &str,
) -> Result<Recording, RecordError> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error| RecordError::Io { what, error }
    };
    let (ours, theirs) = UnixStream::pair().map_err(failed("cannot make a socket"))?;
    let shared = tempfile::tempfile().map_err(failed("cannot make a file"))?;
    shared.set_len(SHARED).map_err(failed("cannot write to a file"))?;
    let inherited = [theirs.as_raw_fd(), shared.as_raw_fd()];
    let mut command = Command::new(plugin::OCLGRIND);
    command.arg("--plugins").arg(&device.plugin.path);
    // The plugin sees the program's calls where the program is linked with it before Oclgrind, which puts itself first.
    if plugin::can_be_preloaded(&device.plugin.path) {
        command.args(["/bin/sh", "-c", PRELOADED]).arg(&device.plugin.path);
    }
    command.arg(&program.executable).args(&program.arguments[1..]);
    for (variable, number) in ["TERRACE_OPENCL_CHANNEL", "TERRACE_OPENCL_SHARED"].iter().zip(inherited) {
        command.env(variable, number.to_string());
        // SAFETY: only a flag of a descriptor that stays open is changed between fork and exec.
        unsafe {
            command.pre_exec(move || match libc::fcntl(number, libc::F_SETFD, 0) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
    }
    let child = command.spawn().map_err(failed("cannot start oclgrind"))?;
    drop(theirs);
    let socket = ours.try_clone().map_err(failed("cannot share a socket"))?;
    Ok(Recording {
        wire: Wire::new(BufReader::with_capacity(1 << 18, ours)),
        stop: Arc::new(Stop { socket, stopped: AtomicBool::new(false) }),
        shared,
        collector: Collector::new(name, options.limit),
        child,
        status: None,
        program: name.to_owned(),
        warnings: Vec::new(),
        end_at_limit: options.end_at_limit,
        ended: false,
    })
}

/// What is to be said of mistakes that Oclgrind reported, and of accesses outside of buffers.
fn mistakes(problems: u64, outside: u64) -> Option<String> {
    let reported =
        format!("Oclgrind reported {problems} mistakes of its kernels, each with kernel and line above");
    let left_out = format!("{outside} accesses outside of buffers are left out");
    match (problems, outside) {
        (0, 0) => None,
        (_, 0) => Some(reported),
        (0, _) => Some(left_out),
        _ => Some(format!("{reported}; {left_out}")),
    }
}

impl Recording {
    fn end(&mut self) -> Result<(), SourceError> {
        self.ended = true;
        self.stop.stop();
        if self.collector.is_full() && self.end_at_limit {
            // Errors mean that it has just ended by itself.
            let _ = self.child.kill();
        }
        self.look_after_the_program()?;
        let Collector { kernels, outside, problems, .. } = self.collector;
        if kernels == 0 {
            self.warnings.push(format!(
                "{}: started no OpenCL kernel: it has none, or Oclgrind rejected them, which its own messages then say; without \
                 --gpu its own accesses are recorded",
                self.program
            ));
        }
        if let Some(mistakes) = mistakes(problems, outside) {
            self.warnings.push(format!("{}: {mistakes}", self.program));
        }
        let mut other = [0; (SHARED - LEFT_OUT) as usize];
        if self.shared.read_exact_at(&mut other, LEFT_OUT).is_ok() && other != [0; 4] {
            self.warnings.push(format!(
                "{}: kernels of another of its processes are left out: one process is recorded at a time, and none that was \
                 forked without executing a program",
                self.program
            ));
        }
        self.collector.end();
        Ok(())
    }
}

impl Recording {
    fn look_after_the_program(&mut self) -> Result<(), SourceError> {
        let error = |error| SourceError::Io { what: self.program.clone(), error };
        if self.status.is_none() {
            self.status = self.child.try_wait().map_err(error)?;
        }
        Ok(())
    }
}

impl Source for Recording {
    fn next_batch(&mut self) -> Result<Option<Arc<Batch>>, SourceError> {
        loop {
            if let Some(batch) = self.collector.take() {
                return Ok(Some(batch));
            }
            if self.ended {
                // The socket is closed before the program has ended.
                self.look_after_the_program()?;
                return Ok(None);
            }
            let message = match self.collector.is_full() {
                true => None,
                false => self.wire.next().or_else(|error| match self.stop.stopped.load(SeqCst) {
                    true => Ok(None),
                    false => Err(SourceError::Io { what: self.program.clone(), error }),
                })?,
            };
            match message {
                Some(message) => self.collector.receive(message),
                None => self.end()?,
            }
        }
    }

    fn stop(&self) {
        self.stop.stop();
    }

    fn stopper(&self) -> Stopper {
        let stop = Arc::clone(&self.stop);
        Stopper::new(move || stop.stop())
    }

    fn wait(mut self: Box<Self>) -> std::io::Result<ExitStatus> {
        self.stop.stop();
        match self.status {
            Some(status) => Ok(status),
            None => self.child.wait(),
        }
    }

    fn id(&self) -> u32 {
        self.child.id()
    }

    fn status(&self) -> Option<ExitStatus> {
        self.status
    }

    fn accesses(&self) -> u64 {
        self.collector.accesses
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn is_gpu(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_happened_is_said_of_mistakes() {
        assert_eq!(mistakes(0, 0), None);
        assert_eq!(mistakes(0, 7).unwrap(), "7 accesses outside of buffers are left out");
        let reported = "Oclgrind reported 3 mistakes of its kernels, each with kernel and line above";
        assert_eq!(mistakes(3, 0).unwrap(), reported);
        let both = format!("{reported}; 7 accesses outside of buffers are left out");
        assert_eq!(mistakes(3, 7), Some(both));
    }
}
