//! A pool of huge pages that are zeroed before somebody wants them.
//!
//! The first touch of a huge page waits until the kernel has zeroed it. A pool is memory of the program's in blocks of 2
//! MiB, of which a thread keeps some ready: brought in, and zeros throughout. When and how many, Trident decides, by the
//! daemon of its section 5.1.2 and in the source that the simulator runs (`crates/policy`): to the policy, the pool's
//! blocks are frames of a memory that it may look at (`PoolFrames`). What is given back returns to the kernel, and is
//! zeroed anew.

mod frames;

use crate::{HUGE, system};
use frames::PoolFrames;
use std::ffi::c_int;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use terrace_model::Time;
use terrace_policy::policies::trident::{Parameters, Sizes, Trident};
use terrace_policy::support::Compaction;
use terrace_policy::{MemorySystem, Moment, NextTick, Policy, Published, Setup, Signal};

/// Time between two wakes of the zeroing daemon. The paper leaves it open, the policy has 1 s for all of a machine; ours.
const PERIOD: Time = Time::from_nanos(10_000_000);
/// Blocks that it zeroes per wake: 16, at most 3.2 GiB per second, which is what one core zeroes (Trident §5.1.2: 2.4 to
/// 2.6).
const PER_WAKE: u64 = 16;
/// `MADV_POPULATE_WRITE` (Linux 5.14).
const POPULATE: c_int = 23;

/// What a block of 2 MiB holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    /// Nothing: no memory is behind it.
    Free,
    /// The block's memory is being brought in.
    Busy,
    /// Memory that is zeros throughout.
    Zeroed,
    /// Somebody has it.
    Used,
}

#[derive(Debug)]
struct Blocks {
    start: usize,
    states: Mutex<Vec<Block>>,
    stop: Mutex<bool>,
    stopped: Condvar,
}

/// Why nothing was taken or given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// There are no so many blocks in a row.
    Full,
    /// That is not what somebody has.
    NotTaken,
}

/// The pool. Its memory goes when it ends.
#[derive(Debug)]
pub struct Pool {
    blocks: Arc<Blocks>,
    thread: Option<JoinHandle<()>>,
    /// The process that the thread belongs to: a forked child has none, whatever `thread` says.
    process: u32,
}

/// What a thread that panics leaves is in order: each change is one store.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Blocks {
    fn address(&self, block: usize) -> usize {
        self.start + block * HUGE
    }

    /// Brings a free block in. False: it is not free any more, or there is no memory.
    fn zero(&self, block: usize) -> Option<bool> {
        {
            let mut states = locked(&self.states);
            let state = states.get_mut(block).filter(|state| **state == Block::Free)?;
            *state = Block::Busy;
        }
        // The lock is not held while the kernel zeroes; a busy block is nobody's but ours.
        // SAFETY: A block of the pool, which lives as long as this value.
        let done = unsafe { libc::syscall(libc::SYS_madvise, self.address(block), HUGE, POPULATE) } == 0;
        locked(&self.states)[block] = if done { Block::Zeroed } else { Block::Free };
        Some(done)
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        let bytes = locked(&self.states).len() * HUGE;
        // SAFETY: It was mapped by `Pool::new`, and whoever had some of it promised to be done.
        unsafe { system::unmap(self.start as *mut u8, bytes) };
    }
}

impl Pool {
    /// A pool of so many bytes, of which `ahead` are kept ready where that many are free. Memory is taken as it is zeroed or
    /// touched.
    ///
    /// # Errors
    /// The kernel's error number.
    pub fn new(bytes: usize, ahead: usize) -> Result<Pool, c_int> {
        let memory = crate::memory::Memory::new(bytes.max(HUGE), crate::memory::Pages::Huge)?;
        let (start, bytes, _) = memory.into_parts();
        let count = bytes / HUGE;
        let blocks = Arc::new(Blocks {
            start: start as usize,
            states: Mutex::new(vec![Block::Free; count]),
            stop: Mutex::new(false),
            stopped: Condvar::new(),
        });
        let ahead = ahead.div_ceil(HUGE).min(count) as u64;
        let mut pool = Pool { blocks, thread: None, process: std::process::id() };
        if ahead > 0 {
            let blocks = Arc::clone(&pool.blocks);
            let named = std::thread::Builder::new().name("terrace-zeroing".to_owned());
            let thread = named.spawn(move || serve(&blocks, ahead));
            pool.thread = Some(thread.map_err(|error| error.raw_os_error().unwrap_or(libc::EAGAIN))?);
        }
        Ok(pool)
    }

    /// So many bytes of zeros, rounded up to blocks: those in a row of which most are zeroed already.
    ///
    /// # Errors
    /// There are no so many in a row.
    pub fn take(&self, bytes: usize) -> Result<*mut u8, Problem> {
        let count = bytes.div_ceil(HUGE).max(1);
        loop {
            let mut states = locked(&self.blocks.states);
            let run = |wanted: &[Block]| {
                let runs = states.windows(count).enumerate();
                let runs = runs.filter(|(_, run)| run.iter().all(|state| wanted.contains(state)));
                let zeroed = |run: &[Block]| run.iter().filter(|state| **state == Block::Zeroed).count();
                runs.max_by_key(|(first, run)| (zeroed(run), std::cmp::Reverse(*first)))
                    .map(|(first, _)| first)
            };
            if let Some(first) = run(&[Block::Free, Block::Zeroed]) {
                states[first..first + count].fill(Block::Used);
                return Ok(self.blocks.address(first) as *mut u8);
            }
            // One that is being brought in is free in a moment, unless nobody is there any more who does it.
            run(&[Block::Free, Block::Zeroed, Block::Busy])
                .filter(|_| self.has_thread())
                .ok_or(Problem::Full)?;
            drop(states);
            std::thread::yield_now();
        }
    }

    /// Gives back what was taken, or whole blocks of it.
    ///
    /// # Errors
    /// Nobody has it.
    ///
    /// # Safety
    /// Nobody uses it any more.
    pub unsafe fn give(&self, start: *mut u8, bytes: usize) -> Result<(), Problem> {
        let count = bytes.div_ceil(HUGE).max(1);
        let offset = (start as usize).checked_sub(self.blocks.start).ok_or(Problem::NotTaken)?;
        let first = offset / HUGE;
        let mut states = locked(&self.blocks.states);
        let end = first.checked_add(count).ok_or(Problem::NotTaken)?;
        let given =
            states.get_mut(first..end).filter(|_| offset.is_multiple_of(HUGE)).ok_or(Problem::NotTaken)?;
        if given.iter().any(|state| *state != Block::Used) {
            return Err(Problem::NotTaken);
        }
        // SAFETY: Blocks of the pool that nobody uses; they read as zeros from now on.
        unsafe { libc::madvise(start.cast(), count * HUGE, libc::MADV_DONTNEED) };
        given.fill(Block::Free);
        Ok(())
    }

    fn has_thread(&self) -> bool {
        self.thread.is_some() && self.process == std::process::id()
    }

    /// Bytes that are ready.
    pub fn ready(&self) -> usize {
        locked(&self.blocks.states).iter().filter(|state| **state == Block::Zeroed).count() * HUGE
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.has_thread() {
            // The thread is not waited for: what the thread of a parent held at the fork is held for ever.
            self.thread.take().into_iter().for_each(std::mem::forget);
            return;
        }
        *locked(&self.blocks.stop) = true;
        self.blocks.stopped.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Trident with its zeroing daemon alone.
fn policy(frames: &PoolFrames, ahead: u64) -> Option<Trident> {
    let parameters = Parameters {
        sizes: Sizes::HugeOnly,
        promote: false,
        recover: false,
        compaction: Compaction::None,
        zero_period: PERIOD,
        zero_regions: PER_WAKE,
        zero_high_water: ahead,
        ..Parameters::default()
    };
    let setup =
        Setup { topology: frames.topology(), capabilities: frames.capabilities(), seed: 0, profile: None };
    let policy = Trident::new(parameters, setup).ok()?;
    frames.capabilities().lacks(policy.needs().capabilities).is_none().then_some(policy)
}

/// The thread.
fn serve(blocks: &Arc<Blocks>, ahead: u64) {
    let mut frames = PoolFrames::new(Arc::clone(blocks));
    let Some(mut policy) = policy(&frames, ahead) else { return };
    let begin = system::now();
    let mut stop = locked(&blocks.stop);
    while !*stop {
        drop(stop);
        let now = || Moment(system::now() - begin);
        let mut next = policy.on(now(), &[Signal::Tick], &mut frames);
        while let Some(signal) = frames.carry_out() {
            if let at @ NextTick::At(_) = policy.on(now(), &[signal], &mut frames) {
                next = at;
            }
        }
        let rest = match next {
            NextTick::At(at) => Duration::from_nanos(at.0.saturating_sub(now().0)),
            NextTick::Unchanged | NextTick::Never => Duration::from_nanos(PERIOD.0 / 1_000_000),
        };
        stop = locked(&blocks.stop);
        if !*stop {
            stop = blocks.stopped.wait_timeout(stop, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests;
