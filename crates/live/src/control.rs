//! The loop around the engine: it sleeps between turns, and signals stop, pause and resume it.

use crate::engine::{Engine, LoopControl};
use crate::facts::text;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// What people and other processes want of a running engine.
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// Stop managing; the targets run on.
    pub stop: Arc<AtomicBool>,
    /// Decide and move nothing until resumed.
    pub pause: Arc<AtomicBool>,
}

impl Control {
    /// Steered by signals: SIGINT, SIGTERM and SIGHUP stop, SIGUSR1 pauses, SIGUSR2 resumes.
    ///
    /// # Errors
    /// A signal cannot be taken over.
    pub fn from_signals() -> io::Result<Control> {
        let control = Control::default();
        stop_at_signals(&control.stop)?;
        let (pause, resume) = (control.pause.clone(), control.pause.clone());
        // SAFETY: storing into an atomic is all that the handlers do, which is allowed at any time.
        unsafe {
            signal_hook::low_level::register(SIGUSR1, move || pause.store(true, Ordering::Relaxed))?;
            signal_hook::low_level::register(SIGUSR2, move || resume.store(false, Ordering::Relaxed))?;
        }
        Ok(control)
    }
}

/// Sets `stop` where someone, or a terminal that has gone, asks for the end.
///
/// # Errors
/// A signal cannot be taken over.
pub fn stop_at_signals(stop: &Arc<AtomicBool>) -> io::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // `nohup` has it ignored: the end of the terminal is to be no end of the program.
        if signal != SIGHUP || !is_ignored(signal) {
            signal_hook::flag::register(signal, stop.clone())?;
        }
    }
    Ok(())
}

/// Whether this process ignores a signal.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = text::field(&status, "SigIgn").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    ignored.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// A process that this one had started, or had inherited, has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub pid: u32,
    /// The process's exit code. A signal that ended the process gives 128 plus the signal's number, as in shells.
    pub code: u8,
}

/// How a run with a command has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// The command's exit code; none where nobody could wait for it.
    pub code: Option<u8>,
    /// Processes of the command go on.
    pub runs_on: bool,
}

/// Between two looks whether a command that runs on is to end.
const LOOK: Duration = Duration::from_millis(100);

/// Starts a thread that waits for child processes to end and reports each of them, until no child is left.
pub fn wait_for_children() -> Receiver<Ended> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        loop {
            let mut status = 0;
            // SAFETY: `status` is an integer that the call fills.
            let pid = unsafe { libc::waitpid(-1, &mut status, 0) };
            if pid < 0 {
                match std::io::Error::last_os_error().raw_os_error() {
                    Some(libc::EINTR) => continue,
                    _ => return,
                }
            }
            let code = if libc::WIFSIGNALED(status) {
                128 + libc::WTERMSIG(status)
            } else {
                libc::WEXITSTATUS(status)
            };
            if sender.send(Ended { pid: pid as u32, code: code as u8 }).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Runs the engine until it is stopped or its targets have ended; `command` is the process whose exit code counts.
/// `each_turn` sees the engine after every turn.
///
/// A command outlives the management that was stopped, and is waited for. A second request to stop asks the command itself
/// to end (SIGTERM); where only what it has left behind goes on, that is no longer waited for.
pub fn run(
    engine: &mut Engine,
    control: &Control,
    children: Option<&Receiver<Ended>>,
    command: Option<u32>,
    mut each_turn: impl FnMut(&Engine),
) -> Finished {
    let mut code = None;
    while !control.stop.load(Ordering::Relaxed) {
        engine.pause(control.pause.load(Ordering::Relaxed));
        let turn = engine.turn();
        each_turn(engine);
        let rest = match turn {
            LoopControl::Sleep(rest) => rest,
            LoopControl::Exit => break,
        };
        let Some(children) = children else {
            std::thread::sleep(rest);
            continue;
        };
        match children.recv_timeout(rest) {
            Ok(ended) => {
                if Some(ended.pid) == command {
                    code = Some(ended.code);
                }
                engine.look_for_changes();
            }
            Err(RecvTimeoutError::Timeout) => {}
            // All have ended.
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let (Some(children), Some(pid)) = (children, command) else { return Finished::default() };
    engine.finish();
    each_turn(engine);
    control.stop.store(false, Ordering::Relaxed);
    let mut is_asked = false;
    loop {
        match children.recv_timeout(LOOK) {
            Ok(ended) => {
                if ended.pid == pid {
                    code = Some(ended.code);
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Finished { code, runs_on: false },
            Err(RecvTimeoutError::Timeout) => {
                let asked = control.stop.swap(false, Ordering::Relaxed);
                is_asked |= asked;
                if is_asked && code.is_some() {
                    return Finished { code, runs_on: true };
                }
                if asked {
                    // SAFETY: plain numbers. The process is our child, and its end has not been reported.
                    unsafe { libc::kill(pid as i32, libc::SIGTERM) };
                }
            }
        }
    }
}
