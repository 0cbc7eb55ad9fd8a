//! A study on a thread of its own, while the calling thread handles Python's signals and shows how far the study is.

use crate::errors;
use crossbeam_channel::{RecvTimeoutError, bounded};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use terrace_study::{Error, Progress, Stop, Task};

/// How often signals are looked for and progress is shown.
const TICK: Duration = Duration::from_millis(100);

/// An input that is being read, for Python: number, name, accesses, share of the whole where that is known, whether it is
/// over.
type Shown = (usize, String, u64, Option<f64>, bool);

/// Collects what a study says until the calling thread passes it on.
#[derive(Default)]
struct Door {
    stop: Stop,
    tasks: Arc<Mutex<Vec<Shown>>>,
    notes: Mutex<Vec<String>>,
}

impl Door {
    /// Passes on to `show` what was said since the last time, as `show(notes, tasks)`.
    fn tell(&self, py: Python<'_>, show: Option<&Py<PyAny>>) -> PyResult<()> {
        let Some(show) = show else { return Ok(()) };
        let notes = std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner));
        let tasks = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            let shown = tasks.clone();
            // One that is over is told of once.
            tasks.retain(|task| !task.4);
            shown
        };
        if !notes.is_empty() || !tasks.is_empty() {
            show.call1(py, (notes, tasks))?;
        }
        Ok(())
    }
}

impl Progress for Door {
    fn begin(&self, name: &str) -> Box<dyn Task> {
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.push((number, name.to_owned(), 0, None, false));
        Box::new(Reading { number, accesses: 0, reported: Instant::now(), tasks: Arc::clone(&self.tasks) })
    }

    fn note(&self, message: &str) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(message.to_owned());
    }

    fn stop(&self) -> Stop {
        self.stop.clone()
    }
}

struct Reading {
    number: usize,
    accesses: u64,
    reported: Instant,
    tasks: Arc<Mutex<Vec<Shown>>>,
}

impl Reading {
    fn change(&self, change: impl FnOnce(&mut Shown)) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = tasks.iter_mut().find(|task| task.0 == self.number) {
            change(task);
        }
    }
}

impl Task for Reading {
    fn advance(&mut self, accesses: u64, share: &dyn Fn() -> Option<f64>) {
        self.accesses += accesses;
        if self.reported.elapsed() >= TICK {
            self.reported = Instant::now();
            let share = share();
            self.change(|task| (task.2, task.3) = (self.accesses, share));
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.change(|task| (task.2, task.4) = (self.accesses, true));
    }
}

/// Carries out `study` without the interpreter's lock. `show(notes, tasks)` is called about ten times a second. Ctrl-C asks
/// the study to stop and raises `KeyboardInterrupt` when it has; so does any exception of `show` or of a signal handler.
pub fn carry_out<T: Send>(
    py: Python<'_>,
    show: Option<&Py<PyAny>>,
    study: impl FnOnce(&dyn Progress) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let door = Door::default();
    let (outcome, interruption) = std::thread::scope(|scope| {
        let (done, finished) = bounded::<()>(0);
        let worker = scope.spawn(|| {
            let _done = done; // Dropped at the end, also where the study panics.
            study(&door)
        });
        let mut interruption: Option<PyErr> = None;
        loop {
            let waited = py.detach(|| finished.recv_timeout(TICK));
            let reported = py.check_signals().and_then(|()| door.tell(py, show));
            if let Err(error) = reported {
                door.stop.request();
                interruption.get_or_insert(error);
            }
            if waited != Err(RecvTimeoutError::Timeout) {
                break (worker.join(), interruption);
            }
        }
    });
    if let Some(error) = interruption {
        return Err(error);
    }
    match outcome {
        Ok(result) => result.map_err(|error| errors::exception(&error)),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
