//! Promiscuous read-only caching: pages that nobody writes may be cached by everybody.
//!
//! **What it does.** When a kernel begins, all pages of the CPU's memory are read-only, and the GPU caches their lines. The
//! first store to a page is a fault: the page becomes writable, the GPU's copies and translations of it are dropped, and for
//! the rest of the kernel the GPU does not cache it. The faulting warp waits, and so does whoever else touches the page;
//! other warps go on, until an SM has sixteen faults pending: with the seventeenth it issues nothing.
//!
//! **Source.** Agarwal 2017, sections 5.2.3, 5.3 and 5.4.2.
//!
//! **Left open there, and chosen here.** Faults do not wait for each other at the CPU. A page has one fault, whoever stores
//! to it meanwhile. Marking pages takes no time. They stay marked between kernels, so that a store of the CPU faults as
//! well. Lines of the GPU's own memory that the CPU holds could be cached by the same reasoning; as in the source's
//! simulation they are not. The advised limit on the rate of faults counts from the sixteenth fault of a kernel on.

use super::parameters::ReadOnlyParameters;
use crate::gpu::faults::PendingFaults;
use std::collections::{HashMap, HashSet};
use terrace_model::{Frame, Time};

/// Faults of a kernel before their rate says anything.
const FIRST_FAULTS: u64 = 16;

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadOnlyCounters {
    /// Pages that a store of the GPU made writable.
    pub gpu_faults: u64,
    /// Pages that a store of the CPU made writable.
    pub cpu_faults: u64,
    /// Faults that found their SM with as many pending as it may have.
    pub blocked: u64,
    /// Kernels in which too many faults ended it.
    pub given_up: u64,
}

/// The pages of the CPU's memory, by frame.
#[derive(Debug)]
pub struct ReadOnly {
    parameters: ReadOnlyParameters,
    /// Pages that were written since the last kernel began.
    writable: HashSet<Frame>,
    /// Pages whose fault is not over.
    pending: HashMap<Frame, Time>,
    /// Faults of SMs.
    faults: PendingFaults,
    /// A kernel has begun, and this kernel's faults are few enough.
    active: bool,
    began: Time,
    of_kernel: u64,
    pub counters: ReadOnlyCounters,
}

impl ReadOnly {
    /// No kernel has begun.
    pub fn new(parameters: &ReadOnlyParameters, sms: u32) -> ReadOnly {
        ReadOnly {
            parameters: parameters.clone(),
            writable: HashSet::new(),
            pending: HashMap::new(),
            faults: PendingFaults::new(parameters.pending, sms),
            active: false,
            began: Time::ZERO,
            of_kernel: 0,
            counters: ReadOnlyCounters::default(),
        }
    }

    /// All pages are read-only.
    pub fn begin_kernel(&mut self, now: Time) {
        self.writable.clear();
        self.pending.clear();
        (self.active, self.began, self.of_kernel) = (true, now, 0);
    }

    /// Whether a page is read-only.
    pub fn is_read_only(&self, frame: Frame) -> bool {
        self.active && !self.writable.contains(&frame)
    }

    /// Until when an SM issues nothing.
    pub fn blocked_until(&self, sm: usize) -> Time {
        self.faults.blocked_until(sm)
    }

    /// When an access to a page at `now` goes on.
    pub fn wait(&self, frame: Frame, now: Time) -> Time {
        self.pending.get(&frame).map_or(now, |done| now.max(*done))
    }

    /// A store of an SM to a read-only page: when it is carried out, after the walk that takes `walk`.
    pub fn gpu_fault(&mut self, sm: usize, frame: Frame, now: Time, walk: Time) -> Time {
        self.counters.gpu_faults += 1;
        self.of_kernel += 1;
        let done = self.faults.fault(sm, now, self.parameters.gpu_fault);
        self.counters.blocked = self.faults.waited;
        self.writable.insert(frame);
        self.pending.insert(frame, done + walk);
        done + walk
    }

    /// Whether this kernel's faults are more than the limit allows; asked after each.
    pub fn gives_up(&mut self, now: Time) -> bool {
        let span = now.saturating_sub(self.began).as_secs() * 1e3;
        let limit = self.parameters.limit;
        let is_over = limit > 0.0 && self.of_kernel >= FIRST_FAULTS && self.of_kernel as f64 > limit * span;
        if is_over && self.active {
            self.active = false;
            self.counters.given_up += 1;
            return true;
        }
        false
    }

    /// A store of the CPU to a page: what its fault takes, if it faults.
    pub fn cpu_store(&mut self, frame: Frame) -> Option<Time> {
        if !self.is_read_only(frame) {
            return None;
        }
        self.counters.cpu_faults += 1;
        self.writable.insert(frame);
        Some(self.parameters.cpu_fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALK: Time = Time::from_nanos(100);

    fn us(micros: u64) -> Time {
        Time::from_nanos(1000 * micros)
    }

    fn read_only(change: impl FnOnce(&mut ReadOnlyParameters)) -> ReadOnly {
        let mut parameters = ReadOnlyParameters { enabled: true, ..ReadOnlyParameters::default() };
        change(&mut parameters);
        let mut pages = ReadOnly::new(&parameters, 2);
        assert!(!pages.is_read_only(Frame(1)), "no kernel has begun");
        pages.begin_kernel(us(100));
        pages
    }

    #[test]
    fn the_seventeenth_fault_blocks_its_sm_until_the_first_is_over() {
        let mut pages = read_only(|_| {});
        for frame in 0..16 {
            assert_eq!(pages.gpu_fault(0, Frame(frame), us(100 + frame), WALK), us(120 + frame) + WALK);
            assert_eq!(pages.blocked_until(0), Time::ZERO);
        }
        assert_eq!(
            pages.gpu_fault(0, Frame(16), us(117), WALK),
            us(140) + WALK,
            "it begins when the first ends"
        );
        assert_eq!((pages.blocked_until(0), pages.blocked_until(1)), (us(120), Time::ZERO));
        assert_eq!(pages.gpu_fault(1, Frame(17), us(117), WALK), us(137) + WALK, "another SM");
        assert_eq!((pages.counters.gpu_faults, pages.counters.blocked), (18, 1));
    }

    #[test]
    fn a_page_is_writable_for_the_rest_of_the_kernel_and_others_wait_for_its_fault() {
        let mut pages = read_only(|_| {});
        assert!(pages.is_read_only(Frame(5)));
        pages.gpu_fault(0, Frame(5), us(100), WALK);
        assert!(!pages.is_read_only(Frame(5)) && pages.is_read_only(Frame(6)));
        assert_eq!(pages.wait(Frame(5), us(110)), us(120) + WALK);
        assert_eq!((pages.wait(Frame(5), us(130)), pages.wait(Frame(6), us(110))), (us(130), us(110)));
        pages.begin_kernel(us(200));
        assert!(pages.is_read_only(Frame(5)));
        assert_eq!(pages.cpu_store(Frame(5)), Some(us(4)));
        assert_eq!((pages.cpu_store(Frame(5)), pages.is_read_only(Frame(5))), (None, false));
    }

    #[test]
    fn too_many_faults_end_it_for_the_kernel() {
        let mut pages = read_only(|parameters| parameters.limit = 1000.0);
        for frame in 0..15 {
            pages.gpu_fault(0, Frame(frame), us(101), WALK);
            assert!(!pages.gives_up(us(101)), "too few to say");
        }
        pages.gpu_fault(1, Frame(15), us(101), WALK);
        assert!(pages.gives_up(us(101)), "16 in a microsecond");
        assert!(!pages.is_read_only(Frame(99)) && !pages.gives_up(us(101)), "once");
        pages.begin_kernel(us(200));
        assert!(pages.is_read_only(Frame(99)));
        let mut endless = read_only(|_| {});
        for frame in 0..1000 {
            endless.gpu_fault(0, Frame(frame), us(101), WALK);
        }
        assert!(!endless.gives_up(us(101)), "no limit");
    }
}
