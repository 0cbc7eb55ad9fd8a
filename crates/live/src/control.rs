//! The loop around the engine: it sleeps between turns, and signals stop, pause and resume it.

use crate::engine::{Engine, LoopControl};
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

/// A process that this one had started, or had inherited, has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub pid: u32,
    /// The process's exit code. A signal that ended the process gives 128 plus the signal's number, as in shells.
    pub code: u8,
}

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
pub fn run(
    engine: &mut Engine,
    control: &Control,
    children: Option<&Receiver<Ended>>,
    command: Option<u32>,
    mut each_turn: impl FnMut(&Engine),
) -> Option<u8> {
    let mut code = None;
    let mut take = |ended: Ended| {
        if Some(ended.pid) == command {
            code = Some(ended.code);
        }
    };
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
                take(ended);
                engine.look_for_changes();
            }
            Err(RecvTimeoutError::Timeout) => {}
            // All have ended.
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // A command outlives the management that was stopped.
    if let (Some(children), Some(_)) = (children, command) {
        engine.finish();
        each_turn(engine);
        while let Ok(ended) = children.recv_timeout(Duration::MAX) {
            take(ended);
        }
    }
    code
}
