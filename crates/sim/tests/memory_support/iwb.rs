//! The IWB microbenchmark of Marques (Ambix, section 3.2.2) as a closed loop straight on two devices.
//!
//! Each thread visits its share of the pages in order, one line per page. N of each 100 pages are in DRAM, the last
//! 100 - N in DCPMM. A thread has a bounded number of misses outstanding, the two threads of a core share its fill
//! buffers. Write-only touches a line once to fetch it and once more when it leaves the caches; both count as accesses.

use terrace_model::Time;
use terrace_sim::memory::{Device, DeviceLine, DeviceParameters, Initiator, preset_table};

/// The processor's side.
#[derive(Clone, Debug)]
pub struct Processor {
    /// Misses outstanding per thread.
    pub thread_misses: usize,
    /// Misses outstanding per core of two threads.
    pub core_misses: usize,
    /// From the core to the controller and back.
    pub path: Time,
    /// Least time between two accesses of a thread.
    pub issue: Time,
    /// Pages visited between a line's fetch and its writeback: the last-level cache's lines.
    pub writeback_distance: u64,
}

impl Default for Processor {
    /// Xeon Gold 5218. `path` so that a random DRAM read takes 101 ns (Yang et al., FAST 2020); `thread_misses` and
    /// `core_misses` from the one- and two-thread cells of the 0 % and 100 % rows; the last level has 22 MiB.
    fn default() -> Processor {
        Processor {
            thread_misses: 7,
            core_misses: 10,
            path: Time::from_nanos(59),
            issue: Time::from_nanos(1),
            writeback_distance: 22 * 1024 * 1024 / 64,
        }
    }
}

/// A device preset; panics where the preset is broken, as only tests use it.
pub fn preset(name: &str) -> DeviceParameters {
    toml::from_str(preset_table(name).expect(name)).expect(name)
}

/// The two devices of a socket: DRAM and DCPMM.
pub fn devices() -> [Device; 2] {
    ["dcpmm-dram", "dcpmm-128"].map(|name| Device::new(&preset(name)).expect(name))
}

struct Thread {
    now: u64,
    page: u64,
    slots: Vec<u64>,
}

/// Throughput in million accesses per second, with `share` of each 100 pages in DRAM.
pub fn throughput(processor: &Processor, threads: usize, share: u64, write: bool, pages: u64) -> f64 {
    let mut devices = devices();
    let page_tables = 1u64 << 34;
    let line = |page: u64| {
        let (group, within) = (page / 100, page % 100);
        if within < share {
            (0, (group * share + within) * 64)
        } else {
            (1, (group * (100 - share) + within - share) * 64)
        }
    };
    // The first page visited lies one cache's worth into the array, so that writebacks begin at once.
    let first = processor.writeback_distance.next_multiple_of(100);
    let mut cores = vec![vec![0u64; processor.core_misses]; threads.div_ceil(2)];
    let mut state: Vec<Thread> = (0..threads as u64)
        .map(|n| Thread { now: 0, page: first + n, slots: vec![0; processor.thread_misses] })
        .collect();
    let (mut last, mut started, mut counted) = (0, 0, 0);
    let warm = pages / 4;
    // When each thread can issue its next access: a visit changes that of the threads of one core.
    let mut next_issues = vec![0; threads];
    for visit in 0..pages {
        let (index, issue) = next_issues
            .iter()
            .copied()
            .enumerate()
            .min_by_key(|&(_, issue)| issue)
            .expect("there is a thread");
        let page = state[index].page;
        let mut at = Time(issue);
        if page.is_multiple_of(8) {
            at = devices[0].read(DeviceLine(page_tables + page / 8), at, Initiator::Walk) + processor.path;
        }
        let (tier, address) = line(page);
        let mut done = devices[tier].read(DeviceLine(address), at, Initiator::Demand) + processor.path;
        if write {
            let (tier, address) = line(page - processor.writeback_distance);
            done = done.max(devices[tier].write(DeviceLine(address), at, Initiator::Writeback));
        }
        let replace = |slots: &mut [u64]| *slots.iter_mut().min().expect("not empty") = done.0;
        replace(&mut state[index].slots);
        replace(&mut cores[index / 2]);
        state[index].now = issue + processor.issue.0;
        state[index].page += threads as u64;
        let shared = *cores[index / 2].iter().min().expect("a core has slots");
        for thread in index / 2 * 2..threads.min(index / 2 * 2 + 2) {
            let own = *state[thread].slots.iter().min().expect("a thread has slots");
            next_issues[thread] = state[thread].now.max(own).max(shared);
        }
        if visit == warm {
            started = issue;
        } else if visit > warm {
            counted += if write { 2 } else { 1 };
        }
        last = issue;
    }
    counted as f64 / Time(last - started).as_secs() / 1e6
}

/// DRAM shares of the table's rows.
pub const SHARES: [u64; 21] =
    [0, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 90, 95, 100];
/// Figure 3.2, 32 threads: read-only, million accesses per second.
pub const READ_ONLY_32: [f64; 21] = [
    55.11, 58.03, 61.31, 64.41, 69.07, 73.87, 79.09, 85.47, 92.59, 101.45, 111.56, 123.84, 140.51, 162.34,
    189.84, 229.70, 276.67, 264.23, 245.90, 230.93, 217.64,
];
/// Figure 3.3, 32 threads: write-only.
pub const WRITE_ONLY_32: [f64; 21] = [
    20.91, 21.94, 23.24, 24.33, 26.12, 28.11, 29.84, 32.72, 34.83, 38.20, 41.78, 47.43, 52.44, 59.79, 70.69,
    86.76, 107.77, 149.43, 206.29, 203.45, 196.84,
];
/// Thread counts of the calibration columns.
pub const THREADS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Figures 3.2 and 3.3, rows 0 % and 100 %, by thread count: what constants were fitted to.
pub const CALIBRATION: [(bool, u64, [f64; 6]); 4] = [
    (false, 0, [21.93, 32.28, 39.84, 54.79, 55.11, 55.11]),
    (false, 100, [63.46, 81.09, 136.55, 209.58, 216.70, 217.64]),
    (true, 0, [15.52, 19.63, 20.80, 20.93, 20.94, 20.91]),
    (true, 100, [83.47, 127.33, 169.20, 183.05, 181.91, 196.84]),
];
