//! Threads of the CPU that access memory while a program's kernels run.
//!
//! The first thread enqueues each kernel, goes on with its share of accesses and waits for the kernel; further threads
//! neither enqueue nor wait. Accesses are of eight bytes, a line apart, from one end of the data to the other and again.

use crate::layout::Layout;
use crate::memory::Memory;
use crate::parameters::*;
use crate::program::{Kernel, Progress, share};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_model::{AddressRange, Bytes};
use terrace_trace::{Event, MarkKind};

/// Bytes from one access to the next.
const STRIDE: u64 = 64;
/// Load or store, advance, compare and branch.
const INSTRUCTIONS: u16 = 4;
/// Accesses of a step.
const STEP: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Parameters)]
pub(crate) struct Beside {
    /// Threads of the CPU that access memory while kernels run. With none the kernels run alone.
    #[parameter(name = "cpu_threads", default = 0, range = 0..=256, unit = "threads")]
    pub threads: u32,
    /// Accesses of each such thread for each launch. The first thread then waits for the kernel.
    #[parameter(name = "cpu_accesses", default = 100000, range = 0..=1_000_000_000, unit = "accesses")]
    pub accesses: u64,
    /// Share of these that are stores.
    #[parameter(name = "cpu_stores", default = 0.0, range = 0.0..=1.0, unit = "share")]
    pub stores: f64,
    /// What they access.
    #[parameter(name = "cpu_data")]
    pub data: CpuData,
    /// Size of the threads' own data.
    #[parameter(name = "cpu_bytes", default = "16 MiB", range = "64 KiB"..="1 TiB")]
    pub bytes: Bytes,
}

/// What threads of the CPU access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Choice)]
pub(crate) enum CpuData {
    /// The data structures of the kernels.
    #[default]
    Shared,
    /// A data structure of their own, `cpu_data`.
    Own,
}

impl Beside {
    /// Where the threads' accesses go.
    pub fn place(&self, layout: &mut Layout) -> Vec<AddressRange> {
        match (self.threads, self.data) {
            (0, _) => Vec::new(),
            (_, CpuData::Shared) => layout.structures.iter().map(|structure| structure.range).collect(),
            (_, CpuData::Own) => {
                vec![AddressRange::new(layout.array("cpu_data", self.bytes.0), self.bytes.0)]
            }
        }
    }

    /// Accesses of all threads.
    pub fn accesses(&self, launches: u64) -> u64 {
        (u64::from(self.threads) * self.accesses).saturating_mul(launches)
    }
}

/// Kernels that were enqueued and those that are over, of one run. A copy of a program is another run.
#[derive(Debug, Default)]
pub(crate) struct Kernels(Arc<[AtomicU64; 2]>);

impl Clone for Kernels {
    fn clone(&self) -> Kernels {
        Kernels::default()
    }
}

impl Kernels {
    /// Another handle of this run.
    pub fn shared(&self) -> Kernels {
        Kernels(Arc::clone(&self.0))
    }

    pub fn enqueue(&self) {
        self.0[0].fetch_add(1, Ordering::Release);
    }

    pub fn end(&self) {
        self.0[1].fetch_add(1, Ordering::Release);
    }

    pub fn enqueued(&self) -> u64 {
        self.0[0].load(Ordering::Acquire)
    }

    fn over(&self) -> u64 {
        self.0[1].load(Ordering::Acquire)
    }
}

/// One of the threads.
pub(crate) struct CpuThread {
    ranges: Vec<AddressRange>,
    /// Accesses in all of them, those of this thread, and the next.
    own: std::ops::Range<u64>,
    at: u64,
    accesses: u64,
    stores: f64,
    launches: u64,
    /// Launches that are over, and accesses since.
    launch: u64,
    done: u64,
    /// The kernels of the first thread.
    kernels: Option<Kernels>,
    enqueued: bool,
}

impl CpuThread {
    /// Thread `index`; the first gets `kernels`.
    pub fn new(
        beside: &Beside,
        ranges: &[AddressRange],
        index: u32,
        launches: u64,
        kernels: Option<Kernels>,
    ) -> CpuThread {
        let strides = ranges.iter().map(|range| range.bytes / STRIDE).sum();
        let own = share(strides, index, beside.threads);
        // More threads than lines all go through everything.
        let own = if own.is_empty() { 0..strides } else { own };
        CpuThread {
            ranges: ranges.to_vec(),
            at: own.start,
            own,
            accesses: beside.accesses,
            stores: beside.stores,
            launches,
            launch: 0,
            done: 0,
            kernels,
            enqueued: false,
        }
    }

    /// The address of an access.
    fn address(&self, mut at: u64) -> Option<u64> {
        self.ranges.iter().find_map(|range| {
            let strides = range.bytes / STRIDE;
            if at < strides {
                return Some(range.start.0 + at * STRIDE);
            }
            at -= strides;
            None
        })
    }

    fn mark(memory: &mut impl Memory, kind: MarkKind) {
        memory.event(Event::Mark { kind, name: String::new(), value: 0 });
    }
}

impl Kernel for CpuThread {
    fn step<M: Memory>(&mut self, memory: &mut M) -> Progress {
        if self.launch == self.launches {
            return Progress::Done;
        }
        if let Some(kernels) = &self.kernels
            && !std::mem::replace(&mut self.enqueued, true)
        {
            Self::mark(memory, MarkKind::KernelEnqueue);
            kernels.enqueue();
        }
        let until = self.accesses.min(self.done + STEP);
        for number in self.done..until {
            let Some(address) = self.address(self.at) else { break };
            // Stores lie evenly between loads.
            let stores = |accesses: u64| (accesses as f64 * self.stores) as u64;
            if stores(number + 1) > stores(number) {
                memory.touch(address, INSTRUCTIONS);
            } else {
                memory.load_payload::<u64>(address, 0, INSTRUCTIONS);
            }
            self.at += 1;
            if self.at == self.own.end {
                self.at = self.own.start;
            }
        }
        self.done = until;
        if self.done < self.accesses {
            return Progress::Working;
        }
        if let Some(kernels) = &self.kernels {
            if kernels.over() <= self.launch {
                return Progress::Blocked;
            }
            Self::mark(memory, MarkKind::KernelWait);
        }
        (self.launch, self.done, self.enqueued) = (self.launch + 1, 0, false);
        if self.launch == self.launches { Progress::Done } else { Progress::Working }
    }
}
