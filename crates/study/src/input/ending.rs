//! How a recorded program ends, and the recording as a source.

use crate::{Progress, Stop};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use terrace_recorder::Recording;
use terrace_trace::{Batch, EventSource, Header, SourceError};

/// The recorded program after its events are over; nothing for other inputs. It is waited for also where nobody asks
/// how it ended, because the study failed: a job in the foreground stays there.
#[derive(Default)]
pub struct Ending {
    left: Arc<Left>,
    /// Warnings that were passed on when it began.
    warned: usize,
}

impl Ending {
    /// That of a recording which `stop` ends, before there is one.
    pub(super) fn new(stop: Stop, ends_at_limit: bool) -> Ending {
        let left = Left { recording: Mutex::default(), stop, ends_at_limit };
        Ending { left: Arc::new(left), warned: 0 }
    }

    /// The recording as a source, which leaves the program to this ending. The recorder's warnings were passed on.
    pub(super) fn live(&mut self, recording: Recording) -> Live {
        self.warned = recording.warnings().len();
        Live { header: recording.header().clone(), recording: Some(recording), left: Arc::clone(&self.left) }
    }
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

/// A recording as a source. At its end, or when nobody reads on, it leaves the program to [`Ending`].
pub(super) struct Live {
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
