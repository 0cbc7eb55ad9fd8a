//! Processes that end while accesses to their memory begin to be watched.

use super::*;
use std::path::Path;

const THREADS: &str = "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";

/// Moves nothing.
struct Watches;

impl Policy for Watches {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn on(&mut self, _: Moment, _: &[Signal], _: &mut dyn MemorySystem) -> NextTick {
        NextTick::Never
    }
}

/// DAMON, whose first look fails: since a process has ended right before, or else for no such reason.
struct Hasty {
    kernel: Simulated,
    first: bool,
    ends: Option<u32>,
    damon: Damon,
}

impl AccessSource for Hasty {
    fn name(&self) -> String {
        self.damon.name()
    }

    fn collect(&mut self, world: &mut World) -> std::io::Result<Duration> {
        let first = std::mem::replace(&mut self.first, false);
        if first && self.ends.is_none() {
            return Err(std::io::Error::from_raw_os_error(libc::EINVAL));
        }
        if let Some(pid) = self.ends.take() {
            self.kernel.machine().end(pid);
            // The refusal leaves DAMON to others.
            let refused = self.damon.collect(world).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
            assert_eq!(self.kernel.machine().files.get(Path::new(THREADS)).unwrap(), "0\n");
            return Err(refused);
        }
        self.damon.collect(world)
    }

    fn stop(&mut self, world: &mut World) {
        self.damon.stop(world);
    }
}

/// What an engine logs as a warning in which a source of accesses fails at its first look, and whether it still has the
/// source after a second. With `ends` one of two processes ends before that look, as does the other where `all` do.
fn warnings(ends: bool, all: bool) -> (String, bool) {
    let (kernel, world, ..) = halves([1000, 1000], 8, &[]);
    let (first, second) = {
        let mut machine = kernel.machine();
        let second = machine.start(1);
        let start = machine.map(second, 10);
        machine.fill(second, start..start + 10, PageSize::Base, 0);
        (*machine.processes.keys().next().unwrap(), second)
    };
    let folder = tempfile::tempdir().unwrap();
    let shared: Arc<dyn Kernel> = Arc::new(kernel.clone());
    let journal = Arc::new(Mutex::new(Journal::new(shared.clone(), folder.path())));
    let damon = Damon::new(shared, journal.clone(), damon::Options::default()).unwrap();
    let source = Hasty { kernel: kernel.clone(), first: true, ends: ends.then_some(second), damon };
    let targets = Targets::new(Selection::Processes(vec![first, second]), std::process::id());
    let limits = Limits { cpu: f64::INFINITY, ..Limits::default() };
    let mut engine =
        Engine::new(world, Box::new(Watches), targets, Some(Box::new(source)), limits, "/none".into());
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .finish();
    let sees = tracing::subscriber::with_default(subscriber, || {
        let end = kernel.now() + Duration::from_secs(1);
        while kernel.now() < end {
            if all {
                kernel.machine().end(first);
            }
            match engine.turn() {
                LoopControl::Sleep(rest) => kernel.pass(rest.max(Duration::from_millis(1))),
                LoopControl::Exit => break,
            }
        }
        let sees = engine.sees_accesses();
        engine.finish();
        journal.lock().unwrap().undo();
        sees
    });
    assert_eq!(kernel.machine().files.get(Path::new(THREADS)).unwrap().trim(), "0");
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    (text, sees)
}

#[test]
fn a_process_that_ends_while_damon_is_set_up_is_no_failure() {
    assert_eq!(warnings(true, false), (String::new(), true), "the other process is watched on");
    assert_eq!(warnings(true, true), (String::new(), true), "all end");
}

#[test]
fn a_source_that_fails_for_another_reason_is_given_up_with_a_warning() {
    let (said, sees) = warnings(false, false);
    assert!(said.contains("the access source has failed and is given up") && !sees, "{said}");
}
