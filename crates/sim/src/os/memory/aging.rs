//! What a long life does to memory: the methods by which the sources fragment theirs.

use super::parameters::MemoryParameters;
use super::{Aging, Owner, Snapshot, TierMemory};
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_model::{Bytes, Frame, PageSize, Time};
use terrace_policy::Random;

/// Builds beyond those asked for, and passes of reads, that are tried to reach a fragmentation index.
const MOST_EXTRA: u32 = 16;

/// Largest memory of one short process of a build, in frames: 64 MiB.
const PROCESS: u64 = 16 << 10;

/// Processes of a build that run beside each other.
const JOBS: usize = 24;

/// Lets a fresh memory age. Where `stop` is set from outside, the memory stays as it is at that moment, which is no error:
/// the caller looks at the flag as well.
///
/// # Errors
/// A fragmentation index that is not reached, or a snapshot that does not fit or cannot be read.
pub fn age(memory: &mut TierMemory, aging: &Aging, stop: Option<&AtomicBool>) -> Result<(), String> {
    match aging {
        Aging::None => Ok(()),
        Aging::PageCache { reads, dropped, kernel, fmfi, seed } => {
            let mut life =
                Life { memory, random: Random::new(*seed), kernel_due: 0.0, kernel: *kernel, stop };
            life.fill_page_cache(*reads, *dropped, *fmfi)
        }
        Aging::Builds { rounds, kernel, residents, fmfi, seed } => {
            let share = *kernel / f64::from(*rounds);
            let mut life = Life { memory, random: Random::new(*seed), kernel_due: 0.0, kernel: share, stop };
            life.builds(*rounds, *residents, *fmfi)
        }
        Aging::Snapshot { file } => Snapshot::read(file)?.restore(memory),
    }
}

impl Snapshot {
    /// Lets a tier of so many bytes go through what the parameters say, before the system takes its own.
    ///
    /// # Errors
    /// Aging that does not reach what it is to reach, or a file that cannot be used.
    pub fn aged(tier: &str, capacity: Bytes, parameters: &MemoryParameters) -> Result<Snapshot, String> {
        let mut memory = TierMemory::new(tier, Frame(0), capacity.0 >> 12, parameters);
        age(&mut memory, &parameters.aging, None)?;
        Ok(Snapshot::of(&memory))
    }
}

/// A memory while it ages.
struct Life<'a> {
    memory: &'a mut TierMemory,
    random: Random,
    /// Frames that the kernel is to take for itself: so many for each page that others take, and what is due now.
    kernel: f64,
    kernel_due: f64,
    /// Set from outside to end early.
    stop: Option<&'a AtomicBool>,
}

impl Life<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    fn fragmentation(&self) -> f64 {
        self.memory.buddy().fragmentation_index(PageSize::Huge.order())
    }

    fn kernel_allocates(&mut self, beside: u64) {
        self.kernel_due += self.kernel * beside as f64;
        while self.kernel_due >= 1.0 {
            self.kernel_due -= 1.0;
            self.memory.take(PageSize::Base, Owner::Kernel, Time::ZERO);
        }
    }

    /// One file as large as memory, read once from its beginning, then at random.
    fn fill_page_cache(&mut self, reads: f64, dropped: f64, fmfi: Option<f64>) -> Result<(), String> {
        let pages = self.memory.frames();
        // Where each page of the file lies; what was evicted lies where something else is now.
        let mut file: Vec<u32> = Vec::with_capacity(pages as usize);
        let mut page_in: Vec<u32> = vec![u32::MAX; pages as usize];
        for page in 0..pages {
            if self.is_stopped() {
                return Ok(());
            }
            let Some(frame) = self.memory.cache_page() else { break };
            file.push(frame as u32);
            page_in[frame as usize] = page as u32;
            self.kernel_allocates(1);
        }
        let mut wanted = (reads * pages as f64) as u64;
        for _ in 0..=MOST_EXTRA {
            for _ in 0..wanted {
                if self.is_stopped() {
                    return Ok(());
                }
                let page = self.random.below(file.len() as u64);
                let frame = file[page as usize];
                if page_in[frame as usize] == page as u32 && self.memory.is_cached(u64::from(frame)) {
                    self.memory.touch_cached(u64::from(frame));
                } else if let Some(frame) = self.memory.cache_page() {
                    file[page as usize] = frame as u32;
                    page_in[frame as usize] = page as u32;
                }
            }
            // What is dropped frees whole blocks here and there, so that the index is only known afterwards.
            let keep = (self.memory.cached() as f64 * (1.0 - dropped)) as u64;
            let free = self.memory.buddy().free_frames() + self.memory.cached() - keep;
            self.memory.reclaim(free);
            if fmfi.is_none_or(|least| self.fragmentation() >= least) {
                return Ok(());
            }
            wanted = pages;
        }
        Err(self.not_reached(fmfi, "reads"))
    }

    fn builds(&mut self, rounds: u32, residents: f64, fmfi: Option<f64>) -> Result<(), String> {
        let mut round = 0;
        while round < rounds + MOST_EXTRA {
            self.build();
            self.touch_everything();
            if self.is_stopped() {
                return Ok(());
            }
            round += 1;
            if round >= rounds {
                self.memory.reclaim(u64::MAX);
                self.cache_anywhere((residents * self.memory.frames() as f64).round() as u64);
                if fmfi.is_none_or(|least| self.fragmentation() >= least) {
                    return Ok(());
                }
            }
        }
        Err(self.not_reached(fmfi, "rounds"))
    }

    /// Pages of files come into free frames at random, as many as asked for where there are so many.
    fn cache_anywhere(&mut self, pages: u64) {
        let mut left = pages.min(self.memory.buddy().free_frames());
        while left > 0 && !self.is_stopped() {
            let frame = self.memory.base.plus(self.random.below(self.memory.frames()));
            if self.memory.take_at(frame, PageSize::Base, Owner::Taken, Time::ZERO) {
                self.memory.release_cached(frame);
                left -= 1;
            }
        }
    }

    /// Short processes, some at a time, beside pages of files and objects of the kernel; until as much was allocated as
    /// there is memory.
    fn build(&mut self) {
        let mut jobs: Vec<(u64, Vec<Frame>)> = Vec::new();
        let mut allocated = 0;
        while allocated < self.memory.frames() && !self.is_stopped() {
            while jobs.len() < JOBS {
                jobs.push((1 + self.random.below(PROCESS.min(self.memory.frames() / 64).max(1)), Vec::new()));
            }
            let at = self.random.below(jobs.len() as u64) as usize;
            // A process runs for a while, then another.
            let burst = 1 + self.random.below(64);
            let (wants, frames) = &mut jobs[at];
            for _ in 0..burst.min(*wants - frames.len() as u64) {
                let block = self.memory.take(PageSize::Base, Owner::Taken, Time::ZERO);
                frames.extend(block.map(|block| block.frame));
            }
            allocated += burst;
            for _ in 0..burst.div_ceil(4) {
                self.memory.cache_page();
            }
            let (wants, frames) = &jobs[at];
            let over = frames.len() as u64 >= *wants || self.memory.buddy().free_frames() == 0;
            self.kernel_allocates(burst);
            if over {
                let (_, frames) = jobs.swap_remove(at);
                self.free(&frames);
            }
        }
        while !jobs.is_empty() {
            let at = self.random.below(jobs.len() as u64) as usize;
            let (_, frames) = jobs.swap_remove(at);
            self.free(&frames);
        }
    }

    fn free(&mut self, frames: &[Frame]) {
        for frame in frames {
            self.memory.give_back(*frame, Time::ZERO);
        }
    }

    /// A program that touches all memory that it can get, and ends.
    fn touch_everything(&mut self) {
        self.memory.reclaim(u64::MAX);
        let mut held = Vec::new();
        for size in [PageSize::Huge, PageSize::Base] {
            while !self.is_stopped()
                && let Some(block) = self.memory.take(size, Owner::Taken, Time::ZERO)
            {
                held.push(block.frame);
            }
        }
        self.free(&held);
    }

    fn not_reached(&self, fmfi: Option<f64>, by: &str) -> String {
        format!(
            "os.memory.aging.fmfi: {:.3} is not reached, memory is at {:.3} after {MOST_EXTRA} times more {by} than \
             asked for; ask for less, or for more of the kernel's own (os.memory.aging.kernel)",
            fmfi.unwrap_or_default(),
            self.fragmentation()
        )
    }
}

impl TierMemory {
    fn is_cached(&self, at: u64) -> bool {
        matches!(self.owners.get(at as usize).owner(), Some(Owner::Cache(_)))
    }
}
