//! All measurements of a machine, in order.

use crate::analysis::{FaultCosts, split_faults};
use crate::bandwidth::{self, Kind};
use crate::chase::Chase;
use crate::clock::{OwnTime, Stretch, is_disturbed};
use crate::faults;
use crate::processor::Processor;
use crate::region::{HUGE, Pages, Region};
use crate::shootdown;
use crate::spread::Spread;

/// How much a calibration may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Most bytes mapped at a time.
    pub bytes: usize,
    /// Repetitions of each measurement.
    pub rounds: usize,
    /// Loads of each repetition of a chase.
    pub steps: usize,
}

impl Budget {
    /// About a minute, and a gigabyte.
    pub const FULL: Budget = Budget { bytes: 1 << 30, rounds: 11, steps: 300_000 };
    /// As little as runs at all; the results mean nothing.
    pub const TINY: Budget = Budget { bytes: 8 << 20, rounds: 1, steps: 500 };
}

/// Why a machine was not measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system gave no memory.
    #[error(
        "calibration of {what}: cannot map {bytes} bytes: {source}; free memory, or raise the limit (ulimit -v)"
    )]
    Memory {
        /// The measurement.
        what: &'static str,
        /// Bytes asked for.
        bytes: usize,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// What was found. Times are in nanoseconds, rates in bytes per second.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What the kernel says of the processor.
    pub processor: Processor,
    /// The share of a processor that the measurement had while it measured the clock; below 1 others ran as well.
    pub processor_share: f64,
    /// Cycles per second while one core is busy, where the processor is an x86-64 one.
    pub frequency: Option<Spread>,
    /// First store to a base page.
    pub base_fault: Spread,
    /// First store to a huge page whose frame the caches hold; none where the system gives no huge pages.
    pub huge_fault_held: Option<Spread>,
    /// First store to a huge page whose frame they do not hold.
    pub huge_fault: Option<Spread>,
    /// A load from each data cache, nearest first, on huge pages.
    pub cache_latency: Vec<Spread>,
    /// A load from memory, on huge pages.
    pub memory_latency: Spread,
    /// A load from memory while one core has as many under way as it can.
    pub memory_interval: Spread,
    /// Latency of a load over so many pages of 4 KiB, one line in each, less that of the same lines on huge pages.
    pub translation: Vec<(u64, f64)>,
    /// Bandwidth by kind, with one thread and with one on each processor.
    pub bandwidth: Vec<(Kind, usize, Spread)>,
    /// A pair of mprotect calls on one page, alone.
    pub protect_alone: Spread,
    /// The same beside threads on all other processors; none on a single processor.
    pub protect_beside: Option<Spread>,
}

impl Measured {
    /// The parts of a page fault, where they can be told apart.
    pub fn faults(&self) -> Option<FaultCosts> {
        let (held, cold) = (self.huge_fault_held?, self.huge_fault?);
        split_faults(self.base_fault.median, held.median, cold.median)
    }

    /// Whether other programs took so much of the processors that the values cannot be trusted.
    pub fn is_disturbed(&self) -> bool {
        is_disturbed(self.processor_share)
    }

    /// Lines that one core has under way at most: the latency of one over the time per line.
    pub fn lines_in_flight(&self) -> f64 {
        self.memory_latency.median / self.memory_interval.median
    }
}

/// Measures this machine. `progress` is called with the name of the measurement that comes next.
///
/// # Errors
/// The system gives no memory.
pub fn measure(budget: Budget, progress: &mut dyn FnMut(&str)) -> Result<Measured, Error> {
    let Budget { bytes, rounds, steps } = budget;
    let memory = |what, bytes| move |source| Error::Memory { what, bytes, source };
    let processor = Processor::here();

    progress("clock");
    let stretch = Stretch::begin();
    let frequency = frequency(rounds, steps);
    let processor_share = stretch.processor_share();

    progress("page faults");
    let base_bytes = bytes / 8;
    let what = "page faults";
    let base_fault =
        faults::first_store(base_bytes, Pages::Base, rounds).map_err(memory(what, base_bytes))?;
    let (mut huge_fault_held, mut huge_fault) = (None, None);
    if faults::gets_huge_pages() {
        huge_fault_held = Some(repeated_huge_faults(rounds).map_err(memory(what, HUGE))?);
        huge_fault = Some(faults::first_store(bytes, Pages::Huge, rounds).map_err(memory(what, bytes))?);
    }

    progress("latencies");
    let region = Region::map(bytes / 2, Pages::Huge).map_err(memory("latencies", bytes / 2))?;
    region.touch(4096);
    let chase = |bytes, chains| Chase::over_lines(&region, bytes, chains).run(steps, rounds);
    // No more than four times the cache before: neighbours take their share of a last level.
    let mut most = bytes / 2;
    let mut cache_latency = Vec::new();
    for (capacity, _) in &processor.caches {
        cache_latency.push(chase((*capacity as usize / 2).min(most), 1));
        most = (4 * *capacity as usize).min(bytes / 2);
    }
    let memory_latency = chase(bytes / 2, 1);
    progress("misses in flight");
    let intervals = [4, 8, 12, 16, 24, 32].map(|chains| chase(bytes / 2, chains));
    let shortest = intervals.into_iter().min_by(|one, next| one.median.total_cmp(&next.median));
    let memory_interval = shortest.unwrap_or(memory_latency);

    progress("translation");
    let small = Region::map(bytes / 8, Pages::Base).map_err(memory("translation", bytes / 8))?;
    let mut translation = Vec::new();
    let mut pages = 16;
    while pages * 4096 <= bytes / 8 {
        let [on_base, on_huge] =
            [&small, &region].map(|region| Chase::over_pages(region, pages).run(steps, rounds));
        translation.push((pages as u64, on_base.median - on_huge.median));
        pages *= 2;
    }
    drop((small, region));

    progress("bandwidths");
    let mut bandwidth = Vec::new();
    for kind in [Kind::Read, Kind::Write, Kind::Copy] {
        for threads in [1, processor.count] {
            let each = bytes / 2 / processor.count;
            let rate =
                bandwidth::measure(kind, threads, each, rounds).map_err(memory("bandwidths", bytes / 2))?;
            bandwidth.push((kind, threads, rate));
        }
    }
    bandwidth.dedup_by(|one, other| (one.0, one.1) == (other.0, other.1));

    progress("shootdowns");
    let protect = |others| shootdown::protect(others, rounds).map_err(memory("shootdowns", 4096));
    let protect_alone = protect(0)?;
    let protect_beside = if processor.count > 1 { Some(protect(processor.count - 1)?) } else { None };
    Ok(Measured {
        processor,
        processor_share,
        frequency,
        base_fault,
        huge_fault_held,
        huge_fault,
        cache_latency,
        memory_latency,
        memory_interval,
        translation,
        bandwidth,
        protect_alone,
        protect_beside,
    })
}

/// One huge page mapped, stored to and unmapped again and again: the kernel hands out the frame that it got back last.
fn repeated_huge_faults(rounds: usize) -> std::io::Result<Spread> {
    let mut medians = Vec::new();
    for _ in 0..rounds {
        medians.push(faults::first_store(HUGE, Pages::Huge, 15)?.median);
    }
    Ok(Spread::of(medians))
}

/// Cycles per second, by a chain of additions of one cycle each.
#[cfg(target_arch = "x86_64")]
fn frequency(rounds: usize, steps: usize) -> Option<Spread> {
    let mut rates = Vec::new();
    for round in 0..=rounds {
        let mut value = 0u64;
        let begin = OwnTime::now();
        for _ in 0..steps {
            // SAFETY: Adds to a register.
            unsafe {
                std::arch::asm!(".rept 100", "add {0}, 1", ".endr", inout(reg) value, options(nomem, nostack));
            }
        }
        let took = begin.nanos() / 1e9;
        // The first round wakes the core up.
        if round > 0 && value > 0 {
            rates.push(value as f64 / took);
        }
    }
    Some(Spread::of(rates))
}

#[cfg(not(target_arch = "x86_64"))]
fn frequency(_rounds: usize, _steps: usize) -> Option<Spread> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_calibration_measures_everything() {
        let mut reported = Vec::new();
        let measured = measure(Budget::TINY, &mut |what| reported.push(what.to_owned())).unwrap();
        assert_eq!(reported.len(), 7, "{reported:?}");
        assert!(measured.base_fault.median > 0.0 && measured.memory_latency.median > 0.0);
        assert!(measured.lines_in_flight() > 0.0);
        assert_eq!(measured.cache_latency.len(), measured.processor.caches.len());
        assert_eq!(measured.protect_beside.is_some(), measured.processor.count > 1);
        assert_eq!(measured.translation[0].0, 16);
        assert!(measured.bandwidth.iter().all(|(_, threads, rate)| *threads > 0 && rate.median > 0.0));
    }
}
