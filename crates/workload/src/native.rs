//! Runs a program on real memory and times it.

use crate::WorkloadError;
use crate::any::{AnyProgram, AnyThread, Runs};
use crate::memory::{Backing, Digest, Digested, Memory, Native};
use crate::pages::{NativePages, ResidentPages};
use crate::program::{Kernel, Progress};
use std::sync::Barrier;
use std::time::Instant;

/// What a native run measured.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeRun {
    /// Wall-clock seconds of the run phase, from the moment all threads begin it until the last one is done.
    pub seconds: f64,
    /// Wall-clock seconds before that: the initialisation phase.
    pub setup_seconds: f64,
    /// Accesses of the run phase, all threads.
    pub accesses: u64,
    /// Accesses of the initialisation phase, all threads.
    pub init_accesses: u64,
    /// Sum of all values loaded, so that no load can be optimized away. Meaningful only against another run of the
    /// same workload with one thread.
    pub checksum: u64,
    /// Bytes of memory that were resident at the end.
    pub bytes_touched: u64,
    /// The pages that held them.
    pub pages: ResidentPages,
}

/// Memory of one thread of a native run.
pub(crate) trait OnBacking<'a>: Memory + Send {
    fn on(backing: &'a Backing) -> Self;
    fn native(&self) -> &Native<'a>;
}

impl<'a> OnBacking<'a> for Native<'a> {
    fn on(backing: &'a Backing) -> Native<'a> {
        Native::new(backing)
    }
    fn native(&self) -> &Native<'a> {
        self
    }
}

impl<'a> OnBacking<'a> for Digested<Native<'a>> {
    fn on(backing: &'a Backing) -> Self {
        Digested { inner: Native::new(backing), digest: Digest::default() }
    }
    fn native(&self) -> &Native<'a> {
        &self.inner
    }
}

/// Reserves and fills the memory of `program`; refuses where the machine has too little.
pub(crate) fn prepare(program: &dyn AnyProgram, pages: NativePages) -> Result<Backing, WorkloadError> {
    let layout = program.layout();
    pages.check(&layout.ranges())?;
    let footprint = layout.footprint();
    // Pages of a pool are no longer available to others, and were counted already.
    if pages.pooled().is_none()
        && let Some(available) = available_memory()
        && footprint > available
    {
        return Err(WorkloadError::NotEnoughMemory { workload: program.info().name, footprint, available });
    }
    let backing = Backing::of_pages(layout.window_bytes(), pages, &layout.ranges())?;
    program.prepare(&backing);
    Ok(backing)
}

/// What one thread of a run leaves.
pub(crate) struct Outcome<M> {
    memory: M,
    /// Accesses before the run phase.
    before_run: u64,
    started: Option<Instant>,
    ended: Instant,
}

/// Runs `program` on prepared memory; gives the measurements and the threads' memories.
pub(crate) fn run<'a, M: OnBacking<'a>>(program: &dyn AnyProgram, backing: &'a Backing) -> (NativeRun, Vec<M>)
where
    dyn AnyThread: Runs<M>,
{
    let program = program.copy();
    let threads = program.threads();
    let barrier = Barrier::new(threads as usize);
    let begin = Instant::now();
    let outcomes: Vec<Outcome<M>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|index| {
                let (mut thread, barrier) = (program.thread(index), &barrier);
                scope.spawn(move || thread.run(M::on(backing), barrier))
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().expect("a workload thread panicked")).collect()
    });
    let started = outcomes.iter().filter_map(|o| o.started).min().unwrap_or(begin);
    let ended = outcomes.iter().map(|o| o.ended).max().unwrap_or(begin);
    let init_accesses = outcomes.iter().map(|o| o.before_run).sum();
    let total: u64 = outcomes.iter().map(|o| o.memory.native().accesses).sum();
    let run = NativeRun {
        seconds: (ended - started).as_secs_f64(),
        setup_seconds: (started - begin).as_secs_f64(),
        accesses: total - init_accesses,
        init_accesses,
        checksum: outcomes.iter().fold(0, |sum, o| sum.wrapping_add(o.memory.native().checksum)),
        bytes_touched: backing.resident_bytes(),
        pages: backing.resident_pages(),
    };
    (run, outcomes.into_iter().map(|o| o.memory).collect())
}

/// Runs one thread to its end. The memory is the loop's own, so that its counts can lie in registers.
pub(crate) fn run_thread<'a, M: OnBacking<'a>>(
    thread: &mut impl Kernel,
    mut memory: M,
    barrier: &Barrier,
) -> Outcome<M> {
    let (mut before_run, mut started) = (0, None);
    loop {
        match thread.step(&mut memory) {
            Progress::Working => {}
            Progress::Blocked => std::thread::yield_now(),
            Progress::Barrier => _ = barrier.wait(),
            Progress::Run => {
                before_run = memory.native().accesses;
                barrier.wait();
                started = Some(Instant::now());
            }
            Progress::Done => return Outcome { memory, before_run, started, ended: Instant::now() },
        }
    }
}

/// Memory that can be used without swapping, as the kernel estimates it.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}
